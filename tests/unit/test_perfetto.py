"""Traces read back with Perfetto's own classes: rows, arrows, counters; what cannot be made."""

from __future__ import annotations

import json
import os
import sys
from importlib.resources import files
from itertools import pairwise

import pytest
from typer.testing import CliRunner

import simgpu
from simgpu.cli import app
from simgpu.errors import MeasureError, MissingExtraError, OutputError
from simgpu.report.perfetto import write_perfetto
from simgpu.validation.proton import Row, read_proton
from tests.decoded import Decoded, args

# one CTA for each SM of an H100: every SM does the same
PROBLEM = simgpu.Attention(batch=1, heads_q=132, seq_q=128, seq_kv=500, head_dim=128)


@pytest.fixture(scope="module")
def timeline():
    return simgpu.timeline("fa3", PROBLEM, gpu="h100")


@pytest.fixture(scope="module")
def traced(timeline, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "fa3.pftrace"
    timeline.to_perfetto(path)
    return Decoded(path)


def test_each_role_has_a_row_with_its_life(timeline, traced):
    for role in ("producer", "consumer0", "consumer1"):
        slices = traced.slices[traced.named("slot 0", role)]
        assert len(slices) == sum(span.role == role for span in timeline.spans)
        assert all(a[1] == b[0] for a, b in pairwise(slices))
        assert sum(args(e)["cycles"] for *_, e in slices) == pytest.approx(
            slices[-1][1] * timeline.clock_mhz / 1000 - 5354, abs=1
        )


def test_slices_say_what_they_do_with_which_tile(traced):
    begin, end, event = next(
        s for s in traced.slices[traced.named("copies in flight 1")] if s[2].name == "copy Q"
    )
    found = args(event)
    assert found["tile"] == "Q[0:+64]"
    assert found["bytes"] == 64 * 128 * 2
    assert found["barrier"] == "0.q.full"
    assert found["phase"] == 0
    assert end - begin == pytest.approx(found["cycles"] / 1.83, abs=1)
    names = {e.name for *_, e in traced.slices[traced.named("consumer0")]}
    assert {"start", "mma 0.s", "mma 0.o", "wait k.full", "copy O"} <= names


def test_arrows_lead_from_arrivals_and_landings_to_the_waits_they_release(timeline, traced):
    waits = [s for s in timeline.spans if s.stall and s.stall.startswith("wait")]
    assert len(traced.starts) == len(traced.ends) == len(waits) > 15
    assert set(traced.starts) == set(traced.ends)
    for flow, (number, time, event) in traced.starts.items():
        after, released, target = traced.ends[flow]
        assert number < after
        if event.Type.Name(event.type) == "TYPE_INSTANT":
            assert event.name.startswith("arrive ")
            assert time == released
        else:
            parts = traced.slices[event.track_uuid]
            assert released == next(end for begin, end, e in parts if e == event)
        row = traced.slices[target.track_uuid]
        assert any(end == released and e.name.startswith("wait ") for _, end, e in row)


def test_counters_integrate_to_the_utilisation_of_the_exact_run(traced):
    run = simgpu.run("fa3", PROBLEM, gpu="h100", exact=True, clock="sustained")
    for unit, used in run.launches[0].utilization.items():
        if unit == "tmem":
            continue
        steps = traced.counters[traced.named("units", unit)]
        area = sum(value / 100 * (b - a) for (a, value), (b, _) in pairwise(steps))
        assert area / (run.time_us * 1000) == pytest.approx(used, rel=1e-3)


def test_bytes_and_residents_are_counted(timeline, traced):
    steps = traced.counters[traced.named("bytes in flight")]
    assert max(value for _, value in steps) == max(v for _, v in timeline.bytes_in_flight)
    assert [value for _, value in traced.counters[traced.named("resident CTAs")]] == [0, 1, 0]
    assert traced.units[traced.named("bytes in flight")] == "bytes"


@pytest.mark.skipif("TRACE_PROCESSOR" not in os.environ, reason="TRACE_PROCESSOR names no binary")
def test_trace_processor_takes_it(timeline, tmp_path):
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    path = tmp_path / "fa3.pftrace"
    timeline.to_perfetto(path)
    config = TraceProcessorConfig(bin_path=os.environ["TRACE_PROCESSOR"])
    with TraceProcessor(trace=str(path), config=config) as found:
        errors = "select name from stats where severity = 'error' and value > 0"
        assert [row.name for row in found.query(errors)] == []
        (flows,) = found.query("select count(*) as n from flow")
        assert flows.n == len(timeline.flows)
        (slices,) = found.query("select count(*) as n from slice where depth > 0")
        assert slices.n == 0


# -- measured timelines


def record(name, sm, cta, warp, line, ts, dur, **more):
    """An event as Proton's instrumentation writes it; times in µs at 1 GHz."""
    where = {"pid": f"fa3 Core{sm} CTA{cta}", "tid": f"warp {warp} (line {line})"}
    args = {"Finalization Time (ns)": 12, "Frequency (MHz)": 1000.0, "call_stack": []}
    event = {"cname": "good", "name": name, "cat": "fa3", "ph": "X", "ts": ts, "dur": dur}
    return {**event, **where, "args": args, **more}


RECORDS = [
    record("softmax", 7, 3, 4, 0, 1.5, 0.25),
    record("load", 7, 3, 0, 0, 1.0, 0.5),
    record("wait", 7, 3, 0, 1, 1.25, 0.0),
    record("load", 9, 4, 0, 0, 1.75, 0.5),
]


@pytest.fixture
def measured(tmp_path):
    path = tmp_path / "fa3.chrome_trace"
    other = {"name": "fa3", "ph": "X", "pid": 0, "tid": 7, "ts": 0, "dur": 3, "cat": "kernel"}
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": [*RECORDS, other]}))
    return path


def test_a_measured_trace_is_read_by_warp(measured):
    found = read_proton(measured)
    assert list(found.rows) == [
        Row("fa3", 7, 3, "warp 0", 0),
        Row("fa3", 7, 3, "warp 0", 1),
        Row("fa3", 7, 3, "warp 4", 0),
        Row("fa3", 9, 4, "warp 0", 0),
    ]
    assert found.begins == {("fa3", 7, 3): 0.0, ("fa3", 9, 4): 750.0}
    assert found.rows[Row("fa3", 7, 3, "warp 4", 0)] == (("softmax", 500.0, 750.0),)


def test_predicted_and_measured_side_by_side(timeline, measured, tmp_path):
    path = tmp_path / "both.pftrace"
    write_perfetto(path, timeline, read_proton(measured))
    both = Decoded(path)
    first = both.slices[both.named("consumer0")][0]
    assert first[2].name == "start"
    (load,) = both.slices[both.named("fa3, SM 7, CTA 3", "warp 0")]
    assert load[0] == first[1]
    assert load[1] - load[0] == pytest.approx(500 / 1.83, abs=1)  # both ends are rounded
    ((_, instant),) = both.instants[both.named("fa3, SM 7, CTA 3", "warp 0, line 1")]
    assert instant.name == "wait"
    assert args(load[2])["cycles"] == 500


def test_rounding_to_single_precision_is_no_overlap(measured):
    rounded = [record("a", 0, 0, 0, 0, 4000.0, 0.5), record("b", 0, 0, 0, 0, 4000.4998, 0.5)]
    measured.write_text(json.dumps({"traceEvents": rounded}))
    a, b = read_proton(measured).rows[Row("fa3", 0, 0, "warp 0", 0)]
    assert a.end == b.start


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a Chrome trace, which is JSON: Expecting value"),
        ('{"traces": []}', 'is not a Chrome trace: it has no list "traceEvents"'),
        ('{"traceEvents": [{"ph": "X", "pid": 0, "tid": 1}]}', "no warp of a CTA among its events"),
        (json.dumps([{**RECORDS[0], "ts": "1"}]), r"traceEvents\[0\]: ts is '1': it must be a num"),
        (json.dumps([{**RECORDS[0], "dur": -1}]), r"traceEvents\[0\]: dur or the frequency is neg"),
        (
            json.dumps([RECORDS[1], {**RECORDS[1], "ts": 1.2}]),
            "load and load overlap on warp 0 of CTA 3, line 0",
        ),
    ],
)
def test_what_is_no_measured_trace(measured, text, message):
    measured.write_text(text)
    with pytest.raises(MeasureError, match=message):
        read_proton(measured)


