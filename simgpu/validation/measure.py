"""``simgpu measure``: run real kernels on the GPU that is here and keep what was measured.

Also a program of its own (``python -m simgpu.validation.measure``), for machines that hold torch
and Triton and little else: it imports nothing of simgpu but its errors and kernels.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from simgpu.errors import MeasureError, SimgpuError
from simgpu.validation.measure_grid import Point, flags_grid, load_grid, parse_params
from simgpu.validation.measure_run import Summary, measure

__all__ = ["main", "measure", "measure_command"]


def measure_command(
    grid: Annotated[Path | None, typer.Argument(help="A grid file (YAML); or use flags.")] = None,
    out: Annotated[Path, typer.Option(help="JSON-lines file; resumed if it is there.")] = Path(
        "measured.jsonl"
    ),
    counters: Annotated[bool, typer.Option(help="Gather counters with Nsight Compute.")] = False,
    again: Annotated[bool, typer.Option(help="Time a second time, to know the spread.")] = False,
    seconds: Annotated[float, typer.Option(help="Length of each timed loop.")] = 0.25,
    minutes: Annotated[float | None, typer.Option(help="Start no run after this long.")] = None,
    kernel: Annotated[list[str], typer.Option(help="Kernel; may be repeated.")] = ["fa2"],  # noqa: B006
    batch: int = 4,
    heads: int = 32,
    heads_kv: int | None = None,
    seqlen: int = 4096,
    seqlen_kv: int | None = None,
    head_dim: int = 128,
    dtype: str = "fp16",
    causal: bool = False,
    param: Annotated[list[str], typer.Option(help="name=value[,value...]; repeatable.")] = [],  # noqa: B006
) -> None:
    """Measure real kernels on this machine's GPU: time, clock, power, and counters."""
    if grid is not None:
        points = load_grid(grid)
    else:
        shape = {
            "batch": batch,
            "heads": heads,
            "heads_kv": heads_kv,
            "seqlen": seqlen,
            "seqlen_kv": seqlen_kv,
            "head_dim": head_dim,
            "dtype": [dtype],
            "mask": ["causal" if causal else "none"],
        }
        points = flags_grid(
            kernel,
            shape=shape,
            params=parse_params(param),
            counters=1 if counters else 0,
            again=again,
        )
    if seconds <= 0:
        raise MeasureError(f"--seconds {seconds}: must be above 0")
    console = Console(stderr=True)
    summary = _with_progress(
        console, points, out, counters=counters, again=again, seconds=seconds, minutes=minutes
    )
    _print_summary(console, summary, out)


def _with_progress(
    console: Console,
    points: list[Point],
    out: Path,
    *,
    counters: bool,
    again: bool,
    seconds: float,
    minutes: float | None,
) -> Summary:
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
    )
    with bar:
        tasks = {}

        def progress(stage: str, done: int, total: int, text: str) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total, text=text)
            bar.update(tasks[stage], completed=done, text=text)

        return measure(
            points,
            out,
            counters=counters,
            again=again,
            seconds=seconds,
            minutes=minutes,
            progress=progress,
        )


def _print_summary(console: Console, summary: Summary, out: Path) -> None:
    for point, why in summary.failures:
        console.print(f"failed: {point}: {why}", highlight=False, markup=False, soft_wrap=True)
    for note in summary.notes:
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"{summary.measured} measured, {summary.counted} counted, {summary.resumed} already there, "
        f"{len(summary.failures)} failed: {out}",
        highlight=False,
        soft_wrap=True,
    )


def main() -> None:
    """The program's entry point: errors a user can cause are one line, status 2."""
    try:
        typer.run(measure_command)
    except SimgpuError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
