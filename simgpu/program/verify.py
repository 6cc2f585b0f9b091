"""Static checks of a recorded program: does it fit, can it deadlock, does it race?

One legal execution with vector clocks is enough: waits only count arrivals, so if one order runs to
the end every order does, and what happens before what does not depend on the order either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from simgpu.errors import VerifyError
from simgpu.program.interleave import Action, Phases, ProgramOrder, interleave
from simgpu.program.listing import describe
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Wait
from simgpu.program.storage import Storage
from simgpu.program.tile import View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simgpu.program.program import TileProgram
    from simgpu.program.tile import Barrier, Operand, Signal

#: A thread of execution: a role, or the asynchronous operations behind one barrier slot.
Component = tuple[str, int]
Clock = dict[Component, int]
Place = tuple[str, int, int]


def check_fit(program: TileProgram, shared_limit: int) -> None:
    """Raise VerifyError when the program's buffers exceed ``shared_limit`` bytes a CTA."""
    wanted = program.shared_bytes
    if wanted > shared_limit:
        own = (b for b in program.buffers if b.space == "smem" and b.over is None)
        parts = ", ".join(f"{b.name} {b.bytes}" for b in own)
        raise VerifyError(
            f"does not fit in shared memory: {wanted} bytes wanted ({parts}), {shared_limit} bytes "
            "a CTA available; use a smaller tile or fewer stages"
        )


def verify(program: TileProgram, env: dict[str, int]) -> None:
    """Execute the program once, abstractly, at coordinates ``env``.

    Raises VerifyError naming the barriers and roles of a deadlock, an arrival that fits no phase,
    a phase that may pass before its waiter looks (hardware keeps one phase bit), or the two
    operations of a race: accesses to one tile, at least one a write, with nothing that orders them.
    """
    phases = Phases()
    races = _Races(program, phases)
    for action in interleave(program, env, ProgramOrder(), phases):
        races.step(action)


@dataclass(slots=True)
class _Access:
    """The last write of a place and the reads since."""

    write: tuple[Component, int, Action] | None = None
    reads: dict[Component, tuple[int, Action]] = field(default_factory=dict)


