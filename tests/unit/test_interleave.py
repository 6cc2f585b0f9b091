"""Interleavings: legal in every order, different between orders, and the same for a seed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.errors import VerifyError
from simgpu.index import Index
from simgpu.problem import Attention
from simgpu.program.builder import Cta
from simgpu.program.interleave import (
    AdversarialOrder,
    Phases,
    ProgramOrder,
    RandomOrder,
    interleave,
)
from simgpu.program.ops import Mma, Wait
from simgpu.program.program import op_count, walk
from simgpu.program.record import record
from simgpu.program.tile import Barrier, Signal
from tests.laws.cases import SMALL

P = Attention(batch=1, heads_q=1, seq_q=64, seq_kv=90, head_dim=16)
PROGRAM = record(SMALL["fa3"], P).launches[0].classes[0].program
ENV = {"m": 0}
orders = st.one_of(
    st.just(ProgramOrder()),
    st.builds(RandomOrder, st.integers(0, 99)),
    st.builds(AdversarialOrder, st.integers(0, 99)),
)


def keys(actions):
    return [(a.kind, a.role, a.number) for a in actions]


@given(order=orders)
def test_every_operation_happens_once_and_roles_keep_program_order(order):
    actions = list(interleave(PROGRAM, ENV, order))
    for number, role in enumerate(PROGRAM.roles):
        done = [a.op for a in actions if a.role == number and a.kind != "land"]
        assert done == list(walk(role.body, dict(ENV)))
        assert len(done) == op_count(role.body)
    issued = [a.number for a in actions if a.kind == "issue"]
    landed = [a.number for a in actions if a.kind == "land"]
    assert sorted(issued) == sorted(landed)


@given(order=orders)
def test_landings_follow_their_issue_and_products_land_in_order(order):
    at = {}
    landed = {r: [] for r in range(len(PROGRAM.roles))}
    for step, action in enumerate(interleave(PROGRAM, ENV, order)):
        if action.kind == "issue":
            at[action.number] = step
        elif action.kind == "land":
            assert at[action.number] < step
            if isinstance(action.op, Mma):
                landed[action.role].append(action.number)
    assert all(numbers == sorted(numbers) for numbers in landed.values())


@given(order=orders)
def test_a_wait_returns_only_after_its_phase_has_completed(order):
    phases = Phases()
    for action in interleave(PROGRAM, ENV, order, phases):
        if isinstance(action.op, Wait):
            assert phases.passed(action.op, action.env)


@pytest.mark.parametrize("order", [RandomOrder, AdversarialOrder])
def test_a_seed_gives_one_order_and_others_give_others(order):
    def run(seed):
        return tuple(keys(interleave(PROGRAM, ENV, order(seed))))

    assert run(3) == run(3)
    assert len({run(seed) for seed in range(5)}) == 5


def test_program_order_lands_everything_at_once():
    actions = keys(interleave(PROGRAM, ENV, ProgramOrder()))
    for (kind, _, number), after in pairwise(actions):
        if kind == "issue":
            assert after[0] == "land"
            assert after[2] == number


def test_adversarial_order_holds_one_agent_back():
    """Some seed lets a copy land only when nothing else can go on."""

    def latest_landing(seed):
        cta = Cta({})
        q, full = cta.smem("q", (16, 16), "fp16"), cta.mbarrier("full")
        with cta.role("all", warps=4) as w:
            w.copy(P.q.tile(0, 16), q, path="tma", signal=full)
            for _ in w.repeat(20):
                w.sync()
        kinds = [a.kind for a in interleave(cta.finish(), {}, AdversarialOrder(seed))]
        return kinds.index("land")

    assert {1, 41} <= {latest_landing(seed) for seed in range(10)}


# -- phases


def signal(use, count=1, stages=1):
    return Signal(Barrier("b", "mbarrier", count, stages), Index(use))


def test_a_phase_completes_after_its_count_of_arrivals():
    phases, one = Phases(), signal(0, count=2)
    phases.arrive(one, {})
    assert not phases.passed(Wait(one), {})
    assert phases.last_arrival(one.barrier, 0)
    phases.arrive(one, {})
    assert phases.passed(Wait(one), {})


def test_uses_alternate_between_slots():
    phases = Phases()
    for use in range(3):
        phases.arrive(signal(use, stages=2), {})
    barrier = signal(0, stages=2).barrier
    assert (phases.completed(barrier, 0), phases.completed(barrier, 1)) == (2, 1)
    assert phases.passed(Wait(signal(2, stages=2)), {})
    assert not phases.passed(Wait(signal(3, stages=2)), {})
    assert phases.passed(Wait(signal(3, stages=2), lag=1), {})


def test_uses_below_zero_are_void():
    phases = Phases()
    phases.arrive(signal(-1), {})
    assert phases.completed(signal(0).barrier, 0) == 0
    assert phases.passed(Wait(signal(-1)), {})
    assert phases.passed(Wait(signal(0), lag=1), {})


def test_an_arrival_out_of_phase_is_refused():
    with pytest.raises(VerifyError, match="an arrival for phase 1 comes while phase 0"):
        Phases().arrive(signal(1), {})
