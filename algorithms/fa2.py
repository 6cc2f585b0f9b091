"""FlashAttention-2 forward (Dao, 2023, arXiv 2307.08691, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from simgpu.algorithms.rows import SoftmaxRows
from simgpu.algorithms.tiles import check_tiles, padded, warps_own
from simgpu.program.program import Grid
from simgpu.program.record import schedule

if TYPE_CHECKING:
    from simgpu.index import Index
    from simgpu.problem import Attention
    from simgpu.program.builder import Cta
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import View


@schedule("fa2")
@dataclass(frozen=True, slots=True, kw_only=True)
class FlashAttention2:
    """One CTA owns a Q tile and streams K and V past it; the accumulator stays unnormalised.

    The order within a pass is Triton's on Hopper. ``warp_partition`` is split-q (warps own rows)
    unless the tile has too few rows for its warps, which forces split-d: every warpgroup computes
    all of S and owns part of O's columns.
    """

    block_m: int = 128
    block_n: int = 64
    stages: int = 2
    warps: int = 4
    warp_partition: Literal["split-q", "split-d"] = "split-q"
    loads: Literal["cp_async", "tma"] = "cp_async"

    def grid(self, p: Attention) -> Grid:
        """Return one CTA for each Q tile, head and batch entry."""
        return Grid(m=p.q_tiles(self.block_m), head=p.heads_q, batch=p.batch)

    def build(self, p: Attention, cta: Cta) -> None:
        """Record one CTA."""
        check_tiles(self)
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        q = cta.smem("q", (bm, d), p.dtype)
        rows = SoftmaxRows(cta, p, bm, bn, d)
        with cta.role("all", warps=self.warps, partition=warps_own(self)) as w:
            w.copy(p.q.tile(cta.m, bm, cols=d), q)
            rows.begin(w)
            stream = self._plain if self.stages == 1 else self._pipelined
            stream(p, cta, w, q, rows)
            w.wait_mma()
            o = rows.end(w)
            w.copy(o, q)
            w.sync()
            w.copy(q, p.o.tile(cta.m, bm, cols=d))
            w.copy(rows.l, p.lse.tile(cta.m, bm))

    def _pipelined(
        self, p: Attention, cta: Cta, w: RoleBuilder, q: View, rows: SoftmaxRows
    ) -> None:
        """Keep ``stages`` tiles in flight; the next loads are issued behind PV, at a pass's end.

        One wait at the top of a pass is for K and V both: Triton commits and waits once a pass.
        """
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        k = cta.ring("k", (bn, d), p.dtype, stages=self.stages)
        v = cta.ring("v", (bn, d), p.dtype, stages=self.stages)

        def load(j: int | Index) -> None:
            w.load(p.k.tile(j, bn, cols=d), k, path=self.loads)
            w.load(p.v.tile(j, bn, cols=d), v, path=self.loads)

        for blocks in p.kv_ranges(cta.m, bm, bn):
            for j in w.pipelined(blocks, load, ahead=self.stages - 1):
                w.wait_mma()
                w.release(v)
                k_j, v_j = w.take(k), w.take(v)
                w.mma(rows.s, q, k_j.T, accumulate=False)
                w.wait_mma()
                w.release(k)
                rows.maximum(w, p.tile_mask(cta.m, bm, j, bn) if blocks.masked else None)
                rows.softmax(w)
                w.mma(rows.o, rows.p, v_j)

    def _plain(self, p: Attention, cta: Cta, w: RoleBuilder, q: View, rows: SoftmaxRows) -> None:
        """Load through registers: K exposed at the top of a pass, V under QKᵀ, into one tile."""
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        kv = cta.smem("kv", (bn, d), p.dtype)
        k_regs, v_regs = (cta.regs(name, (bn, d), p.dtype, by_columns=True) for name in "kv")
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
