"""Occupancy: equal to Nsight Compute on every measured kernel, and lawful on all others."""

from __future__ import annotations

import json
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.errors import ScheduleError
from simgpu.hardware.load import load_profile
from simgpu.hardware.occupancy import occupancy

H200 = load_profile("h200")
MEASURED = resources.files("simgpu") / "validation/measured/h200_sxm/triton_fa2_counters.json"
RUNS = json.loads(MEASURED.read_text(encoding="utf-8"))["runs"]
GPUS = [load_profile(name) for name in ("a100", "h100", "h200", "b200")]


def of(registers=128, shared=0, warps=4, gpu=H200):
    return occupancy(gpu, registers_per_thread=registers, shared_bytes=shared, warps=warps)


def measured(run):
    kernel, counters = run["kernel"], run["counters"]
    counted = {
        name: counters[f"launch__occupancy_limit_{name}"]
        for name in ("registers", "shared_mem", "warps", "blocks")
    }
    return of(kernel["registers"], kernel["shared_bytes"], kernel["num_warps"]), counted


def test_there_are_136_measured_configurations():
    assert len(RUNS) == 136


@pytest.mark.parametrize("limit", ["registers", "warps", "blocks"])
def test_limit_equals_the_counter_in_all_runs(limit):
    pairs = [measured(run) for run in RUNS]
    assert [getattr(o.limits, limit) for o, _ in pairs] == [c[limit] for _, c in pairs]


def test_shared_limit_at_the_carveout_equals_the_counter_in_all_runs():
    pairs = [measured(run) for run in RUNS]
    assert [o.shared_at_carveout for o, _ in pairs] == [c["shared_mem"] for _, c in pairs]


def test_ctas_equal_the_least_counter_in_all_runs():
    pairs = [measured(run) for run in RUNS]
    assert [o.ctas_per_sm for o, _ in pairs] == [min(c.values()) for _, c in pairs]


def test_allocated_shared_memory_equals_the_counter_in_all_runs():
    sm = H200.occupancy
    for run in RUNS:
        wanted = run["kernel"]["shared_bytes"] + sm.smem_reserved_per_cta_bytes
        allocated = -(-wanted // sm.smem_unit_bytes) * sm.smem_unit_bytes
        assert allocated == run["counters"]["launch__shared_mem_per_block_allocated"]


sizes = {
    "gpu": st.sampled_from(GPUS),
    "registers": st.integers(1, 300),
    "shared": st.integers(0, 260_000),
    "warps": st.integers(1, 40),
}


@given(**sizes)
def test_never_exceeds_what_an_sm_has(gpu, registers, shared, warps):
    o, sm = of(registers, shared, warps, gpu), gpu.occupancy
    n = o.ctas_per_sm
    assert n == o.limits.least
    assert o.warps_per_sm == n * warps <= sm.warps_per_sm
    assert n <= sm.ctas_per_sm
    assert n * warps * gpu.device.warp_size * registers <= sm.registers_per_sm
    assert n * (shared + sm.smem_reserved_per_cta_bytes) <= sm.smem_per_sm_bytes
    assert n == getattr(o.limits, o.limiter)


@given(**sizes, more=st.integers(0, 5000))
def test_asking_for_more_never_gives_more(gpu, registers, shared, warps, more):
    n = of(registers, shared, warps, gpu).ctas_per_sm
    assert of(registers + more, shared, warps, gpu).ctas_per_sm <= n
    assert of(registers, shared + more, warps, gpu).ctas_per_sm <= n
    assert of(registers, shared, warps + more, gpu).ctas_per_sm <= n


@given(**sizes)
def test_the_carveout_never_lowers_occupancy(gpu, registers, shared, warps):
    o = of(registers, shared, warps, gpu)
    assert o.limits._replace(shared=o.shared_at_carveout).least == o.ctas_per_sm
    assert o.shared_at_carveout <= o.limits.shared


@given(**sizes)
def test_there_is_a_reason_exactly_when_nothing_fits(gpu, registers, shared, warps):
    o = of(registers, shared, warps, gpu)
    assert bool(o.reason) == (o.ctas_per_sm == 0)


def test_registers_are_given_to_warps_in_units_and_by_sub_partition():
    assert of(registers=168).limits.registers == 3  # 3 warps of a sub-partition's 16384
    assert of(registers=161).limits.registers == 3
    assert of(registers=160).limits.registers == 3
    assert of(registers=168, warps=12).limits.registers == 1
    assert of(registers=168, warps=6).limits.registers == 2


def test_full_shared_memory_fits_one_cta():
    o = of(shared=232448)
    assert (o.ctas_per_sm, o.limiter, o.limits.shared) == (1, "shared", 1)


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ({"shared": 232449}, "a CTA wants 232449 bytes of shared memory; it may have 232448"),
        ({"registers": 256}, "a thread wants 256 registers; it may have 255"),
        ({"registers": 255, "warps": 9}, "a CTA wants 98304 registers; it may have 65536"),
        ({"registers": 32, "warps": 33}, "a CTA wants 1056 threads; it may have 1024"),
    ],
)
def test_what_does_not_fit_says_what_it_wants_and_what_there_is(size, reason):
    o = of(**size)
    assert (o.ctas_per_sm, o.warps_per_sm, o.reason) == (0, 0, reason)


def test_an_sm_made_smaller_by_the_caller():
    small = H200.with_changes({"occupancy.smem_per_sm_bytes": 20000, "occupancy.warps_per_sm": 4})
    assert of(shared=18000, gpu=small).ctas_per_sm == 1
    assert of(shared=19000, gpu=small).reason == (
        "a CTA wants 19000 bytes of shared memory; it may have 18976"
    )
    assert of(warps=5, registers=32, gpu=small).reason == "a CTA wants 5 warps; an SM has 4"


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"registers": 0}, "registers_per_thread is 0; it must be at least 1"),
        ({"shared": -1}, "shared_bytes is -1; it must be at least 0"),
        ({"warps": 0}, "warps is 0; it must be at least 1"),
    ],
)
def test_counts_that_no_kernel_has(size, message):
    with pytest.raises(ScheduleError) as caught:
        of(**size)
    assert str(caught.value) == message
