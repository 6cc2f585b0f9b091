"""The measuring process without a GPU: what it says of runs that cannot be made."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from simgpu.errors import MeasureError  # noqa: E402
from simgpu.validation import measure_cases, measure_child, measure_peers  # noqa: E402
from simgpu.validation.measure_grid import flags_grid  # noqa: E402
from simgpu.validation.records import Measurement, Method  # noqa: E402

pytestmark = pytest.mark.kernels

SHAPE = {"batch": 1, "heads": 2, "seqlen": 128, "head_dim": 64}
METHOD = Method(gpu="none", inputs="none", date="2026-01-01")


def caused(error, cause):
    error.__cause__ = cause
    return error


def compilation_error():
    return triton.compiler.errors.CompilationError("def f(): pass", None, "no such op")


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"), "out of memory: "),
        (compilation_error(), "does not compile: "),
        (caused(RuntimeError("at 1:0"), compilation_error()), "does not compile: at 1:0"),
        (
            triton.runtime.errors.OutOfResources(300000, 232448, "shared memory"),
            "does not fit: out of resource: shared memory",
        ),
        (RuntimeError("CUDA error:\n  an illegal memory access"), "CUDA error: an illegal memory"),
        (KeyError(), "KeyError"),
    ],
)
def test_every_failure_is_one_line(error, start):
    why = measure_child.reason(error)
    assert why.startswith(start)
    assert "\n" not in why


@pytest.fixture
def pretend(monkeypatch):
    """A process that believes it has a GPU and whose runs fail as their block_m says."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(measure_child, "method", lambda: METHOD)
    monkeypatch.setattr(measure_child, "lost", lambda: False)

    def build(point, bench):
        raise {
            16: torch.OutOfMemoryError("no room"),
            32: compilation_error(),
            64: MeasureError("not here"),
        }[point.params["block_m"]]

    monkeypatch.setattr(measure_cases, "build", build)
    return monkeypatch


def job(mode="time", *tiles):
    points = flags_grid(["fa2"], shape=SHAPE, params={"block_m": list(tiles)})
    entries = [
        {"index": n, "problem": p.problem.model_dump(), "kernel": p.kernel, "params": p.params}
        for n, p in enumerate(points)
    ]
    return {"mode": mode, "seconds": 0.1, "stop_at": None, "points": entries}


def events(capsys):
    return [json.loads(x) for x in capsys.readouterr().out.splitlines() if x.startswith("{")]


def test_failed_runs_are_recorded_and_the_rest_is_done(pretend, capsys):
    assert measure_child.run_job(job("time", 16, 32, 64)) == 0
    done = [e for e in events(capsys) if e["event"] == "done"]
    found = [Measurement.model_validate_json(e["record"]) for e in done]
    assert [r.status for r in found] == ["failed"] * 3
    assert [r.reason.split(":")[0] for r in found] == [
        "out of memory", "does not compile", "not here",
    ]  # fmt: skip
    assert [r.kernel.params["block_m"] for r in found] == [16, 32, 64]


def test_a_lost_context_ends_the_process_after_the_run_is_recorded(pretend, capsys):
    pretend.setattr(measure_child, "lost", lambda: True)
    assert measure_child.run_job(job("time", 64, 32)) == measure_child.EXIT_LOST
    assert [e["event"] for e in events(capsys)] == ["start", "done"]


def test_a_second_timing_that_fails_says_why_and_changes_no_record(pretend, capsys):
    assert measure_child.run_job(job("again", 64)) == 0
    done = events(capsys)[-1]
    assert (done["reason"], "record" in done, "again" in done) == ("not here", False, False)


def test_no_run_starts_after_the_time_limit(pretend, capsys):
    late = job("time", 64) | {"stop_at": 1.0}
    assert measure_child.run_job(late) == 0
    assert events(capsys) == []


def test_without_a_gpu_the_process_says_so(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert measure_child.run_job(job("time", 64)) == 1
    assert events(capsys) == [{"event": "fatal", "reason": "torch sees no CUDA GPU"}]


@pytest.mark.parametrize(
    ("kernel", "change", "text"),
    [
        ("peer_fa3", {"dtype": ["fp16"]}, "peer_fa3 takes bf16 and fp8"),
        ("peer_fa3", {"dtype": ["bf16"]}, "fa3_fwd_interface cannot be imported"),
        ("peer_fa2", {"dtype": ["fp8"]}, "peer_fa2 takes fp16 and bf16, not fp8"),
        ("peer_fa2", {"mask": ["causal"], "seqlen_kv": 64}, "causal mask is aligned top left"),
    ],
)
def test_peers_refuse_what_they_do_not_take(kernel, change, text):
    (point,) = flags_grid([kernel], shape=SHAPE | change, params={})
    x = torch.zeros(1, 2, 128, 64)
    with pytest.raises(MeasureError, match=text):
        measure_peers.build(point, {"q": x, "k": x, "v": x, "dout": x})


def test_peers_take_no_parameters():
    (point,) = flags_grid(["peer_cudnn"], shape=SHAPE, params={"block_m": [64]})
    with pytest.raises(MeasureError, match="peer_cudnn takes no parameters"):
        measure_peers.build(point, {})
