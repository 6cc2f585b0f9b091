"""Records of measurements: a line each, and what is no record."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from simgpu.errors import MeasureError
from simgpu.validation import records
from simgpu.validation.measure_grid import Point
from simgpu.validation.records import Kernel, Measurement, Method, Problem

METHOD = Method(gpu="none", inputs="none", date="2026-01-01")
TIME = {
    "median_us": 10.0, "p10_us": 9.0, "p90_us": 11.0, "repeats": 5, "runs_per_sample": 1,
    "l2": "warm", "method": "events", "cycles": 17000.0,
}  # fmt: skip


def a_record(**change):
    point = Point(problem=Problem(batch=1, heads_q=1, heads_kv=1, seq_q=8, seq_kv=8, head_dim=64),
                  kernel="fa2")  # fmt: skip
    kernel = Kernel(name=point.kernel)
    made = {"problem": point.problem, "kernel": kernel, "status": "ok", "method": METHOD}
    return Measurement.model_validate(made | change)


def test_records_survive_the_file(tmp_path):
    path = tmp_path / "runs.jsonl"
    record = a_record(time=TIME, clock_mhz=1700.0)
    records.append(path, record)
    assert records.read(path) == [record]
    assert json.loads(path.read_text())["schema"] == "simgpu.measurement/1"


def test_the_last_line_of_a_run_counts_and_a_torn_one_is_left_out(tmp_path):
    path = tmp_path / "runs.jsonl"
    records.append(path, a_record(status="failed", reason="no"))
    records.append(path, a_record(time=TIME))
    with path.open("a") as file:
        file.write(a_record().line()[:40])
    (found,) = records.read(path)
    assert found.status == "ok"


def test_a_bad_line_is_named(tmp_path):
    path = tmp_path / "runs.jsonl"
    line = a_record(time=TIME).line()
    path.write_text(line + "\n" + line.replace('"median_us":10.0', '"median_us":-1') + "\n")
    with pytest.raises(MeasureError, match=r"runs.jsonl:2: time.median_us: Input should be great"):
        records.read(path)
    with pytest.raises(MeasureError, match="No such file"):
        records.read(tmp_path / "none.jsonl")


def test_unknown_fields_are_refused():
    with pytest.raises(ValidationError, match="clock_ghz"):
        a_record(clock_ghz=1.7)
