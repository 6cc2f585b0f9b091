"""From what a watched SM did to its Timeline."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from typing import TYPE_CHECKING

from simgpu.cost.instructions import instructions
from simgpu.cost.work import work
from simgpu.errors import SimgpuError
from simgpu.hardware.machine import ISSUE, REPORTED_UNITS, TENSOR
from simgpu.program.ops import Copy, Mma, Wait
from simgpu.tensor import Tile
from simgpu.timing.exact import Device, Watched
from simgpu.timing.timeline import Timeline
from simgpu.timing.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simgpu.cost.job import Job, MissRates
    from simgpu.hardware.machine import Demand, Machine
    from simgpu.program.program import Launch
    from simgpu.timing.book import JobBook
    from simgpu.timing.timeline import Steps
    from simgpu.timing.watch import Flight, Span, Stay


def follow(
    launch: Launch,
    dtype: str,
    machine: Machine,
    slots: int,
    misses: MissRates,
    hbm_used: float,
    *,
    sm: int,
    waves: int | None,
    schedule: str,
) -> Timeline:
    """Simulate a launch exactly and return the timeline of SM number ``sm``.

    Raises SimgpuError for an SM without work or a number of waves below 1.
    """
    busy = min(launch.grid.tiles, machine.sms)
    if not 0 <= sm < busy:
        raise SimgpuError(f"sm is {sm}: {launch.name} runs on SMs 0 to {busy - 1}")
    if waves is not None and waves < 1:
        raise SimgpuError(f"waves is {waves}: it must be at least 1")
    watch = Watch()
    watched = Watched(sm, watch, waves)
    device = Device(launch, dtype, machine, slots, misses, hbm_used, watched)
    device.run()
    zero = machine.profile.costs.launch_cycles
    stays = _in_slots(watch.stays, zero)
    return Timeline(
        schedule=schedule,
        gpu=machine.profile.name,
        clock_mhz=machine.clock_mhz,
        launch=launch.name,
        sm=sm,
        cycles=zero + device.end,
        complete=not device.cut,
        stays=stays,
        spans=tuple(s._replace(start=zero + s.start, end=zero + s.end) for s in watch.spans),
        flights=_in_lanes(watch.flights, {stay.cta: stay.slot for stay in stays}, zero),
        instants=tuple(x._replace(time=zero + x.time) for x in watch.instants),
        flows=tuple(f._replace(time=zero + f.time) for f in watch.flows),
        utilization=_utilization(watch, launch, device.book, machine, dtype, zero),
        bytes_in_flight=_steps(_under_way(watch), zero),
        resident=_steps(((stay.start, stay.end, 1) for stay in watch.stays), zero),
    )


def _in_slots(stays: list[Stay], zero: float) -> tuple[Stay, ...]:
    """Give each CTA the lowest slot that is free when it starts."""
    ordered = sorted(stays, key=lambda stay: (stay.start, stay.cta))
    rows = _rows([(stay.start, stay.end) for stay in ordered])
    return tuple(
        stay._replace(start=zero + stay.start, end=zero + stay.end, slot=slot)
        for stay, slot in zip(ordered, rows, strict=True)
    )


def _in_lanes(flights: list[Flight], slots: dict[int, int], zero: float) -> tuple[Flight, ...]:
    """Give each flight the lowest lane of its kind that is free in its CTA's slot."""
    groups: dict[tuple[int, type], list[Flight]] = {}
    for flight in sorted(flights, key=lambda f: (f.issued, f.number)):
        groups.setdefault((slots[flight.cta], type(flight.op)), []).append(flight)
    placed = []
    for group in groups.values():
        rows = _rows([(flight.issued, flight.landed) for flight in group])
        for flight, lane in zip(group, rows, strict=True):
            times = {
                name: zero + getattr(flight, name)
                for name in ("issued", "started", "served", "landed")
            }
            placed.append(flight._replace(lane=lane, **times))
    return tuple(sorted(placed, key=lambda flight: flight.number))


