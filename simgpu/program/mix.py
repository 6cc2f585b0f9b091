"""Instruction mixes: warp instructions by the pipe that executes them, as Nsight Compute counts.

``other`` issues but occupies no counted pipe: uniform datapath, branches, barriers.
"""

from __future__ import annotations

from typing import NamedTuple


class Mix(NamedTuple):
    """32-lane instructions by pipe (``mufu`` is Nsight's xu)."""

    mufu: float = 0.0
    fma: float = 0.0
    alu: float = 0.0
    lsu: float = 0.0
    tensor: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        """All instructions."""
        return sum(self)

    def plus(self, other: Mix) -> Mix:
        """Return the sum of two mixes."""
        return Mix(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> Mix:
        """Return the mix ``factor`` times."""
        return Mix(*(a * factor for a in self))
