"""A timeline as a Perfetto trace: open it at ui.perfetto.dev. Time is in ns at the run's clock."""

from __future__ import annotations

from itertools import groupby, pairwise
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.program.listing import details, title
from simgpu.program.ops import Arrive, Copy
from simgpu.report.output import write_bytes
from simgpu.report.tracks import Tracks
from simgpu.validation.proton import AS_IF_MHZ

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from simgpu.timing.timeline import Steps, Timeline
    from simgpu.timing.watch import Flight, Stay
    from simgpu.validation.proton import Measured

NS_PER_US = 1000.0

#: Parts of a flight: waiting for its turn, being served, and landing.
PARTS = ("queued", "served", "latency")


def write_perfetto(
    path: str | os.PathLike[str],
    timeline: Timeline | None,
    measured: Measured | None = None,
    *,
    clock_mhz: float | None = None,
) -> None:
    """Write a predicted timeline, a measured one, or both side by side.

    Rows: for each slot of the SM its CTAs, their roles, and the copies and MMAs in flight; then the
    units' utilisation, bytes in flight and resident CTAs as counters. Arrows lead from an arrival
    or a landing to the role that it releases. The first record of a measurement stands where the
    first predicted instruction does; its cycles take their time at ``clock_mhz`` (left out: the
    prediction's where there is one, else 1 ns each, as Proton writes them). Raises
    MissingExtraError without `perfetto`, OutputError for a path that cannot be written.
    """
    tracks = Tracks()
    zero = 0.0
    if timeline is not None:
        predicted = _Predicted(tracks, timeline)
        predicted.add()
        zero = predicted.first
        clock_mhz = clock_mhz or timeline.clock_mhz
    if measured is not None:
        _add_measured(tracks, measured, zero, NS_PER_US / (clock_mhz or AS_IF_MHZ))
    write_bytes(path, tracks.serialize())