def _rows(intervals: list[tuple[float, float]]) -> list[int]:
    """Return a row for each interval, in order of start, so that no two on a row overlap."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    rows, used = [], 0
    for start, end in intervals:
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row, used = used, used + 1
        heapq.heappush(busy, (end, row))
        rows.append(row)
    return rows


def _under_way(watch: Watch) -> Iterable[tuple[float, float, int]]:
    """Yield (from, until, bytes) of each access to global memory, blocking ones too."""
    flown = set()
    for flight in watch.flights:
        flown.add(id(flight.op))
        if flight.bytes:
            yield flight.issued, flight.landed, flight.bytes
    lives: dict[int, tuple[float, float, int]] = {}
    for span in watch.spans:
        if isinstance(span.op, Copy) and id(span.op) not in flown:
            size = sum(x.valid_bytes({}) for x in (span.op.src, span.op.dst) if isinstance(x, Tile))
            start = lives[id(span.op)][0] if id(span.op) in lives else span.start
            lives[id(span.op)] = (start, span.end, size)
    yield from (life for life in lives.values() if life[2])


def _steps(intervals: Iterable[tuple[float, float, float]], zero: float) -> Steps:
    """Return the sum of the values of the intervals that cover each moment."""
    begins: dict[float, list[int]] = {0.0: []}
    ends: dict[float, list[int]] = {}
    values = {}
    for number, (start, end, value) in enumerate(intervals):
        begins.setdefault(zero + start, []).append(number)
        ends.setdefault(zero + end, []).append(number)
        values[number] = value
    present: dict[int, float] = {}
    steps = []
    for time in sorted({*begins, *ends}):
        present |= {number: values[number] for number in begins.get(time, ())}
        for number in ends.get(time, ()):
            del present[number]
        steps.append((time, float(sum(present.values()))))
    return _merged(steps)


def _utilization(
    watch: Watch, launch: Launch, book: JobBook, machine: Machine, dtype: str, zero: float
) -> dict[str, Steps]:
    """Return each unit's useful rate over its peak."""
    useful: dict[int, Demand] = {}
    steps: dict[str, list[tuple[float, float]]] = {name: [(0.0, 0.0)] for name in REPORTED_UNITS}
    for time, rates in watch.rates:
        for job, _ in rates:
            if id(job) not in useful:
                useful[id(job)] = _useful(job, book, machine, dtype)
        for name, unit in REPORTED_UNITS.items():
            served = sum(rate * useful[id(job)][unit] for job, rate in rates)
            steps[name].append((zero + time, served / machine.capacity[unit]))
    found = {name: _merged(changes) for name, changes in steps.items()}
    slots = machine.capacity[ISSUE]
    issued = [(a, b, n / (b - a) / slots) for a, b, n in _barriers(watch, launch, machine)]
    return {**found, "issue": _plus(found["issue"], _steps(issued, zero))}


def _barriers(
    watch: Watch, launch: Launch, machine: Machine
) -> Iterable[tuple[float, float, float]]:
    """Yield (from, until, instructions) of waits and arrivals, which the machine serves for free.

    A wait issues its instructions while it holds its role after the release. What takes no time
    counts with what its role did just before.
    """
    roles = {role.name: role for c in launch.classes for role in c.program.roles}
    lives: dict[tuple[int, str], list[Span]] = {}
    for span in watch.spans:
        lives.setdefault((span.cta, span.role), []).append(span)
        if isinstance(span.op, Wait) and span.stall is None:
            count = instructions(span.op, roles[span.role], machine).total
            yield span.start, span.end, count
    for instant in watch.instants:
        spans = lives[instant.cta, instant.role]
        before = max(0, bisect_right(spans, instant.time, key=lambda span: span.end) - 1)
        count = instructions(instant.op, roles[instant.role], machine).total
        yield spans[before].start, spans[before].end, count


def _plus(one: Steps, other: Steps) -> Steps:
    """Return the sum of two quantities."""
    times = sorted({time for time, _ in (*one, *other)})
    sums = []
    values, at = [0.0, 0.0], [0, 0]
    for time in times:
        for which, steps in enumerate((one, other)):
            while at[which] < len(steps) and steps[at[which]][0] <= time:
                values[which] = steps[at[which]][1]
                at[which] += 1
        sums.append((time, values[0] + values[1]))
    return _merged(sums)


def _useful(job: Job, book: JobBook, machine: Machine, dtype: str) -> Demand:
    """Return a job's demand as a run reports it: FLOPs at the full rate, whole instructions."""
    op, role = book.origin(job)
    if not isinstance(op, Mma) or not job.demand[TENSOR]:
        return job.demand
    demand = list(job.demand)
    demand[TENSOR] = work(op, role, {}).flops_tensor / machine.tensor_flops(dtype)
    demand[ISSUE] = instructions(op, role, machine).total
    return tuple(demand)


def _merged(steps: list[tuple[float, float]]) -> Steps:
    """Return the steps at which the value changes, the last of each moment."""
    kept: list[tuple[float, float]] = []
    for time, value in steps:
        if kept and kept[-1][0] == time:
            kept.pop()
        if not kept or kept[-1][1] != value:
            kept.append((time, value))
    return tuple(kept)
