"""How long a CTA lives on an SM that it shares with others of its kind.

Each situation (program, number of residents) is simulated once, with long loops cut short; the time
of a full program follows from the time a pass of each kind of loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import simpy

from simgpu.timing.shorten import FEW, shorten
from simgpu.timing.sm import JobBook, Sm, Span, check_finished

if TYPE_CHECKING:
    from simgpu.cost.jobs import MissRates
    from simgpu.hardware.machine import Machine
    from simgpu.program.program import CtaClass, TileProgram
    from simgpu.timing.shorten import Kind

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
        self._lives: dict[tuple[TileProgram, int], Life] = {}
        self._passes: dict[tuple[Kind, int], Life] = {}

    def life(self, cta_class: CtaClass, residents: int) -> Life:
        """Return the life of a CTA of this class among ``residents`` of its kind."""
        program, env = cta_class.program, cta_class.env
        short = shorten(program, env)
        life = self._simulated(short.program, env, residents)
        for kind, removed in short.removed.items():
            life = life.plus(self._one_pass(cta_class, kind, residents), removed)
        return life

    def _one_pass(self, cta_class: CtaClass, kind: Kind, residents: int) -> Life:
        known = self._passes.get((kind, residents))
        if known is None:
            program, env = cta_class.program, cta_class.env
            few, more = (shorten(program, env, {kind: n}) for n in (FEW, MORE))
            extra = few.removed[kind] - more.removed.get(kind, 0)
            short, long = (self._simulated(s.program, env, residents) for s in (few, more))
            difference = long.plus(short, -1.0)
            known = self._passes[kind, residents] = Life(0.0, {}).plus(difference, 1.0 / extra)
        return known

    def _simulated(self, program: TileProgram, env: dict[str, int], residents: int) -> Life:
        known = self._lives.get((program, residents))
        if known is None:
            known = self._lives[program, residents] = self.simulate(program, env, residents)
        return known

    def simulate(
        self,
        program: TileProgram,
        coordinates: dict[str, int],
        residents: int,
        spans: list[Span] | None = None,
    ) -> Life:
        """Run ``residents`` CTAs that start together; return their mean life."""
        env = simpy.Environment()
        book = JobBook(self._machine, self._dtype, self._misses)
        sm = Sm(env, self._machine, book, self._capacity, spans, self._limited)
        lives: list[float] = []
        for _ in range(residents):
            sm.start(program, coordinates, lambda: lives.append(env.now))
        env.run()
        check_finished(residents - len(lives))
        time = {r: t / residents for r, t in sm.ledger.time.items()}
        return Life(sum(lives) / residents, time)