class _Predicted:
    """Adds one SM's timeline to a trace."""

    def __init__(self, tracks: Tracks, timeline: Timeline) -> None:
        self._tracks, self._timeline = tracks, timeline
        self._ns = NS_PER_US / timeline.clock_mhz
        self._slots = timeline.slots
        self._roles: dict[tuple[int, str], int] = {}
        self._lanes: dict[tuple[int, bool, int], int] = {}
        self._flows: dict[object, list[int]] = {}

    @property
    def first(self) -> float:
        """When the SM's first instruction starts, ns."""
        work = (s.start for s in self._timeline.spans if s.stall != "dispatch")
        return min(work, default=0.0) * self._ns

    def add(self) -> None:
        """Add everything."""
        t = self._timeline
        part = "" if t.complete else ", first CTAs only"
        name = t.schedule if t.launch == t.schedule else f"{t.schedule} {t.launch}"
        root = self._tracks.track(f"{name} on {t.gpu}, SM {t.sm}: predicted{part}")
        self._rows(root)
        self._releases()
        self._spans()
        self._flights()
        self._arrivals()
        self._counters(root)

    def _rows(self, root: int) -> None:
        """Add the rows of each slot: CTAs, roles, flights."""
        t, add = self._timeline, self._tracks.track
        roles = list(dict.fromkeys(span.role for span in t.spans))
        for slot in sorted(set(self._slots.values())):
            group = add(f"slot {slot}", root)
            ctas = add("CTA", group)
            for stay in t.stays:
                if stay.slot == slot:
                    self._stay(ctas, stay)
            for role in roles:
                self._roles[slot, role] = add(role, group)
            lanes = sorted({_lane(f) for f in t.flights if self._slots[f.cta] == slot})
            for mma, lane in lanes:
                name = "MMAs in flight" if mma else "copies in flight"
                self._lanes[slot, mma, lane] = add(f"{name} {lane}", group)

    def _stay(self, track: int, stay: Stay) -> None:
        where = ", ".join(f"{axis} {at}" for axis, at in stay.at.items())
        if len(stay.tiles) > 1:
            where += f", the first of {len(stay.tiles)} tiles"
        args = {**stay.at, "tiles": len(stay.tiles)}
        self._slice(track, f"CTA {stay.cta}: {where}", stay.start, stay.end, "cta", args)

    def _slice(
        self,
        track: int,
        name: str,
        start: float,
        end: float,
        category: str,
        args: dict[str, Any],
        flows: list[int] | None = None,
    ) -> None:
        args = {"cycle": start, "cycles": end - start, **args}
        self._tracks.slice(
            track,
            name,
            start * self._ns,
            end * self._ns,
            category=category,
            args=args,
            flows=flows or (),
        )

    def _releases(self) -> None:
        """Number the flows, and mark where each releases its role."""
        for flow in self._timeline.flows:
            number = self._tracks.flow()
            arrival = (flow.cta, flow.source, flow.time, flow.signal)
            source = arrival if flow.flight is None else flow.flight
            self._flows.setdefault(source, []).append(number)
            self._tracks.instant(
                self._roles[self._slots[flow.cta], flow.role],
                f"{flow.signal} complete",
                flow.time * self._ns,
                args={"cycle": flow.time, "released by": flow.source},
                ends=[number],
            )

    def _spans(self) -> None:
        for span in self._timeline.spans:
            args = {"cta": span.cta, **(details(span.op) if span.op else {})}
            if span.stall:
                args["stall"] = span.stall
            if span.contended:
                args["contended cycles"] = span.contended
            track = self._roles[self._slots[span.cta], span.role]
            name = title(span.op) if span.op else span.what
            self._slice(track, name, span.start, span.end, span.stall or "work", args)

    def _flights(self) -> None:
        """Cut each flight in what waits, what is served, and what is latency."""
        for flight in self._timeline.flights:
            track = self._lanes[self._slots[flight.cta], *_lane(flight)]
            name = title(flight.op)
            times = pairwise((flight.issued, flight.started, flight.served, flight.landed))
            args = {"cta": flight.cta, "issued by": flight.role, **details(flight.op)}
            for part, (start, end) in zip(PARTS, times, strict=True):
                if start < end:
                    label = name if part == "served" else f"{name}: {part}"
                    flows = self._flows.get(flight.number) if end == flight.landed else None
                    self._slice(track, label, start, end, part, args, flows)

    def _arrivals(self) -> None:
        for instant in self._timeline.instants:
            if isinstance(instant.op, Arrive) and instant.op.signal.use.at({}) >= 0:
                signal = instant.op.signal
                arrival = (instant.cta, instant.role, instant.time, signal)
                self._tracks.instant(
                    self._roles[self._slots[instant.cta], instant.role],
                    title(instant.op),
                    instant.time * self._ns,
                    args={"cycle": instant.time, **details(instant.op)},
                    flows=self._flows.get(arrival, ()),
                )

    def _counters(self, root: int) -> None:
        t, add = self._timeline, self._tracks.track
        units = add("units", root)
        for unit, steps in t.utilization.items():
            track = add(unit, units, unit="% of peak")
            for time, value in _by_whole_ns(steps, self._ns):
                self._tracks.value(track, time, 100.0 * value)
        others = {("bytes in flight", "bytes"): t.bytes_in_flight}
        others["resident CTAs", "CTAs"] = t.resident
        for (name, unit), steps in others.items():
            track = add(name, root, unit=unit)
            for time, value in steps:
                self._tracks.value(track, time * self._ns, value)


def _by_whole_ns(steps: Steps, ns: float) -> Iterator[tuple[float, float]]:
    """Yield a quantity in whole ns: the mean of those within which it changes, then its value.

    A trace has no finer time, and a mean, unlike rounded times, leaves the integral as it is.
    """
    before, until = 0.0, -1
    for whole, changes in groupby(steps, key=lambda step: floor(step[0] * ns)):
        if until not in (-1, whole):
            yield until, before
        since, area = float(whole), 0.0
        for time, value in changes:
            area += before * (time * ns - since)
            since, before = time * ns, value
        until = whole + 1
        yield whole, area + before * (until - since)
    yield until, before


def _lane(flight: Flight) -> tuple[bool, int]:
    return not isinstance(flight.op, Copy), flight.lane


def _add_measured(tracks: Tracks, measured: Measured, zero: float, ns: float) -> None:
    """Add a row for each warp and line of each CTA, with ``ns`` a cycle."""
    root = tracks.track(f"{Path(measured.source).name}: measured")
    ctas: dict[tuple[str, int, int], int] = {}
    for row, records in measured.rows.items():
        cta = row[:3]
        if cta not in ctas:
            sm = f"SM {row.sm}" if row.sm >= 0 else ""
            name = ", ".join(filter(None, (row.kernel, sm, f"CTA {row.cta}")))
            ctas[cta] = tracks.track(name, root)
        line = f", line {row.line}" if row.line else ""
        track = tracks.track(f"{row.who}{line}", ctas[cta])
        begin = zero + measured.begins[cta]
        for name, start, end in records:
            args = {"cycle": start, "cycles": end - start}
            at = begin + start * ns
            if end > start:
                tracks.slice(track, name, at, begin + end * ns, category="measured", args=args)
            else:
                tracks.instant(track, name, at, args=args)
