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

#: CTAs one after the other in a slot, whose difference is what one more takes.
ONCE, OFTEN = 2, 4

#: Passes kept of a long loop to measure the time of one more than in an outline.
MORE = 15


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
        self._steady: dict[tuple[int, int], Life] = {}
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
            life = life.plus(self._pass(launch, kind, residents, before), removed)
        return life

    def _pass(self, launch: Launch, kind: Kind, residents: int, before: int) -> Life:
        """Return a pass of a kind of loop, of the class that has most of them.

        In a class with hardly more than an outline keeps, residents are not yet as they will be.
        """
        key = (kind, residents, before)
        if key not in self._passes:
            outlines = outline(launch)
            number = max(range(len(outlines)), key=lambda i: outlines[i].removed.get(kind, 0))
            short, cta_class = outlines[number], launch.classes[number]
            more = shorten(cta_class.program, cta_class.env, {kind: MORE})
            longer = self._one_more(more, cta_class, residents, before)
            passes = short.removed[kind] - more.removed.get(kind, 0)
            difference = longer.plus(self._one_more(short, cta_class, residents, before), -1.0)
            self._passes[key] = Life(0.0, {}).plus(difference, 1.0 / passes)
        return self._passes[key]

    def one_pass(self, launch: Launch, kind: Kind, residents: int) -> float:
        """Return the cycles of a pass of a kind of loop that some class was cut short in."""
        return self._pass(launch, kind, residents, 0).cycles

    def lives_in_steady(self, launch: Launch, residents: int) -> list[Life]:
        """Return what one CTA more in each slot takes, by class, once slots are out of step."""
        return [
            self._steady_life(launch, number, residents) for number in range(len(launch.classes))
        ]

    def _steady_life(self, launch: Launch, number: int, residents: int) -> Life:
        short, cta_class = outline(launch)[number], launch.classes[number]
        life = self._later(WorkTile(short.program, cta_class.env), residents)
        for kind, removed in short.removed.items():
            life = life.plus(self._pass(launch, kind, residents, 0), removed)
        return life

    def _later(self, tile: WorkTile, residents: int) -> Life:
        key = (id(tile.program), residents)
        if key not in self._steady:
            self._kept.append(tile.program)
            few, more = (self.simulate([tile], residents, turns=n) for n in (ONCE, OFTEN))
            self._steady[key] = Life(0.0, {}).plus(more.plus(few, -1.0), 1.0 / (OFTEN - ONCE))
        return self._steady[key]

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
        self,
        tiles: Sequence[WorkTile],
        residents: int,
        watch: Watch | None = None,
        turns: int = 1,
    ) -> Life:
        """Run ``turns`` CTAs, each with ``tiles``, in each of ``residents`` slots.

        The slots start together. Returns the mean over slots.
        """
        env = simpy.Environment()
        book = JobBook(self._machine, self._dtype, self._misses)
        sm = Sm(env, self._machine, book, self._capacity, watch, self._limited)
        ends: list[float] = []

        def begin(left: int) -> None:
            def done() -> None:
                if left > 1:
                    begin(left - 1)
                else:
                    ends.append(env.now)

            first, *others = tiles
            sm.start(first, done, partial(next, iter(others), None))

        for _ in range(residents):
            begin(turns)
        env.run()
        check_finished(residents - len(ends))
        time = {r: t / residents for r, t in sm.ledger.time.items()}
        return Life(sum(ends) / residents, time)
