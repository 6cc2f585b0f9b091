"""`simgpu validate`: every committed measurement replayed, and the errors as a table."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path  # noqa: TC003 typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simgpu.report.errors import (
    render_choices,
    render_errors,
    render_published,
    render_published_runs,
    render_runs,
)
from simgpu.report.plot import check_plot, plot_errors
from simgpu.validation.compare import compare, regime, table, tile_choice
from simgpu.validation.published import of_schedule, publications
from simgpu.validation.published_errors import predict, published_table
from simgpu.validation.replay import committed, from_records, schedules_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from simgpu.validation.compare import Compared
    from simgpu.validation.replay import Measured


def validate_command(
    measured: Annotated[
        Path | None, typer.Option(help="Your own runs: a file that `simgpu measure` wrote.")
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="What papers report, instead of our own runs.")
    ] = False,
    gpu: Annotated[
        str | None,
        typer.Option(help="The GPU that was measured: a profile (h200_sxm; published: all)."),
    ] = None,
    schedule: Annotated[str | None, typer.Option(help="Only runs of this schedule.")] = None,
    every: Annotated[int, typer.Option(help="Only each n-th run, for a quick look.")] = 1,
    runs: Annotated[bool, typer.Option("--runs", help="Each run's error too.")] = False,
    by: Annotated[
        str, typer.Option(help="Rows by `regime`, `mask`, `head_dim`, `stages` or `set`.")
    ] = "regime",
    plot: Annotated[
        Path | None, typer.Option(help="Draw predicted against measured cycles: .png, .svg, .pdf.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Replay measurements and print predicted against measured, metric by metric."""
    if published:
        if measured or plot or by != "regime":
            raise typer.BadParameter(
                "goes without --measured, --plot and --by", param_hint="--published"
            )
        _published(gpu, schedule, every, runs=runs, as_json=as_json)
        return
    gpu = gpu or "h200_sxm"
    if plot:
        check_plot(plot)
    found = list(from_records(measured, gpu)) if measured else committed(gpu)
    if schedule is not None:
        found = schedules_of(found, schedule)
    compared = _with_progress(found[:: max(1, every)], gpu)
    rows, choices = table(compared, _groups(by)), tile_choice(compared)
    if plot:
        plot_errors(plot, compared, by=_groups(by))
    if as_json:
        data = {
            "schema": "simgpu.errors/1",
            "gpu": gpu,
            "rows": [dataclasses.asdict(row) for row in rows],
            "tile_choice": [dataclasses.asdict(choice) for choice in choices],
        }
        typer.echo(json.dumps(data, indent=2))
        return
    if runs:
        typer.echo(render_runs(compared))
    typer.echo(render_errors(rows))
    if choices:
        typer.echo(render_choices(choices))


def _published(
    gpu: str | None, schedule: str | None, every: int, *, runs: bool, as_json: bool
) -> None:
    found = publications(gpu)
    left_out = [(p.paper, x) for p in found for x in p.not_predicted]
    if schedule is not None:
        found, left_out = of_schedule(found, schedule), []
    if sys.stderr.isatty():
        rows = -(-sum(len(p.rows) for p in found) // max(1, every))
        with typer.progressbar(length=rows, label="predicting", file=sys.stderr) as bar:
            predicted = predict(found, every, progress=lambda _: bar.update(1), workers=None)
    else:
        predicted = predict(found, every, workers=None)
    lines = published_table(predicted)
    if as_json:
        data = {
            "schema": "simgpu.published_errors/1",
            "rows": [dataclasses.asdict(line) for line in lines],
            "runs": [dataclasses.asdict(r) for r in predicted],
            "not_predicted": [{"paper": paper, **x.model_dump()} for paper, x in left_out],
        }
        typer.echo(json.dumps(data, indent=2))
        return
    if runs:
        typer.echo(render_published_runs(predicted))
    typer.echo(render_published(lines, left_out))


def _groups(by: str) -> Callable[[Compared], str]:
    keys: dict[str, Callable[[Compared], Any]] = {
        "regime": regime,
        "mask": lambda c: f"{regime(c)}, {c.measured.problem.mask}",
        "head_dim": lambda c: f"{regime(c)}, d {c.measured.problem.head_dim}",
        "stages": lambda c: f"{regime(c)}, {c.measured.params.get('stages')} stages",
        "set": lambda c: f"{regime(c)}, {c.measured.set}",
    }
    if by not in keys:
        raise typer.BadParameter(f"{by!r}: it must be one of {', '.join(keys)}", param_hint="--by")
    return keys[by]


def _with_progress(found: list[Measured], gpu: str) -> list[Compared]:
    if not sys.stderr.isatty():
        return compare(found, gpu, workers=None)
    with typer.progressbar(length=len(found), label="predicting", file=sys.stderr) as bar:
        return compare(found, gpu, progress=lambda _: bar.update(1), workers=None)
