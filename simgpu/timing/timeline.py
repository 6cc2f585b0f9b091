"""A timeline: everything one SM does in a launch, and what its units and memory feel of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from simgpu.frame import frame
from simgpu.program.listing import details, title

if TYPE_CHECKING:
    import os

    from simgpu.timing.watch import Flight, Flow, Instant, Span, Stay

#: A quantity over time: (cycles, value from then on), in order of time.
Steps = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One SM from the start of a launch to its end, simulated exactly. Times are in cycles.

    ``spans`` tile the life of each role of each CTA; ``flights`` are copies and MMAs behind the
    roles' backs; ``instants`` the arrivals that roles make themselves; ``flows`` say who released
    whom; ``stays`` which CTA was resident when, and in which slot. ``utilization`` is the share of
    each unit's peak, as in a run's report; ``bytes_in_flight`` what is on its way between global
    memory and the SM. ``cycles`` is the time of the whole launch; with ``complete`` False only the
    SM's first CTAs were followed, and ``cycles`` is their end.
    """

    schedule: str
    gpu: str
    clock_mhz: float
    launch: str
    sm: int
    cycles: float
    complete: bool
    stays: tuple[Stay, ...]
    spans: tuple[Span, ...]
    flights: tuple[Flight, ...]
    instants: tuple[Instant, ...]
    flows: tuple[Flow, ...]
    utilization: dict[str, Steps]
    bytes_in_flight: Steps
    resident: Steps

    @property
    def slots(self) -> dict[int, int]:
        """The slot that each CTA had, by its number on this SM."""
        return {stay.cta: stay.slot for stay in self.stays}

    def mean(self, unit: str) -> float:
        """Return a unit's utilisation over the launch, as `Run` reports it."""
        return integral(self.utilization[unit]) / self.cycles

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write a Perfetto trace, to be opened at ui.perfetto.dev; errors as `write_perfetto`."""
        from simgpu.report.perfetto import write_perfetto

        write_perfetto(path, self)

    def to_pandas(self) -> Any:
        """Return spans and flights as a pandas DataFrame, a row each, in order of start (cycles).

        ``kind`` is "work", "flight", or a stall's reason. MissingExtraError without pandas.
        """
        rows = [_span_row(s) for s in self.spans] + [_flight_row(f) for f in self.flights]
        slots = self.slots
        table = [{"slot": slots[row["cta"]], **row} for row in rows]
        return frame(sorted(table, key=lambda row: float(row["start"])))


def _span_row(span: Span) -> dict[str, Any]:
    more = details(span.op) if span.op else {}
    return {
        "cta": span.cta,
        "role": span.role,
        "kind": span.stall or "work",
        "name": title(span.op) if span.op else span.what,
        "start": span.start,
        "end": span.end,
        "contended": span.contended,
        **more,
    }


def _flight_row(flight: Flight) -> dict[str, Any]:
    return {
        "cta": flight.cta,
        "role": flight.role,
        "kind": "flight",
        "name": title(flight.op),
        "start": flight.issued,
        "end": flight.landed,
        "started": flight.started,
        "served": flight.served,
        "lane": flight.lane,
        **details(flight.op),
    }


def integral(steps: Steps) -> float:
    """Return value × cycles, up to the last step."""
    total = 0.0
    for (since, value), (until, _) in pairwise(steps):
        total += value * (until - since)
    return total
