"""A timeline as a page draws it: rows of spans that never overlap, and units over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simgpu.front import timeline
from simgpu.program.listing import describe, title
from simgpu.program.ops import Copy
from simgpu.program.program import op_count
from simgpu.program.record import record
from simgpu.read.bound import longest
from simgpu.schedules import make_schedule

if TYPE_CHECKING:
    from simgpu.hardware.profile import Profile
    from simgpu.program.ops import Op
    from simgpu.result.run import Run
    from simgpu.timing.timeline import Timeline

#: Operations of an SM's first CTAs, at most: more take too long to simulate and to draw.
MOST = 12_000
#: Units that are drawn over time.
UNITS = ("tensor", "mufu", "issue", "smem", "l2", "hbm")


def first_ctas(schedule: str, run: Run, profile: Profile) -> tuple[dict[str, Any] | None, str]:
    """Return what one SM does with its first CTAs in a run's longest launch, for a page.

    ``schedule`` is the name or file that the run was made from. Nothing where that is too much to
    draw, with the reason.
    """
    number = run.launches.index(run.longest)
    launch = record(make_schedule(schedule, run.params), run.problem).launches[number]
    roles = launch.classes[longest(launch)].program.roles
    size = sum(op_count(role.body) for role in roles) * run.longest.occupancy.ctas_per_sm
    if size > MOST:
        return None, (
            f"{size:,} operations are too many to draw; a shorter --seqlen has fewer than {MOST:,}"
        )
    found = timeline(
        schedule,
        run.problem,
        profile,
        params=run.params,
        resources=run.provenance.get("resources"),
        clock_mhz=run.clock_mhz,
        mix="auto" if any(map(run.provenance.get, ("mix_known", "loops_source"))) else run.mix,
        launch=number,
        waves=1,
    )
    return lanes(found), ""


def lanes(found: Timeline) -> dict[str, Any]:
    """Return a timeline as plain data: rows, spans in them, releases, and units over time."""
    rows = _Rows()
    slots = found.slots
    for span in sorted(found.spans, key=lambda s: slots[s.cta]):
        rows.number(slots[span.cta], span.role)
    spans: list[list[Any]] = [
        [
            rows.number(slots[s.cta], s.role),
            round(s.start, 1),
            round(s.end, 1),
            s.stall or ("work" if s.contended <= 0.01 * (s.end - s.start) else "contended"),
            rows.text(title(s.op) if s.op else s.what),
            rows.text(describe(s.op) if s.op else s.what),
        ]
        for s in found.spans
        if s.end > s.start
    ]
    flown = {}
    for f in found.flights:
        row = rows.number(slots[f.cta], _lane(f.op, f.lane))
        flown[f.number] = row
        issued, landed, started, served = (
            round(time, 1) for time in (f.issued, f.landed, f.started, f.served)
        )
        kind = "copy" if isinstance(f.op, Copy) else "mma"
        said = rows.text(title(f.op)), rows.text(describe(f.op))
        spans.append([row, issued, landed, kind, *said, started, served])
    flows = [
        [
            rows.number(slots[f.cta], f.role),
            round(f.time, 1),
            rows.number(slots[f.cta], f.source) if f.flight is None else flown.get(f.flight),
        ]
        for f in found.flows
    ]
    return {
        "schedule": found.schedule,
        "launch": found.launch,
        "sm": found.sm,
        "clock_mhz": found.clock_mhz,
        "start": min(span[1] for span in spans),
        "cycles": max(span[2] for span in spans),
        "complete": found.complete,
        "rows": rows.labels,
        "texts": list(rows.texts),
        "spans": spans,
        "flows": flows,
        "units": [[u, _thin(found.utilization[u])] for u in UNITS],
    }


@dataclass
class _Rows:
    """Rows by slot and name, and texts by number, in the order in which they are first seen."""

    labels: list[str] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)
    numbers: dict[tuple[int, str], int] = field(default_factory=dict)

    def number(self, slot: int, name: str) -> int:
        if (slot, name) not in self.numbers:
            self.numbers[slot, name] = len(self.labels)
            self.labels.append(f"CTA {slot} {name}")
        return self.numbers[slot, name]

    def text(self, words: str) -> int:
        return self.texts.setdefault(words, len(self.texts))


def _lane(op: Op, lane: int) -> str:
    kind = "copies" if isinstance(op, Copy) else "products"
    return f"{kind} {lane + 1}" if lane else kind


def _thin(steps: tuple[tuple[float, float], ...]) -> list[list[float]]:
    """Drop steps that change nothing."""
    kept: list[list[float]] = []
    for time, value in steps:
        rounded = round(value, 3)
        if not kept or kept[-1][1] != rounded:
            kept.append([round(time, 1), rounded])
    return kept
