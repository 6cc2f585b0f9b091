"""A run as a notebook shows it: a small HTML table, without scripts."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from simgpu.report.outline import outline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simgpu.result.run import Run


def notebook(run: Run) -> str:
    """Return the headline and the first section, Speed Of Light, as HTML."""
    found = outline(run)
    first = found.sections[0]
    head = _row("th", ("Metric", "Unit", *found.columns))
    body = "".join(
        _row("td", (row.name, row.unit, *(row.text(record) for record in found.columns.values())))
        for row in first.rows
    )
    lines = "<br>".join(map(escape, found.headline))
    table = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
    return f"<p>{lines}</p>{table}<p>{escape(first.said)}</p>"


def _row(kind: str, cells: Iterable[str]) -> str:
    """Return a row; all but a row's name are aligned to the right."""
    first, *others = (escape(text) for text in cells)
    rest = "".join(f'<{kind} style="text-align:right">{text}</{kind}>' for text in others)
    return f'<tr><{kind} style="text-align:left">{first}</{kind}>{rest}</tr>'
