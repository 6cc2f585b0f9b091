"""CTAs one after the other: slots out of step use what they left idle in step."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import HBM, Machine
from simgpu.place import place, prepare
from simgpu.timing.steady import SmTimes

P = simgpu.Attention(batch=16, heads_q=16, seq_q=1024, head_dim=64)


@pytest.fixture(scope="module")
def placed():
    return list(place(prepare("standard", P, "h200", None, None, None, "analytic")))


@pytest.mark.parametrize("number", range(3), ids=["qk", "softmax", "pv"])
def test_slots_out_of_step_are_quicker_but_not_than_hbm(placed, number):
    machine, one = Machine.from_profile(load_profile("h200")), placed[number]
    times = SmTimes(machine, P.dtype, one.served.misses)
    slots = one.fit.ctas_per_sm
    (life,), (later,) = (f(one.launch, slots) for f in (times.lives, times.lives_in_steady))
    assert later.cycles < life.cycles
    asked = one.served.demand[HBM] / one.launch.grid.tiles * slots
    assert later.cycles >= asked / machine.capacity[HBM] * (1 - 1e-6)


def test_a_short_cta_loads_while_its_neighbours_store(placed):
    machine, scores = Machine.from_profile(load_profile("h200")), placed[0]
    times = SmTimes(machine, P.dtype, scores.served.misses)
    slots = scores.fit.ctas_per_sm
    (life,), (later,) = (f(scores.launch, slots) for f in (times.lives, times.lives_in_steady))
    assert slots == 4
    assert later.cycles < 0.9 * life.cycles


def test_a_cta_that_has_the_sm_to_itself_takes_its_life_again(placed):
    machine, scores = Machine.from_profile(load_profile("h200")), placed[0]
    times = SmTimes(machine, P.dtype, scores.served.misses)
    (life,), (later,) = (f(scores.launch, 1) for f in (times.lives, times.lives_in_steady))
    assert later.cycles == pytest.approx(life.cycles, rel=0.1)
