"""The command line: each command is a few lines that call the library.

What a command needs is imported inside it, so that none pays for another's.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from simgpu.errors import ScheduleError, SimgpuError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from simgpu.problem import Attention

#: Commands of other modules, loaded when they are called: name → module and function.
ELSEWHERE = {
    "compile": ("simgpu.compiled.command", "compile_command"),
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

Name = Annotated[str, typer.Argument(help="A schedule's name, or a file with one.")]
Gpu = Annotated[str, typer.Option(help="A profile's name or alias, or a YAML file.")]
Batch = Annotated[int, typer.Option(help="Batch entries.")]
Heads = Annotated[int, typer.Option(help="Query heads.")]
KvHeads = Annotated[int | None, typer.Option(help="K/V heads; as many as query heads if left out.")]
Seqlen = Annotated[int, typer.Option(help="Queries.")]
SeqlenK = Annotated[int | None, typer.Option(help="Keys; as many as queries if left out.")]
HeadDim = Annotated[int, typer.Option(help="Head dimension.")]
Causal = Annotated[bool, typer.Option("--causal", help="Causal mask.")]
Window = Annotated[int | None, typer.Option(help="Sliding window of this many keys (causal).")]
Dtype = Annotated[str, typer.Option(help="fp16, bf16, fp8, fp32 or fp64.")]
Params = Annotated[list[str] | None, typer.Option("--set", help="key=value of the schedule.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of tables.")]


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
        str | None, typer.Option(help="What a compiler found: registers=N,shared_bytes=N.")
    ] = None,
    clock_mhz: Annotated[float | None, typer.Option(help="SM clock.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Simulate every CTA.")] = False,
    mix: Annotated[
        str, typer.Option(help="Instructions: analytic, or compiled by Triton for the GPU.")
    ] = "analytic",
    as_json: Json = False,
) -> None:
    """Predict a schedule on a problem and a GPU."""
    from simgpu.front import run as predict

    problem = _problem(
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
    found = predict(
        name,
        problem,
        gpu,
        params=_settings(params or [], "--set"),
        resources=_resources(resources),
        clock_mhz=clock_mhz,
        exact=exact,
        mix=mix,
    )
    _show(as_json, lambda: str(found), found.to_dict)


@app.command()
def show(
    name: Name,
    cta: Annotated[int, typer.Option(help="Which CTA, in launch order.")] = 0,
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

    problem = _problem(
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
    recording = record(make_schedule(name, _settings(params or [], "--set")), problem)
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

    schedule = make_schedule(name, _settings(params or [], "--set"))
    found = list(laws.check(schedule, load_profile(gpu)))
    failed = sum(v.status == "FAIL" for v in found)
    summary = f"{schedule.schedule_name}: {len(found) - failed} passed, {failed} failed"
    _show(
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
    _show(as_json, lambda: lists.profiles(found), lambda: lists.profiles_data(found))


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
    _show(
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
    _show(as_json, lambda: lists.schedules(found), lambda: lists.schedules_data(found))


def _problem(
    heads: int, kv_heads: int | None, seqlen: int, seqlen_k: int | None, **others: Any
) -> Attention:
    from simgpu.problem import Attention

    return Attention(
        heads_q=heads,
        heads_kv=heads if kv_heads is None else kv_heads,
        seq_q=seqlen,
        seq_kv=seqlen if seqlen_k is None else seqlen_k,
        **others,
    )


def _settings(texts: Iterable[str], flag: str) -> dict[str, str]:
    """Split ``key=value`` texts."""
    found: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip() or not value.strip():
            raise ScheduleError(f"{flag} {text!r}: write key=value")
        if key.strip() in found:
            raise ScheduleError(f"{flag} {text!r}: {key.strip()} is given twice")
        found[key.strip()] = value.strip()
    return found


def _resources(text: str | None) -> dict[str, int]:
    """Read ``registers=N,shared_bytes=N``."""
    from simgpu.place import RESOURCES

    found: dict[str, int] = {}
    for key, value in _settings(text.split(",") if text else [], "--resources").items():
        if key not in RESOURCES:
            raise ScheduleError(f"unknown resource {key!r}{did_you_mean(key, RESOURCES)}")
        least = 1 if key == "registers" else 0
        if not value.isdecimal() or int(value) < least:
            raise ScheduleError(
                f"--resources {key}={value}: it must be a whole number of at least {least}"
            )
        found[key] = int(value)
    return found


def _show(as_json: bool, text: Callable[[], str], data: Callable[[], Any]) -> None:
    if as_json:
        typer.echo(json.dumps(data(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        typer.echo(text())


def main() -> None:
    """The console entry point."""
    sys.exit(app())
