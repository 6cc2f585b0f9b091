"""How long a CTA lives on an SM that it shares with others of its kind.

Each situation (program, number of residents) is simulated once, with long loops cut short; the time
of a full program follows from the time a pass of each kind of loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import simpy

from simgpu.timing.barrier import check_finished
from simgpu.timing.book import JobBook
from simgpu.timing.shorten import FEW, outline, shorten
from simgpu.timing.sm import Sm

if TYPE_CHECKING:
    from simgpu.cost.job import MissRates
    from simgpu.hardware.machine import Machine
    from simgpu.program.program import CtaClass, Launch, TileProgram
    from simgpu.timing.shorten import Kind
    from simgpu.timing.watch import Watch

#: Passes kept of a long loop to measure the time of one more than ``FEW``.
MORE = 10


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
        self._lives: dict[tuple[int, int], Life] = {}
        self._kept: list[TileProgram] = []  # so that ids stay theirs
        self._passes: dict[tuple[Kind, int], Life] = {}

    def lives(self, launch: Launch, residents: int) -> list[Life]:
        """Return the life of a CTA of each class among ``residents`` of its kind."""
        return [self.life(launch, number, residents) for number in range(len(launch.classes))]

    def life(self, launch: Launch, number: int, residents: int) -> Life:
        """Return the life of a CTA of class ``number`` among ``residents`` of its kind."""
        short, cta_class = outline(launch)[number], launch.classes[number]
        base = life = self._simulated(short.program, cta_class.env, residents)
        for kind, removed in short.removed.items():
            if (kind, residents) not in self._passes:
                self._passes[kind, residents] = self._one_pass(cta_class, kind, residents, base)
            life = life.plus(self._passes[kind, residents], removed)
        return life

    def one_pass(self, launch: Launch, number: int, kind: Kind, residents: int) -> float:
        """Return the cycles of a pass of a loop that class ``number`` was cut short in."""
        self.life(launch, number, residents)
        return self._passes[kind, residents].cycles

    def _one_pass(self, cta_class: CtaClass, kind: Kind, residents: int, base: Life) -> Life:
        """Return what one pass more adds to the life ``base`` of the shortened program."""
        program, env = cta_class.program, cta_class.env
        few, more = (shorten(program, env, {kind: n}) for n in (FEW, MORE))
        extra = few.removed[kind] - more.removed.get(kind, 0)
        difference = self._simulated(more.program, env, residents).plus(base, -1.0)
        return Life(0.0, {}).plus(difference, 1.0 / extra)

    def _simulated(self, program: TileProgram, env: dict[str, int], residents: int) -> Life:
        known = self._lives.get((id(program), residents))
        if known is None:
            self._kept.append(program)
            known = self.simulate(program, env, residents)
            self._lives[id(program), residents] = known
        return known

    def simulate(
        self,
        program: TileProgram,
        coordinates: dict[str, int],
        residents: int,
        watch: Watch | None = None,
    ) -> Life:
        """Run ``residents`` CTAs that start together; return their mean life."""
        env = simpy.Environment()
        book = JobBook(self._machine, self._dtype, self._misses)
        sm = Sm(env, self._machine, book, self._capacity, watch, self._limited)
        lives: list[float] = []
        for _ in range(residents):
            sm.start(program, coordinates, lambda: lives.append(env.now))
        env.run()
        check_finished(residents - len(lives))
        time = {r: t / residents for r, t in sm.ledger.time.items()}
        return Life(sum(lives) / residents, time)
