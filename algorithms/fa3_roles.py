"""What FlashAttention-3's consumers do, in the order in which they do it (arXiv 2407.08608)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from simgpu.algorithms.rows import SoftmaxRows
from simgpu.program.fns import (
    descale,
    exponentials,
    one,
    rescale,
    rescale_block,
    rescale_rows,
)
from simgpu.tensor import Tensor, accumulator

if TYPE_CHECKING:
    from simgpu.algorithms.fa3_barriers import Handover, Turns
    from simgpu.algorithms.fa3_stream import Stream
    from simgpu.index import Index
    from simgpu.problem import Attention, BlockRange, TileMask
    from simgpu.program.builder import Cta
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import Ring, View


WGMMA_ROWS = 64  # of a warpgroup's product


class Steps(NamedTuple):
    """What a kernel of algorithm 2 does in an order of its own; `FlashAttention3` explains each."""

    pv_wait: Literal["after_maximum", "after_exponentials"]
    rescale: Literal["before_pv", "after_pv"]
    scores_ahead: bool


class Consumer(SoftmaxRows):
    """One consumer warpgroup: its rows, its Q tile, and the order of its passes (``steps``).

    ``place`` is the CTA's Q tile and the consumer's number, ``shape`` the rows of that tile, keys
    and head dim. ``o_over``: a persistent CTA's O has a place of its own or, if given, over that
    ring.
    """

    def __init__(
        self,
        cta: Cta,
        p: Attention,
        place: tuple[Index, int],
        shape: tuple[int, int, int],
        stream: Stream,
        turns: Turns,
        steps: Steps,
        handover: Handover | None = None,
        o_over: Ring | None = None,
    ) -> None:
        (m, number), (block_m, cols, depth), rows = place, shape, WGMMA_ROWS
        super().__init__(cta, p, rows, cols, depth, name=f"{number}.")
        self.number, self.stream, self.turns, self.handover = number, stream, turns, handover
        self.loads, self._order = False, steps
        self.q = cta.smem(f"{number}.q", (rows, depth), p.dtype)
        self.q_full = cta.mbarrier(f"{number}.q.full")
        self.alpha = cta.regs(f"{number}.alpha", (rows, 1), accumulator(p.dtype))
        self._problem, self._shape = p, (rows, cols, depth)
        self._tile = m * (block_m // rows) + number
        self._q_block, self._q_blocks = m, p.q_tiles(block_m)
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

    def begin(self, w: RoleBuilder) -> None:
        """No key seen yet. Where blocks have scales, Q's is read, and O begins in units of 1."""
        super().begin(w)
        if self.stream.scales:
            scale = Tensor("Q_scale", self._q_blocks, 1, "fp32", "q", "input")
            w.copy(scale.tile(self._q_block, 1), self._q_scale)
            w.apply(one, self._v_scale)

    def in_order(self, w: RoleBuilder, blocks: list[BlockRange]) -> None:
        """Algorithm 1: scores, softmax, PV. A turn is PV and the next pass's scores."""
        k, v, turns = self.stream.k, self.stream.v, self.turns
        self.begin(w)
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
        """Algorithm 2: scores of the next block and PV of this one in flight under the softmax.

        A turn is both of them; the first scores and the last PV are issued without one.
        """
        k, v, turns = self.stream.k, self.stream.v, self.turns
        first, *others = blocks
        if self.loads:
            self.stream.begin(w, first)
        w.mma(self.s, self.q, w.take(k).T, accumulate=False)
        if self._order.scores_ahead:
            w.early()
        self.begin(w)
        w.wait_mma()
        w.release(k)
        self._maximum(w, first.start, first.masked)
        self._exponentials(w)
        p = self._narrow(w, rescaled=False)
        for some in others:
            for j in self.stream.passes(w, some, loads=self.loads):
                k_j = w.take(k)
                turns.take(w, self.number)
                w.mma(self.s, self.q, k_j.T, accumulate=False)
                self._rescale_before(w)
                w.mma(self.o, p, w.take(v))
                turns.give(w, self.number)
                w.wait_mma(pending=1)
                w.release(k)
                self._maximum(w, j, some.masked)
                if self._order.pv_wait == "after_exponentials":
                    self._exponentials(w)
                w.wait_mma()
                w.release(v)
                if self._order.pv_wait == "after_maximum":
                    self._exponentials(w)
                self._narrow(w, rescaled=self._order.rescale == "after_pv")
        if self.loads:
            self.stream.end(w, blocks[-1])
        self.release_q(w)
        self._rescale_before(w)
        w.mma(self.o, p, w.take(v))
        if self._order.scores_ahead:
            self.follow(w)
            w.late()
        w.wait_mma()
        w.release(v)

    def without_keys(self, w: RoleBuilder) -> None:
        """Rows that see no key."""
        self.begin(w)
        self.release_q(w)

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

    def follow(self, w: RoleBuilder) -> None:
        """Ask for the next tile, or learn it of who asks (nothing, if there is one tile)."""
        if self.handover:
            (self.handover.ask if self.loads else self.handover.learn)(w)

    def release_q(self, w: RoleBuilder) -> None:
        """Say that this consumer's last scores are there (nothing, if there is one tile)."""
        if self.handover:
            self.handover.q_read(w)

    def _mask(self, j: int | Index) -> TileMask:
        rows, cols, _ = self._shape
        return self._problem.tile_mask(self._tile, rows, j, cols)

    def _softmax(self, w: RoleBuilder, j: int | Index, masked: bool) -> View:
        if self.stream.scales:
            self._maximum(w, j, masked)
            self._exponentials(w)
            return self._narrow(w)
        self.maximum(w, self._mask(j) if masked else None)
        self.softmax(w)
        return self._probabilities(w)

    def _maximum(self, w: RoleBuilder, j: int | Index, masked: bool) -> None:
        if self.stream.scales:
            w.apply(descale, self.s, self._q_scale, self._scale(w, "K"))
        self.maximum(w, self._mask(j) if masked else None)

    def _exponentials(self, w: RoleBuilder) -> None:
        w.apply(exponentials, self.s, self.m, self.m_new, self.l, self.alpha)

    def _rescale_before(self, w: RoleBuilder) -> None:
        """O under the scores that are in flight, where that is the order."""
        if self._order.rescale == "before_pv":
            w.apply(rescale_rows, self.o, self.alpha)

    def _narrow(self, w: RoleBuilder, *, rescaled: bool = True) -> View:
        """P, and O if ``rescaled`` here, only now: both belong to PV while it is in flight."""
        o = (self.o,) if rescaled else ()
        if self.stream.scales:
            new = self._scale(w, "V")
            w.apply(rescale_block, self.s, self.p, self.alpha, self._v_scale, new, *o)
        else:
            w.apply(rescale, self.s, self.p, self.alpha, *o)
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
