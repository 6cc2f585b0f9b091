"""What a report says, whatever it is written as: its columns, sections, rows and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from simgpu.report import sections
from simgpu.report.advice import Advice, headline, mix_differences, provenance

if TYPE_CHECKING:
    from simgpu.report.sections import Record, Row
    from simgpu.result.run import Run

#: Launches that get a column each; of more, the longest do.
MOST_COLUMNS = 3


class Section(NamedTuple):
    """One of Nsight Compute's sections: its title, its rows, and the sentence at its end."""

    title: str
    rows: list[Row]
    said: str


class Outline(NamedTuple):
    """A whole report. ``columns`` are the records of the launches shown, and of all together."""

    headline: list[str]
    columns: dict[str, Record]
    sections: list[Section]
    provenance: str
    differences: str


def outline(run: Run) -> Outline:
    """Return the report of a run. With several launches each has a column, and their total."""
    top = run.to_dict()
    launches: list[Record] = top["launches"]
    longest = max(launches, key=lambda r: float(r["predicted"]["cycles"]))
    advice = Advice(run, top, longest)
    columns = _columns(top, launches)
    parts = [
        Section(
            "GPU Speed Of Light Throughput",
            sections.speed_of_light(top, len(columns) == 1),
            advice.speed_of_light(),
        ),
        Section("Compute Workload Analysis", sections.compute(), advice.compute()),
        Section("Memory Workload Analysis", sections.memory(top), advice.memory()),
        Section("Occupancy", sections.occupancy(top), advice.occupancy()),
        Section("Warp State Statistics", sections.warp_state(), advice.warp_state()),
        Section(
            "Launch Statistics",
            sections.launch_statistics(run.provenance.get("sms")),
            advice.launch(),
        ),
    ]
    return Outline(
        headline(run).splitlines(), columns, parts, provenance(run, top), mix_differences(run)
    )


def _columns(top: Record, launches: list[Record]) -> dict[str, Record]:
    """Return the records to show: the launch itself, or the longest launches and the total."""
    if len(launches) == 1:
        return {"Value": {**launches[0], "predicted": top["predicted"]}}
    cycles = sorted((r["predicted"]["cycles"] for r in launches), reverse=True)
    least = cycles[min(MOST_COLUMNS, len(cycles)) - 1]
    shown = [r for r in launches if r["predicted"]["cycles"] >= least][:MOST_COLUMNS]
    columns: dict[str, Record] = {str(r["name"]): r for r in shown}
    total: dict[str, Any] = {k: v for k, v in top.items() if k != "launches"}
    return {**columns, "all": total}