class _Races:
    """Vector clocks of the roles, and of the phases that they hand over through barriers."""

    def __init__(self, program: TileProgram, counted: Phases) -> None:
        self._program, self._counted = program, counted
        self._storage = Storage(program.buffers)
        self._clocks: list[Clock] = [{("role", r): 0} for r in range(len(program.roles))]
        self._phases: dict[tuple[str, int, int], Clock] = {}
        self._waits: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
        self._issued: dict[int, Clock] = {}
        self._places: dict[Place, _Access] = {}

    def step(self, action: Action) -> None:
        clock = self._clocks[action.role]
        match action.op:
            case Wait(signal, lag):
                self._join(action.role, signal, lag, action.env)
            case Arrive(signal):
                self._tick(action.role)
                self._hand_over(clock, signal, action.env)
            case Copy() | Mma() | Apply():
                self._execute(action, clock)
            case other:
                assert_never(other)

    def _execute(self, action: Action, clock: Clock) -> None:
        op = action.op
        if action.kind == "issue":
            self._issued[action.number] = dict(clock)
            return
        if action.kind == "run":
            count = self._tick(action.role)
            self._touch(action, ("role", action.role), count, clock)
            return
        assert isinstance(op, Copy | Mma)
        assert op.signal
        own = self._issued.pop(action.number)
        use, barrier = op.signal.use.at(action.env), op.signal.barrier
        component, count = (barrier.name, use % barrier.stages), use // barrier.stages + 1
        if isinstance(op, Mma):  # a role's MMAs execute in order
            own[component] = count - 1
        self._touch(action, component, count, own)
        own[component] = count
        self._hand_over(own, op.signal, action.env)

    def _tick(self, role: int) -> int:
        clock = self._clocks[role]
        clock["role", role] += 1
        return clock["role", role]

    def _hand_over(self, clock: Clock, signal: Signal, env: dict[str, int]) -> None:
        use, barrier = signal.use.at(env), signal.barrier
        if use >= 0:
            slot, phase = use % barrier.stages, use // barrier.stages
            kept = self._phases.setdefault((barrier.name, slot, phase), {})
            _merge(kept, self._phases.get((barrier.name, slot, phase - 1), {}))
            _merge(kept, clock)
            if barrier.kind != "group" and self._counted.last_arrival(barrier, slot):
                for role, (waited, count) in self._waits.get((barrier.name, slot), {}).items():
                    if waited == phase - 1 and kept.get(("role", role), 0) < count:
                        self._overrun(role, barrier, slot, waited)

    def _join(self, role: int, signal: Signal, lag: int, env: dict[str, int]) -> None:
        use, barrier = signal.use.at(env), signal.barrier
        slot, phase = use % barrier.stages, use // barrier.stages - lag
        if use < 0 or phase < 0:
            return
        _merge(self._clocks[role], self._phases[barrier.name, slot, phase])
        if barrier.kind != "group":
            waits = self._waits.setdefault((barrier.name, slot), {})
            waits[role] = (phase, self._tick(role))
            if self._counted.completed(barrier, slot) > phase + 1:
                self._overrun(role, barrier, slot, phase)

    def _overrun(self, role: int, barrier: Barrier, slot: int, phase: int) -> None:
        raise VerifyError(
            f"barrier {barrier.name} slot {slot}: phase {phase + 1} may complete before role "
            f"{self._program.roles[role].name!r} has waited for phase {phase}, which it would miss"
        )

    def _touch(self, action: Action, component: Component, count: int, clock: Clock) -> None:
        reads, writes = accesses(action, self._storage)
        for place in reads:
            access = self._places.setdefault(place, _Access())
            self._ordered(access.write, clock, action, place)
            access.reads[component] = (count, action)
        for place in writes:
            access = self._places.setdefault(place, _Access())
            self._ordered(access.write, clock, action, place)
            for reader, (seen, earlier) in access.reads.items():
                if reader != component or earlier.number != action.number:
                    self._ordered((reader, seen, earlier), clock, action, place)
            self._places[place] = _Access((component, count, action))

    def _ordered(
        self,
        earlier: tuple[Component, int, Action] | None,
        clock: Clock,
        action: Action,
        place: Place,
    ) -> None:
        if earlier is None or clock.get(earlier[0], 0) >= earlier[1]:
            return
        first, second = (self._describe(a) for a in (earlier[2], action))
        where = f"{place[0]} slot {place[1]}"
        raise VerifyError(f"race on {where}: nothing orders {first} and {second}")

    def _describe(self, action: Action) -> str:
        role = self._program.roles[action.role].name
        return f"'{describe(action.op)}' (role {role!r}, operation {action.number})"


def _merge(clock: Clock, other: Clock) -> None:
    for component, count in other.items():
        if clock.get(component, -1) < count:
            clock[component] = count


def accesses(action: Action, storage: Storage) -> tuple[list[Place], list[Place]]:
    """Return the places an operation reads and those it writes: parts of storage, and tiles."""
    op, env = action.op, action.env

    def places(*operands: Operand) -> list[Place]:
        return _places(operands, env, storage)

    match op:
        case Copy(src, dst):
            return places(src), places(dst)
        case Mma(dst, a, b, accumulate):
            return places(a, b, dst) if accumulate else places(a, b), places(dst)
        case Apply(_, args):
            return places(*args), places(*args)
        case Arrive() | Wait():
            return [], []
        case other:
            assert_never(other)


def _places(operands: Iterable[Operand], env: dict[str, int], storage: Storage) -> list[Place]:
    places: list[Place] = []
    for x in operands:
        if isinstance(x, View):
            places += [(*part, 0) for part in storage.parts(x.buffer.name, x.slot(env))]
        else:
            places.append((x.tensor.name, x.row.at(env), x.col.at(env)))
    return places
