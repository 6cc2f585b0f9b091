"""Law: the timeline of an SM is the exact simulation seen closer, with nothing added or lost."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

import simgpu
from simgpu.errors import SimgpuError
from simgpu.hardware.load import load_profile
from simgpu.program.listing import details
from simgpu.program.ops import Copy
from simgpu.timing.timeline import integral

FEW = 4  # SMs of the small GPUs


def small(name):
    """A GPU with few SMs and its share of L2 and HBM, so that exact runs are quick."""
    profile = load_profile(name)
    memory = profile.memory
    share = FEW / profile.device.sm_count
    return profile.model_copy(
        update={
            "device": profile.device.model_copy(update={"sm_count": FEW}),
            "memory": memory.model_copy(
                update={
                    n: getattr(memory, n) * share
                    for n in ("hbm_sustained_gb_per_s", "l2_bandwidth_bytes_per_clock")
                }
            ),
        }
    )


EQUAL = {"batch": 1, "heads_q": 2 * FEW, "seq_q": 256, "head_dim": 128}
CAUSAL = {"batch": 1, "heads_q": 3, "seq_q": 500, "head_dim": 64, "causal": True}
CASES = {
    "fa3 uneven": ("fa3", "h100", {**EQUAL, "heads_q": 2 * FEW + 1}, {}),
    "fa2 uneven": ("fa2", "h200", {**EQUAL, "heads_q": 7 * FEW - 1, "seq_q": 128}, {}),
    "fa3 alike": ("fa3", "h100", EQUAL, {}),
    "fa3 a tile a CTA": ("fa3", "h100", EQUAL, {"persistent": False}),
    "fa2 alike": ("fa2", "a100", EQUAL, {}),
    "fa2 one stage": ("fa2", "h200", EQUAL, {"stages": 1}),
    "standard": ("standard", "h200", EQUAL, {}),
    "fa1": ("fa1", "a100", EQUAL, {}),
    "fa3 causal": ("fa3", "h100", CAUSAL, {}),
    "fa2 causal": ("fa2", "h200", CAUSAL, {}),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    name, gpu, shape, params = CASES[request.param]
    problem, profile = simgpu.Attention(**shape), small(gpu)
    timelines = [simgpu.timeline(name, problem, profile, params=params, sm=n) for n in range(FEW)]
    return timelines, simgpu.run(
        name, problem, profile, params=params, exact=True, clock="sustained"
    )


def test_time_and_utilisation_are_those_of_the_exact_run(case):
    timelines, run = case
    launch = run.launches[0]
    for timeline in timelines:
        assert timeline.complete
        assert timeline.cycles == launch.cycles
    for unit, used in launch.utilization.items():
        if unit != "tmem":
            seen = sum(timeline.mean(unit) for timeline in timelines) / FEW
            assert seen == pytest.approx(used, rel=1e-9, abs=1e-12)


def test_every_tile_of_the_grid_is_taken_by_one_cta(case):
    timelines, run = case
    stays = [stay for timeline in timelines for stay in timeline.stays]
    axes = [range(size) for size in run.launches[0].grid.values()]
    assert sorted(tuple(at.values()) for stay in stays for at in stay.tiles) == list(product(*axes))
    assert len(stays) == run.launches[0].ctas


def test_residence_is_what_the_exact_run_says(case):
    timelines, run = case
    launch = run.launches[0]
    warps = sum(integral(timeline.resident) for timeline in timelines) * launch.warps
    assert warps / (launch.cycles * FEW) == pytest.approx(launch.achieved_warps_per_sm, rel=1e-9)


def test_no_two_things_share_a_row(case):
    for timeline in case[0]:
        rows = {}
        for span in timeline.spans:
            slot = timeline.slots[span.cta]
            rows.setdefault((slot, span.role), []).append((span.start, span.end))
        for flight in timeline.flights:
            slot = timeline.slots[flight.cta]
            assert flight.issued <= flight.started <= flight.served <= flight.landed
            row = (slot, type(flight.op), flight.lane)
            rows.setdefault(row, []).append((flight.issued, flight.landed))
        for row in rows.values():
            assert all(a[1] <= b[0] for a, b in pairwise(sorted(row)))


def test_bytes_in_flight_are_those_of_flights_and_of_copies_that_hold_their_role(case):
    for timeline in case[0]:
        steps = timeline.bytes_in_flight
        assert steps[-1][1] == 0
        assert all(value >= 0 for _, value in steps)
        expected = sum(f.bytes * (f.landed - f.issued) for f in timeline.flights)
        flown = {id(flight.op) for flight in timeline.flights}
        for span in timeline.spans:
            if isinstance(span.op, Copy) and id(span.op) not in flown:
                expected += details(span.op).get("bytes", 0) * (span.end - span.start)
        assert integral(steps) == pytest.approx(expected, rel=1e-9)


def test_every_wait_is_released_by_an_arrival_or_a_landing(case):
    for timeline in case[0]:
        waits = [s for s in timeline.spans if s.stall and s.stall.startswith("wait")]
        ends = sorted((s.cta, s.role, s.end, s.op.barrier.name) for s in waits)
        assert ends == sorted(
            (f.cta, f.role, f.time, f.signal.barrier.name) for f in timeline.flows
        )
        landed = {f.number: f for f in timeline.flights}
        arrived = {(x.cta, x.role, x.time, x.op.signal) for x in timeline.instants}
        for flow in timeline.flows:
            if flow.flight is not None:
                assert landed[flow.flight].landed == flow.time
                assert landed[flow.flight].op.signal == flow.signal
            else:
                assert (flow.cta, flow.source, flow.time, flow.signal) in arrived


@pytest.mark.parametrize("shape", [EQUAL, CAUSAL])
def test_a_limit_follows_the_first_ctas_as_they_are(shape):
    problem = simgpu.Attention(**(shape | {"batch": 4}))
    profile = small("h200")
    whole = simgpu.timeline("fa2", problem, profile, sm=1)
    first = simgpu.timeline("fa2", problem, profile, sm=1, waves=1)
    assert not first.complete
    assert first.cycles < whole.cycles
    assert len(first.stays) < len(whole.stays)
    until = min(stay.end for stay in first.stays)
    assert [s for s in first.spans if s.end <= until] == [s for s in whole.spans if s.end <= until]


def test_spans_as_a_frame():
    timeline = simgpu.timeline("fa3", simgpu.Attention(**EQUAL), small("h100"))
    frame = timeline.to_pandas()
    assert len(frame) == len(timeline.spans) + len(timeline.flights)
    assert frame["start"].is_monotonic_increasing
    loads = frame[(frame.kind == "flight") & (frame.name == "copy K")]
    assert set(loads.tile) == {"K[176:+176]", "K[0:+176]"}
    (stay,) = timeline.stays
    assert loads.bytes.sum() == len(stay.tiles) * 256 * 128 * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sm": 4}, "sm is 4: fa2 runs on SMs 0 to 3"),
        ({"sm": -1}, "sm is -1: fa2 runs on SMs 0 to 3"),
        ({"waves": 0}, "waves is 0: it must be at least 1"),
        ({"launch": 1}, "launch is 1: fa2 has fa2, counted from 0"),
    ],
)
def test_what_is_not_there(arguments, message):
    with pytest.raises(SimgpuError, match=message):
        simgpu.timeline("fa2", simgpu.Attention(**EQUAL), small("h200"), **arguments)
