"""How long a CTA lives on an SM that it shares with others of its kind.

Each situation (program, number of residents) is simulated once, with long loops cut short; the time
of a full program follows from the time a pass of each kind of loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import simpy

from simgpu.program.worklist import WorkTile
from simgpu.timing.barrier import check_finished
from simgpu.timing.book import JobBook
from simgpu.timing.shorten import outline, shorten
from simgpu.timing.sm import Sm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.cost.job import MissRates
    from simgpu.hardware.machine import Machine
    from simgpu.program.program import CtaClass, Launch, TileProgram
    from simgpu.timing.shorten import Kind, Shortened
    from simgpu.timing.watch import Watch

#: Passes kept of a long loop to measure the time of one more than in an outline.
MORE = 10
#: The same for a tile that follows others: consumers take longer to find their distance again.
MORE_AFTER = 15


@dataclass(frozen=True, slots=True)
class Life:
    """The life of one CTA: cycles from dispatch to end, and how its roles spend them by reason."""

    cycles: float
    time: dict[str, float]

    def plus(self, other: Life, times: float) -> Life:
        """Return this life and ``times`` another's."""
        reasons = {*self.time, *other.time}
        spent = {r: self.time.get(r, 0.0) + other.time.get(r, 0.0) * times for r in sorted(reasons)}
        return Life(self.cycles + other.cycles * times, spent)


class SmTimes:
    """Lives of CTAs by program and number of residents, each simulated once."""

    def __init__(
        self,
        machine: Machine,
        dtype: str,
        misses: MissRates,
        capacity: tuple[float, ...] | None = None,
        *,
        limited: bool = True,
    ) -> None:
        self._machine, self._dtype, self._misses = machine, dtype, misses
        self._capacity, self._limited = capacity, limited
        self._lives: dict[tuple[int, ...], Life] = {}
        self._kept: list[TileProgram] = []  # so that ids stay theirs
        self._passes: dict[tuple[Kind, int, int], Life] = {}

    def lives(self, launch: Launch, residents: int, before: int = 0) -> list[Life]:
        """Return the `life` of each class."""
        return [self.life(launch, c, residents, before) for c in range(len(launch.classes))]

    def life(self, launch: Launch, number: int, residents: int, before: int = 0) -> Life:
        """Return the life of a CTA of class ``number`` among ``residents`` of its kind.

        With ``before`` it is persistent and has had so many tiles of that class: by how much it
        lives longer for one more.
        """
        short, cta_class = outline(launch)[number], launch.classes[number]
        life = self._one_more(short, cta_class, residents, before)
        for kind, removed in short.removed.items():
            key = (kind, residents, before)
            if key not in self._passes:
                more = shorten(
                    cta_class.program, cta_class.env, {kind: MORE_AFTER if before else MORE}
                )
                longer = self._one_more(more, cta_class, residents, before)
                passes = removed - more.removed.get(kind, 0)
                difference = longer.plus(self._one_more(short, cta_class, residents, before), -1.0)
                self._passes[key] = Life(0.0, {}).plus(difference, 1.0 / passes)
            life = life.plus(self._passes[key], removed)
        return life

    def one_pass(self, launch: Launch, number: int, kind: Kind, residents: int) -> float:
        """Return the cycles of a pass of a loop that class ``number`` was cut short in."""
        self.life(launch, number, residents)
        return self._passes[kind, residents, 0].cycles

    def _one_more(self, short: Shortened, cta_class: CtaClass, residents: int, before: int) -> Life:
        """Return what one shortened tile adds to ``before`` others."""
        tile = WorkTile(short.program, cta_class.env)
        life = self._simulated([tile] * (before + 1), residents)
        return life.plus(self._simulated([tile] * before, residents), -1.0) if before else life

    def _simulated(self, tiles: Sequence[WorkTile], residents: int) -> Life:
        key = (residents, *(id(tile.program) for tile in tiles))
        known = self._lives.get(key)
        if known is None:
            self._kept += [tile.program for tile in tiles]
            known = self._lives[key] = self.simulate(tiles, residents)
        return known

    def simulate(
        self, tiles: Sequence[WorkTile], residents: int, watch: Watch | None = None
    ) -> Life:
        """Run ``residents`` CTAs that start together and take ``tiles``; return their mean life."""
        env = simpy.Environment()
        book = JobBook(self._machine, self._dtype, self._misses)
        sm = Sm(env, self._machine, book, self._capacity, watch, self._limited)
        lives: list[float] = []
        for _ in range(residents):
            first, *others = tiles
            rest = iter(others)
            sm.start(first, lambda: lives.append(env.now), partial(next, rest, None))
        env.run()
        check_finished(residents - len(lives))
        time = {r: t / residents for r, t in sm.ledger.time.items()}
        return Life(sum(lives) / residents, time)
