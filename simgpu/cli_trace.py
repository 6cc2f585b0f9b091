"""Timelines that commands write: `--trace` of `simgpu run`, and `simgpu trace-measured`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 typer reads it
from typing import TYPE_CHECKING, Annotated

import typer

from simgpu.errors import SimgpuError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.timing.timeline import Timeline
    from simgpu.validation.proton import Measured


def prepare_trace(
    path: Path | None, measured: Path | None, others: Mapping[str, object]
) -> Measured | None:
    """Read what was measured, and raise what would keep a trace from being written.

    ``others`` are further options that mean nothing without a trace.
    """
    if path is None:
        options = {"measured": measured, **others}
        given = [f"--{name}" for name, value in options.items() if value is not None]
        if given:
            raise SimgpuError(f"{' and '.join(given)} without --trace: give it a file to write")
        return None
    from simgpu.report.output import check_writable
    from simgpu.report.tracks import Tracks
    from simgpu.validation.proton import read_proton

    Tracks()
    check_writable(path)
    return read_proton(measured) if measured else None


def write_trace(path: Path, timeline: Timeline, measured: Measured | None) -> None:
    """Write a timeline, with a measured one beside it if there is one."""
    from simgpu.report.perfetto import write_perfetto

    write_perfetto(path, timeline, measured)
    wrote(path)


def wrote(path: Path) -> None:
    """Say what was written, and what opens it."""
    size = path.stat().st_size / 1e6
    typer.echo(f"wrote {path} ({size:.2f} MB): open it at ui.perfetto.dev", err=True)


def trace_measured_command(
    measured: Annotated[Path, typer.Argument(help="A Chrome trace that Proton wrote.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The trace; else beside it, .pftrace.")
    ] = None,
    clock_mhz: Annotated[
        float | None, typer.Option(help="SM clock of the measurement; else 1 ns a cycle.")
    ] = None,
) -> None:
    """Turn a timeline measured by Triton's Proton into a Perfetto trace."""
    from simgpu.report.perfetto import write_perfetto
    from simgpu.validation.proton import read_proton

    if clock_mhz is not None and not clock_mhz > 0:
        raise SimgpuError(f"--clock-mhz is {clock_mhz:g}: it must be more than 0")
    path = out or measured.with_suffix(".pftrace")
    write_perfetto(path, None, read_proton(measured), clock_mhz=clock_mhz)
    wrote(path)
