"""The board's clock: where power meets the limit, and what a run makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simgpu
from simgpu.errors import UnknownNameError, UnsupportedError
from simgpu.front import activity
from simgpu.hardware.load import load_profile
from simgpu.timing.clock import Activity, board_clock, board_watts

H200 = load_profile("h200")
CYCLES = 1e6
#: A dense product: all tensor cores busy, and the bytes and instructions that go with it.
BUSY = Activity(CYCLES, 132 * 4096 * CYCLES, 132 * 2 * CYCLES, 4e3 * CYCLES, 1e3 * CYCLES, 1.0)
PROBLEM = simgpu.Attention(batch=4, heads_q=16, seq_q=2048, head_dim=128)
WORK = ("tensor_flops", "instructions", "l2_bytes", "hbm_bytes")


def test_under_the_limit_the_clock_is_what_the_sms_reach_together():
    little = Activity(CYCLES, 0.0, 0.0, 0.0, 0.0, 1.0)
    assert board_clock(H200, little) == H200.energy.loaded_mhz
    few = board_clock(H200, replace(little, working_sms=0.0))
    assert few == H200.device.boost_mhz
    assert H200.energy.loaded_mhz < board_clock(H200, replace(little, working_sms=0.5)) < few


def test_over_the_limit_the_board_draws_exactly_the_limit():
    clock = board_clock(H200, BUSY)
    assert clock < H200.energy.loaded_mhz
    assert board_watts(H200.energy, BUSY, clock) == pytest.approx(H200.power.limit_watts, rel=1e-9)


@given(st.sampled_from(WORK), st.floats(1.0, 4.0))
def test_more_of_any_work_never_raises_the_clock(name, times):
    more = replace(BUSY, **{name: getattr(BUSY, name) * times})
    assert board_clock(H200, more) <= board_clock(H200, BUSY)


def test_the_same_work_in_more_cycles_runs_at_a_higher_clock():
    assert board_clock(H200, replace(BUSY, cycles=2 * CYCLES)) > board_clock(H200, BUSY)


def test_a_profile_without_energies_says_what_to_do():
    with pytest.raises(UnsupportedError, match="no energy section"):
        board_clock(load_profile("a100"), BUSY)


def test_a_run_is_at_the_boards_clock_unless_told_otherwise():
    run = simgpu.run("fa2", PROBLEM, "h200")
    assert run.provenance["clock"] == "board"
    assert run.clock_mhz == board_clock(H200, activity(run))
    fixed = simgpu.run("fa2", PROBLEM, "h200", clock="sustained")
    assert fixed.clock_mhz == H200.device.sustained_mhz
    assert fixed.cycles == run.cycles  # HBM is idle for most of this run
    assert simgpu.run("fa2", PROBLEM, "h200", clock_mhz=1500).clock_mhz == 1500


def test_where_hbm_is_waited_for_cycles_are_those_at_the_boards_clock():
    problem = replace(PROBLEM, seq_q=64, seq_kv=8192)
    run = simgpu.run("fa2", problem, "h200")
    at_clock = simgpu.run("fa2", problem, "h200", clock_mhz=run.clock_mhz)
    fixed = simgpu.run("fa2", problem, "h200", clock="sustained")
    assert run.cycles == at_clock.cycles != fixed.cycles


def test_a_gpu_without_energies_runs_at_its_sustained_clock():
    run = simgpu.run("fa2", PROBLEM, "a100")
    assert run.clock_mhz == load_profile("a100").device.sustained_mhz
    assert run.provenance["clock"] == "sustained"


def test_an_unknown_clock_is_refused():
    with pytest.raises(UnknownNameError, match="board"):
        simgpu.run("fa2", PROBLEM, "h200", clock="bord")


def test_operands_of_8_bits_take_half_the_energy():
    problem = simgpu.Attention(batch=1, heads_q=4, seq_q=512, head_dim=128, dtype="fp8")
    run = simgpu.run("fa3", problem, "h200")
    executed = sum(launch.work.flops_tensor for launch in run.launches)
    assert activity(run).tensor_flops == executed / 2
