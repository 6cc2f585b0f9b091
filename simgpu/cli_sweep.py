"""`simgpu sweep`: many runs, a line each."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simgpu.cli_options import Json, make_problem, settings
from simgpu.cli_report import progress
from simgpu.errors import ProblemError, SimgpuError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from simgpu.problem import Attention
    from simgpu.sweeping import Sweep

MASKS = ("none", "causal")
INTERRUPTED = 130  # what shells say of Ctrl-C


def sweep_command(
    names: Annotated[list[str], typer.Argument(help="Schedules: names, or files with one.")],
    gpu: Annotated[str, typer.Option(help="Profiles: a,b,c.")] = "h200",
    batch: Annotated[str, typer.Option(help="Batch entries: 1,4.")] = "4",
    heads: Annotated[str, typer.Option(help="Query heads.")] = "32",
    kv_heads: Annotated[
        str | None, typer.Option(help="K/V heads; as many as query heads if left out.")
    ] = None,
    seqlen: Annotated[str, typer.Option(help="Queries and keys.")] = "4096",
    head_dim: Annotated[str, typer.Option(help="Head dimensions.")] = "128",
    mask: Annotated[str, typer.Option(help="none, causal or both: none,causal.")] = "none",
    dtype: Annotated[str, typer.Option(help="fp16, bf16, fp8, fp32 or fp64.")] = "fp16",
    params: Annotated[
        list[str] | None, typer.Option("--set", help="key=value,value of the schedules.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Simulate every CTA.")] = False,
    mix: Annotated[str, typer.Option(help="Instructions: auto, analytic or compiled.")] = "auto",
    workers: Annotated[
        int | None, typer.Option(help="Processes; one a core if left out (needs joblib).")
    ] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV instead of a table.")] = False,
) -> None:
    """Predict every combination of what is given: values are separated by commas."""
    from simgpu.sweeping import sweep

    if as_json and as_csv:
        raise SimgpuError("--json and --csv: choose one")
    if workers is not None and workers < 1:
        raise SimgpuError(f"--workers is {workers}: it must be at least 1")
    problems = _problems(batch, heads, kv_heads, seqlen, head_dim, mask, dtype)
    grid = {k: _values(v) for k, v in settings(params or [], "--set").items()}
    gpus = _values(gpu)
    points = len(names) * len(problems) * len(gpus)
    for values in grid.values():
        points *= len(values)
    with progress(points, "predicting") as step:
        found = sweep(
            names, problems, gpus, grid, workers=workers, progress=step, exact=exact, mix=mix
        )
    typer.echo(_written(found, grid, as_json, as_csv), nl=not as_csv)
    if not found.complete:
        typer.echo(f"interrupted after {len(found.rows)} of {points} runs", err=True)
        raise typer.Exit(INTERRUPTED)


def _problems(
    batch: str,
    heads: str,
    kv_heads: str | None,
    seqlen: str,
    head_dim: str,
    mask: str,
    dtype: str,
) -> list[Attention]:
    for name in _values(mask):
        if name not in MASKS:
            raise ProblemError(f"--mask is {name!r}: it must be {' or '.join(MASKS)}")
    kv: list[int | None] = [None] if kv_heads is None else [*_numbers(kv_heads, "--kv-heads")]
    return [
        make_problem(h, k, s, None, batch=b, head_dim=d, causal=m == "causal", dtype=t, window=None)
        for b in _numbers(batch, "--batch")
        for h in _numbers(heads, "--heads")
        for k in kv
        for s in _numbers(seqlen, "--seqlen")
        for d in _numbers(head_dim, "--head-dim")
        for m in _values(mask)
        for t in _values(dtype)
    ]


def _values(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str, option: str) -> list[int]:
    for part in _values(text) or [text]:
        if not part.isdecimal():
            raise ProblemError(f"{option} is {text!r}: whole numbers, separated by commas")
    return [int(part) for part in _values(text)]


def _written(found: Sweep, params: Iterable[str], as_json: bool, as_csv: bool) -> str:
    if as_json:
        return json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    if as_csv:
        out = io.StringIO()
        names = list(dict.fromkeys(name for row in found.rows for name in row))
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found.rows)
        return out.getvalue()
    return _table(found, params)


#: Columns of the table that say which run it is: titles and the rows' names.
ASKED = {
    "schedule": "schedule.name",
    "gpu": "gpu.name",
    "batch": "problem.batch",
    "heads": "problem.heads_q",
    "kv heads": "problem.heads_kv",
    "length": "problem.seq_q",
    "head dim": "problem.head_dim",
    "mask": "problem.mask",
    "dtype": "problem.dtype",
}
#: Columns that say what was predicted, and how it is written.
PREDICTED: dict[str, tuple[str, Callable[[Any], str]]] = {
    "cycles": ("predicted.cycles", "{:,.0f}".format),
    "µs": ("predicted.time_us", "{:,.1f}".format),
    "TFLOP/s": ("predicted.tflops", "{:,.1f}".format),
    "limiter": ("predicted.limiter", str),
}


def _table(found: Sweep, params: Iterable[str]) -> str:
    """Return a line a run: what differs between them, then what was predicted, or the error."""
    from simgpu.report.tables import table

    names = {**ASKED, **{name: f"schedule.params.{name}" for name in params}}
    asked = {
        title: name
        for title, name in names.items()
        if len({str(row[name]) for row in found.rows if name in row}) > 1
    }
    rows = [
        [
            *(str(row.get(name, "")) for name in asked.values()),
            *(write(row[name]) if name in row else "" for name, write in PREDICTED.values()),
            row["error"] or "",
        ]
        for row in found.rows
    ]
    columns = [*asked, *PREDICTED, "error"]
    if not any(row["error"] for row in found.rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return table(columns, rows, right=("cycles", "µs", "TFLOP/s"), firm=columns[:-1])
