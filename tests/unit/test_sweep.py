"""Sweeps: a row a point, whatever becomes of it."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

import simgpu
from simgpu.cli import app
from simgpu.program.program import Grid
from simgpu.program.record import schedule

PROBLEMS = [simgpu.Attention(batch=1, heads_q=2, seq_q=n, head_dim=64) for n in (128, 256)]


def test_rows_are_runs_in_order():
    found = simgpu.sweep("fa2", PROBLEMS, ["h200", "a100"], {"block_n": [32, 64]})
    assert found.complete
    asked = [
        (r["problem.seq_q"], r["gpu.name"][:4], r["schedule.params.block_n"]) for r in found.rows
    ]
    assert asked == [(n, g, b) for n in (128, 256) for g in ("h200", "a100") for b in (32, 64)]
    run = simgpu.run("fa2", PROBLEMS[1], "a100", params={"block_n": 32})
    row = found.rows[6]
    assert row["predicted.cycles"] == run.cycles
    assert row["counts.instructions.mufu"] == run.to_dict()["counts"]["instructions"]["mufu"]
    assert row["error"] is None
    assert found.to_pandas()["predicted.cycles"].min() == min(
        r["predicted.cycles"] for r in found.rows
    )


def test_a_bad_point_is_a_row_with_its_error():
    found = simgpu.sweep(["fa2", "fa3"], PROBLEMS[0], "a100", {"stages": [2, 99]})
    errors = [row["error"] for row in found.rows]
    assert errors[0] is None
    assert "shared memory" in errors[1]
    assert (
        errors[2] == errors[3] == "fa3 needs tma and wgmma; a100_sxm4_80gb has no tma and no wgmma"
    )
    bad = simgpu.sweep("fa2", PROBLEMS[0], "h2000").rows[0]
    assert bad["gpu.name"] == "h2000"
    assert bad["error"].startswith("unknown hardware profile 'h2000'")
    assert found.rows[1]["schedule.params.stages"] == 99


def test_a_schedule_that_fails_is_a_row_too():
    @schedule("breaks")
    @dataclass(frozen=True)
    class Breaks:
        def grid(self, p):
            return Grid(m=1 // (p.seq_q - 128))

        def build(self, p, cta):
            raise AssertionError

    broken = simgpu.sweep(Breaks(), PROBLEMS[0]).rows
    assert [row["error"] for row in broken] == [
        "ZeroDivisionError: integer division or modulo by zero"
    ]


def test_ctrl_c_keeps_what_is_there():
    seen = []

    def stop_after_two():
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt

    found = simgpu.sweep("fa2", PROBLEMS * 2, progress=stop_after_two)
    assert not found.complete
    assert len(found.rows) == 2


def test_processes_and_a_plain_loop_find_the_same(monkeypatch):
    shared = simgpu.sweep("fa2", PROBLEMS, workers=2)
    monkeypatch.setitem(sys.modules, "joblib", None)
    assert simgpu.sweep("fa2", PROBLEMS, workers=2) == shared


def call(*words):
    return CliRunner().invoke(app, ["sweep", *words])


SMALL = ("fa2", "--batch", "1", "--heads", "2", "--head-dim", "64")


def test_the_table_shows_what_differs():
    done = call(*SMALL, "--seqlen", "128,256", "--set", "stages=2,99")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["length", "stages", "cycles", "µs", "TFLOP/s", "limiter", "error"]
    assert lines[2].split()[:2] == ["128", "2"]
    assert "shared memory" in done.stdout


def test_the_same_as_json_and_csv():
    options = (*SMALL, "--seqlen", "128,256", "--mask", "none,causal")
    data = json.loads(call(*options, "--json").stdout)
    assert data["schema"] == "simgpu.sweep/1"
    assert data["complete"]
    rows = list(csv.DictReader(io.StringIO(call(*options, "--csv").stdout)))
    assert [r["problem.mask"] for r in rows] == ["none", "causal"] * 2
    assert [float(r["predicted.cycles"]) for r in rows] == [
        r["predicted.cycles"] for r in data["rows"]
    ]


def test_an_interrupted_command_prints_what_is_there(monkeypatch):
    from simgpu import sweeping

    calls = []

    def predict(point):
        calls.append(point)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return {"problem.seq_q": point.problem.seq_q, "error": None}

    monkeypatch.setattr(sweeping, "predict", predict)
    done = call(*SMALL, "--seqlen", "128,256", "--json", "--workers", "1")
    assert done.exit_code == 130
    assert json.loads(done.stdout)["rows"] == [{"problem.seq_q": 128, "error": None}]
    assert "interrupted after 1 of 2 runs" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seqlen", "128,x"), "--seqlen is '128,x': whole numbers, separated by commas"),
        (("--seqlen", ","), "--seqlen is ',': whole numbers"),
        (("--mask", "window"), "--mask is 'window': it must be none or causal"),
        (("--json", "--csv"), "--json and --csv: choose one"),
        (("--workers", "0"), "--workers is 0: it must be at least 1"),
        (("--set", "stages"), "--set 'stages': write key=value"),
    ],
)
def test_options_that_cannot_be(options, message):
    done = call(*SMALL, *options)
    assert done.exit_code == 2
    assert message in done.stderr
