"""Max-min fair sharing: the jobs on an SM progress together, as fast as its units allow.

A job that runs alone takes its solo time and uses each unit at demand/solo. When several want more
of a unit than it has, those that use it are slowed to one common speed, the rest share what is left
(progressive filling; the fluid model of SimGrid: Casanova et al., 2014). Products of the tensor
cores come before all others at the issue slots.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simpy.events import Event

from simgpu.hardware.machine import ISSUE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import simpy

    from simgpu.cost.job import Job
    from simgpu.timing.watch import Watch

#: Completions this close together, in cycles, are one instant.
INSTANT = 2.0**-20
_AFTER_ALL = 2  # SimPy runs NORMAL (1) events of an instant before these


class _Running:
    __slots__ = ("done", "job", "left", "rate", "solo", "use")

    def __init__(self, job: Job, solo: float, use: list[tuple[int, float]], done: Event) -> None:
        self.job, self.solo, self.use, self.done = job, solo, use, done
        self.left, self.rate = 1.0, 0.0


class FairShare:
    """The units of one SM and the jobs that they serve.

    Jobs that come ``first`` (products) are served in the order in which they came: they take what
    issue slots they want, and their fair part of what others want too. One warp a scheduler leaves
    the share ``idle`` of the issue slots empty, since its instructions depend on one another; n
    warps leave idle/n. Where products leave a share f of the slots, an instruction waits g cycles
    for its operands and then 1/f for a slot, so 1/(g + 1/f) of all slots are used, with g from
    f = 1. ``limited`` False lets every job run as if it were alone: what is left is the critical
    path.
    """

    def __init__(
        self,
        env: simpy.Environment,
        capacity: Sequence[float],
        *,
        idle: float = 0.0,
        limited: bool = True,
    ) -> None:
        self._limited, self._idle = limited, idle
        self._env = env
        self._capacity = list(capacity)
        self._jobs: list[_Running] = []
        self._since = 0.0
        self._plans: dict[int, tuple[Job, float, list[tuple[int, float]]]] = {}
        self._version = 0
        self._dirty = False
        self.watch: Watch | None = None
        #: Integral of the rates of each unit, to check against the demands that were served.
        self.served = [0.0] * len(self._capacity)

    def alone(self, job: Job) -> float:
        """Return the cycles that a job takes when nothing else runs."""
        return self._plan(job)[0]

    def _plan(self, job: Job) -> tuple[float, list[tuple[int, float]]]:
        """Return a job's time alone and its use of each unit; jobs come again and again."""
        known = self._plans.get(id(job))
        if known is None or known[0] is not job:
            solo = job.solo
            capacities = self._with_warps(math.inf if job.first else job.warps)
            for amount, capacity in zip(job.demand, capacities, strict=True):
                if amount and amount > solo * capacity:
                    solo = amount / capacity
            use = [(u, amount / solo) for u, amount in enumerate(job.demand) if amount]
            known = self._plans[id(job)] = (job, solo, use)
        return known[1], known[2]

    def _with_warps(self, warps: float) -> list[float]:
        """Return the capacities when so many warps a scheduler have instructions to issue."""
        capacity = list(self._capacity)
        if self._idle:
            capacity[ISSUE] *= self._usable(warps)
        return capacity

    def _usable(self, warps: float, free: float = 1.0) -> float:
        """Return the share of the ``free`` issue slots that so many warps a scheduler fill."""
        n = max(1.0, warps)
        gap = self._idle / (n - self._idle)
        return 1.0 / (1.0 + gap * free)

    def submit(self, job: Job) -> Event:
        """Start a job; the event fires when it has been served (before its latency)."""
        done = Event(self._env)
        solo, use = self._plan(job)
        if solo <= 0.0:
            done.succeed()
            return done
        self._jobs.append(_Running(job, solo, use, done))
        self._touch()
        return done

    def resize(self, capacity: Sequence[float]) -> None:
        """Change the capacities; running jobs keep what they have been served."""
        if list(capacity) != self._capacity:
            self._progress()
            self._capacity = list(capacity)
            self._plans.clear()
            for running in self._jobs:
                running.solo, running.use = self._plan(running.job)
            self._touch()

    @property
    def speeds(self) -> list[float]:
        """Progress of each running job relative to running alone (1 is full speed)."""
        return [running.rate * running.solo for running in self._jobs]

    def _touch(self) -> None:
        """Recompute once everything else of this instant has happened."""
        if not self._dirty:
            self._dirty = True
            event = Event(self._env)
            event.callbacks = [self._settle]
            event._ok, event._value = True, None
            self._env.schedule(event, _AFTER_ALL)  # type: ignore[arg-type]

    def _progress(self) -> None:
        now = self._env.now
        elapsed = now - self._since
        if elapsed > 0.0:
            for running in self._jobs:
                share = running.rate * elapsed
                running.left -= share
                for unit, use in running.use:
                    self.served[unit] += share * running.solo * use
        self._since = now

    def _settle(self, _: Event) -> None:
        self._dirty = False
        self._progress()
        self._fill()
        if self.watch is not None:
            rates = tuple((running.job, running.rate) for running in self._jobs)
            self.watch.rates.append((self._env.now, rates))
        self._schedule()

    def _fill(self) -> None:
        left = list(self._capacity) if self._limited else [math.inf] * len(self._capacity)
        others = [running for running in self._jobs if not running.job.first]
        wanted = _wanted(others, len(left))
        for running in self._jobs:
            if running.job.first:
                _serve(running, left, wanted)
        if self._limited and self._idle:
            free = left[ISSUE] / self._capacity[ISSUE]
            left[ISSUE] *= self._usable(sum(running.job.warps for running in others), free)
        _share(others, left)

    def _schedule(self) -> None:
        self._version += 1
        soonest = min((r.left / r.rate for r in self._jobs if r.rate > 0.0), default=-1.0)
        if soonest < 0.0:
            return
        version = self._version
        event = Event(self._env)
        event.callbacks = [lambda _: self._complete(version)]
        event._ok, event._value = True, None
        self._env.schedule(event, delay=max(soonest, 0.0))

    def _complete(self, version: int) -> None:
        if version != self._version:
            return
        self._progress()
        kept = []
        for running in self._jobs:
            if running.left <= INSTANT * running.rate:
                running.done.succeed()
            else:
                kept.append(running)
        self._jobs = kept
        self._touch()


