"""Static checks: each kind of mistake is refused in words that name who and what."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.errors import VerifyError
from simgpu.index import Index
from simgpu.problem import Attention
from simgpu.program.builder import Cta
from simgpu.program.record import record
from simgpu.program.tile import Signal
from simgpu.program.verify import check_fit, verify

P = Attention(batch=1, heads_q=1, seq_q=64, head_dim=16)


class Program:
    """A CTA under construction, with a tile in shared memory and one in registers."""

    def __init__(self):
        self.cta = Cta({})
        self.q = self.cta.smem("q", (16, 16), "fp16")
        self.x = self.cta.regs("x", (16, 16), "fp16")

    @contextmanager
    def role(self, name):
        with self.cta.role(name, warps=4) as w:
            yield w

    def verify(self):
        verify(self.cta.finish(), {})


@pytest.fixture
def program():
    return Program()


def refused(program, *parts):
    with pytest.raises(VerifyError) as error:
        program.verify()
    for part in parts:
        assert part in str(error.value)


# -- fit


def test_buffers_that_do_not_fit_are_listed_with_their_bytes():
    p = Attention(batch=1, heads_q=1, seq_q=4096, head_dim=128)
    program = record(FlashAttention2(stages=4), p).launches[0].classes[0].program
    check_fit(program, program.shared_bytes)
    with pytest.raises(VerifyError) as error:
        check_fit(program, program.shared_bytes - 1)
    assert "163840 bytes wanted (q 32768, k 65536, v 65536), 163839 bytes" in str(error.value)


# -- deadlocks


def test_a_deadlock_names_its_barriers_and_roles(program):
    a, b = program.cta.barrier("a"), program.cta.barrier("b")
    with program.role("left") as w:
        w.wait(a)
        w.arrive(b)
    with program.role("right") as w:
        w.wait(b)
        w.arrive(a)
    refused(
        program,
        "deadlock: role 'left' waits for phase 0 of barrier a (slot 0), which has completed 0",
        "role 'right' waits for phase 0 of barrier b",
    )


def test_a_missing_arrival_is_a_deadlock(program):
    both = program.cta.barrier("both", count=2)
    with program.role("one") as w:
        w.arrive(both)
        w.wait(both)
    refused(program, "deadlock: role 'one' waits for phase 0 of barrier both", "completed 0 phases")


def test_a_ring_whose_consumer_never_releases_stops_its_producer(program):
    k = program.cta.ring("k", (16, 16), "fp16", stages=2)
    with program.role("producer") as w:
        for i in w.repeat(3):
            w.load(P.k.tile(i, 16), k, path="tma")
    with program.role("consumer") as w:
        for _ in w.repeat(3):
            w.take(k)
    refused(program, "role 'producer' waits for phase 0 of barrier k.empty (slot 0)")


def test_releases_of_too_few_consumers_stop_the_producer(program):
    k = program.cta.ring("k", (16, 16), "fp16", stages=1, consumers=2)
    with program.role("producer") as w:
        for i in w.repeat(2):
            w.load(P.k.tile(i, 16), k, path="tma")
    with program.role("consumer") as w:
        for _ in w.repeat(2):
            w.take(k)
            w.release(k)
    refused(program, "role 'producer' waits for phase 0 of barrier k.empty")


# -- arrivals


def test_arrivals_of_two_roles_at_a_barrier_for_one_do_not_pair_up(program):
    turn = program.cta.barrier("turn")
    for name in ("one", "other"):
        with program.role(name) as w:
            w.arrive(turn)
    refused(
        program,
        "barrier turn slot 0: an arrival for phase 0 comes while phase 1 is in progress",
        "its count is 1",
    )


def test_a_slot_released_twice_is_refused(program):
    k = program.cta.ring("k", (16, 16), "fp16", stages=1)
    with program.role("all") as w:
        w.load(P.k.tile(0, 16), k, path="tma")
        w.take(k)
        w.release(k)
        w.release(k)
    refused(program, "barrier k.empty slot 0: an arrival for phase 0 comes while phase 1")


def test_a_phase_that_its_waiter_may_miss_is_refused(program):
    turn = program.cta.barrier("turn")
    with program.role("eager") as w:
        w.arrive(turn)
        w.arrive(turn)
    with program.role("slow") as w:
        w.wait(turn)
    refused(
        program,
        "barrier turn slot 0: phase 1 may complete before role 'slow' has waited for phase 0",
    )


def test_the_order_of_the_roles_does_not_hide_a_missed_phase(program):
    turn = program.cta.barrier("turn")
    with program.role("slow") as w:
        w.wait(turn)
    with program.role("eager") as w:
        w.arrive(turn)
        w.arrive(turn)
    refused(program, "barrier turn slot 0: phase 1 may complete before role 'slow'")


def test_a_phase_handed_back_before_the_next_is_fine(program):
    there, back = program.cta.barrier("there"), program.cta.barrier("back")
    with program.role("one") as w:
        for _ in w.repeat(4):
            w.arrive(there)
            w.wait(back)
    with program.role("other") as w:
        for _ in w.repeat(4):
            w.wait(there)
            w.arrive(back)
    program.verify()


# -- races


def test_a_race_names_its_two_operations(program):
    with program.role("writer") as w:
        w.copy(P.q.tile(0, 16), program.q)
    with program.role("reader") as w:
        w.copy(program.q, program.x)
    refused(
        program,
        "race on q slot 0",
        "'copy  q <- Q[0:+16]' (role 'writer', operation 0)",
        "'copy  x <- q' (role 'reader', operation 1)",
    )


def test_a_barrier_orders_what_was_a_race(program):
    ready = program.cta.barrier("ready")
    with program.role("writer") as w:
        w.copy(P.q.tile(0, 16), program.q)
        w.arrive(ready)
    with program.role("reader") as w:
        w.wait(ready)
        w.copy(program.q, program.x)
    program.verify()


def test_reading_what_is_still_being_loaded_is_a_race(program):
    full = program.cta.mbarrier("full")
    with program.role("all") as w:
        w.copy(P.q.tile(0, 16), program.q, path="tma", signal=full)
        w.copy(program.q, program.x)
        w.wait(full)
    refused(program, "race on q slot 0")


def test_overwriting_what_a_product_still_reads_is_a_race(program):
    s = program.cta.regs("s", (16, 16), "fp32")
    with program.role("all") as w:
        w.mma(s, program.x, program.q)
        w.copy(P.q.tile(0, 16), program.q)
    refused(program, "race on q slot 0", "mma   s += x·q")


def test_using_a_sum_before_the_product_is_waited_for_is_a_race(program):
    s = program.cta.regs("s", (16, 16), "fp32")
    with program.role("all") as w:
        first = w.mma(s, program.x, program.q)
        w.mma(s, program.x, program.q)
        w.wait(first)
        w.copy(s, program.x)
    refused(program, "race on s slot 0")


def test_products_of_one_role_execute_in_order(program):
    s = program.cta.regs("s", (16, 16), "fp32")
    with program.role("all") as w:
        w.mma(s, program.x, program.q)
        w.wait(w.mma(s, program.x, program.q))
        w.copy(s, program.x)
    program.verify()


def test_one_of_two_consumers_may_not_free_a_slot_for_both(program):
    k = program.cta.ring("k", (16, 16), "fp16", stages=1)
    with program.role("producer") as w:
        for i in w.repeat(2):
            w.load(P.k.tile(i, 16), k, path="tma")
    with program.role("first") as w:
        for _ in w.repeat(2):
            w.copy(w.take(k), program.x)
            w.release(k)
    with program.role("second") as w:
        y = program.cta.regs("y", (16, 16), "fp16")
        for _ in w.repeat(2):
            w.copy(w.take(k), y)
    refused(program, "k")


def test_two_writers_of_one_global_tile_race(program):
    for name in ("one", "other"):
        with program.role(name) as w:
            x = program.cta.regs(f"{name}.x", (16, 16), "fp16")
            w.copy(x, P.o.tile(1, 16))
    refused(program, "race on O slot 16")


def test_waiting_for_a_use_below_zero_is_void(program):
    with program.role("all") as w:
        w.wait(Signal(program.cta.barrier("done"), Index(-1)))
    program.verify()