@pytest.mark.parametrize("name", ["pingpong", "no_turns"])
def test_the_committed_timelines_are_read(name, tmp_path):
    source = files("simgpu.validation") / f"measured/h200_sxm/fa3_timeline_{name}.json"
    events = json.loads(source.read_text(encoding="utf-8"))["traceEvents"]
    found = read_proton(source)
    assert [row.who for row in found.rows] == ["consumer 0", "consumer 1"]
    records = [record for row in found.rows.values() for record in row]
    assert len(records) == len(events)
    assert sum(r.end - r.start for r in records) == pytest.approx(sum(e["dur"] for e in events))
    write_perfetto(tmp_path / "trace", None, found, clock_mhz=1700)
    traced = Decoded(tmp_path / "trace")
    for row, expected in found.rows.items():
        slices = traced.slices[traced.named("CTA 0", row.who)]
        assert [e.name for *_, e in slices] == [record.name for record in expected]


def test_a_measured_trace_that_is_not_there(tmp_path):
    with pytest.raises(MeasureError, match=r"cannot read .*nowhere: no such file or directory"):
        read_proton(tmp_path / "nowhere")


# -- what cannot be written, and the commands


def test_a_path_that_cannot_be_written(timeline, tmp_path):
    with pytest.raises(OutputError, match=r"cannot write .*fa3: no such file or directory; give"):
        timeline.to_perfetto(tmp_path / "nowhere" / "fa3")


