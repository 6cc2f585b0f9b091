"""Listings: what `simgpu show` prints, against golden files."""

from __future__ import annotations

import pytest

from simgpu.algorithms.fa1 import FlashAttention1
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.algorithms.fa3 import FlashAttention3
from simgpu.algorithms.standard import StandardAttention
from simgpu.problem import Attention
from simgpu.program.builder import Cta
from simgpu.program.listing import describe, listing
from simgpu.program.record import record

P = Attention(batch=1, heads_q=1, seq_q=256, seq_kv=500, head_dim=64, causal=True)


@pytest.mark.parametrize(
    "schedule",
    [FlashAttention1(), FlashAttention2(), FlashAttention3(), StandardAttention()],
    ids=lambda s: s.schedule_name,
)
def test_listings_are_golden(schedule, golden):
    """The first CTA of each launch, on a causal and ragged problem."""
    parts = [
        f"# {launch.name}: {launch.grid}, CTA 0 of class 1 of {len(launch.classes)}\n"
        f"{listing(launch.classes[0].program)}\n"
        for launch in record(schedule, P).launches
    ]
    golden(f"{schedule.schedule_name}.txt", "\n".join(parts))


def test_options_of_a_copy_are_shown():
    cta = Cta({})
    x = cta.regs("x", (16, 64), "fp16")
    with cta.role("all", warps=4) as w:
        w.copy(x, P.o.tile(1, 16), reduce="add")
        w.copy(P.o.tile(1, 16, 2, 16), x)
    assert [describe(op) for op in w.steps] == [
        "copy  O[16:+16] += x",
        "copy  x <- O[16:+16, 32:+16]",
    ]