def _wanted(jobs: Sequence[_Running], units: int) -> list[float]:
    """Return what jobs use of each unit at full speed."""
    wanted = [0.0] * units
    for running in jobs:
        for unit, use in running.use:
            wanted[unit] += use
    return wanted


def _serve(running: _Running, left: list[float], wanted: Sequence[float]) -> None:
    """Give a product what is left; of what others want too, but issue slots, its fair part."""
    speed = 1.0
    for unit, use in running.use:
        both = use + (0.0 if unit == ISSUE else wanted[unit])
        if both > left[unit]:
            speed = min(speed, left[unit] / both)
    running.rate = speed / running.solo
    for unit, use in running.use:
        left[unit] = max(0.0, left[unit] - speed * use)


def _share(jobs: Sequence[_Running], left: list[float]) -> None:
    """Give each job its rate, max-min fair, and take what the jobs use from what is ``left``."""
    todo = list(jobs)
    while todo:
        wanted = [0.0] * len(left)
        for running in todo:
            for unit, use in running.use:
                wanted[unit] += use
        speed, limit = 1.0, -1
        for unit, want in enumerate(wanted):
            if want * speed > left[unit] * (1.0 + 1e-12):
                speed, limit = left[unit] / want, unit
        rest = []
        for running in todo:
            if limit < 0 or any(unit == limit for unit, _ in running.use):
                running.rate = speed / running.solo
                for unit, use in running.use:
                    left[unit] = max(0.0, left[unit] - speed * use)
            else:
                rest.append(running)
        todo = rest
