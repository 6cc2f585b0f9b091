"""Measuring without a GPU: grids, records, and a stand-in for the process that touches the GPU."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from simgpu.errors import MeasureError, MissingExtraError
from simgpu.validation import measure_ncu, records
from simgpu.validation.measure_grid import flags_grid
from simgpu.validation.measure_process import Child
from simgpu.validation.measure_run import measure
from simgpu.validation.records import Method

SHAPE = {"batch": 1, "heads": 2, "seqlen": 128, "head_dim": 64}
METHOD = Method(gpu="none", inputs="none", date="2026-01-01")
TIME = {
    "median_us": 10.0, "p10_us": 9.0, "p90_us": 11.0, "repeats": 5, "runs_per_sample": 1,
    "l2": "warm", "method": "events", "cycles": 17000.0,
}  # fmt: skip

CLOCKS = {"low": 1.0, "median": 2.0, "high": 3.0}

# Says what the real child says; block_m chooses how a run ends, and each start is written down.
FAKE = """
import json, os, sys
job = json.load(open(sys.argv[1]))
with open({log!r}, "a") as log:
    log.write(job["mode"] + " " + " ".join(str(p["params"]["block_m"]) for p in job["points"]))
    log.write("\\n")
for entry in job["points"]:
    tile = entry["params"]["block_m"]
    print("noise from a library")
    print(json.dumps({{"event": "start", "index": entry["index"]}}), flush=True)
    if tile == 13 and job["mode"] == "time":
        os.kill(os.getpid(), 11)
    if tile == 14 and job["mode"] == "time":
        sys.exit("CUDA error: an illegal memory access was encountered")
    answer = {{"event": "done", "index": entry["index"]}}
    record = dict({record}, problem=entry["problem"])
    record["kernel"] = {{"name": entry["kernel"], "params": entry["params"]}}
    if tile == 15:
        record.update(status="failed", reason="does not compile: no", time=None)
        answer["reason"] = record["reason"]
    if job["mode"] == "time":
        answer["record"] = json.dumps(record)
    if job["mode"] == "again" and tile != 16:
        answer["again"] = {{"time": dict({time}, cycles=17170.0), "sm_clocks": {clocks}}}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def fake(tmp_path):
    script = tmp_path / "fake_child.py"
    record = {"schema": "simgpu.measurement/1", "status": "ok", "time": TIME}
    record["method"] = METHOD.model_dump(exclude_none=True)
    log = tmp_path / "log"
    script.write_text(
        textwrap.dedent(FAKE).format(log=str(log), record=record, time=TIME, clocks=CLOCKS)
    )
    return Child(command=[sys.executable, str(script)]), log


def points(*tiles, **more):
    params = {"block_m": list(tiles)}
    return flags_grid(["fa2"], shape=SHAPE, params=params, **more)


def stages(log: Path):
    return [line for line in log.read_text().splitlines() if not line.startswith("compile")]


def test_a_grid_is_measured_and_resumed(tmp_path, fake):
    child, log = fake
    out = tmp_path / "runs.jsonl"
    seen = []
    summary = measure(points(64), out, child=child, progress=lambda *event: seen.append(event))
    assert (summary.measured, summary.failures) == (1, [])
    assert seen[-1] == ("time", 1, 1, "fa2 1x2x128x64 fp16 none block_m=64")
    summary = measure(points(64, 128), out, child=child)
    assert (summary.measured, summary.resumed) == (1, 1)
    assert stages(log) == ["time 64", "time 128"]
    assert [r.kernel.params["block_m"] for r in records.read(out)] == [64, 128]


def test_a_run_that_kills_the_process_costs_one_run(tmp_path, fake):
    child, log = fake
    out = tmp_path / "runs.jsonl"
    summary = measure(points(64, 13, 14, 15, 128), out, child=child)
    assert summary.measured == 2
    assert [why for _, why in summary.failures] == [
        "the process died: SIGSEGV",
        "the process ended with status 1: CUDA error: an illegal memory access was encountered",
        "does not compile: no",
    ]
    assert [r.status for r in records.read(out)] == ["ok", "failed", "failed", "failed", "ok"]
    assert stages(log) == ["time 64 13 14 15 128", "time 14 15 128", "time 15 128"]


def test_failed_runs_are_tried_again(tmp_path, fake):
    child, log = fake
    out = tmp_path / "runs.jsonl"
    measure(points(64, 15), out, child=child)
    measure(points(64, 15), out, child=child)
    assert stages(log) == ["time 64 15", "time 15"]
    assert len(out.read_text().splitlines()) == 2


def test_a_second_timing_gives_the_spread(tmp_path, fake):
    child, log = fake
    out = tmp_path / "runs.jsonl"
    measure(points(64, 15, 16, again=True), out, child=child, again=True)
    first, failed, lost = records.read(out)
    assert first.spread()["cycles"] == pytest.approx(0.01, rel=0.02)
    assert first.spread()["time"] == 0
    assert (failed.again, lost.again) == (None, None)
    assert stages(log) == ["time 64 15 16", "again 64 16"]


