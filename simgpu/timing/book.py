"""Jobs and work of a launch's operations, looked up once for each distinct execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.cost.jobs import jobs
from simgpu.cost.work import Work, work
from simgpu.hardware.machine import MUFU, TENSOR
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Repeat, Wait
from simgpu.program.program import walk
from simgpu.program.worklist import uses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.cost.job import Job, Jobs, MissRates
    from simgpu.hardware.machine import Machine
    from simgpu.program.ops import Op, Step
    from simgpu.program.program import Role, TileProgram


class JobBook:
    """Jobs and work of the operations of a launch, computed once for each distinct execution."""

    def __init__(self, machine: Machine, dtype: str, misses: MissRates) -> None:
        self._machine, self._dtype, self._misses = machine, dtype, misses
        self._known: dict[object, tuple[Jobs, Work]] = {}
        self._turns: dict[int, float] = {}
        self._uses: dict[int, dict[str, int]] = {}
        self._origins: dict[int, tuple[Op, Role]] = {}

    def look_up(
        self, op: Op, role: Role, env: dict[str, int], stretch: float = 1.0
    ) -> tuple[Jobs, Work]:
        """Return the jobs, each ``stretch`` times as long, and the work of one execution."""
        key: object = (id(op), id(role), stretch)
        if isinstance(op, Copy):
            sides = [x.valid(env) for x in (op.src, op.dst) if not hasattr(x, "buffer")]
            key = (key, *sides)
        elif isinstance(op, Arrive | Wait):
            key = (key, op.signal.use.at(env) >= 0)
        found = self._known.get(key)
        if found is None:
            args = (self._machine, self._dtype, self._misses)
            found = jobs(op, role, env, *args).stretched(stretch), work(op, role, env)
            self._known[key] = found
            made = found[0]
            for job in (*made.held, *((made.behind,) if made.behind else ())):
                self._origins[id(job)] = (op, role)
        return found

    def start_cycles(self, program: TileProgram) -> float:
        """Return the cycles from a CTA's dispatch to its first operation."""
        costs = self._machine.profile.costs
        apart = any(role.registers is not None for role in program.roles)
        return costs.cta_start_cycles + costs.roles_start_cycles * apart

    def origin(self, job: Job) -> tuple[Op, Role]:
        """Return an operation that makes this job of the book, and its role."""
        return self._origins[id(job)]

    def uses(self, program: TileProgram) -> dict[str, int]:
        """Return how many uses of each barrier a tile of this program makes."""
        if id(program) not in self._uses:
            self._uses[id(program)] = uses(program)
        return self._uses[id(program)]

    def turn_cycles(self, program: TileProgram, coordinates: dict[str, int]) -> float:
        """Return the cycles that one CTA's first MMA and exponentials keep their units busy."""
        known = self._turns.get(id(program))
        if known is None:
            first: dict[int, float] = {}
            for role in program.roles:
                env = dict(coordinates)
                for op, stretch in _stretched(role.body, env):
                    unit = _turn_unit(op)
                    if unit is not None and unit not in first:
                        found = self.look_up(op, role, env, stretch)[0]
                        made = (found.behind,) if found.behind else found.held
                        demand = max(job.demand[unit] for job in made)
                        first[unit] = demand / self._machine.capacity[unit]
                    if len(first) == 2:
                        break
            known = self._turns[id(program)] = sum(first.values())
        return known


def _stretched(steps: tuple[Step, ...], env: dict[str, int]) -> Iterator[tuple[Op, float]]:
    """Yield the operations in program order, and how much their loops stretch them."""
    for step in steps:
        stretch = step.stretch if isinstance(step, Repeat) else 1.0
        yield from ((op, stretch) for op in walk((step,), env))


def _turn_unit(op: Op) -> int | None:
    if isinstance(op, Mma):
        return TENSOR
    return MUFU if isinstance(op, Apply) and op.fn.exps else None
