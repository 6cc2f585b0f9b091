"""Law: more capacity, or less latency, never slows a run beyond a small tolerance.

Not at all would be too much to ask: roles that compete for a unit may meet in another order on a
faster machine, as jobs on a list scheduler do (Graham, 1969).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from simgpu.algorithms.fa1 import FlashAttention1
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.algorithms.standard import StandardAttention
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import HBM, Machine
from simgpu.hardware.sections import Costs
from simgpu.problem import Attention
from simgpu.program.record import record
from simgpu.read.traffic import traffic
from simgpu.timing.cache import L2
from simgpu.timing.simulate import simulate
from tests.laws.test_bounded import changed
from tests.schedules.fa3_roles import FlashAttention3Roles

if TYPE_CHECKING:
    from simgpu.program.program import Recording

#: The most that an improvement slowed any of 836 drawn runs, fast and exact, was 1.6 %.
TOLERANCE = 0.02

FASTER = (
    "rates.tensor_flops_fp16",
    "rates.mufu_instructions",
    "rates.fma_instructions",
    "rates.alu_instructions",
    "rates.issue_slots",
    "rates.lsu_bytes",
    "rates.smem_bytes",
    "rates.l2_bytes",
    "memory.hbm_sustained_gb_per_s",
    "memory.l2_bandwidth_bytes_per_clock",
    "memory.l2_effective_bytes",
)
SOONER = (
    "memory.l2_hit_latency_cycles",
    "memory.hbm_latency_cycles",
    *(f"costs.{name}" for name in Costs.model_fields if "cycles" in name),
)

schedules = st.sampled_from(
    [
        FlashAttention1(),
        FlashAttention2(block_m=64, stages=1),
        FlashAttention2(block_m=64, block_n=32, stages=2, warps=8),
        FlashAttention2(block_m=128, block_n=64, stages=3, warps=8),
        FlashAttention2(block_m=64, block_n=128, stages=4),
        StandardAttention(),
        FlashAttention3Roles(),
        FlashAttention3Roles(block_n=64, pingpong=False),
        FlashAttention3Roles(overlap=False),
    ]
)
problems = st.builds(
    Attention,
    batch=st.integers(1, 2),
    heads_q=st.sampled_from([1, 3, 5]),
    seq_q=st.integers(100, 400),
    head_dim=st.sampled_from([64, 128]),
    causal=st.booleans(),
)
gpus = st.sampled_from(["h100", "h200", "b200"])


def cycles(recording: Recording, machine: Machine, slots: int, exact: bool) -> float:
    """Cycles of all launches, L2 kept from one to the next."""
    problem, total = recording.problem, 0.0
    l2 = L2(machine.profile.memory.l2_effective_bytes)
    for launch in recording.launches:
        made = traffic(launch, problem, machine, slots, l2)
        moved = made.demand[HBM]
        total += simulate(
            launch, problem.dtype, machine, slots, made.misses, exact=exact, hbm_bytes=moved
        ).cycles
    return total


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
@settings(max_examples=12)
@given(
    schedule=schedules,
    problem=problems,
    gpu=gpus,
    slots=st.integers(1, 3),
    factor=st.sampled_from([1.05, 1.3, 2.0, 4.0]),
    paths=st.lists(st.sampled_from(FASTER + SOONER), min_size=2, max_size=4, unique=True),
)
def test_an_improvement_does_not_slow_a_run(exact, schedule, problem, gpu, slots, factor, paths):
    recording = record(schedule, problem)
    machine = Machine.from_profile(load_profile(gpu))
    before = cycles(recording, machine, slots, exact)
    for path in paths:
        better = changed(machine, {path: factor if path in FASTER else 1 / factor})
        after = cycles(recording, better, slots, exact)
        note(f"{path}: {before} to {after} cycles")
        assert after <= before * (1 + TOLERANCE)


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
def test_twice_the_sms_speed_up_a_long_grid(exact):
    problem = Attention(batch=2, heads_q=16, seq_q=1100, seq_kv=300, head_dim=64)
    recording = record(FlashAttention2(), problem)
    machine = Machine.from_profile(load_profile("h200"))
    before = cycles(recording, machine, 1, exact)
    assert cycles(recording, changed(machine, {"device.sm_count": 2.0}), 1, exact) < 0.8 * before


def test_hbm_bandwidth_in_small_steps():
    problem = Attention(batch=4, heads_q=16, seq_q=500, head_dim=128)
    recording = record(FlashAttention2(block_m=64, block_n=64, stages=2), problem)
    machine = Machine.from_profile(load_profile("h100"))
    steps = [{"memory.hbm_sustained_gb_per_s": 1.05**i} for i in range(12)]
    found = [cycles(recording, changed(machine, step), 3, exact=False) for step in steps]
    assert all(b <= a * (1 + TOLERANCE) for a, b in pairwise(found))
