"""Barrier slots in simulated time: arrivals, phases, and the roles that wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simpy.events import Event

if TYPE_CHECKING:
    import simpy

    from simgpu.program.tile import Barrier


class BarrierSlots:
    """Every barrier slot of one CTA."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._arrivals: dict[tuple[str, int], int] = {}
        self._waiting: dict[tuple[str, int], list[tuple[int, Event]]] = {}

    def arrive(self, barrier: Barrier, use: int) -> None:
        """Count one arrival for use ``use``; wakes those whose phase it completes."""
        if use < 0:
            return
        self.credit(barrier, use % barrier.stages, 1)

    def credit(self, barrier: Barrier, slot: int, arrivals: int) -> None:
        """Count several arrivals at once (loop passes that are skipped)."""
        key = (barrier.name, slot)
        total = self._arrivals[key] = self._arrivals.get(key, 0) + arrivals
        waiting = self._waiting.get(key)
        if waiting:
            completed = total // barrier.count
            for needed, event in waiting:
                if needed <= completed:
                    event.succeed()
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
