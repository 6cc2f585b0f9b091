"""Builds the wheel and the sdist, installs each in a clean environment, and runs it elsewhere.

A program, not a pytest module: `python tests/wheel_test.py`. It shows that package data, the
symlinked folders and the entry points arrive.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def call(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Build both; the wheel is made from the sdist, so the sdist is complete."""
    call(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def install(wheel: Path, folder: Path) -> Path:
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    call(python, *pip, wheel, cwd=folder)
    return python.with_name("simgpu")


def profiles(simgpu: Path, cwd: Path) -> bool:
    """All profiles of the checkout are in the wheel."""
    names = {row["name"] for row in json.loads(call(simgpu, "profiles", "--json", cwd=cwd))}
    return names == {path.stem for path in (ROOT / "hw_profiles").glob("*.yaml")}


def run(simgpu: Path, cwd: Path) -> bool:
    """A prediction, as text and as JSON."""
    command = (simgpu, "run", "fa2", "--gpu", "h200", "--batch", "1", "--heads", "2")
    result = json.loads(call(*command, "--json", cwd=cwd))
    text = call(*command, cwd=cwd)
    return result["schema"] == "simgpu.run/1" and "GPU Speed Of Light Throughput" in text


def schedules(simgpu: Path, cwd: Path) -> bool:
    """The schedules' entry points load from the symlinked folder."""
    names = {row["name"] for row in json.loads(call(simgpu, "schedules", "--json", cwd=cwd))}
    return {"fa1", "fa2", "standard"} <= names


def kernels(simgpu: Path, cwd: Path) -> bool:
    """Kernels and measured data are there, under simgpu and nowhere else."""
    code = (
        "import simgpu, pathlib, importlib.util as u; p = pathlib.Path(simgpu.__file__).parent; "
        "print((p / 'kernels/fa2.py').is_file(), (p / 'py.typed').is_file(), "
        "any((p / 'validation/measured').rglob('*.json*')), "
        "any((p / 'validation/published').glob('*.yaml')), "
        "(p / 'report/assets/run.jinja').is_file() and (p / 'report/assets/dom.js').is_file(), "
        "u.find_spec('algorithms'), u.find_spec('kernels'))"
    )
    python = simgpu.with_name("python")
    return call(python, "-c", code, cwd=cwd).split() == ["True"] * 5 + ["None"] * 2


def main() -> None:
    failed = passed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, _ = build(folder)
        simgpu, elsewhere = install(wheel, folder), folder / "elsewhere"
        elsewhere.mkdir()
        for test in (profiles, run, schedules, kernels):
            good = test(simgpu, elsewhere)
            passed, failed = passed + good, failed + (not good)
            print(f"{test.__name__}: {'pass' if good else 'FAIL'}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
