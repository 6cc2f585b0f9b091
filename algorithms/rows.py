"""The state of a tile of query rows under online softmax, as every FlashAttention keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.program.fns import exp_and_rescale, exponentials, init, normalize, rescale, row_max
from simgpu.program.guarded import guarded_exp_and_rescale
from simgpu.tensor import accumulator

if TYPE_CHECKING:
    from simgpu.problem import Attention, TileMask
    from simgpu.program.builder import Cta
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import View


class SoftmaxRows:
    """Scores s, probabilities p, statistics m and l, unnormalised accumulator o, all in registers.

    Shapes: s and p (rows, cols), o (rows, head_dim padded), statistics (rows, 1).
    """

    def __init__(
        self,
        cta: Cta,
        p: Attention,
        rows: int,
        cols: int,
        depth: int,
        name: str = "",
        *,
        fast_math: bool = True,
    ) -> None:
        acc = accumulator(p.dtype)
        self.scale = p.scale
        self._exp = exp_and_rescale if fast_math else guarded_exp_and_rescale
        self.s = cta.regs(f"{name}s", (rows, cols), acc)
        self.p = cta.regs(f"{name}p", (rows, cols), p.dtype)
        self.m = cta.regs(f"{name}m", (rows, 1), acc)
        self.m_new = cta.regs(f"{name}m_new", (rows, 1), acc)
        self.l = cta.regs(f"{name}l", (rows, 1), acc)
        self.o = cta.regs(f"{name}o", (rows, depth), acc, by_columns=True)

    def begin(self, w: RoleBuilder) -> None:
        """No key seen yet."""
        w.apply(init, self.m, self.l, self.o)

    def maximum(self, w: RoleBuilder, mask: TileMask | None) -> None:
        """Scale and mask the scores, and raise the row maximum."""
        w.apply(row_max, self.s, self.m, self.m_new, mask=mask, scale=self.scale)

    def softmax(self, w: RoleBuilder) -> None:
        """Exponentiate the scores and rescale what was summed under the old maximum."""
        w.apply(self._exp, self.s, self.p, self.m, self.m_new, self.l, self.o)

    def exponentials(self, w: RoleBuilder, alpha: View) -> None:
        """The first half of `softmax`: exponentiate and sum the scores; ``alpha`` is the factor."""
        w.apply(exponentials, self.s, self.m, self.m_new, self.l, alpha)

    def rescale(self, w: RoleBuilder, alpha: View) -> None:
        """The second half: narrow the probabilities and rescale the accumulator."""
        w.apply(rescale, self.s, self.p, alpha, self.o)

    def end(self, w: RoleBuilder) -> View:
        """Divide by the row sums; l becomes the log-sum-exp. Returns the accumulator."""
        w.apply(normalize, self.o, self.m, self.l)
        return self.o
