"""What a schedule may not do, and in which words it is told so."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from simgpu.algorithms.fa1 import FlashAttention1
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.algorithms.standard import StandardAttention
from simgpu.errors import ProblemError, ScheduleError
from simgpu.problem import Attention
from simgpu.program.program import Grid, LaunchSpec
from simgpu.program.record import record, schedule

P = Attention(batch=1, heads_q=2, seq_q=100, head_dim=16)


@schedule("odd")
@dataclass(frozen=True, kw_only=True)
class Odd:
    """A schedule whose one role is given."""

    body: object = None

    def launches(self, p):
        def build(p, cta):
            if self.body:
                with cta.role("all", warps=4) as w:
                    self.body(cta, w)

        return [LaunchSpec("odd", Grid(m=1), build)]


def twice(cta, w):
    cta.smem("q", (16, 16), "fp16")
    cta.regs("q", (16, 16), "fp16")


def unequal(cta, w):
    a, b = cta.smem("a", (16, 32), "fp16"), cta.smem("b", (16, 16), "fp16")
    w.mma(cta.regs("c", (16, 16), "fp32"), a, b)


def same_barrier(cta, w):
    cta.barrier("turn")
    cta.mbarrier("turn")


def same_tensor(cta, w):
    o = cta.regs("o", (16, 16), "fp32")
    w.copy(P.scratch("O", 16, 16, "fp32").tile(0, 16), o)
    w.copy(o, P.o.tile(0, 16))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "the schedule recorded no role"),
        (
            same_tensor,
            "two tensors are called 'O': 16×16 fp32 (scratch) and 100×16 fp16 (output); rename one",
        ),
        (twice, "buffer 'q' is declared twice"),
        (same_barrier, "barrier 'turn' is declared twice"),
        (unequal, "mma a·b: inner sides 32 and 16 differ"),
        (lambda cta, w: cta.n, "this launch has no grid axis 'n': it has ['m']"),
        (lambda cta, w: cta.smem("q", (0, 16), "fp16"), "buffer 'q' has shape (0, 16)"),
        (
            lambda cta, w: cta.ring("k", (16, 16), "fp16", stages=0),
            "ring 'k' has 0 stages: it needs at least 1",
        ),
    ],
)
def test_mistakes_of_a_schedule_are_named(body, message):
    with pytest.raises(ScheduleError) as error:
        record(Odd(body=body), P)
    assert message in str(error.value)


def test_an_unknown_dtype_of_a_buffer_is_named():
    with pytest.raises(ProblemError, match="dtype 'half' is unknown"):
        record(Odd(body=lambda cta, w: cta.smem("q", (16, 16), "half")), P)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (FlashAttention2(block_m=100), "block_m is 100: it must be a positive multiple of 16"),
        (FlashAttention2(block_n=0), "block_n is 0: it must be a positive multiple of 16"),
        (FlashAttention2(warps=3), "warps is 3: it must be 1, 2, 4, 8, 12 or 16"),
        (FlashAttention2(stages=0), "stages"),
        (FlashAttention1(stages=0), "stages"),
        (StandardAttention(stages=0), "stages"),
        (
            FlashAttention1(block_n=32, warps=4),
            "block_n is 32: split-k needs a multiple of 16 keys for each of 4 warps",
        ),
    ],
)
def test_impossible_parameters_are_named(bad, message):
    with pytest.raises(ScheduleError) as error:
        record(bad, P)
    assert message in str(error.value)