def test_without_perfetto(timeline, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "perfetto.trace_builder.proto_builder", None)
    with pytest.raises(MissingExtraError, match=r'pip install "simgpu\[report\]"'):
        timeline.to_perfetto(tmp_path / "fa3.pftrace")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


SMALL = ("--batch", 1, "--heads", 1, "--seqlen", 128, "--head-dim", 64)


def test_run_writes_a_trace_with_what_was_measured(tmp_path, measured):
    path = tmp_path / "run.pftrace"
    done = call("run", "fa2", *SMALL, "--trace", path, "--measured", measured)
    assert done.exit_code == 0, done.output
    assert "GPU Speed Of Light" in done.stdout
    assert "open it at ui.perfetto.dev" in done.stderr
    roots = [name for t, name in Decoded(path).names.items() if not Decoded(path).parents[t]]
    assert roots == ["fa2 on h200_sxm, SM 0: predicted", "fa3.chrome_trace: measured"]


def test_trace_measured_writes_beside_the_measurement(measured):
    done = call("trace-measured", measured, "--clock-mhz", 2000)
    assert done.exit_code == 0, done.output
    found = Decoded(measured.with_suffix(".pftrace"))
    (load,) = found.slices[found.named("fa3, SM 9, CTA 4", "warp 0")]
    assert load[:2] == (750, 1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sm", 3, "--waves", 1), "error: --sm and --waves without --trace"),
        (("--trace", "/nowhere/x"), "error: cannot write /nowhere/x: no such file or directory"),
        (("--trace", "{tmp}/x", "--sm", 1), "error: sm is 1: fa2 runs on SMs 0 to 0"),
        (("--trace", "{tmp}/x", "--measured", "{tmp}/y"), "error: cannot read"),
    ],
)
def test_options_that_cannot_be(tmp_path, options, message):
    done = call("run", "fa2", *SMALL, *(str(o).format(tmp=tmp_path) for o in options))
    assert done.exit_code == 2
    assert message in done.stderr