def test_without_nsight_compute_only_the_counters_are_missing(tmp_path, fake, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    summary = measure(points(64, counters=1), tmp_path / "o", child=fake[0], counters=True)
    assert summary.measured == 1
    assert summary.notes == ["ncu (Nsight Compute) is not on the PATH: no counters"]


def test_counters_come_by_marker(tmp_path, fake, monkeypatch):
    child, _ = fake
    table = [
        ["ID", "Kernel Name", "sm__cycles_elapsed.max", "gpu__time_duration.sum"],
        ["", "", "cycle", "nsecond"],
        ["0", "clock_stamp", "9", "9"],
        ["1", "fa2_forward", "1,000", "2000"],
        ["2", "clock_stamp", "9", "9"],
        ["3", "clock_stamp", "9", "9"],
        ["4", "a", "10", "1"],
        ["5", "b", "20", "1"],
        ["6", "clock_stamp", "9", "9"],
        ["7", "fa2_forward", "1,010", "2000"],
    ]
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in table)
    profiler = tmp_path / "ncu"
    profiler.write_text(
        f"#!{sys.executable}\nimport subprocess, sys\n"
        "log = sys.argv[sys.argv.index('--log-file') + 1]\n"
        f"open(log, 'w').write('==PROF== Connected\\n' + {text!r})\n"
        "sys.exit(subprocess.call(sys.argv[sys.argv.index('--metrics') + 2:]))\n"
    )
    profiler.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(profiler))
    out = tmp_path / "runs.jsonl"
    summary = measure(points(64, 32, 128, counters=2), out, child=child, counters=True)
    one, none, several = records.read(out)
    assert one.counters == pytest.approx(
        {"sm__cycles_elapsed.max": 1000.0, "gpu__time_duration.sum": 2e-6}
    )
    assert one.spread()["sm__cycles_elapsed.max"] == pytest.approx(10 / 1010)
    assert not none.counted
    assert [(x.name, x.counters["sm__cycles_elapsed.max"]) for x in several.launches] == [
        ("a", 10.0),
        ("b", 20.0),
    ]
    assert summary.counted == 2
    measure(points(64, counters=2), out, child=child, counters=True)
    assert [line for line in stages(fake[1]) if line.startswith("count")] == [
        "count 64 32 128 64 32 128"
    ]
    assert summary.notes == ["no counters for 1 of 3 runs"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM: no permission\n", "ERR_NVGPUCTRPERM: no permission"),
        ("", "no output"),
    ],
)
def test_a_profiler_that_gathers_nothing_says_why(text, why):
    with pytest.raises(MeasureError, match=f"Nsight Compute gathered nothing: {why}"):
        measure_ncu.parse(text)


def test_torchs_launch_beside_a_kernel_is_not_the_kernels():
    fill = ("void at::vectorized_elementwise_kernel<4, at::FillFunctor<int>>(int)", {"cycles": 4.0})
    kernel = ("fa3_forward", {"cycles": 700.0})
    assert measure_ncu.Counted([fill, kernel]).ours().launches == [kernel]


def test_no_gpu_is_one_line(tmp_path):
    script = tmp_path / "child.py"
    script.write_text('print(\'{"event": "fatal", "reason": "torch sees no CUDA GPU"}\')')
    child = Child(command=[sys.executable, str(script)])
    with pytest.raises(MeasureError, match=r"^torch sees no CUDA GPU$"):
        measure(points(64), tmp_path / "o", child=child)


def test_a_child_that_cannot_start_is_one_line(tmp_path):
    child = Child(command=[sys.executable, "-c", "raise ImportError('no libcuda')"])
    with pytest.raises(MeasureError, match="ended with status 1: ImportError: no libcuda"):
        measure(points(64), tmp_path / "o", child=child)
    with pytest.raises(MeasureError, match="no-such-program: No such file or directory"):
        measure(points(64), tmp_path / "o", child=Child(command=["no-such-program"]))


@pytest.mark.parametrize("missing", ["torch", "triton"])
def test_without_torch_or_triton(tmp_path, monkeypatch, missing):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == missing else name)
    with pytest.raises(MissingExtraError, match=f"{missing} is not installed"):
        measure(points(64), tmp_path / "o")


def test_the_program_prints_errors_as_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "simgpu.validation.measure", "--kernel", "fa9"],
        capture_output=True, text=True, cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2])}, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown kernel 'fa9'; did you mean")
    assert len(done.stderr.splitlines()) == 1


def test_the_program_imports_little():
    code = (
        "import sys, simgpu.validation.measure\n"
        "ours = sorted(x for x in sys.modules if x.startswith('simgpu.'))\n"
        "print([x for x in ours if not x.startswith(('simgpu.validation', 'simgpu.errors'))])\n"
        "print([x for x in ('torch', 'triton', 'simpy', 'networkx') if x in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]
