"""Grid coordinates as schedules see them."""

from __future__ import annotations

from dataclasses import dataclass, field

from simgpu.index import Index


@dataclass(frozen=True, slots=True)
class Axis(Index):
    """A grid coordinate: symbolic in tiles, a number (``int(axis)``) where work depends on it."""

    value: int = 0
    looked_at: set[str] = field(default_factory=set, compare=False)

    def __index__(self) -> int:
        self.looked_at.add(self.terms[0][0])
        return self.value

    __int__ = __index__

    def from_end(self, size: int) -> Axis:
        """Return the coordinate counted from the other end of an axis of ``size``."""
        turned = size - 1 - self
        return Axis(turned.base, turned.terms, size - 1 - self.value, self.looked_at)
