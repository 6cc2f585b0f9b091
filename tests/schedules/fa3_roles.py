"""FlashAttention-3's roles (Shah et al., 2024, arXiv 2407.08608, algorithms 1 and 2), untuned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgpu.algorithms.rows import SoftmaxRows
from simgpu.algorithms.tiles import check_tiles, padded
from simgpu.problem import BlockRange
from simgpu.program.fns import exponentials, rescale
from simgpu.program.program import Grid
from simgpu.program.record import schedule
from simgpu.tensor import accumulator

if TYPE_CHECKING:
    from simgpu.index import Index
    from simgpu.problem import Attention
    from simgpu.program.builder import Cta, RoleBuilder
    from simgpu.program.program import Partition
    from simgpu.program.tile import Ring

WARPGROUP = 4  # warps


@schedule("fa3_roles")
@dataclass(frozen=True, slots=True, kw_only=True)
class FlashAttention3Roles:
    """A TMA producer and two consumer warpgroups, each with half of the Q tile's rows.

    ``pingpong`` lets one consumer's softmax run while the other issues its products; ``overlap``
    lets a consumer's own softmax run under its PV, with the next scores already issued.
    """

    block_m: int = 128
    block_n: int = 128
    stages: int = 2
    pingpong: bool = True
    overlap: bool = True

    @property
    def warps(self) -> int:
        return 2 * WARPGROUP

    @property
    def warp_partition(self) -> Partition:
        return "split-q"

    def grid(self, p: Attention) -> Grid:
        return Grid(m=p.q_tiles(self.block_m), head=p.heads_q, batch=p.batch)

    def build(self, p: Attention, cta: Cta) -> None:
        check_tiles(self)
        bm, bn, d = self.block_m // 2, self.block_n, padded(p.head_dim)
        k = cta.ring("k", (bn, d), p.dtype, stages=self.stages, consumers=2)
        v = cta.ring("v", (bn, d), p.dtype, stages=self.stages, consumers=2)
        turns = Turns(cta, self.pingpong)
        consumers = [Consumer(cta, p, i, bm, bn, d, turns) for i in (0, 1)]

        with cta.role("producer", warps=1, registers=24) as w:
            for c in consumers:
                w.copy(p.q.tile(c.tile, bm, cols=d), c.q, path="tma", signal=c.q_full)
            for blocks in p.kv_ranges(cta.m, self.block_m, bn):
                for i in w.repeat(len(blocks)):
                    w.load(p.k.tile(i + blocks.start, bn, cols=d), k, path="tma")
                    w.load(p.v.tile(i + blocks.start, bn, cols=d), v, path="tma")

        for c in consumers:
            with cta.role(f"consumer{c.number}", warps=WARPGROUP, registers=240) as w:
                c.begin(w)
                w.wait(c.q_full)
                ranges = p.kv_ranges(cta.m, self.block_m, bn)
                if self.overlap and ranges:
                    c.overlapped(w, ranges, k, v)
                elif ranges:
                    c.in_order(w, ranges, k, v)
                w.copy(c.end(w), c.q)
                w.sync()
                w.copy(c.q, p.o.tile(c.tile, bm, cols=d), path="tma")
                w.copy(c.l, p.lse.tile(c.tile, bm))


class Turns:
    """Whose turn it is to issue products: a named barrier for each consumer; number 0 begins."""

    def __init__(self, cta: Cta, taken: bool) -> None:
        self._turns = [cta.barrier(f"turn{i}") for i in (0, 1)] if taken else []

    def take(self, w: RoleBuilder, consumer: int) -> None:
        if self._turns:
            w.wait(self._turns[consumer], ahead=1 - consumer)

    def give(self, w: RoleBuilder, consumer: int) -> None:
        if self._turns:
            w.arrive(self._turns[1 - consumer])


class Consumer(SoftmaxRows):
    """One consumer warpgroup: its rows, its Q tile, and the order of its passes."""

    def __init__(
        self, cta: Cta, p: Attention, number: int, rows: int, cols: int, depth: int, turns: Turns
    ) -> None:
        super().__init__(cta, p, rows, cols, depth, name=f"{number}.")
        self.number, self.turns = number, turns
        self.tile = cta.m * 2 + number
        self.q = cta.smem(f"{number}.q", (rows, depth), p.dtype)
        self.q_full = cta.mbarrier(f"{number}.q.full")
        self.alpha = cta.regs(f"{number}.alpha", (rows, 1), accumulator(p.dtype))
        self._mask = lambda j: p.tile_mask(self.tile, rows, j, cols)

    def in_order(self, w: RoleBuilder, ranges: list[BlockRange], k: Ring, v: Ring) -> None:
        """Algorithm 1: scores, softmax, PV. A turn is PV and the next pass's scores."""
        self.turns.take(w, self.number)
        for blocks in ranges:
            for i in w.repeat(len(blocks)):
                w.mma(self.s, self.q, w.take(k).T, accumulate=False)
                self.turns.give(w, self.number)
                w.wait_mma()
                w.release(k)
                self.maximum(w, self._mask(i + blocks.start) if blocks.masked else None)
                self.softmax(w)
                self.turns.take(w, self.number)
                w.mma(self.o, self.p, w.take(v))
                w.wait_mma()
                w.release(v)
        self.turns.give(w, self.number)

    def overlapped(self, w: RoleBuilder, ranges: list[BlockRange], k: Ring, v: Ring) -> None:
        """Algorithm 2: scores of the next block and PV of this one in flight under the softmax."""
        first, *others = ranges
        k_j = w.take(k)
        self.turns.take(w, self.number)
        w.mma(self.s, self.q, k_j.T, accumulate=False)
        self.turns.give(w, self.number)
        w.wait_mma()
        w.release(k)
        self._exponentials(w, first.start, first.masked)
        self._rescale(w)
        for blocks in (BlockRange(first.start + 1, first.stop, first.masked), *others):
            for i in w.repeat(len(blocks)):
                k_j = w.take(k)
                self.turns.take(w, self.number)
                w.mma(self.s, self.q, k_j.T, accumulate=False)
                w.mma(self.o, self.p, w.take(v))
                self.turns.give(w, self.number)
                w.wait_mma(pending=1)
                w.release(k)
                self._exponentials(w, i + blocks.start, blocks.masked)
                w.wait_mma()
                w.release(v)
                self._rescale(w)
        w.mma(self.o, self.p, w.take(v))
        w.wait_mma()
        w.release(v)

    def _exponentials(self, w: RoleBuilder, j: int | Index, masked: bool) -> None:
        self.maximum(w, self._mask(j) if masked else None)
        w.apply(exponentials, self.s, self.m, self.m_new, self.l, self.alpha)

    def _rescale(self, w: RoleBuilder) -> None:
        """P and O only now: both belong to PV while it is in flight."""
        w.apply(rescale, self.s, self.p, self.alpha, self.o)
