"""Tables as plain text of one width; everything that is printed in columns comes through here."""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WIDTH = 100


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[str] = (),
    firm: Iterable[str] = (),
    least: Mapping[str, int] | None = None,
) -> str:
    """Return a table of at most ``WIDTH`` columns of text, without colour.

    Columns in ``right`` are aligned to the right; ``least`` gives columns a width from which they
    grow. What is too long goes on in the next line, except in ``firm`` columns.
    """
    to_right, kept, widths = set(right), set(firm), least or {}
    made = Table(box=box.SIMPLE_HEAD, header_style="", pad_edge=False)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in to_right else "left"
        width = widths.get(name)
        made.add_column(
            name, justify=justify, min_width=width, no_wrap=name in kept, overflow="fold"
        )
    for row in rows:
        made.add_row(*map(_literal, row))
    out = io.StringIO()
    Console(file=out, width=WIDTH, color_system=None, force_terminal=False).print(made)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")


def _literal(text: str) -> str:
    """Keep rich from reading ``[...]`` as markup."""
    return text.replace("[", "\\[")


def wrap(text: str, indent: str = "") -> str:
    """Return ``text`` in lines of at most ``WIDTH``."""
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
