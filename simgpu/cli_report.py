"""Pages that commands write, and the commands whose results are pages."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 typer reads it
from typing import TYPE_CHECKING, Annotated

import typer

from simgpu.cli_options import (
    Batch,
    Causal,
    Dtype,
    HeadDim,
    Heads,
    Html,
    Json,
    KvHeads,
    Params,
    Seqlen,
    SeqlenK,
    Window,
    make_problem,
    settings,
    show_result,
)
from simgpu.errors import SimgpuError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simgpu.result.run import Run


def check_page(path: Path) -> None:
    """Raise what would keep a page from being written, before time is spent on predictions."""
    from simgpu.report.html import environment
    from simgpu.report.output import check_writable

    environment()
    check_writable(path)


@contextmanager
def progress(length: int, label: str) -> Iterator[Callable[[], None]]:
    """Show a progress bar on a terminal; yields what moves it by one step."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with typer.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield lambda: bar.update(1)


def wrote(path: Path) -> None:
    """Say what was written and how large it is."""
    typer.echo(f"wrote {path} ({path.stat().st_size / 1e6:.2f} MB)", err=True)


def write_run(run: Run, schedule: str, gpu: str, path: Path, *, alone: bool) -> None:
    """Write the page of a run; unless ``alone``, other schedules are predicted to stand beside.

    ``schedule`` and ``gpu`` are the names or files that the run was made from.
    """
    from simgpu.hardware.load import load_profile
    from simgpu.report.html import run_page
    from simgpu.report.lanes import first_ctas
    from simgpu.report.output import write_text
    from simgpu.report.roofline import OTHERS, others

    profile = load_profile(gpu)
    found: list[Run] = []
    missing: dict[str, str] = {}
    if not alone:
        with progress(len(OTHERS), "other schedules") as step:
            found, missing = others(run, profile, lambda name: step())
    drawn = first_ctas(schedule, run, profile)
    write_text(path, run_page(run, profile, found, missing, *drawn))
    wrote(path)


def compare_command(
    names: Annotated[list[str], typer.Argument(help="Schedules' names, or files with one.")],
    gpu: Annotated[str, typer.Option(help="Profiles' names or files, with commas.")] = "h200",
    batch: Batch = 4,
    heads: Heads = 32,
    kv_heads: KvHeads = None,
    seqlen: Seqlen = 4096,
    seqlen_k: SeqlenK = None,
    head_dim: HeadDim = 128,
    causal: Causal = False,
    window: Window = None,
    dtype: Dtype = "fp16",
    params: Params = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Compare schedules on GPUs, and say in words why one is slower than another."""
    from simgpu.report.compare_page import compare_page
    from simgpu.report.comparison import compare
    from simgpu.report.output import write_text
    from simgpu.report.side_by_side import render_comparison

    problem = make_problem(
        heads,
        kv_heads,
        seqlen,
        seqlen_k,
        batch=batch,
        head_dim=head_dim,
        causal=causal,
        window=window,
        dtype=dtype,
    )
    if html:
        check_page(html)
    gpus = _names(gpu)
    with progress(len(names) * len(gpus), "predicting") as step:
        chosen = settings(params or [], "--set")
        found = compare(names, problem, gpus, params=chosen, progress=step)
    if html:
        write_text(html, compare_page(found))
        wrote(html)
    show_result(as_json, lambda: render_comparison(found), found.to_dict)


def explain_command(
    html: Annotated[Path, typer.Option(help="The page to write: one self-contained HTML file.")],
    gpu: Annotated[
        str, typer.Option(help="GPUs of the bytes' slider, with commas.")
    ] = "a100,h100,b200",
) -> None:
    """Write a page that teaches: online softmax, bytes, loop orders and ping-pong, step by step."""
    from simgpu.report import lessons
    from simgpu.report.explain_page import explain_page
    from simgpu.report.output import write_text

    check_page(html)
    gpus = _names(gpu)
    points = len(gpus) * len(lessons.LENGTHS) * len(lessons.DIMS)
    with progress(points, "counting bytes") as step:
        text = explain_page(gpus=gpus, progress=step)
    write_text(html, text)
    wrote(html)


def _names(text: str) -> list[str]:
    """Split profiles' names at commas; SimgpuError where there is none, or a wrong one."""
    from simgpu.hardware.load import load_profile

    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise SimgpuError("--gpu is empty: give a profile's name, or several with commas")
    for name in found:
        load_profile(name)  # a wrong name is told before anything is predicted
    return found
