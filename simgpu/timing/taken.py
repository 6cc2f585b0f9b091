"""The tiles of a running CTA: one, or tile after tile for a persistent one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simgpu.program.worklist import after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from simgpu.program.tile import Signal
    from simgpu.program.worklist import WorkTile
    from simgpu.timing.book import JobBook

    #: Who hands a persistent CTA its next tile; None when there is none.
    Following = Callable[[], WorkTile | None]


class Taken(NamedTuple):
    """A tile that a CTA has taken, and by how much uses of barriers are counted on in it."""

    tile: WorkTile
    shift: Mapping[str, int]


class TakenTiles:
    """The tiles of one CTA in order; each role goes through them by itself.

    The role that first comes to the end of what was taken asks for the next tile.
    """

    def __init__(self, first: WorkTile, following: Following, book: JobBook) -> None:
        self.first = first
        self._tiles = [Taken(first, {})]
        self._following, self._book = following, book
        self._more = True

    def __iter__(self) -> Iterator[Taken]:
        position = 0
        while position < len(self._tiles) or self._ask():
            yield self._tiles[position]
            position += 1

    def _ask(self) -> bool:
        tile = self._following() if self._more else None
        self._more = tile is not None
        if tile is not None:
            before, shift = self._tiles[-1]
            self._tiles.append(Taken(tile, after(shift, self._book.uses(before.program))))
        return self._more


def use_of(signal: Signal, variables: Mapping[str, int], shift: Mapping[str, int]) -> int:
    """Return a signal's use in a tile whose CTA has had as many uses before as ``shift`` says."""
    return signal.use.at(variables) + shift.get(signal.barrier.name, 0)
