"""Max-min fair sharing of units, on small sets of jobs whose times are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simgpu.cost.job import Job, demand_of
from simgpu.hardware.machine import ISSUE, UNITS
from simgpu.timing.share import FairShare

CAPACITY = (2.0, 4.0, 0.5)
amounts = st.integers(0, 50).map(float)
jobs = st.builds(Job, st.tuples(amounts, amounts, amounts), st.integers(0, 40).map(float))


def served(jobs, capacity=CAPACITY, limited=True, starts=None):
    """Return the units, and when each job was served, in order of submission."""
    env = simpy.Environment()
    units = FairShare(env, capacity, limited=limited)
    ends = [0.0] * len(jobs)

    def live(number, job, start):
        yield env.timeout(start)
        yield units.submit(job)
        ends[number] = env.now

    for number, job in enumerate(jobs):
        env.process(live(number, job, starts[number] if starts else 0.0))
    env.run()
    return units, ends


def speeds(jobs, capacity=CAPACITY):
    """Return how fast each of the jobs runs when all of them run, relative to running alone."""
    env = simpy.Environment()
    units = FairShare(env, capacity)
    for job in jobs:
        units.submit(job)
    env.run(until=2.0**-30)
    return units, units.speeds


def use(job, unit):
    """Return what a job alone takes of a unit, as a share of it."""
    solo = max(job.solo, *(d / c for d, c in zip(job.demand, CAPACITY, strict=True)))
    return job.demand[unit] / solo / CAPACITY[unit]


@given(jobs)
def test_a_job_alone_takes_its_solo_time_or_that_of_its_slowest_unit(job):
    _, (end,) = served([job])
    assert end == pytest.approx(
        max(job.solo, *(d / c for d, c in zip(job.demand, CAPACITY, strict=True))), rel=1e-12
    )


def test_a_job_without_demand_or_time_is_served_at_once():
    assert served([Job((0.0, 0.0, 0.0))])[1] == [0.0]


def test_two_jobs_on_one_unit_take_twice_as_long():
    assert served([Job((10.0, 0.0, 0.0))] * 2)[1] == [10.0, 10.0]


def test_jobs_that_leave_a_unit_room_do_not_disturb_each_other():
    half = Job((5.0, 0.0, 0.0), solo=5.0)
    assert served([half, half])[1] == [5.0, 5.0]
    assert served([half, half, half])[1] == [7.5, 7.5, 7.5]


def test_jobs_on_different_units_do_not_disturb_each_other():
    one, other = Job((10.0, 0.0, 0.0)), Job((0.0, 12.0, 4.0))
    assert served([one, other])[1] == [5.0, 8.0]


def test_the_job_that_stays_goes_on_at_full_speed():
    assert served([Job((4.0, 0.0, 0.0)), Job((8.0, 0.0, 0.0))])[1] == [4.0, 6.0]


def test_a_job_that_comes_later_shares_from_then_on():
    assert served([Job((8.0, 0.0, 0.0))] * 2, starts=[0.0, 2.0])[1] == [6.0, 8.0]


@given(st.lists(jobs, min_size=1, max_size=6))
def test_no_unit_serves_more_than_it_has(drawn):
    drawn = [job for job in drawn if job.busy]
    _, found = speeds(drawn)
    assert all(0.0 < speed <= 1.0 + 1e-12 for speed in found)
    for unit in range(len(CAPACITY)):
        taken = sum(s * use(job, unit) for s, job in zip(found, drawn, strict=True))
        assert taken <= 1.0 + 1e-9


@given(st.lists(jobs, min_size=1, max_size=6))
def test_max_min_a_slowed_job_is_on_a_full_unit_where_none_is_faster(drawn):
    drawn = [job for job in drawn if job.busy]
    _, found = speeds(drawn)
    for job, speed in zip(drawn, found, strict=True):
        if speed >= 1.0 - 1e-9:
            continue

        def bottleneck(unit, job=job, speed=speed):
            users = [(s, x) for s, x in zip(found, drawn, strict=True) if use(x, unit)]
            full = sum(s * use(x, unit) for s, x in users) >= 1.0 - 1e-9
            return use(job, unit) > 0 and full and all(s <= speed + 1e-9 for s, _ in users)

        assert any(map(bottleneck, range(len(CAPACITY))))


@given(st.lists(jobs, min_size=1, max_size=8), st.data())
def test_what_is_served_is_what_was_asked(drawn, data):
    starts = data.draw(st.lists(st.integers(0, 60), min_size=len(drawn), max_size=len(drawn)))
    units, _ = served(drawn, starts=starts)
    for unit, total in enumerate(units.served):
        assert total == pytest.approx(sum(job.demand[unit] for job in drawn), rel=1e-9)


@given(st.lists(jobs, min_size=1, max_size=8))
def test_a_busy_unit_is_never_idle_when_only_it_is_wanted(drawn):
    demands = [job.demand[0] for job in drawn]
    _, ends = served([Job((d, 0.0, 0.0)) for d in demands])
    assert max(ends) == pytest.approx(sum(demands) / CAPACITY[0], rel=1e-9)


@given(st.lists(jobs, min_size=1, max_size=8), st.data())
def test_unlimited_units_serve_every_job_as_if_alone(drawn, data):
    starts = data.draw(st.lists(st.integers(0, 60), min_size=len(drawn), max_size=len(drawn)))
    _, ends = served(drawn, limited=False, starts=starts)
    for job, start, end in zip(drawn, starts, ends, strict=True):
        assert end - start == pytest.approx(served([job])[1][0], rel=1e-9, abs=1e-9)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 12))
def test_resizing_keeps_what_was_served(before, after, when):
    env = simpy.Environment()
    units = FairShare(env, (float(before),))
    done = units.submit(Job((12.0,)))
    ended = []
    done.callbacks.append(lambda _: ended.append(env.now))
    env.run(until=when + 0.5)
    left = max(0.0, 12.0 - (when + 0.5) * before)
    units.resize((float(after),))
    env.run()
    expected = when + 0.5 + left / after if left else 12.0 / before
    assert ended == [pytest.approx(expected)]
    assert units.served == [pytest.approx(12.0, rel=1e-9)]


def test_jobs_that_end_together_are_served_in_order_of_submission():
    env = simpy.Environment()
    units = FairShare(env, (1.0,))
    order = []

    def live(name):
        yield units.submit(Job((5.0,)))
        order.append((name, env.now))

    for name in "abc":
        env.process(live(name))
    env.run()
    assert order == [("a", 15.0), ("b", 15.0), ("c", 15.0)]


def test_a_successor_submitted_at_a_completion_starts_there():
    env = simpy.Environment()
    units = FairShare(env, (1.0,))
    ends = []

    def live(first, then):
        yield units.submit(Job((first,)))
        yield units.submit(Job((then,)))
        ends.append(env.now)

    env.process(live(2.0, 4.0))
    env.process(live(2.0, 2.0))
    env.run()
    # both end the first at 4; then 4 and 2 share: 2 ends at 8, the other has 2 left and ends at 10
    assert ends == [8.0, 10.0]


# -- products come first; others fill what they leave


def test_products_are_served_in_the_order_in_which_they_came():
    product = Job((10.0, 0.0, 0.0), first=True)
    assert served([product, product])[1] == [5.0, 10.0]
    assert served([product, product], starts=[1.0, 0.0])[1] == [10.0, 5.0]


def test_a_product_does_not_feel_who_issues_beside_it_and_they_have_what_it_leaves():
    slots = [0.0] * len(UNITS)
    slots[ISSUE] = 2.0
    product = Job(demand_of(issue=15.0), solo=10.0, first=True)
    other = Job(demand_of(issue=10.0))
    # for ten cycles the product takes 1.5 of 2 slots a cycle; then the other has all of them
    assert served([product, other], slots)[1] == [10.0, 12.5]
    assert served([other, product], slots)[1] == [12.5, 10.0]


def test_a_product_shares_other_units():
    product, other = Job((15.0, 0.0, 0.0), solo=10.0, first=True), Job((10.0, 0.0, 0.0))
    # of 2 a cycle it wants 1.5 and the other 2: both have 4/7 of that until the other is done
    assert served([product, other])[1] == pytest.approx([13.75, 8.75])
    assert served([other, product])[1] == served([product, other])[1][::-1]


@given(st.lists(jobs, min_size=1, max_size=6), st.data())
def test_what_is_served_is_what_was_asked_with_products_too(drawn, data):
    drawn = [replace(job, first=data.draw(st.booleans())) for job in drawn]
    units, _ = served(drawn)
    for unit, total in enumerate(units.served):
        assert total == pytest.approx(sum(job.demand[unit] for job in drawn), rel=1e-9)


def issued(warps, taken, idle):
    """Return the cycles of 100 instructions while products take a share of the issue slots."""
    env = simpy.Environment()
    slots = [0.0] * len(UNITS)
    slots[ISSUE] = 1.0
    units = FairShare(env, slots, idle=idle)
    if taken:
        units.submit(Job(demand_of(issue=1e6 * taken), solo=1e6, first=True))
    done = units.submit(Job(demand_of(issue=100.0), warps=warps))
    env.run(until=done)
    return env.now


@given(st.floats(0.0, 0.9), st.integers(1, 8))
def test_warps_leave_idle_over_n_of_the_slots_empty(idle, warps):
    assert issued(warps, 0.0, idle) == pytest.approx(100 / (1 - idle / warps))


@given(st.floats(0.0, 0.9), st.floats(0.0, 0.9), st.integers(1, 8))
def test_an_instruction_waits_for_operands_and_then_for_a_slot(idle, taken, warps):
    gap = idle / (warps - idle)
    assert issued(warps, taken, idle) == pytest.approx(100 * (gap + 1 / (1 - taken)), rel=1e-6)
