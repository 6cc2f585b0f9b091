"""The command line: each command is a few lines that call the library.

What a command needs is imported inside it, so that none pays for another's.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from simgpu import cli_report, cli_trace
from simgpu.cli_options import (
    Batch,
    Causal,
    Dtype,
    Gpu,
    HeadDim,
    Heads,
    Html,
    Json,
    KvHeads,
    Name,
    Params,
    Seqlen,
    SeqlenK,
    Trace,
    TraceLaunch,
    TraceMeasured,
    TraceSm,
    TraceWaves,
    Window,
    make_problem,
    read_resources,
    settings,
    show_result,
)
from simgpu.errors import SimgpuError

#: Commands of other modules, loaded when they are called: name → module and function.
ELSEWHERE = {
    "calibrate": ("simgpu.calibrate.command", "calibrate_command"),
    "compare": ("simgpu.cli_report", "compare_command"),
    "explain": ("simgpu.cli_report", "explain_command"),
    "compile": ("simgpu.compiled.command", "compile_command"),
    "sweep": ("simgpu.cli_sweep", "sweep_command"),
    "trace-measured": ("simgpu.cli_trace", "trace_measured_command"),
    "measure": ("simgpu.validation.measure", "measure_command"),
    "validate": ("simgpu.cli_validate", "validate_command"),
}


class Commands(TyperGroup):
    """Commands in this file and elsewhere; an error that a user can cause is one line, status 2."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*super().list_commands(ctx), *ELSEWHERE]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, loading it if it is elsewhere."""
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, function = ELSEWHERE[cmd_name]
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        one.command(cmd_name)(getattr(import_module(module), function))
        return typer.main.get_command(one)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except SimgpuError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Predict, explain and check how attention kernels run on GPUs.",
)
profile_app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(profile_app, name="profile", help="One hardware profile.")


@app.command()
def run(
    name: Name,
    gpu: Gpu = "h200",
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
    resources: Annotated[
        str | None, typer.Option(help="What a compiler found: registers=N,shared_bytes=N,spills=N.")
    ] = None,
    clock_mhz: Annotated[float | None, typer.Option(help="SM clock.")] = None,
    clock: Annotated[
        str, typer.Option(help="Without --clock-mhz: by the board's power limit, or sustained.")
    ] = "board",
    exact: Annotated[bool, typer.Option("--exact", help="Simulate every CTA.")] = False,
    mix: Annotated[
        str,
        typer.Option(
            help="Instructions and loops: analytic, compiled by Triton for the GPU, or auto: of a "
            "kernel that came compiled with simgpu, else analytic."
        ),
    ] = "auto",
    html: Html = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="No other schedules on the page's roofline.")
    ] = False,
    trace: Trace = None,
    measured: TraceMeasured = None,
    launch: TraceLaunch = None,
    sm: TraceSm = None,
    waves: TraceWaves = None,
    as_json: Json = False,
) -> None:
    """Predict a schedule on a problem and a GPU."""
    from simgpu.front import run as predict
    from simgpu.front import timeline

    if html:
        cli_report.check_page(html)
    beside = cli_trace.prepare_trace(trace, measured, {"launch": launch, "sm": sm, "waves": waves})
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
    if clock_mhz is not None and not clock_mhz > 0:
        raise SimgpuError(f"--clock-mhz is {clock_mhz:g}: it must be more than 0")
    given: dict[str, Any] = {
        "params": settings(params or [], "--set"),
        "resources": read_resources(resources),
        "mix": mix,
    }
    found = predict(name, problem, gpu, clock_mhz=clock_mhz, clock=clock, exact=exact, **given)
    if html:
        cli_report.write_run(found, name, gpu, html, alone=alone)
    if trace:
        given |= {"launch": launch or 0, "sm": sm or 0, "waves": waves}
        seen = timeline(name, problem, gpu, clock_mhz=found.clock_mhz, **given)
        cli_trace.write_trace(trace, seen, beside)
    show_result(as_json, lambda: str(found), found.to_dict)


@app.command()
def show(
    name: Name,
    cta: Annotated[
        int, typer.Option(help="Which CTA (of persistent ones: which tile), in launch order.")
    ] = 0,
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
) -> None:
    """Print the recorded program of one CTA of each launch."""
    from simgpu.program.record import record
    from simgpu.report.lists import program_of_cta
    from simgpu.schedules import make_schedule

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
    recording = record(make_schedule(name, settings(params or [], "--set")), problem)
    typer.echo(program_of_cta(recording, cta))


@app.command()
def check(name: Name, gpu: Gpu = "h200", params: Params = None, as_json: Json = False) -> None:
    """Try the laws on a schedule: exact, no deadlock or race, conserved, bounded. Fails with 1."""
    # many small products: BLAS threads would only wait for each other
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from simgpu import laws
    from simgpu.hardware.load import load_profile
    from simgpu.report import lists
    from simgpu.schedules import make_schedule

    schedule = make_schedule(name, settings(params or [], "--set"))
    found = list(laws.check(schedule, load_profile(gpu)))
    failed = sum(v.status == "FAIL" for v in found)
    summary = f"{schedule.schedule_name}: {len(found) - failed} passed, {failed} failed"
    show_result(
        as_json, lambda: f"{lists.verdicts(found)}\n{summary}", lambda: lists.verdicts_data(found)
    )
    if failed:
        raise typer.Exit(1)


@app.command()
def profiles(as_json: Json = False) -> None:
    """List the hardware profiles."""
    from simgpu.hardware.load import load_profile, profile_names
    from simgpu.report import lists

    found = [load_profile(name) for name in profile_names()]
    show_result(as_json, lambda: lists.profiles(found), lambda: lists.profiles_data(found))


@profile_app.command("show")
def profile_show(
    name: Annotated[str, typer.Argument(help="A profile's name or alias, or a YAML file.")],
    sources: Annotated[
        bool, typer.Option("--sources", help="Where each number comes from, assumed ones first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the numbers of a hardware profile."""
    from simgpu.hardware.load import load_profile
    from simgpu.report import lists

    found = load_profile(name)
    show_result(
        as_json,
        lambda: lists.profile(found, sources=sources),
        lambda: lists.profile_data(found),
    )


@app.command()
def schedules(as_json: Json = False) -> None:
    """List the schedules and their parameters."""
    from simgpu.report import lists
    from simgpu.schedules import schedule_class, schedule_names

    found = {name: schedule_class(name) for name in schedule_names()}
    show_result(as_json, lambda: lists.schedules(found), lambda: lists.schedules_data(found))


def main() -> None:
    """The console entry point."""
    sys.exit(app())
