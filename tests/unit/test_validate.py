"""`simgpu validate`: which runs it takes, and what it says where there are none."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from simgpu.errors import MeasureError
from simgpu.validation.replay import committed, from_records

RUNS = files("simgpu") / "validation/measured/h200_sxm/runs.jsonl"


def test_a_gpu_goes_by_its_alias():
    assert len(committed("h200")) == len(committed("h200_sxm")) > 500


def test_a_gpu_that_was_not_measured_is_one_line():
    text = r"^no committed measurements of a100_sxm4_80gb, only of h200_sxm: give --measured$"
    with pytest.raises(MeasureError, match=text):
        committed("a100")


def test_runs_without_counters_are_not_an_empty_table(tmp_path):
    record = json.loads(RUNS.read_text(encoding="utf-8").splitlines()[0])
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({**record, "counters": None, "launches": []}) + "\n")
    with pytest.raises(MeasureError, match=r"mine.jsonl: no run with counters .* --counters$"):
        list(from_records(path, "h200_sxm"))


def test_a_file_of_something_else_says_what_a_line_should_be(tmp_path):
    path = tmp_path / "readme.md"
    path.write_text("# simgpu\n\nis a program\n")
    with pytest.raises(MeasureError, match=r"readme.md:1: .*; a line is a run that `simgpu meas"):
        list(from_records(path, "h200_sxm"))


def test_public_kernels_are_replayed_by_the_schedule_that_describes_them(tmp_path):
    lines = RUNS.read_text(encoding="utf-8").splitlines()
    public = [x for x in map(json.loads, lines) if x["kernel"]["name"] == "peer_fa2"]
    path = tmp_path / "peers.jsonl"
    path.write_text("\n".join(map(json.dumps, public)) + "\n")
    found = list(from_records(path, "h200_sxm"))
    assert len(found) == len(public) == 21
    assert {m.kernel for m in found} == {"FA2 (CUDA, PyTorch)"}
    assert {m.schedule for m in found} == {"fa2"}
    assert {(m.problem.head_dim, m.params["block_m"], m.params["block_n"]) for m in found} == {
        (64, 128, 128),
        (128, 128, 64),
        (256, 64, 64),
    }
    assert all(m.params["instruction"] == "mma.sync" and m.params["stages"] == 1 for m in found)
    # its tile at other head dims is not known, so they are left out
    odd = {**public[0], "problem": {**public[0]["problem"], "head_dim": 80}}
    path.write_text("\n".join(map(json.dumps, [odd, public[1]])) + "\n")
    assert len(list(from_records(path, "h200_sxm"))) == 1
