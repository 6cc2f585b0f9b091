"""Registers a thread, estimated from tiles, against what a compiler gave 136 kernels."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

import pytest

import simgpu.validation
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.cost.registers import estimated_registers
from simgpu.hardware.load import load_profile
from simgpu.hardware.occupancy import occupancy
from simgpu.problem import Attention
from simgpu.program.record import record
from tests.schedules.fa3_roles import FlashAttention3Roles


def estimate(schedule, head_dim=128):
    problem = Attention(batch=1, heads_q=1, seq_q=256, head_dim=head_dim)
    program = record(schedule, problem).launches[0].classes[0].program
    return estimated_registers(program, load_profile("h200")), program


def test_larger_tiles_take_more_and_more_warps_take_fewer():
    small, large = (estimate(FlashAttention2(block_n=n))[0] for n in (32, 64))
    halved = estimate(FlashAttention2(block_n=64, warps=8))[0]
    assert halved < small < large


def test_the_cap_of_a_thread():
    assert estimate(FlashAttention2(block_m=256, block_n=128))[0] == 255


def test_warps_that_set_their_own_registers_fit_as_the_hardware_hands_them_out():
    registers, program = estimate(FlashAttention3Roles())
    pool = sum(32 * role.warps * role.registers for role in program.roles)
    assert registers * 32 * 12 == pytest.approx(pool, rel=0.01)  # nine warps, given out as twelve
    fit = occupancy(
        load_profile("h200"),
        registers_per_thread=registers,
        shared_bytes=program.shared_bytes,
        warps=program.warps,
    )
    assert fit.limits.registers == 1


def test_the_error_on_measured_kernels():
    path = Path(simgpu.validation.__file__).parent / "measured/h200_sxm/triton_fa2_counters.json"
    errors = []
    for run in json.loads(path.read_text())["runs"]:
        kernel = run["kernel"]
        schedule = FlashAttention2(
            block_m=kernel["block_m"],
            block_n=kernel["block_n"],
            stages=kernel["num_stages"],
            warps=kernel["num_warps"],
        )
        found = estimate(schedule, run["problem"]["head_dim"])[0]
        errors.append(found / kernel["registers"] - 1)
    assert len(errors) == 136
    assert mean(map(abs, errors)) <= 0.1
