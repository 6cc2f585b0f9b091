"""A run as text, in Nsight Compute's sections and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.report import sections
from simgpu.report.advice import Advice, headline, mix_differences, provenance
from simgpu.report.tables import table, wrap

if TYPE_CHECKING:
    from simgpu.report.sections import Record, Row
    from simgpu.result.run import Run

#: Launches that get a column each; of more, the longest do.
MOST_COLUMNS = 3


def render(run: Run) -> str:
    """Return the whole report. With several launches each has a column, and so has their total."""
    top = run.to_dict()
    launches: list[Record] = top["launches"]
    longest = max(launches, key=lambda r: float(r["predicted"]["cycles"]))
    advice = Advice(run, top, longest)
    columns = _columns(top, launches)
    parts = [
        (
            "GPU Speed Of Light Throughput",
            sections.speed_of_light(top, len(columns) == 1),
            advice.speed_of_light(),
        ),
        ("Compute Workload Analysis", sections.compute(), advice.compute()),
        ("Memory Workload Analysis", sections.memory(), advice.memory()),
        ("Occupancy", sections.occupancy(), advice.occupancy()),
        ("Warp State Statistics", sections.warp_state(), advice.warp_state()),
        (
            "Launch Statistics",
            sections.launch_statistics(run.provenance.get("sms")),
            advice.launch(),
        ),
    ]
    text = [wrap(line) for line in headline(run).splitlines()]
    text += [_section(title, rows, columns, said) for title, rows, said in parts]
    text.append("\n" + wrap(provenance(run, top)))
    if differences := mix_differences(run):
        text.append(differences)
    return "\n".join(text)


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


def _section(title: str, rows: list[Row], columns: dict[str, Record], said: str) -> str:
    cells = [(row.name, row.unit, *(row.text(r) for r in columns.values())) for row in rows]
    least = {"Metric": 28, "Unit": 8, **dict.fromkeys(columns, 20 if len(columns) == 1 else 11)}
    names = ("Metric", "Unit")
    body = table((*names, *columns), cells, right=columns, firm=names, least=least)
    return f"\n{title}\n{body}\n{wrap(said)}"
