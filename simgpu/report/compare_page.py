"""A comparison as one self-contained HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.report import bars
from simgpu.report.advice import headline
from simgpu.report.html import page
from simgpu.report.roofline import roofline
from simgpu.report.side_by_side import COLUMNS, cells
from simgpu.report.why import why

if TYPE_CHECKING:
    from simgpu.report.comparison import Comparison


def compare_page(found: Comparison) -> str:
    """Return the page: times, why, units, stalls, bytes, bounds; on one GPU the roofline too."""
    from simgpu import __version__

    ran = [entry for entry in found.entries if entry.run]
    columns = {entry.label: entry.run.to_dict() for entry in ran if entry.run}
    schedules = list(dict.fromkeys(entry.recording.name for entry in found.entries))
    profiles = {entry.profile.name: entry.profile for entry in found.entries}
    return page(
        "compare.jinja",
        title=f"{_and(schedules)} on {_and([p.title for p in profiles.values()])}",
        lead=headline(ran[0].run).partition(": ")[2].partition("\n")[0]
        if ran and ran[0].run
        else "",
        times=_times(found),
        heads=COLUMNS,
        rows=[cells(entry, found) for entry in found.entries],
        whys=[(e.label, _ratio(found.times(e)), why(e, found)) for e in found.entries],
        columns=list(columns),
        bars=_bars(found, columns) if columns else {},
        roofline=_roofline(found) if len(profiles) == 1 and ran else None,
        version=__version__,
    )


def _bars(found: Comparison, columns: bars.Columns) -> dict[str, list[bars.Bar]]:
    return {
        "units": bars.utilization(columns),
        "stalls": bars.stalls(columns),
        "traffic": bars.traffic(columns, found.problem),
        "bounds": bars.bounds(columns),
    }


def _times(found: Comparison) -> list[bars.Bar]:
    most = max((e.run.time_us for e in found.ran if e.run), default=1.0)
    rows = []
    for entry in found.entries:
        cell = bars.Cell(0.0, "cannot run")
        if entry.run:
            ratio = _ratio(found.times(entry))
            cell = bars.Cell(entry.run.time_us / most, f"{entry.run.time_us:,.0f} µs · {ratio}")
        rows.append(bars.Bar(f"time s-{entry.recording.name}", entry.label, [cell]))
    return rows


def _roofline(found: Comparison) -> dict[str, object]:
    runs = [entry.run for entry in found.entries if entry.run]
    missing = {e.recording.name: e.refused for e in found.entries if not e.run}
    return roofline(found.entries[0].profile, runs[0].clock_mhz, runs, missing).to_dict()


def _ratio(times: float | None) -> str:
    return "cannot run" if times is None else f"{times:.2f} ×"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
