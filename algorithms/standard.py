"""Standard attention as unfused kernels run it: S and P go through global memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from simgpu.algorithms.elementwise import elements, touch_elements
from simgpu.algorithms.layout import LANES, change_layout
from simgpu.algorithms.tiles import check_tiles, padded
from simgpu.problem import BlockRange
from simgpu.program import fns, row_fns
from simgpu.program.program import Grid, LaunchSpec
from simgpu.program.record import schedule
from simgpu.tensor import accumulator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simgpu.index import Index
    from simgpu.problem import Attention
    from simgpu.program.builder import Cta
    from simgpu.program.program import Partition
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import View
    from simgpu.tensor import Tensor, Tile

    Build = Callable[[Attention, Cta], None]

ROW_ELEMENTS = 8192  # scores that one CTA of the softmax kernel holds in registers
SOFTMAX_WARPS = 8


@schedule("standard")
@dataclass(frozen=True, slots=True, kw_only=True)
class StandardAttention:
    """S = scale·QKᵀ, P = softmax(S), O = PV: three launches (FA1 paper, arXiv 2205.14135, alg. 0).

    No tile is skipped. The softmax kernel keeps whole rows in registers and so reads S once, as
    fused softmax kernels do. All kernels write whole rows, which pass through shared memory.

    ``scores`` is the dtype in which S is stored: that of the problem, as PyTorch stores it, or of
    the accumulator. ``mask`` is applied by the softmax kernel, to the scores before they are
    stored, or by an elementwise kernel between the two: a "pass" over S, which does its work even
    without a mask. With ``copies`` Q, K and V are first brought into a layout of whole heads, as
    PyTorch does before a batched product. ``eager``: kernels are launched op by op, as PyTorch
    does, and each takes at least the host's time.
    """

    block_m: int = 128
    block_n: int = 64
    stages: int = 3
    warps: int = 4
    scores: Literal["problem", "accumulator"] = "problem"
    mask: Literal["softmax", "scores", "pass"] = "softmax"
    copies: bool = False
    eager: bool = False

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
        specs: list[tuple[str, Grid, Build]] = [("qk", scores, self.build_qk)]
        if self.mask == "pass":
            specs.append(("mask", elements(p.seq_q, p.seq_kv, p), self.build_mask))
        specs.append(("softmax", rows, self.build_softmax))
        if self.copies:
            specs[:0] = [self._copy(p, "q"), self._copy(p, "k")]
            specs.append(self._copy(p, "v"))
        specs.append(("pv", output, self.build_pv))
        return [LaunchSpec(*spec, self.eager) for spec in specs]

    def _copy(self, p: Attention, name: str) -> tuple[str, Grid, Build]:
        """Return the kernel that copies Q, K or V."""
        source, copied = getattr(p, name), self._input(p, name)

        def build(p: Attention, cta: Cta) -> None:
            touch_elements(cta, source, copied, None)

        return f"copy_{name}", elements(source.rows, source.cols, p), build

    def _input(self, p: Attention, name: str) -> Tensor:
        """Return Q, K or V as the products read it; a copy has all query heads, as bmm needs."""
        tensor: Tensor = getattr(p, name)
        if not self.copies:
            return tensor
        return p.scratch(f"{tensor.name}.copy", tensor.rows, tensor.cols, tensor.dtype)

    def build_mask(self, p: Attention, cta: Cta) -> None:
        """Record some elements of S, read, masked and written."""
        touch_elements(cta, self._s(p), self._masked(p), p.tile_mask if p.causal else None)

    def _masked(self, p: Attention) -> Tensor:
        s = self._s(p)
        if self.mask != "pass":
            return s
        return p.scratch("S.masked", s.rows, s.cols, s.dtype)

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
            w.copy(self._input(p, "q").tile(cta.m, bm, cols=d), q)
            w.copy(self._input(p, "k").tile(cta.n, bn, cols=d), k)
            w.sync()
            w.mma(s, q, k.T, accumulate=False)
            w.wait_mma()
            w.apply(fns.scale, s, scale=p.scale)
            if self.mask == "scores" and p.causal:
                w.apply(row_fns.hide, s, mask=p.tile_mask(cta.m, bm, cta.n, bn))
            self._store(cta, w, s, self._s(p).tile(cta.m, bm, cta.n, bn))

    def build_softmax(self, p: Attention, cta: Cta) -> None:
        """Record some whole rows of P."""
        rows, cols, acc = _rows(p), padded(p.seq_kv), accumulator(p.dtype)
        threads = min(SOFTMAX_WARPS * LANES, max(1, cols // 8))  # of a row, each with 16 bytes
        s = cta.regs("s", (rows, cols), acc)
        probabilities = cta.regs("p", (rows, cols), p.dtype)
        m, lse = (cta.regs(name, (rows, 1), acc, threads=threads) for name in ("m", "lse"))
        via = cta.exchange("rows", (rows, 1), acc)
        masked = (p.causal and self.mask == "softmax") or cols != p.seq_kv

        def share(x: View) -> None:
            w.sync()
            w.copy(x, via)
            w.sync()
            w.copy(via, x)

        with cta.role("all", warps=SOFTMAX_WARPS) as w:
            w.copy(self._masked(p).tile(cta.m, rows, cols=cols), s, guarded=True)
            mask = p.tile_mask(cta.m, rows, 0, cols) if masked else None
            w.apply(row_fns.whole_max, s, m, mask=mask)
            share(m)
            w.apply(row_fns.row_exp, s, m, lse)
            share(lse)
            w.apply(row_fns.row_divide, s, probabilities, m, lse)
            w.copy(probabilities, self._p(p).tile(cta.m, rows, cols=cols), guarded=True)
            share(lse)
            w.copy(lse, p.lse.tile(cta.m, rows), guarded=True)

    def build_pv(self, p: Attention, cta: Cta) -> None:
        """Record one tile of O: a matrix product with ``stages`` tiles of P and V in flight."""
        bm, bn, d = self.block_m, self.block_n, padded(p.head_dim)
        probabilities = cta.ring("p", (bm, bn), p.dtype, stages=self.stages)
        v = cta.ring("v", (bn, d), p.dtype, stages=self.stages)
        o = cta.regs("o", (bm, d), accumulator(p.dtype))
        ahead = self.stages - 1
        behind = min(ahead, 1)  # products in flight when the next tiles are loaded

        values = self._input(p, "v")
        with cta.role("all", warps=self.warps) as w:

            def load(j: int | Index) -> None:
                w.load(self._p(p).tile(cta.m, bm, j, bn), probabilities, path="cp_async")
                w.load(values.tile(j, bn, cols=d), v, path="cp_async")

            w.apply(fns.zero, o)
            for j in w.pipelined(BlockRange(0, p.kv_tiles(bn), masked=False), load, ahead):
                if not ahead:
                    load(j)
                w.mma(o, w.take(probabilities), w.take(v))
                w.wait_mma(pending=behind)
                w.release(probabilities, lag=behind)
                w.release(v, lag=behind)
            w.wait_mma()
            self._store(cta, w, o, p.o.tile(cta.m, bm, cols=d))

    def _store(self, cta: Cta, w: RoleBuilder, x: View, tile: Tile) -> None:
        """Write an accumulator as whole rows."""
        via = cta.exchange("layout", x.shape, tile.tensor.dtype)
        rows = cta.regs("rows", x.shape, tile.tensor.dtype)
        change_layout(w, x, via, rows, self.warps)
        w.copy(rows, tile)


def _rows(p: Attention) -> int:
    """Rows of one CTA of the softmax kernel."""
    return max(1, ROW_ELEMENTS // padded(p.seq_kv))
