"""Every code block of every page works, and prints what stands below it.

Blocks of sh run in a shell, of python as a program, one page in one folder. What a page says of a
block stands in a line of its own before it:

- "File `NAME`:" makes it a file in that folder;
- "*Needs `simgpu[EXTRA]`.*" runs it where the extra is installed (kernels: in `make test-kernels`);
- "*Not run by the tests: REASON.*" is for what needs a GPU, and for nothing else;
- the comment "status N" says how it ends.

The lines of a `text` block must be in the output of the block above, with numbers replaced by N:
predictions move, words do not. A line "..." stands for some lines. With --update-golden the numbers
are brought up to date. Blocks of console are what a newcomer types in a checkout; their make
targets and extras must exist.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from simgpu.hardware.sections import SECTIONS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    if "_build" not in path.parts
)
BLOCK = re.compile(
    r"(?:^(?:\*Needs `simgpu\[(?P<needs>\w+)\]`\.\*|"
    r"\*Not run by the tests: (?P<why>[^\n]+)\.\*)\n\n)?"
    r"(?:^File `(?P<file>[^`]+)`:\n\n)?(?:^<!-- status (?P<status>\d+) -->\n)?"
    r"^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
#: What an extra is recognised by.
MODULES = {"kernels": "triton", "report": "pandas", "sweep": "joblib"}
RUN = ("sh", "python")
NUMBER = re.compile(r"\d[\d,.]*")


class Block(NamedTuple):
    needs: str | None
    why: str | None
    file: str | None
    status: str | None
    language: str
    text: str


def blocks(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(**m.groupdict()) for m in BLOCK.finditer(text)]


def cases():
    """Yield each page with each extra that blocks of it need."""
    for page in PAGES:
        runs = [b for b in blocks(page) if b.language in RUN and not b.file and not b.why]
        for needs in sorted({b.needs or "" for b in runs}):
            marks = [pytest.mark.kernels] if needs == "kernels" else []
            yield pytest.param(page, needs or None, id=f"{page} {needs}".strip(), marks=marks)


def execute(block, folder):
    """Run a block; the entry point is on the PATH as in an activated environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = (
        ["bash", "-ec", block.text]
        if block.language == "sh"
        else [sys.executable, "-c", block.text]
    )
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == int(block.status or 0), f"{block.text}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def shape(line):
    """A line without its numbers and spaces."""
    return " ".join(NUMBER.sub("N", line).split())


def check_output(text, output):
    """Look for each line of ``text`` in the output; cells of a table wrap, so line ends go."""
    flat = shape(output.replace("\n", " "))
    for line in text.splitlines():
        wanted = shape(line).removesuffix("...").rstrip()
        assert wanted in flat, f"{wanted!r} is not in the output:\n{output}"


def refreshed(text, output):
    """``text`` with each line as the output has it now, where one line alone has its shape.

    Of several, the one that begins with the same number is meant.
    """
    now = {}
    for line in output.splitlines():
        now.setdefault(shape(line), set()).add(line.strip())
    lines = []
    for line in text.splitlines():
        found = now.get(shape(line), set())
        if len(found) > 1:
            found = {x for x in found if NUMBER.findall(x)[0] == NUMBER.findall(line)[0]}
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(indent + next(iter(found)) if len(found) == 1 else line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("page", "needs"), list(cases()))
def test_code_blocks_work(page, needs, tmp_path, pytestconfig):
    if needs and not find_spec(MODULES[needs]):
        pytest.skip(f"needs simgpu[{needs}]")
    output = None
    for block in blocks(page):
        if block.file:
            path = tmp_path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language in RUN:
            mine = block.needs == needs and not block.why
            output = execute(block, tmp_path) if mine else None
        elif block.language == "text" and output is not None:
            check_output(block.text, output)
            if pytestconfig.getoption("--update-golden"):
                path, now = ROOT / page, refreshed(block.text, output)
                path.write_text(path.read_text("utf-8").replace(block.text, now), encoding="utf-8")


def test_numbers_are_refreshed_where_one_line_has_the_shape():
    output = " Cycles   cycle  98,765\nrow 1: 2\nrow 2: 3\nrow 2: 4\n"
    text = "  Cycles   cycle     4\nrow 1: 8\nrow 2: 8\n...\n"
    assert refreshed(text, output) == "  Cycles   cycle  98,765\nrow 1: 2\nrow 2: 8\n...\n"


def test_the_check_that_compares_output_can_fail():
    check_output(" Elapsed Cycles   cycle  98,765\n...\nWaits ...", "Elapsed Cycles cycle 1 Waits")
    with pytest.raises(AssertionError, match="Elapsed Time"):
        check_output("Elapsed Time 3", "Elapsed Cycles cycle 1")


@pytest.mark.parametrize("page", PAGES)
def test_no_block_and_no_remark_about_one_is_overlooked(page):
    text, found = (ROOT / page).read_text(encoding="utf-8"), blocks(page)
    assert len(found) == len(re.findall(r"^```\w+$", text, re.MULTILINE))
    for start, kept in (
        ("*Needs `simgpu[", [b.needs for b in found]),
        ("*Not run by", [b.why for b in found]),
        ("File `", [b.file for b in found]),
        ("<!-- status", [b.status for b in found]),
    ):
        stated = sum(line.startswith(start) for line in text.splitlines())
        assert stated == sum(value is not None for value in kept), start


@pytest.mark.parametrize("page", PAGES)
def test_what_a_workflow_runs_is_run_on_its_page(page):
    found = blocks(page)
    for block in found:
        if block.file and ".github/workflows" in block.file:
            jobs = yaml.safe_load(block.text)["jobs"].values()
            steps = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
            own = [step for step in steps if not step.startswith("pip install")]
            assert own
            run_here = [line for b in found if b.language == "sh" for line in b.text.splitlines()]
            assert set(own) <= set(run_here)


def test_only_what_needs_a_gpu_is_not_run():
    assert {b.why for page in PAGES for b in blocks(page)} <= {None, "needs an NVIDIA GPU"}


@pytest.mark.parametrize("page", PAGES)
def test_what_a_newcomer_types_exists(page):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = "\n".join(b.text for b in blocks(page) if b.language == "console")
    for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE):
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)
    named = re.findall(r"\[([\w,]+)\]\"?$", text, re.MULTILINE)
    assert {e for some in named for e in some.split(",")} <= set(extras["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES)
def test_links_inside_the_repository_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


def test_the_background_names_only_numbers_that_profiles_have():
    known = {name for model in SECTIONS.values() for name in model.model_fields}
    units = ("_cycles", "_bytes", "_share", "_slots", "_sms", "_mhz", "_score", "_efficiency")
    text = (ROOT / "docs/background/machine.md").read_text(encoding="utf-8")
    named = {n for n in re.findall(r"`([a-z0-9_]+)`", text) if n.endswith(units)}
    assert len(named) > 8
    assert named <= known
