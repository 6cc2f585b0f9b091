"""Standard attention as unfused kernels run it: S and P go through global memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from simgpu.algorithms.tiles import check_tiles, padded
from simgpu.problem import BlockRange
from simgpu.program import fns
from simgpu.program.program import Grid, LaunchSpec
from simgpu.program.record import schedule
from simgpu.tensor import accumulator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.index import Index
    from simgpu.problem import Attention
    from simgpu.program.builder import Cta
    from simgpu.program.program import Partition
    from simgpu.tensor import Tensor

ROW_ELEMENTS = 8192  # scores that one CTA of the softmax kernel holds in registers
SOFTMAX_WARPS = 8


@schedule("standard")
@dataclass(frozen=True, slots=True, kw_only=True)
class StandardAttention:
    """S = scale·QKᵀ, P = softmax(S), O = PV: three launches (FA1 paper, arXiv 2205.14135, alg. 0).

    No tile is skipped: the softmax kernel masks. It keeps whole rows in registers and so reads S
    once, as fused softmax kernels do. ``scores`` is the dtype in which S is stored: that of the
    problem, as PyTorch stores it, or of the accumulator.
    """

    block_m: int = 128
    block_n: int = 64
    stages: int = 3
    warps: int = 4
    scores: Literal["problem", "accumulator"] = "problem"

    @property
    def warp_partition(self) -> Partition:
        """Rows, in all three kernels."""
        return "split-q"

    def launches(self, p: Attention) -> Sequence[LaunchSpec]:
        """Return the three kernels."""
        check_tiles(self)
        tiles = p.q_tiles(self.block_m)
        scores = Grid(m=tiles, n=p.kv_tiles(self.block_n), head=p.heads_q, batch=p.batch)
        rows = Grid(m=p.q_tiles(_rows(p)), head=p.heads_q, batch=p.batch)
        output = Grid(m=tiles, head=p.heads_q, batch=p.batch)
        return [
            LaunchSpec("qk", scores, self.build_qk),
            LaunchSpec("softmax", rows, self.build_softmax),
            LaunchSpec("pv", output, self.build_pv),
        ]

    def _s(self, p: Attention) -> Tensor:
        dtype = p.dtype if self.scores == "problem" else accumulator(p.dtype)
        return p.scratch("S", p.seq_q, p.seq_kv, dtype)

    def _p(self, p: Attention) -> Tensor:
        return p.scratch("P", p.seq_q, p.seq_kv, p.dtype)

    def build_qk(self, p: Attention, cta: Cta) -> None:
        """Record one tile of S."""
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        q = cta.smem("q", (bm, d), p.dtype)
        k = cta.smem("k", (bn, d), p.dtype)
        s = cta.regs("s", (bm, bn), accumulator(p.dtype))
        with cta.role("all", warps=self.warps) as w:
            w.copy(p.q.tile(cta.m, bm, cols=d), q)
            w.copy(p.k.tile(cta.n, bn, cols=d), k)
            w.sync()
            w.mma(s, q, k.T, accumulate=False)
            w.wait_mma()
            w.apply(fns.scale, s, scale=p.scale)
            w.copy(s, self._s(p).tile(cta.m, bm, cta.n, bn))

    def build_softmax(self, p: Attention, cta: Cta) -> None:
        """Record some whole rows of P."""
        rows, cols, acc = _rows(p), padded(p.seq_kv), accumulator(p.dtype)
        s = cta.regs("s", (rows, cols), acc)
        probabilities = cta.regs("p", (rows, cols), p.dtype)
        m, lse = (cta.regs(name, (rows, 1), acc) for name in ("m", "lse"))
        masked = p.causal or cols != p.seq_kv
        with cta.role("all", warps=SOFTMAX_WARPS) as w:
            w.copy(self._s(p).tile(cta.m, rows, cols=cols), s)
            w.apply(fns.block_max, s, m, mask=p.tile_mask(cta.m, rows, 0, cols) if masked else None)
            w.apply(fns.softmax, s, probabilities, m, lse)
            w.copy(probabilities, self._p(p).tile(cta.m, rows, cols=cols))
            w.copy(lse, p.lse.tile(cta.m, rows))

    def build_pv(self, p: Attention, cta: Cta) -> None:
        """Record one tile of O: a matrix product with ``stages`` tiles of P and V in flight."""
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        probabilities = cta.ring("p", (bm, bn), p.dtype, stages=self.stages)
        v = cta.ring("v", (bn, d), p.dtype, stages=self.stages)
        o = cta.regs("o", (bm, d), accumulator(p.dtype))
        ahead = self.stages - 1
        behind = min(ahead, 1)  # products in flight when the next tiles are loaded

        with cta.role("all", warps=self.warps) as w:

            def load(j: int | Index) -> None:
                w.load(self._p(p).tile(cta.m, bm, j, bn), probabilities, path="cp_async")
                w.load(p.v.tile(j, bn, cols=d), v, path="cp_async")

            w.apply(fns.zero, o)
            for j in w.pipelined(BlockRange(0, p.kv_tiles(bn), masked=False), load, ahead):
                if not ahead:
                    load(j)
                w.mma(o, w.take(probabilities), w.take(v))
                w.wait_mma(pending=behind)
                w.release(probabilities, lag=behind)
                w.release(v, lag=behind)
            w.wait_mma()
            w.copy(o, p.o.tile(cta.m, bm, cols=d))


def _rows(p: Attention) -> int:
    """Rows of one CTA of the softmax kernel."""
    return max(1, ROW_ELEMENTS // padded(p.seq_kv))
