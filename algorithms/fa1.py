"""FlashAttention-1 forward (Dao et al., 2022, arXiv 2205.14135, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

from simgpu.algorithms.fa1_state import BlockRows, CoalescedRows
from simgpu.algorithms.tiles import ROWS_PER_WARP, check_tiles, padded, warps_own
from simgpu.errors import ScheduleError
from simgpu.problem import BlockRange
from simgpu.program.program import Grid
from simgpu.program.record import schedule
from simgpu.program.tile import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from simgpu.index import Index
    from simgpu.problem import Attention
    from simgpu.program.builder import Cta
    from simgpu.program.program import Partition
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import Ring


class Visits(NamedTuple):
    """Q blocks that meet one K/V block alike: masked or not, first or not, last or not."""

    blocks: BlockRange
    first: bool
    last: bool


class Tiles(NamedTuple):
    """Where Q, K and V lie in shared memory, and the registers through which Q passes, if any."""

    q: Ring
    k: View
    v: View
    through: View | None


@schedule("fa1")
@dataclass(frozen=True, slots=True, kw_only=True)
class FlashAttention1:
    """One CTA owns a head: K and V blocks outside, Q blocks inside.

    The normalised O, m and ℓ go through global memory for every pair of blocks, in the
    accumulator's dtype; the last K/V block of a Q block writes O in the problem's dtype.
    ``initial`` says whether the first one reads zeros that the kernel has written before, as the
    paper does, or begins in registers. ``warp_partition`` split-k is the paper's: each warp owns
    some keys, and what it has of a row (maximum, sum, partial O) is exchanged through shared
    memory. The tile is that of the authors' CUDA kernel. With one stage, Q is loaded where it is
    needed. ``state`` is the layout in which registers meet global memory: "accumulator", that of
    the products, or "coalesced", whole rows that pass to and from it through shared memory, as
    Triton compiles this algorithm for Hopper: Q passes through registers too. ``ahead``: m and ℓ
    are asked for before the scores are computed, and O before the exponentials, as the authors'
    kernel does and Triton's.
    """

    block_m: int = 16
    block_n: int = 128
    stages: int = 1
    warps: int = 4
    warp_partition: Literal["split-k", "split-q"] = "split-k"
    initial: Literal["global", "registers"] = "global"
    state: Literal["accumulator", "coalesced"] = "accumulator"
    ahead: bool = False

    def grid(self, p: Attention) -> Grid:
        """Return one CTA for each head and batch entry."""
        return Grid(head=p.heads_q, batch=p.batch)

    def build(self, p: Attention, cta: Cta) -> None:
        """Record one CTA."""
        partition, parts = self._partition()
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        q = cta.ring("q", (bm, d), p.dtype, stages=self.stages)
        k = cta.smem("k", (bn, d), p.dtype)
        v = cta.smem("v", (bn, d), p.dtype)
        through = None
        if self.state == "coalesced":
            rows: BlockRows = CoalescedRows(cta, p, (bm, bn), d, parts, self.warps)
            if self.stages == 1:
                through = cta.regs("q_rows", (bm, d), p.dtype)
        else:
            rows = BlockRows(cta, p, (bm, bn), d, parts, self.ahead)
        needs = {i: p.kv_ranges(i, bm, bn) for i in range(p.q_tiles(bm))}
        with cta.role("all", warps=self.warps, partition=partition) as w:
            self._initialise(w, rows, needs)
            for j in range(p.kv_tiles(bn)):
                w.sync()
                w.copy(p.k.tile(j, bn, cols=d), k)
                w.copy(p.v.tile(j, bn, cols=d), v)
                w.sync()
                for visits in _visits(p.q_ranges(j, bn, bm), needs, j):
                    self._pass(p, w, rows, Tiles(q, k, v, through), j, visits)

    def _initialise(
        self, w: RoleBuilder, rows: BlockRows, needs: dict[int, list[BlockRange]]
    ) -> None:
        """Write the result of Q blocks that see no key, and the others' first O, m and ℓ."""
        for blocks in _runs(i for i in needs if not needs[i]):
            for i in w.repeat(len(blocks)):
                rows.begin(w)
                rows.finish(w, i + blocks.start)
        if self.initial == "global":
            for blocks in _runs(i for i in needs if needs[i]):
                for i in w.repeat(len(blocks)):
                    rows.begin(w)
                    rows.store(w, i + blocks.start)

    def _pass(
        self, p: Attention, w: RoleBuilder, rows: BlockRows, tiles: Tiles, j: int, visits: Visits
    ) -> None:
        """Run some Q blocks past K/V block ``j``."""
        bm, masked = self.block_m, visits.blocks.masked
        fresh = visits.first and self.initial == "registers"

        def load(i: int | Index) -> None:
            w.load(p.q.tile(i, bm, cols=padded(p.head_dim)), tiles.q, path="cp_async")

        for i in w.pipelined(visits.blocks, load, ahead=self.stages - 1):
            if tiles.through is not None:
                q_i = self._load_q(p, w, tiles, i)
            else:
                if self.stages == 1:
                    load(i)
                q_i = w.take(tiles.q)
            ahead = None if fresh else i
            rows.ask(w, ahead)
            w.mma(rows.s, q_i, tiles.k.T, accumulate=False)
            w.wait_mma()
            if tiles.through is None:
                w.release(tiles.q)
            rows.softmax(w, p.tile_mask(i, bm, j, self.block_n) if masked else None, ahead)
            rows.times(w, tiles.v)
            if fresh:
                rows.begin(w)
            else:
                rows.load(w, i)
            rows.merge(w)
            if visits.last:
                rows.finish(w, i)
            else:
                rows.store(w, i)

    def _load_q(self, p: Attention, w: RoleBuilder, tiles: Tiles, i: int | Index) -> View:
        """Load a Q block through registers, as Triton does with one stage."""
        assert tiles.through is not None
        q = View(tiles.q.buffer)
        w.wait(w.fetch(p.q.tile(i, self.block_m, cols=padded(p.head_dim)), tiles.through))
        w.sync()
        w.copy(tiles.through, q)
        w.sync()
        return q

    def _partition(self) -> tuple[Partition, int]:
        """Return what warps own, and in how many parts the keys of a block are cut."""
        check_tiles(self)
        if self.state == "coalesced" and not self.ahead:
            raise ScheduleError("state coalesced asks ahead: give ahead=true with it")
        if self.warp_partition == "split-q":
            return warps_own(self), 1
        if self.block_n % (ROWS_PER_WARP * self.warps):
            raise ScheduleError(
                f"block_n is {self.block_n}: split-k needs a multiple of 16 keys for each of "
                f"{self.warps} warps"
            )
        return "split-k", self.warps


def _visits(
    seeing: list[BlockRange], needs: dict[int, list[BlockRange]], j: int
) -> Iterator[Visits]:
    """Yield the Q blocks that see K/V block ``j``, given the K/V blocks that each needs."""

    def ends(i: int) -> tuple[bool, bool]:
        return j == needs[i][0].start, j == needs[i][-1].stop - 1

    for blocks in seeing:
        for (first, last), group in groupby(range(blocks.start, blocks.stop), ends):
            members = list(group)
            yield Visits(BlockRange(members[0], members[-1] + 1, blocks.masked), first, last)


def _runs(blocks: Iterable[int]) -> Iterator[BlockRange]:
    """Yield the unbroken runs of some blocks in order."""
    for _, group in groupby(enumerate(blocks), lambda x: x[1] - x[0]):
        members = [block for _, block in group]
        yield BlockRange(members[0], members[-1] + 1, masked=False)
