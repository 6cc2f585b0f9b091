"""FlashAttention-1 forward (Dao et al., 2022, arXiv 2205.14135, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

from simgpu.algorithms.tiles import ROWS_PER_WARP, check_tiles, padded, warps_own
from simgpu.errors import ScheduleError
from simgpu.problem import BlockRange
from simgpu.program import fns
from simgpu.program.program import Grid
from simgpu.program.record import schedule
from simgpu.tensor import accumulator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from simgpu.index import Index
    from simgpu.problem import Attention, TileMask
    from simgpu.program.builder import Cta
    from simgpu.program.program import Partition
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import Ring, View


class Visits(NamedTuple):
    """Q blocks that meet one K/V block alike: masked or not, first or not, last or not."""

    blocks: BlockRange
    first: bool
    last: bool


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
    needed.
    """

    block_m: int = 16
    block_n: int = 128
    stages: int = 1
    warps: int = 4
    warp_partition: Literal["split-k", "split-q"] = "split-k"
    initial: Literal["global", "registers"] = "global"

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
        rows = BlockRows(cta, p, bm, bn, d, parts)
        needs = {i: p.kv_ranges(i, bm, bn) for i in range(p.q_tiles(bm))}
        with cta.role("all", warps=self.warps, partition=partition) as w:
            self._initialise(w, rows, needs)
            for j in range(p.kv_tiles(bn)):
                w.sync()
                w.copy(p.k.tile(j, bn, cols=d), k)
                w.copy(p.v.tile(j, bn, cols=d), v)
                w.sync()
                for visits in _visits(p.q_ranges(j, bn, bm), needs, j):
                    self._pass(p, w, rows, (q, k, v), j, visits)

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
        self,
        p: Attention,
        w: RoleBuilder,
        rows: BlockRows,
        tiles: tuple[Ring, View, View],
        j: int,
        visits: Visits,
    ) -> None:
        """Run some Q blocks past K/V block ``j``."""
        (q, k, v), bm = tiles, self.block_m

        def load(i: int | Index) -> None:
            w.load(p.q.tile(i, bm, cols=padded(p.head_dim)), q, path="cp_async")

        masked = visits.blocks.masked
        for i in w.pipelined(visits.blocks, load, ahead=self.stages - 1):
            if self.stages == 1:
                load(i)
            with w.consume(q) as q_i:
                w.mma(rows.s, q_i, k.T, accumulate=False)
                w.wait_mma()
            rows.softmax(w, p.tile_mask(i, bm, j, self.block_n) if masked else None)
            rows.times(w, v)
            if visits.first and self.initial == "registers":
                rows.begin(w)
            else:
                rows.load(w, i)
            rows.merge(w)
            if visits.last:
                rows.finish(w, i)
            else:
                rows.store(w, i)

    def _partition(self) -> tuple[Partition, int]:
        """Return what warps own, and in how many parts the keys of a block are cut."""
        check_tiles(self)
        if self.warp_partition == "split-q":
            return warps_own(self), 1
        if self.block_n % (ROWS_PER_WARP * self.warps):
            raise ScheduleError(
                f"block_n is {self.block_n}: split-k needs a multiple of 16 keys for each of "
                f"{self.warps} warps"
            )
        return "split-k", self.warps


class BlockRows:
    """A Q block against one K/V block, and its state in global memory.

    Shapes: s and p (rows, cols), o (rows, head_dim padded), m and l (rows, 1); of the block alone
    m_block and l_block (rows, parts), pv (parts·rows, head_dim padded), exchanged when parts > 1.
    """

    def __init__(
        self, cta: Cta, p: Attention, rows: int, cols: int, depth: int, parts: int
    ) -> None:
        acc = accumulator(p.dtype)
        self._problem, self._rows, self._parts = p, rows, parts
        self.s = cta.regs("s", (rows, cols), acc)
        self.p = cta.regs("p", (rows, cols), p.dtype)
        self.m, self.l = (cta.regs(name, (rows, 1), acc) for name in ("m", "l"))
        self.o = cta.regs("o", (rows, depth), acc, by_columns=True)
        shapes = {"m_block": (rows, parts), "l_block": (rows, parts), "pv": (parts * rows, depth)}
        self.m_block, self.l_block, self.pv = (
            cta.regs(name, shape, acc, by_columns=name == "pv") for name, shape in shapes.items()
        )
        self._through: dict[View, View] = {}
        if parts > 1:
            for x in (self.m_block, self.l_block, self.pv):
                name = f"{x.buffer.name}.exchange"
                self._through[x] = cta.exchange(name, x.buffer.shape, acc)
        self._state = {
            p.scratch("M", p.seq_q, 1, acc): self.m,
            p.scratch("L", p.seq_q, 1, acc): self.l,
            p.scratch("ACC", p.seq_q, p.head_dim, acc): self.o,
        }

    def begin(self, w: RoleBuilder) -> None:
        """No key seen yet."""
        w.apply(fns.init, self.m, self.l, self.o)

    def load(self, w: RoleBuilder, i: int | Index) -> None:
        """Read O, m and ℓ of Q block ``i``."""
        for tensor, x in self._state.items():
            w.copy(tensor.tile(i, self._rows, cols=x.shape[1]), x)

    def store(self, w: RoleBuilder, i: int | Index) -> None:
        """Write them back."""
        for tensor, x in self._state.items():
            w.copy(x, tensor.tile(i, self._rows, cols=x.shape[1]))

    def softmax(self, w: RoleBuilder, mask: TileMask | None) -> None:
        """Exponentiate the scores under the maximum of this block alone."""
        w.apply(fns.block_max, self.s, self.m_block, mask=mask, scale=self._problem.scale)
        self._exchange(w, self.m_block)
        w.apply(fns.block_exp, self.s, self.p, self.m_block, self.l_block)
        self._exchange(w, self.l_block)

    def times(self, w: RoleBuilder, v: View) -> None:
        """Multiply by V: each warp's keys give a partial result of all rows."""
        w.mma(self.pv, self.p, v, accumulate=False, parts=self._parts)
        w.wait_mma()
        self._exchange(w, self.pv)

    def merge(self, w: RoleBuilder) -> None:
        """O ← (ℓ·e^(m - m')·O + e^(m̃ - m')·P̃V) / ℓ'."""
        w.apply(fns.merge_block, self.o, self.m, self.l, self.pv, self.m_block, self.l_block)

    def finish(self, w: RoleBuilder, i: int | Index) -> None:
        """Write Q block ``i`` of the output and its log-sum-exp."""
        p = self._problem
        w.apply(fns.log_sum_exp, self.m, self.l)
        w.copy(self.o, p.o.tile(i, self._rows, cols=self.o.shape[1]))
        w.copy(self.l, p.lse.tile(i, self._rows))

    def _exchange(self, w: RoleBuilder, x: View) -> None:
        if x in self._through:
            w.copy(x, self._through[x])
            w.sync()
            w.copy(self._through[x], x)


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
