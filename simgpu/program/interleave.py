"""Legal interleavings of a program: which role or landing comes next, in any order that may happen.

Roles run in program order and stop at waits; asynchronous operations land some time after their
issue, a role's MMAs in order, copies in any. What happens at each step is up to the reader.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from simgpu.errors import VerifyError
from simgpu.program.ops import Arrive, Copy, Mma, Wait
from simgpu.program.program import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.program.ops import Op
    from simgpu.program.program import TileProgram
    from simgpu.program.tile import Barrier, Signal

#: A role by number, or a landing by the number of its issue.
Agent = tuple[Literal["role", "land"], int]


@dataclass(frozen=True, slots=True)
class Action:
    """One step: a role executes (or issues) an operation, or an asynchronous one lands."""

    kind: Literal["run", "issue", "land"]
    op: Op
    role: int
    env: dict[str, int]
    number: int  # of the operation, in order of issue


class Order(Protocol):
    """Chooses among the agents that may go next."""

    def pick(self, agents: list[Agent]) -> Agent:
        """Return one of ``agents`` (never empty)."""
        ...


class ProgramOrder:
    """Everything lands at once, and the first role that can run runs."""

    def pick(self, agents: list[Agent]) -> Agent:
        """Return the latest landing, else the first role."""
        landings = [a for a in agents if a[0] == "land"]
        return landings[-1] if landings else agents[0]


class RandomOrder:
    """Any agent, with equal chance."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def pick(self, agents: list[Agent]) -> Agent:
        """Return a random agent."""
        return self._random.choice(agents)


class AdversarialOrder:
    """Random priorities with a few change points (Burckhardt et al., ASPLOS 2010).

    It keeps one agent back as long as the program allows, which finds missing waits that uniformly
    random orders miss.
    """

    def __init__(self, seed: int | str, change_points: int = 3, horizon: int = 200) -> None:
        self._random = random.Random(seed)
        self._priority: dict[Agent, float] = {}
        self._changes = {self._random.randrange(horizon) for _ in range(change_points)}
        self._step = 0

    def pick(self, agents: list[Agent]) -> Agent:
        """Return the agent of highest priority; at a change point it drops to the lowest."""
        for agent in agents:
            self._priority.setdefault(agent, self._random.random())
        best = max(agents, key=self._priority.__getitem__)
        if self._step in self._changes:
            self._priority[best] = -self._random.random()
        self._step += 1
        return best


class Phases:
    """Arrivals at every barrier slot."""

    def __init__(self) -> None:
        self._arrivals: dict[tuple[str, int], int] = {}

    def completed(self, barrier: Barrier, slot: int) -> int:
        """Return how many phases of a slot are complete."""
        return self._arrivals.get((barrier.name, slot), 0) // barrier.count

    def last_arrival(self, barrier: Barrier, slot: int) -> bool:
        """Say whether the next arrival at a slot completes its phase."""
        return (self._arrivals.get((barrier.name, slot), 0) + 1) % barrier.count == 0

    def arrive(self, signal: Signal, env: dict[str, int]) -> None:
        """Count an arrival.

        Raises VerifyError when it belongs to another phase than the one in progress.
        """
        use, barrier = signal.use.at(env), signal.barrier
        if use < 0:
            return
        slot, phase = use % barrier.stages, use // barrier.stages
        if phase != self.completed(barrier, slot):
            raise VerifyError(
                f"barrier {barrier.name} slot {slot}: an arrival for phase {phase} comes while "
                f"phase {self.completed(barrier, slot)} is in progress (its count is "
                f"{barrier.count}): arrivals and waits do not pair up"
            )
        key = (barrier.name, slot)
        self._arrivals[key] = self._arrivals.get(key, 0) + 1

    def passed(self, wait: Wait, env: dict[str, int]) -> bool:
        """Say whether a wait would return now."""
        use, barrier = wait.signal.use.at(env), wait.barrier
        phase = use // barrier.stages - wait.lag
        return use < 0 or phase < 0 or self.completed(barrier, use % barrier.stages) > phase


class _Cursor:
    """Where one role stands."""

    def __init__(self, program: TileProgram, role: int, env: dict[str, int]) -> None:
        self.env = dict(env)
        self._steps = walk(program.roles[role].body, self.env)
        self.op = next(self._steps, None)

    def advance(self) -> None:
        self.op = next(self._steps, None)


def interleave(
    program: TileProgram, env: dict[str, int], order: Order, phases: Phases | None = None
) -> Iterator[Action]:
    """Yield the steps of one CTA at coordinates ``env`` in a legal order.

    An arrival counts after its action has been yielded. Raises VerifyError on a deadlock, naming
    the barriers and the roles, and on arrivals that fit no phase.
    """
    phases = phases or Phases()
    cursors = [_Cursor(program, r, env) for r in range(len(program.roles))]
    copies: dict[int, Action] = {}
    mmas: list[deque[Action]] = [deque() for _ in cursors]
    number = 0
    while True:
        agents: list[Agent] = []
        for r, cursor in enumerate(cursors):
            if cursor.op is not None and not _blocked(cursor, phases):
                agents.append(("role", r))
        agents += [("land", n) for n in copies]
        agents += [("land", queue[0].number) for queue in mmas if queue]
        if not agents:
            break
        kind, which = order.pick(agents)
        if kind == "land":
            action = copies.pop(which) if which in copies else _pop(mmas, which)
            assert isinstance(action.op, Copy | Mma)
            assert action.op.signal
            yield Action("land", action.op, action.role, action.env, action.number)
            phases.arrive(action.op.signal, action.env)
            continue
        cursor = cursors[which]
        op = cursor.op
        assert op is not None
        asynchronous = isinstance(op, Copy | Mma) and op.signal is not None
        action = Action("issue" if asynchronous else "run", op, which, dict(cursor.env), number)
        number += 1
        if asynchronous and isinstance(op, Mma):
            mmas[which].append(action)
        elif asynchronous:
            copies[action.number] = action
        yield action
        if isinstance(op, Arrive):
            phases.arrive(op.signal, cursor.env)
        cursor.advance()
    stuck = [(r, c) for r, c in enumerate(cursors) if c.op is not None]
    if stuck:
        raise VerifyError(_deadlock(program, stuck, phases))


def _blocked(cursor: _Cursor, phases: Phases) -> bool:
    return isinstance(cursor.op, Wait) and not phases.passed(cursor.op, cursor.env)


def _pop(mmas: list[deque[Action]], number: int) -> Action:
    return next(queue.popleft() for queue in mmas if queue and queue[0].number == number)


def _deadlock(program: TileProgram, stuck: list[tuple[int, _Cursor]], phases: Phases) -> str:
    lines = []
    for r, cursor in stuck:
        assert isinstance(cursor.op, Wait)
        barrier, use = cursor.op.barrier, cursor.op.signal.use.at(cursor.env)
        slot, phase = use % barrier.stages, use // barrier.stages - cursor.op.lag
        done = phases.completed(barrier, slot)
        lines.append(
            f"role {program.roles[r].name!r} waits for phase {phase} of barrier {barrier.name} "
            f"(slot {slot}), which has completed {done} phases"
        )
    return "deadlock: " + "; ".join(lines)
