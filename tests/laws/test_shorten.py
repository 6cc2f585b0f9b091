"""Law: a program cut short and extrapolated is the full one, in time and in what it adds up to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
import simpy
from hypothesis import given, note, settings
from hypothesis import strategies as st

from simgpu.algorithms.fa1 import FlashAttention1
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.algorithms.standard import StandardAttention
from simgpu.cost.instructions import instructions
from simgpu.cost.job import MissRates
from simgpu.cost.work import Work, work
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import Machine
from simgpu.problem import Attention
from simgpu.program.mix import Mix
from simgpu.program.ops import Repeat
from simgpu.program.program import op_count
from simgpu.program.record import record
from simgpu.program.worklist import WorkTile
from simgpu.read.count import count_launch
from simgpu.read.tally import tally
from simgpu.timing.book import JobBook
from simgpu.timing.shorten import FEW, shorten
from simgpu.timing.sm import Sm
from simgpu.timing.steady import SmTimes
from tests.laws.test_conserved import executions
from tests.schedules.fa3_roles import FlashAttention3Roles

if TYPE_CHECKING:
    from simgpu.program.program import Launch

schedules = st.one_of(
    st.builds(
        FlashAttention2,
        block_m=st.sampled_from([64, 128]),
        block_n=st.sampled_from([32, 64]),
        stages=st.integers(1, 4),
        warps=st.sampled_from([4, 8]),
    ),
    st.builds(
        FlashAttention3Roles,
        block_n=st.sampled_from([32, 64]),
        stages=st.integers(1, 3),
        pingpong=st.booleans(),
        overlap=st.booleans(),
    ),
    st.just(StandardAttention()),
)
#: Long enough for loops to be cut; masked loops are long where the Q tile is taller than K's.
problems = st.builds(
    Attention,
    batch=st.just(1),
    heads_q=st.just(1),
    seq_q=st.integers(100, 300),
    seq_kv=st.integers(700, 1500),
    head_dim=st.sampled_from([64, 128]),
    causal=st.booleans(),
    window=st.sampled_from([None, None, 300]),
)
MISSES = MissRates(
    read={"K": 0.3, "V": 0.3, "Q": 1.0}, written={"O": 1.0}, late={"K": 0.3, "V": 0.3, "Q": 0.3}
)


def machine() -> Machine:
    return Machine.from_profile(load_profile("h200"))


def full_life(launch: Launch, number: int, residents: int) -> float:
    """The mean life of residents that run the program as recorded, every pass of it."""
    env, cta_class = simpy.Environment(), launch.classes[number]
    sm = Sm(env, machine(), JobBook(machine(), "fp16", MISSES))
    ends: list[float] = []
    for _ in range(residents):
        sm.start(WorkTile(cta_class.program, cta_class.env), lambda: ends.append(env.now))
    env.run()
    assert len(ends) == residents
    return sum(ends) / residents


@settings(max_examples=15)
@given(schedule=schedules, problem=problems, residents=st.integers(1, 3))
def test_the_time_is_that_of_the_full_program(schedule, problem, residents):
    if isinstance(schedule, FlashAttention3Roles):
        residents = 1  # its registers leave room for no other
    launch = record(schedule, problem).launches[-1]
    short = SmTimes(machine(), "fp16", MISSES)
    for number in range(len(launch.classes)):
        full = full_life(launch, number, residents)
        life = short.life(launch, number, residents).cycles
        note(f"class {number}: {life} of {full}")
        assert life == pytest.approx(full, rel=0.015)


@settings(max_examples=20)
@given(schedule=schedules, problem=problems)
def test_a_shortened_program_and_what_it_lacks_are_the_full_one(schedule, problem):
    for launch in record(schedule, problem).launches:
        for cta_class in launch.classes:
            short = shorten(cta_class.program, cta_class.env)
            full = sum(op_count(r.body) for r in cta_class.program.roles)
            left = sum(op_count(r.body) for r in short.program.roles)
            cut = [c.passes * op_count(loop.body) for c in short.cuts for _, loop in c.loops]
            assert left + sum(cut) == full
            loops = [s for r in short.program.roles for s in r.body if isinstance(s, Repeat)]
            assert all(loop.trips <= FEW for loop in loops)


class _Sum(NamedTuple):
    work: Work = Work()
    mix: Mix = Mix()

    def plus(self, other: _Sum, times: int = 1) -> _Sum:
        return _Sum(self.work.plus(other.work, times), self.mix.plus(other.mix.times(times)))


@settings(max_examples=20)
@given(schedule=st.one_of(schedules, st.just(FlashAttention1(block_n=64))), problem=problems)
def test_the_tally_is_that_of_the_full_walk(schedule, problem):
    on = machine()
    for launch in record(schedule, problem).launches:
        added = tally(
            launch,
            _Sum(),
            lambda op, role, env: _Sum(work(op, role, env), instructions(op, role, on)),
        )
        total = _Sum()
        for op, role, env, _ in executions(launch):
            total = total.plus(_Sum(work(op, role, env), instructions(op, role, on)))
        assert added.work == total.work == count_launch(launch)
        assert tuple(added.mix) == pytest.approx(tuple(total.mix), rel=1e-9)


@pytest.mark.parametrize("stages", range(1, 9))
def test_rings_deeper_than_what_is_left_of_a_loop(stages):
    problem = Attention(batch=1, heads_q=1, seq_q=64, seq_kv=1200, head_dim=64)
    schedule = FlashAttention2(block_m=64, block_n=32, stages=stages)
    (launch,) = record(schedule, problem).launches
    assert count_launch(launch).barriers == sum(
        work(op, role, env).barriers for op, role, env, _ in executions(launch)
    )
    life = SmTimes(machine(), "fp16", MISSES).life(launch, 0, 2).cycles
    assert life == pytest.approx(full_life(launch, 0, 2), rel=0.01)
