"""What FlashAttention-3's roles do, in the order in which they do it (arXiv 2407.08608)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.algorithms.rows import SoftmaxRows
from simgpu.problem import BlockRange
from simgpu.program.fns import descale, exponentials, one, rescale, rescale_block
from simgpu.tensor import Tensor, accumulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simgpu.algorithms.fa3_barriers import Handover, Turns
    from simgpu.index import Index
    from simgpu.problem import Attention, TileMask
    from simgpu.program.builder import Cta
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import Ring, View


class Stream:
    """K and V on their way through two rings, in the order in which they are used.

    ``k_first`` is the order of overlapped passes, which take K of block j with V of block j + 1.
    """

    def __init__(
        self,
        cta: Cta,
        p: Attention,
        shape: tuple[int, int],
        stages: int,
        consumers: int,
        *,
        k_first: bool,
        scales: bool = False,
    ) -> None:
        self.k = cta.ring("k", shape, p.dtype, stages=stages, consumers=consumers)
        self.v = cta.ring("v", shape, p.dtype, stages=stages, consumers=consumers)
        self._problem, self._shape = p, shape
        self._ahead, self._k_first = stages - 1, k_first
        #: Rings of the scales of K's and V's blocks, where each block has its own.
        self.scales: dict[str, Ring] = {}
        for name in ("K", "V") if scales else ():
            self.scales[name] = cta.ring(
                f"{name.lower()}_scale", (1, 1), "fp32", stages=stages, consumers=consumers
            )

    def produce(
        self, w: RoleBuilder, blocks: list[BlockRange], q: Callable[[RoleBuilder], None]
    ) -> None:
        """Load everything, Q after the first K; the rings' credits hold the producer back."""
        if not blocks:
            q(w)
            return
        first, *others = blocks
        self._load_k(w, first.start)
        q(w)
        if not self._k_first:
            self._load_v(w, first.start)
        for some in others:
            for i in w.repeat(len(some)):
                self._load(w, some.stop - 1 - i)
        self.end(w, blocks[-1])

    def begin(self, w: RoleBuilder, first: BlockRange) -> None:
        """Load the K that is used before any V."""
        if self._k_first:
            self._load_k(w, first.start)

    def end(self, w: RoleBuilder, last: BlockRange) -> None:
        """Load the V that is used after all K."""
        if self._k_first:
            self._load_v(w, last.start)

    def passes(self, w: RoleBuilder, blocks: BlockRange, *, loads: bool) -> Iterator[Index]:
        """Count down through ``blocks``; who ``loads`` does so ``stages`` - 1 passes ahead."""

        def load(i: int | Index) -> None:
            self._load(w, blocks.stop - 1 - i)

        if not loads:
            for i in w.repeat(len(blocks)):
                yield blocks.stop - 1 - i
            return
        for i in w.pipelined(BlockRange(0, len(blocks), blocks.masked), load, self._ahead):
            yield blocks.stop - 1 - i

    def _load(self, w: RoleBuilder, j: int | Index) -> None:
        self._load_k(w, j)
        self._load_v(w, j + 1 if self._k_first else j)

    def _load_k(self, w: RoleBuilder, j: int | Index) -> None:
        rows, cols = self._shape
        w.load(self._problem.k.tile(j, rows, cols=cols), self.k, path="tma")
        for name, ring in self.scales.items():  # V's is wanted when P is rounded, before V
            blocks = self._problem.kv_tiles(rows)
            scale = Tensor(f"{name}_scale", blocks, 1, "fp32", "kv", "input")
            w.load(scale.tile(j, 1), ring, path="tma")

    def _load_v(self, w: RoleBuilder, j: int | Index) -> None:
        rows, cols = self._shape
        w.load(self._problem.v.tile(j, rows, cols=cols), self.v, path="tma")


