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

    def plus(self, other: Mix, times: float = 1) -> Mix:
        """Return this mix and ``times`` another."""
        return Mix(*(a + b * times for a, b in zip(self, other, strict=True)))

    def __str__(self) -> str:
        pairs = zip(self._fields, self, strict=True)
        return ", ".join(f"{pipe} {count:+,.0f}" for pipe, count in pairs if count)

    def times(self, factor: float) -> Mix:
        """Return the mix ``factor`` times."""
        return Mix(*(a * factor for a in self))
