"""Dispatch of CTAs to SMs: launch order, breadth first, and processor sharing on each SM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.timing.device import Dispatcher, Load, split_life


def work(*cycles):
    return [Load(0.0, float(c)) for c in cycles]


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 40))
def test_equal_loads_make_waves(sms, slots, ctas):
    end, residence = Dispatcher(sms, slots, [1.0] * (slots + 1)).makespan(work(*[10] * ctas))
    assert end == 10 * -(-ctas // (sms * slots))
    assert residence == 10 * ctas


def test_residents_that_share_a_unit_add_up():
    # Two residents halve each other's speed: the SM works through 3 + 5 + 4 cycles without a pause.
    end, residence = Dispatcher(1, 2, [1.0, 1.0, 2.0]).makespan(work(3, 5, 4))
    assert end == 12
    # 3 and 5 share until 6; 5 has 2 left and 4 joins; both until 10; then the last 2 alone.
    assert residence == 2 * 10 + 2


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(1, 4))
def test_processor_sharing_conserves_work(loads, slots):
    slowdown = [1.0, *(float(r) for r in range(1, slots + 1))]
    end, _ = Dispatcher(1, slots, slowdown).makespan(work(*loads))
    assert end == pytest.approx(sum(loads))


def test_dispatch_goes_breadth_first():
    # Four SMs of two slots: the four long CTAs land on four SMs and none is slowed by another.
    slowdown = [1.0, 1.0, 2.0]
    assert Dispatcher(4, 2, slowdown).makespan(work(8, 8, 8, 8)) == (8.0, 32.0)
    # The fifth CTA joins the first on SM 0.
    assert Dispatcher(4, 2, slowdown).makespan(work(8, 8, 8, 8, 8))[0] == 16.0


def test_the_next_cta_in_launch_order_takes_the_first_free_slot():
    # SM 0 gets 1, 4 and 2; SM 1 gets 7. In any other order the end would be 8 or more.
    assert Dispatcher(2, 1, [1.0, 1.0]).makespan(work(1, 7, 4, 2))[0] == 7.0
    assert Dispatcher(2, 1, [1.0, 1.0]).makespan(work(1, 7, 2, 4, 3))[0] == 10.0


def test_latency_is_not_prolonged_by_residents():
    slowdown = [1.0, 1.0, 2.0]
    assert Dispatcher(1, 2, slowdown).makespan([Load(100.0, 0.0)] * 2)[0] == 100.0
    assert Dispatcher(1, 2, slowdown).makespan([Load(100.0, 10.0)] * 2)[0] == 120.0


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_residence_is_between_what_ctas_need_and_what_slots_have(loads, sms, slots):
    slowdown = [1.0] + [1.0 + 0.4 * (r - 1) for r in range(1, slots + 1)]
    end, residence = Dispatcher(sms, slots, slowdown).makespan(Load(*map(float, x)) for x in loads)
    alone = sum(a + b for a, b in loads)
    assert alone * (1 - 1e-9) <= residence <= end * min(len(loads), sms * slots) * (1 + 1e-9)
    assert end * (1 + 1e-9) >= max(a + b for a, b in loads)


@given(st.floats(1, 1e6), st.floats(1.0, 8.0), st.floats(0.0, 1.0))
def test_a_life_splits_into_latency_and_work(alone, slowdown, share):
    work = share * alone
    load = split_life(alone, alone - work + work * slowdown, slowdown)
    assert load.latency + load.work == pytest.approx(alone)
    assert load.latency + load.work * slowdown == pytest.approx(alone - work + work * slowdown)


def test_a_life_that_residents_do_not_prolong_is_all_latency():
    assert split_life(100.0, 100.0, 2.0) == Load(100.0, 0.0)
    assert split_life(100.0, 90.0, 2.0) == Load(100.0, 0.0)
