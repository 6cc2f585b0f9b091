"""A run as text, in Nsight Compute's sections and words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.report.outline import outline
from simgpu.report.tables import table, wrap

if TYPE_CHECKING:
    from simgpu.report.outline import Section
    from simgpu.report.sections import Record
    from simgpu.result.run import Run


def render(run: Run) -> str:
    """Return the whole report. With several launches each has a column, and so has their total."""
    found = outline(run)
    text = [wrap(line) for line in found.headline]
    text += [_section(section, found.columns) for section in found.sections]
    text.append("\n" + wrap(found.provenance))
    if found.differences:
        text.append(found.differences)
    return "\n".join(text)


def _section(section: Section, columns: dict[str, Record]) -> str:
    cells = [(row.name, row.unit, *(row.text(r) for r in columns.values())) for row in section.rows]
    least = {"Metric": 28, "Unit": 8, **dict.fromkeys(columns, 20 if len(columns) == 1 else 11)}
    names = ("Metric", "Unit")
    body = table((*names, *columns), cells, right=columns, firm=names, least=least)
    return f"\n{section.title}\n{body}\n{wrap(section.said)}"