class Consumer(SoftmaxRows):
    """One consumer warpgroup: its rows, its Q tile, and the order of its passes.

    ``o_over``: in a persistent CTA O has a place of its own or, if given, over that ring.
    """

    def __init__(
        self,
        cta: Cta,
        p: Attention,
        tile: Index,
        number: int,
        shape: tuple[int, int, int],
        stream: Stream,
        turns: Turns,
        handover: Handover | None = None,
        o_over: Ring | None = None,
    ) -> None:
        rows, cols, depth = shape
        super().__init__(cta, p, rows, cols, depth, name=f"{number}.")
        self.number, self.stream, self.turns, self.handover = number, stream, turns, handover
        self.loads = False
        self.q = cta.smem(f"{number}.q", (rows, depth), p.dtype)
        self.q_full = cta.mbarrier(f"{number}.q.full")
        self.alpha = cta.regs(f"{number}.alpha", (rows, 1), accumulator(p.dtype))
        self._problem, self._tile, self._shape = p, tile, shape
        self._p_shared: View | None = None
        self._o_shared = self.q
        if handover or p.o.dtype != p.dtype:
            self._o_shared = cta.smem(
                f"{number}.o.shared", (rows, depth), p.o.dtype, over=o_over if handover else None
            )
        if stream.scales:
            self._q_scale, self._v_scale, self._block_scale = (
                cta.regs(f"{number}.{x}_scale", (1, 1), "fp32") for x in ("q", "v", "block")
            )

    def put_p_in_shared_memory(self, cta: Cta) -> None:
        """Pass P to PV through shared memory, which frees registers for the next scores."""
        self._p_shared = cta.smem(f"{self.number}.p.shared", self.p.shape, self._problem.dtype)

    def load_q(self, w: RoleBuilder) -> None:
        """Start loading this consumer's rows of Q."""
        rows, _, depth = self._shape
        q = self._problem.q.tile(self._tile, rows, cols=depth)
        w.copy(q, self.q, path="tma", signal=self.q_full)

    def load_q_scale(self, w: RoleBuilder, m: Index, blocks: int) -> None:
        """Read the scale of Q tile ``m``; O begins in units of 1."""
        if self.stream.scales:
            scale = Tensor("Q_scale", blocks, 1, "fp32", "q", "input")
            w.copy(scale.tile(m, 1), self._q_scale)
            w.apply(one, self._v_scale)

    def in_order(self, w: RoleBuilder, blocks: list[BlockRange]) -> None:
        """Algorithm 1: scores, softmax, PV. A turn is PV and the next pass's scores."""
        k, v, turns = self.stream.k, self.stream.v, self.turns
        turns.take(w, self.number)
        for some in blocks:
            for j in self.stream.passes(w, some, loads=self.loads):
                w.mma(self.s, self.q, w.take(k).T, accumulate=False)
                turns.give(w, self.number)
                w.wait_mma()
                w.release(k)
                p = self._softmax(w, j, some.masked)
                turns.take(w, self.number)
                w.mma(self.o, p, w.take(v))
                w.wait_mma()
                w.release(v)
        turns.give(w, self.number)
        self.release_q(w)

    def overlapped(self, w: RoleBuilder, blocks: list[BlockRange]) -> None:
        """Algorithm 2: scores of the next block and PV of this one in flight under the softmax."""
        k, v, turns = self.stream.k, self.stream.v, self.turns
        first, *others = blocks
        if self.loads:
            self.stream.begin(w, first)
        k_j = w.take(k)
        turns.take(w, self.number)
        w.mma(self.s, self.q, k_j.T, accumulate=False)
        turns.give(w, self.number)
        w.wait_mma()
        w.release(k)
        self._exponentials(w, first.start, first.masked)
        p = self._rescale(w)
        for some in others:
            for j in self.stream.passes(w, some, loads=self.loads):
                k_j = w.take(k)
                turns.take(w, self.number)
                w.mma(self.s, self.q, k_j.T, accumulate=False)
                w.mma(self.o, p, w.take(v))
                turns.give(w, self.number)
                w.wait_mma(pending=1)
                w.release(k)
                self._exponentials(w, j, some.masked)
                w.wait_mma()
                w.release(v)
                self._rescale(w)
        if self.loads:
            self.stream.end(w, blocks[-1])
        self.release_q(w)
        w.mma(self.o, p, w.take(v))
        w.wait_mma()
        w.release(v)

    def store(self, w: RoleBuilder) -> None:
        """Write O by way of shared memory (Q's place, if there is one tile), and log-sum-exp."""
        rows, _, depth = self._shape
        o = self.end(w)
        if self.stream.scales:
            w.apply(descale, o, self._v_scale)
        if self.handover:
            self.handover.values_read(w)
        w.copy(o, self._o_shared)
        w.sync()
        w.copy(self._o_shared, self._problem.o.tile(self._tile, rows, cols=depth), path="tma")
        if self.handover:
            self.handover.o_stored(w)
        w.copy(self.l, self._problem.lse.tile(self._tile, rows))

    def release_q(self, w: RoleBuilder) -> None:
        """Say that this consumer's last scores are there (nothing, if there is one tile)."""
        if self.handover:
            self.handover.q_read(w)

    def _mask(self, j: int | Index) -> TileMask:
        rows, cols, _ = self._shape
        return self._problem.tile_mask(self._tile, rows, j, cols)

    def _softmax(self, w: RoleBuilder, j: int | Index, masked: bool) -> View:
        if self.stream.scales:
            self._exponentials(w, j, masked)
            return self._rescale(w)
        self.maximum(w, self._mask(j) if masked else None)
        self.softmax(w)
        return self._probabilities(w)

    def _exponentials(self, w: RoleBuilder, j: int | Index, masked: bool) -> None:
        if self.stream.scales:
            w.apply(descale, self.s, self._q_scale, self._scale(w, "K"))
        self.maximum(w, self._mask(j) if masked else None)
        w.apply(exponentials, self.s, self.m, self.m_new, self.l, self.alpha)

    def _rescale(self, w: RoleBuilder) -> View:
        """P and O only now: both belong to PV while it is in flight."""
        if self.stream.scales:
            new = self._scale(w, "V")
            w.apply(rescale_block, self.s, self.p, self.alpha, self._v_scale, new, self.o)
        else:
            w.apply(rescale, self.s, self.p, self.alpha, self.o)
        return self._probabilities(w)

    def _scale(self, w: RoleBuilder, name: str) -> View:
        """Return the scale of the next block of K or V."""
        ring = self.stream.scales[name]
        w.copy(w.take(ring), self._block_scale)
        w.release(ring)
        return self._block_scale

    def _probabilities(self, w: RoleBuilder) -> View:
        """Return P where PV reads it."""
        if self._p_shared is None:
            return self.p
        w.copy(self.p, self._p_shared)
        w.sync()
        return self._p_shared
