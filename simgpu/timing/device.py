"""The device: CTAs are dispatched in launch order to SMs with a free slot.

The fast mode knows each class of CTA by its life alone on an SM and among as many as fit. Part of a
life is latency, which co-residents do not prolong, the rest work that they do; an SM with a few
residents serves them at a speed between the two.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Load:
    """A CTA as the dispatcher sees it: cycles of latency, then cycles of work when alone."""

    latency: float
    work: float


def split_life(alone: float, together: float, slowdown: float) -> Load:
    """Split a life into latency and work, given what ``slowdown`` full residency makes of work.

    alone = latency + work; together = latency + work · slowdown.
    """
    if slowdown <= 1.0 + 1e-9:
        return Load(0.0, alone)
    work = min(alone, max(0.0, (together - alone) / (slowdown - 1.0)))
    return Load(alone - work, work)


class Dispatcher:
    """Processor sharing on every SM: ``slowdown[r]`` stretches work while r CTAs share an SM."""

    def __init__(self, sms: int, slots: int, slowdown: Sequence[float]) -> None:
        self._sms, self._slots, self._slowdown = sms, slots, slowdown

    def makespan(
        self,
        loads: Iterable[Load],
        watch: Callable[[float, int], None] = lambda now, resident: None,
    ) -> tuple[float, float]:
        """Return when the last CTA ends, and the CTA-cycles of residence, over all SMs.

        ``watch`` is told the time and the number of resident CTAs whenever that has changed.
        """
        queue = iter(loads)
        events: list[tuple[float, int, int, float]] = []  # time, number, SM, work that joins
        working: list[list[float]] = [[] for _ in range(self._sms)]
        since, version = [0.0] * self._sms, [0] * self._sms
        number = resident = 0
        end = residence = last = 0.0

        def start(sm: int, now: float) -> bool:
            nonlocal number, resident
            load = next(queue, None)
            if load is None:
                return False
            number += 1
            resident += 1
            heapq.heappush(events, (now + load.latency, number, sm, load.work))
            return True

        for slot in range(self._slots * self._sms):
            if not start(slot % self._sms, 0.0):
                break
        watch(0.0, resident)
        while events:
            now, which, sm, joining = heapq.heappop(events)
            if joining < 0.0 and version[sm] != which:
                continue  # a completion that a later arrival has put off
            residence += resident * (now - last)
            last = now
            present = working[sm]
            if present:
                done = (now - since[sm]) / self._slowdown[len(present)]
                present[:] = [left - done for left in present]
            since[sm] = now
            if joining >= 0.0:
                present.append(joining)
            ended = [left for left in present if left <= 1e-6]
            if ended:
                present[:] = [left for left in present if left > 1e-6]
                end = now
                resident -= len(ended)
                if not all([start(sm, now) for _ in ended]):
                    watch(now, resident)
            if present:
                number += 1
                version[sm] = number
                soonest = min(present) * self._slowdown[len(present)]
                heapq.heappush(events, (now + soonest, number, sm, -1.0))
        return end, residence
