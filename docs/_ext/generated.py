"""Directives for pages that are made from the code: profile numbers, a run's JSON, the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, get_args

from sphinx.util.docutils import SphinxDirective

from simgpu.hardware.profile import KINDS, Capability, Origin
from simgpu.hardware.sections import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docutils import nodes
    from sphinx.application import Sphinx

#: Modules without a reference: a command, and what runs in processes of their own with torch.
OUTSIDE = {
    "simgpu.compiled.command",
    "simgpu.compiled.standin",
    "simgpu.compiled.worker",
    *(f"simgpu.validation.measure_{name}" for name in ("cases", "child", "peers", "time")),
}
RUN_SCHEMA = Path(__file__).parents[1] / "reference" / "run.schema.json"


def capabilities_and_kinds() -> Iterator[str]:
    """Yield Markdown: what a profile may say a chip can do, and the keys beside a value."""
    yield f"Capabilities: {', '.join(f'`{name}`' for name in get_args(Capability))}."
    yield f"\nKinds: {', '.join(f'`{kind}`' for kind in KINDS)}. Beside `value` a number has:\n"
    yield from ("| key | meaning |", "|---|---|")
    for name, field in Origin.model_fields.items():
        yield f"| `{name}` | {field.description} |"


def profile_numbers() -> Iterator[str]:
    """Yield Markdown: a table of numbers for each section of a profile."""
    for section, model in SECTIONS.items():
        yield f"\n**{section}**: {(model.__doc__ or '').strip()}\n"
        yield from ("| number | type | allowed | meaning |", "|---|---|---|---|")
        for name, field in model.model_fields.items():
            limits = {type(m).__name__: m for m in field.metadata}
            low = f"> {limits['Gt'].gt}" if "Gt" in limits else ""
            low = f"≥ {limits['Ge'].ge:g}" if "Ge" in limits else low
            high = f"≤ {limits['Le'].le:,.10g}" if "Le" in limits else ""
            absent = "" if field.is_required() else "; may be absent"
            allowed = ", ".join(filter(None, (low, high))) + absent
            yield f"| `{name}` | {_type_name(field.annotation)} | {allowed} | {field.description} |"


def _type_name(annotation: Any) -> str:
    names = [getattr(x, "__name__", str(x)) for x in get_args(annotation) or (annotation,)]
    kinds = [name for name in ("int", "float") if name in names]
    return kinds[0] if kinds else "list of int"


def run_fields() -> Iterator[str]:
    """Yield Markdown: every field of a run's JSON with its type and meaning."""
    schema = json.loads(RUN_SCHEMA.read_text(encoding="utf-8"))
    yield from ("| field | type | meaning |", "|---|---|---|")
    yield from _rows(schema, schema["$defs"], "")


def _rows(schema: dict[str, Any], shared: dict[str, Any], path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        where = f"{path}{name}"
        of = {**shared[field["$ref"].rpartition("/")[2]], **field} if "$ref" in field else field
        kind = of.get("type", "const" if "const" in of else "")
        kind = " or ".join(kind) if isinstance(kind, list) else kind
        yield f"| `{where}` | {kind} | {of.get('description', '')} |"
        if path.startswith("launches") and "$ref" in field:
            continue  # described above, where the whole run has it
        items = of.get("items", {})
        yield from _rows(items or of, shared, f"{where}[]." if items else f"{where}.")


def commands() -> Iterator[str]:
    """Yield Markdown: Typer's own reference of the command line."""
    done = subprocess.run(
        [sys.executable, "-m", "typer", "simgpu.cli", "utils", "docs", "--name", "simgpu"],
        capture_output=True,
        text=True,
        check=True,
    )
    # the page has a title of its own; a usage line is not a session
    yield done.stdout.partition("\n")[2].replace("```console\n$ ", "```text\n")


def modules(package: str = "") -> Iterator[str]:
    """Yield Markdown: each module of a package of simgpu (or beside its packages) in turn."""
    root = files("simgpu") / package if package else files("simgpu")
    prefix = f"simgpu.{package}." if package else "simgpu."
    for found in sorted(iter_modules([str(root)]), key=lambda m: m.name):
        name = prefix + found.name
        if not found.ispkg and name not in OUTSIDE:
            yield f"\n## {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n```\n"


class Generated(SphinxDirective):
    """``{generated} NAME ARGUMENT``: the Markdown that one of the functions above makes."""

    required_arguments, optional_arguments = 1, 1
    sources = {  # noqa: RUF012 - docutils reads class attributes
        "capabilities-and-kinds": capabilities_and_kinds,
        "profile-numbers": profile_numbers,
        "run-fields": run_fields,
        "commands": commands,
        "modules": modules,
    }

    def run(self) -> list[nodes.Node]:
        """Parse the Markdown in place."""
        text = "\n".join(self.sources[self.arguments[0]](*self.arguments[1:]))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True}
