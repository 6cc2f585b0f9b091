"""Pictures: what is drawn, and what cannot be."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

import simgpu
from simgpu.cli import app
from simgpu.errors import MissingExtraError, OutputError, SimgpuError
from simgpu.hardware.load import load_profile
from simgpu.report.plot import plot_errors, plot_roofline
from simgpu.report.roofline import roofline
from simgpu.validation.compare import Compared


@dataclass
class Ran:
    schedule: str
    counters: dict[str, float]
    spills: int = 0
    kernel: str | None = None


COMPARED = [
    Compared(Ran("fa2", {"cycles": 1000.0}), {"cycles": 1100.0}),
    Compared(Ran("fa2", {"cycles": 4000.0}), {"cycles": 3200.0}),
    Compared(Ran("fa3", {"cycles": 2000.0}), {"cycles": 2000.0}),
    Compared(Ran("fa3", {"cycles": 2000.0}), {}, "refused"),
]


def comments(path):
    """What matplotlib writes in an SVG beside the shapes of letters: the texts."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"))


def test_errors_have_a_legend_with_each_family(tmp_path):
    path = tmp_path / "errors.svg"
    plot_errors(path, COMPARED)
    texts = comments(path)
    assert "fa2: 2 runs, 15.0% off" in texts
    assert "fa3: 1 run, 0.0% off" in texts
    assert {"measured cycles", "predicted cycles"} <= set(texts)


def test_a_roofline_has_its_roofs_and_schedules(tmp_path):
    problem = simgpu.Attention(batch=1, heads_q=8, seq_q=512, head_dim=64)
    run = simgpu.run("fa2", problem, "h100", clock="sustained")
    found = roofline(load_profile("h100"), run.clock_mhz, [run])
    path = tmp_path / "roofline.svg"
    plot_roofline(path, found)
    texts = comments(path)
    assert f"fa2: {run.tflops:.0f} TFLOP/s" in texts
    assert "HBM: 2.9 TB/s" in texts
    assert "tensor peak 989 TFLOP/s" in texts


def test_nothing_to_draw(tmp_path):
    with pytest.raises(SimgpuError, match="no run has registers both measured and predicted"):
        plot_errors(tmp_path / "x.png", COMPARED, "registers")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.txt", r"no format \.txt; give a name that ends in \.png"),
        ("x", "no format; give a name"),
        ("nowhere/x.png", "no such file or directory"),
    ],
)
def test_a_file_that_cannot_be_written(tmp_path, name, message):
    with pytest.raises(OutputError, match=message):
        plot_errors(tmp_path / name, COMPARED)


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r'matplotlib .*: pip install "simgpu\[report\]"'):
        plot_errors(tmp_path / "x.png", COMPARED)


def test_validate_draws(tmp_path):
    path = tmp_path / "errors.png"
    done = CliRunner().invoke(app, ["validate", "--every", "150", "--plot", str(path)])
    assert done.exit_code == 0, done.output
    assert path.read_bytes().startswith(b"\x89PNG")
    done = CliRunner().invoke(app, ["validate", "--plot", str(tmp_path / "x.txt")])
    assert done.exit_code == 2
    assert "no format .txt" in done.stderr
