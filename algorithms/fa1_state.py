"""A Q block of FlashAttention-1 against a K/V block, and its state in global memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.algorithms.layout import change_layout
from simgpu.program import fns
from simgpu.tensor import accumulator

if TYPE_CHECKING:
    from simgpu.index import Index
    from simgpu.problem import Attention, TileMask
    from simgpu.program.builder import Cta
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import Signal, View


class BlockRows:
    """A Q block against one K/V block, and its state in global memory.

    Shapes: s and p (rows, cols), o (rows, head_dim padded), m and l (rows, 1); of the block alone
    m_block and l_block (rows, parts), pv (parts·rows, head_dim padded), exchanged when parts > 1.
    """

    guarded = False  # whether its loads of the state are predicated

    def __init__(
        self,
        cta: Cta,
        p: Attention,
        shape: tuple[int, int],
        depth: int,
        parts: int,
        ahead: bool,
    ) -> None:
        (rows, cols), acc = shape, accumulator(p.dtype)
        self._problem, self._rows, self._parts, self._ahead = p, rows, parts, ahead
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
        self._stats = {
            p.scratch("M", p.seq_q, 1, acc): self.m,
            p.scratch("L", p.seq_q, 1, acc): self.l,
        }
        self._acc = p.scratch("ACC", p.seq_q, p.head_dim, acc)
        self._loaded = self.o  # where O is loaded to
        self._loading: list[Signal] = []

    def begin(self, w: RoleBuilder) -> None:
        """No key seen yet."""
        w.apply(fns.init, self.m, self.l, self.o)

    def ask(self, w: RoleBuilder, i: int | Index | None) -> None:
        """Ask for m and ℓ of Q block ``i`` ahead of their use, if that is done; None: for none."""
        if i is not None and self._ahead:
            self._loading = [
                w.fetch(
                    tensor.tile(i, self._rows, cols=1), x, group=tensor.name, guarded=self.guarded
                )
                for tensor, x in self._stats.items()
            ]

    def load(self, w: RoleBuilder, i: int | Index) -> None:
        """Read O, m and ℓ of Q block ``i``, or await what was asked for."""
        if not self._ahead:
            for tensor, x in self._stats.items():
                w.copy(tensor.tile(i, self._rows, cols=1), x)
            w.copy(self._acc.tile(i, self._rows, cols=self.o.shape[1]), self._loaded)
        for signal in self._loading:
            w.wait(signal)

    def store(self, w: RoleBuilder, i: int | Index) -> None:
        """Write them back."""
        for tensor, x in self._stats.items():
            w.copy(x, tensor.tile(i, self._rows, cols=1))
        w.copy(self.o, self._acc.tile(i, self._rows, cols=self.o.shape[1]))

    def softmax(
        self, w: RoleBuilder, mask: TileMask | None, ahead: int | Index | None = None
    ) -> None:
        """Exponentiate the scores under the maximum of this block alone.

        Meanwhile O of Q block ``ahead`` may be asked for.
        """
        w.apply(fns.block_max, self.s, self.m_block, mask=mask, scale=self._problem.scale)
        self._ask_o(w, ahead)
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

    def _ask_o(self, w: RoleBuilder, i: int | Index | None) -> None:
        if i is not None and self._ahead:
            tile = self._acc.tile(i, self._rows, cols=self.o.shape[1])
            self._loading.append(w.fetch(tile, self._loaded, group="O", guarded=self.guarded))

    def _exchange(self, w: RoleBuilder, x: View) -> None:
        if x in self._through:
            w.copy(x, self._through[x])
            w.sync()
            w.copy(self._through[x], x)


class CoalescedRows(BlockRows):
    """The same, with registers that meet global memory as whole rows, 16 bytes a thread.

    o_rows is O as it is loaded and stored, out_rows in the problem's dtype. They pass through
    shared memory to and from the accumulator's layout, and so do m and ℓ on their way out. The
    kernel predicates its loads and stores and branches around none, so every pass has all changes
    of layout, those of the output too.
    """

    guarded = True

    def __init__(
        self, cta: Cta, p: Attention, shape: tuple[int, int], depth: int, parts: int, warps: int
    ) -> None:
        super().__init__(cta, p, shape, depth, parts, ahead=True)
        rows, acc = self._rows, accumulator(p.dtype)
        self._warps = warps
        self._loaded = self._o_rows = cta.regs("o_rows", (rows, depth), acc, by_columns=True)
        self._out_rows = cta.regs("out_rows", (rows, depth), p.dtype, by_columns=True)
        self._row = cta.regs("row", (rows, 1), acc)
        shapes = {"o": (rows, depth), "out": (rows, depth), "stats": (rows, 1)}
        self._via = {
            name: cta.exchange(f"{name}.layout", shape, p.dtype if name == "out" else acc)
            for name, shape in shapes.items()
        }

    def begin(self, w: RoleBuilder) -> None:
        """No key seen yet."""
        w.apply(fns.init, self.m, self.l, self._o_rows)
        self._take_o(w)

    def load(self, w: RoleBuilder, i: int | Index) -> None:
        """Await what was asked for, O, m and ℓ of Q block ``i``."""
        super().load(w, i)
        self._take_o(w)

    def store(self, w: RoleBuilder, i: int | Index) -> None:
        """Write O, m and ℓ back."""
        for tensor, x in self._stats.items():
            self._spread(w, x)
            w.copy(self._row, tensor.tile(i, self._rows, cols=1), guarded=True)
        self._widen(w)
        w.copy(self._o_rows, self._acc.tile(i, self._rows, cols=self.o.shape[1]), guarded=True)
        self._narrow(w)
        self._spread(w, self.l)

    def finish(self, w: RoleBuilder, i: int | Index) -> None:
        """Write Q block ``i`` of the output and its log-sum-exp."""
        p, cols = self._problem, self.o.shape[1]
        for x in self._stats.values():
            self._spread(w, x)
        self._widen(w)
        self._narrow(w)
        w.copy(self._out_rows, p.o.tile(i, self._rows, cols=cols), guarded=True)
        w.apply(fns.log_sum_exp, self.m, self.l)
        self._spread(w, self.l)
        w.copy(self._row, p.lse.tile(i, self._rows), guarded=True)

    def _take_o(self, w: RoleBuilder) -> None:
        change_layout(w, self._o_rows, self._via["o"], self.o, self._warps)

    def _narrow(self, w: RoleBuilder) -> None:
        change_layout(w, self.o, self._via["out"], self._out_rows, self._warps)

    def _widen(self, w: RoleBuilder) -> None:
        change_layout(w, self.o, self._via["o"], self._o_rows, self._warps, rounds=False)

    def _spread(self, w: RoleBuilder, x: View) -> None:
        change_layout(w, x, self._via["stats"], self._row, self._warps)
