"""Which tiles on chip lie over one another."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simgpu.program.tile import Buffer

#: A stage of a buffer: its name and slot.
Slot = tuple[str, int]


class Storage:
    """The slots of a program's buffers, and what each has in common with others.

    A buffer with others over it is cut where one of its slots or one of the others begins or ends;
    two slots lie over one another when they have a part in common.
    """

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        buffers = list(buffers)
        self._parts: dict[Slot, tuple[Slot, ...]] = {}
        for below in {b.over: None for b in buffers if b.over is not None}:
            self._cut([b for b in buffers if below in (b.name, b.over)], below)
        self._beside: dict[Slot, tuple[Slot, ...]] = {
            slot: tuple(
                other
                for other, theirs in self._parts.items()
                if other != slot and not set(theirs).isdisjoint(parts)
            )
            for slot, parts in self._parts.items()
        }

    def _cut(self, buffers: list[Buffer], below: str) -> None:
        spans: dict[Slot, tuple[int, int]] = {}
        for b in buffers:
            size = b.bytes // b.stages
            for slot in range(b.stages):
                start = b.offset + slot * size
                spans[b.name, slot] = (start, start + size)
        cuts = sorted({edge for span in spans.values() for edge in span})
        pieces = list(enumerate(pairwise(cuts)))
        for place, (start, end) in spans.items():
            inside = (n for n, (a, b) in pieces if start <= a and b <= end)
            self._parts[place] = tuple((f"the storage of {below}", n) for n in inside)

    def parts(self, name: str, slot: int) -> tuple[Slot, ...]:
        """Return the parts of storage that a slot takes: itself, where nothing lies over it."""
        return self._parts.get((name, slot), ((name, slot),))

    def beside(self, name: str, slot: int) -> tuple[Slot, ...]:
        """Return the other slots that lie where this one does."""
        return self._beside.get((name, slot), ())
