"""FlashAttention-2 forward (Dao, 2023, arXiv 2307.08691, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from simgpu.algorithms.rows import SoftmaxRows
from simgpu.algorithms.tiles import check_tiles, last_to_first, padded, warps_own
from simgpu.errors import ScheduleError
from simgpu.problem import BlockRange
from simgpu.program.program import Grid
from simgpu.program.record import schedule
from simgpu.tensor import accumulator

if TYPE_CHECKING:
    from simgpu.index import Index
    from simgpu.problem import Attention
    from simgpu.program.builder import Cta
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import Ring, View


@schedule("fa2")
@dataclass(frozen=True, slots=True, kw_only=True)
class FlashAttention2:
    """One CTA owns a Q tile and streams K and V past it; the accumulator stays unnormalised.

    ``order`` within a pass is that of Triton's kernels for wgmma and mma.sync; for tcgen05.mma
    (qk_ahead), which issues the next QKᵀ behind PV; or of the CUDA kernel
    (Dao-AILab/flash-attention, flash_fwd_kernel.h), which keeps one stage each of K and V, loads
    one under the work on the other, and goes from the last block to the first. ``warp_partition``
    is split-q (warps own rows) unless the tile has too few rows for its warps, which forces
    split-d: every warpgroup computes all of S and owns part of O's columns. ``instruction`` is what
    its products are written with (default: the best that the GPU has), ``fast_math`` nvcc's option
    (PyTorch builds the CUDA kernel without).
    """

    block_m: int = 128
    block_n: int = 64
    stages: int = 2
    warps: int = 4
    warp_partition: Literal["split-q", "split-d"] = "split-q"
    loads: Literal["cp_async", "tma"] = "cp_async"
    order: Literal["triton", "qk_ahead", "cuda"] = "triton"
    instruction: Literal["mma.sync", "wgmma"] | None = None
    fast_math: bool = True

    def grid(self, p: Attention) -> Grid:
        """Return one CTA for each Q tile, head and batch entry; in CUDA heads come slowest."""
        if self.order == "cuda":
            return Grid(m=p.q_tiles(self.block_m), batch=p.batch, head=p.heads_q)
        return Grid(m=p.q_tiles(self.block_m), head=p.heads_q, batch=p.batch)

    def build(self, p: Attention, cta: Cta) -> None:
        """Record one CTA."""
        self._check()
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        q = cta.smem("q", (bm, d), p.dtype)
        rows = SoftmaxRows(cta, p, bm, bn, d, fast_math=self.fast_math)
        own, by = warps_own(self), self.instruction
        with cta.role("all", warps=self.warps, partition=own, instruction=by) as w:
            stream = self._plain if self.stages == 1 else self._pipelined
            if self.order == "cuda":
                stream = self._alternating
            elif self.order == "qk_ahead":
                stream = self._ahead
            stream(p, cta, w, q, rows)
            w.wait_mma()
            o = rows.end(w)
            w.copy(o, q)
            w.sync()
            w.copy(q, p.o.tile(cta.m, bm, cols=d))
            w.copy(rows.l, p.lse.tile(cta.m, bm))

    def _check(self) -> None:
        """Raise ScheduleError for a tile that cannot be, or one that its order has no place for."""
        check_tiles(self)
        if self.order == "cuda" and self.stages != 1:
            raise ScheduleError(
                f"stages is {self.stages}: order 'cuda' keeps one tile each of K and V, set 1"
            )
        if self.order == "qk_ahead" and self.stages == 1:
            raise ScheduleError("stages is 1: order qk_ahead needs 2 or more, one for the next QKᵀ")
        if self.order == "qk_ahead" and not self.fast_math:
            raise ScheduleError(
                "fast_math is False: order qk_ahead is Triton's, which has no other"
            )

    def _pipelined(
        self, p: Attention, cta: Cta, w: RoleBuilder, q: View, rows: SoftmaxRows
    ) -> None:
        """Keep ``stages`` tiles in flight; the next loads are issued behind PV, at a pass's end.

        One wait at the top of a pass is for K and V both: Triton commits and waits once a pass.
        Its loads by cp.async do not stop at the end of a loop: those behind the last block are
        switched off by their source size and write zeros.
        """
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        k = cta.ring("k", (bn, d), p.dtype, stages=self.stages)
        v = cta.ring("v", (bn, d), p.dtype, stages=self.stages)
        w.copy(p.q.tile(cta.m, bm, cols=d), q)
        rows.begin(w)

        def load(j: int | Index) -> None:
            w.load(p.k.tile(j, bn, cols=d), k, path=self.loads)
            w.load(p.v.tile(j, bn, cols=d), v, path=self.loads)

        def past_end(j: int | Index) -> None:
            for tensor, ring in ((p.k, k), (p.v, v)):
                w.zero_fill(tensor.tile(p.kv_tiles(bn), bn, cols=d), ring, past=j)

        off = past_end if self.loads == "cp_async" else None
        for blocks in self._loops(p, p.kv_ranges(cta.m, bm, bn)):
            for j in w.pipelined(blocks, load, ahead=self.stages - 1, past_end=off):
                w.wait_mma()
                w.release(v)
                k_j, v_j = w.take(k), w.take(v)
                w.mma(rows.s, q, k_j.T, accumulate=False)
                w.wait_mma()
                w.release(k)
                rows.maximum(w, p.tile_mask(cta.m, bm, j, bn) if blocks.masked else None)
                rows.softmax(w)
                w.mma(rows.o, rows.p, v_j)

    @staticmethod
    def _loops(p: Attention, blocks: list[BlockRange]) -> list[BlockRange]:
        """Return the loops of a causal CTA: the one over full blocks is there if it has no pass."""
        if p.causal and blocks and blocks[0].masked:
            first = blocks[0].start
            return [BlockRange(first, first, masked=False), *blocks]
        return blocks

    def _alternating(
        self, p: Attention, cta: Cta, w: RoleBuilder, q: View, rows: SoftmaxRows
    ) -> None:
        """Load V under QKᵀ and the next K under softmax and PV; the last block comes first."""
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        k = cta.ring("k", (bn, d), p.dtype, stages=1)
        v = cta.ring("v", (bn, d), p.dtype, stages=1)
        q_full = cta.mbarrier("q.full")
        w.copy(p.q.tile(cta.m, bm, cols=d), q, path=self.loads, signal=q_full)

        def load_k(j: int | Index) -> None:
            w.load(p.k.tile(j, bn, cols=d), k, path=self.loads)

        def one_pass(j: Index, some: BlockRange, then: Index | None) -> None:
            if some.stop != blocks[-1].stop:  # not the first pass
                w.wait_mma()
                w.release(v)
            k_j = w.take(k)
            w.load(p.v.tile(j, bn, cols=d), v, path=self.loads)
            w.mma(rows.s, q, k_j.T, accumulate=False)
            w.wait_mma()
            w.release(k)
            v_j = w.take(v)
            if then is not None:
                load_k(then)
            rows.maximum(w, p.tile_mask(cta.m, bm, j, bn) if some.masked else None)
            rows.softmax(w)
            w.mma(rows.o, rows.p, v_j)

        blocks = p.kv_ranges(cta.m, bm, bn)
        if blocks:
            load_k(blocks[-1].stop - 1)
        rows.begin(w)
        w.wait(q_full)
        for some in last_to_first(blocks, apart=1):
            last = some.start == blocks[0].start
            for i in w.repeat(len(some) - last):
                one_pass(some.stop - 1 - i, some, some.stop - 2 - i)
            for i in w.repeat(int(last)):
                one_pass(i + some.start, some, None)

    def _ahead(self, p: Attention, cta: Cta, w: RoleBuilder, q: View, rows: SoftmaxRows) -> None:
        """Issue QKᵀ of the next pass behind PV, and the loads behind both.

        V is loaded stages - 1 passes ahead and K one more, into the slot that QKᵀ has just left
        (TTGIR and SASS of Triton 3.6 for sm_100).
        """
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        k = cta.ring("k", (bn, d), p.dtype, stages=self.stages)
        v = cta.ring("v", (bn, d), p.dtype, stages=self.stages)
        alpha = cta.regs("alpha", (bm, 1), accumulator(p.dtype))
        ahead = self.stages - 1
        w.copy(p.q.tile(cta.m, bm, cols=d), q)
        rows.begin(w)

        def load(j: int | Index, *, into: Ring) -> None:
            tensor = p.k if into is k else p.v
            w.load(tensor.tile(j, bn, cols=d), into, path=self.loads)

        for blocks in p.kv_ranges(cta.m, bm, bn):
            first, n = blocks.start, len(blocks)
            load(first, into=k)
            for i in w.repeat(min(ahead, n - 1)):
                load(i + first, into=v)
                load(i + (first + 1), into=k)
            for _ in range(min(ahead, n) - min(ahead, n - 1)):
                load(first + n - 1, into=v)
            w.mma(rows.s, q, w.take(k).T, accumulate=False)
            # the last passes lack what is already loaded, and the very last has no next QKᵀ
            steady = max(n - 1 - ahead, 0)
            loaded = max(n - ahead, 0)
            for begin, end in ((0, steady), (steady, loaded), (loaded, n - 1), (max(n - 1, 0), n)):
                for i in w.repeat(end - begin):
                    j = i + (first + begin)
                    w.wait_mma()
                    w.release(k)
                    w.release(v)
                    rows.maximum(w, p.tile_mask(cta.m, bm, j, bn) if blocks.masked else None)
                    rows.exponentials(w, alpha)
                    v_j = w.take(v)
                    rows.rescale(w, alpha)
                    w.mma(rows.o, rows.p, v_j)
                    if end < n:
                        w.mma(rows.s, q, w.take(k).T, accumulate=False)
                    if end <= loaded and end < n:
                        load(j + ahead, into=v)
                    if end <= steady:
                        load(j + (ahead + 1), into=k)

    def _plain(self, p: Attention, cta: Cta, w: RoleBuilder, q: View, rows: SoftmaxRows) -> None:
        """Load through registers: K exposed at the top of a pass, V under QKᵀ, into one tile."""
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        kv = cta.smem("kv", (bn, d), p.dtype)
        k_regs, v_regs = (cta.regs(name, (bn, d), p.dtype, by_columns=True) for name in "kv")
        w.copy(p.q.tile(cta.m, bm, cols=d), q)
        rows.begin(w)
        for blocks in p.kv_ranges(cta.m, bm, bn):
            for i in w.repeat(len(blocks)):
                j = i + blocks.start
                w.wait_mma()
                w.wait(w.fetch(p.k.tile(j, bn, cols=d), k_regs))
                w.sync()
                w.copy(k_regs, kv)
                w.sync()
                w.mma(rows.s, q, kv.T, accumulate=False)
                v_loaded = w.fetch(p.v.tile(j, bn, cols=d), v_regs)
                w.wait_mma()
                w.wait(v_loaded)
                w.sync()
                v_stored = w.fetch(v_regs, kv)
                rows.maximum(w, p.tile_mask(cta.m, bm, j, bn) if blocks.masked else None)
                rows.softmax(w)
                w.wait(v_stored)
                w.sync()
                w.mma(rows.o, rows.p, kv)
