"""Barrier slots in simulated time: arrivals, phases, and the roles that wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simpy.events import Event

from simgpu.errors import VerifyError
from simgpu.program.ops import Copy, Mma
from simgpu.program.program import operations

if TYPE_CHECKING:
    import simpy

    from simgpu.program.program import TileProgram
    from simgpu.program.tile import Barrier


class BarrierSlots:
    """Every barrier slot of one CTA."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._arrivals: dict[tuple[str, int], int] = {}
        self._waiting: dict[tuple[str, int], list[tuple[int, Event]]] = {}

    def arrive(self, barrier: Barrier, use: int, by: object = None) -> None:
        """Count one arrival for use ``use``; those whose phase it completes wake with ``by``."""
        if use < 0:
            return
        key = (barrier.name, use % barrier.stages)
        total = self._arrivals[key] = self._arrivals.get(key, 0) + 1
        waiting = self._waiting.get(key)
        if waiting:
            completed = total // barrier.count
            for needed, event in waiting:
                if needed <= completed:
                    event.succeed(by)
            self._waiting[key] = [w for w in waiting if w[0] > completed]

    def wait(self, barrier: Barrier, use: int, lag: int) -> Event | None:
        """Return None when the phase is complete, else an event that fires when it is."""
        slot, needed = use % barrier.stages, use // barrier.stages + 1 - lag
        key = (barrier.name, slot)
        if use < 0 or needed <= self._arrivals.get(key, 0) // barrier.count:
            return None
        event = Event(self._env)
        self._waiting.setdefault(key, []).append((needed, event))
        return event


def stall_reasons(program: TileProgram) -> dict[str, str]:
    """Return what a wait on each barrier waits for: a copy, an MMA, or other warps."""
    reasons = {barrier.name: "wait_barrier" for barrier in program.barriers}

    for role in program.roles:
        for op in operations(role.body):
            if isinstance(op, Copy | Mma) and op.signal:
                kind = "wait_copy" if isinstance(op, Copy) else "wait_mma"
                reasons[op.signal.barrier.name] = kind
    return reasons


def check_finished(waiting: int) -> None:
    """Raise VerifyError when simulated time ended with CTAs still waiting."""
    if waiting:
        raise VerifyError(
            f"{waiting} CTAs never finish: every role waits; run `simgpu check` on the schedule"
        )
