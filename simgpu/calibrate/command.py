"""``simgpu calibrate``: microbenchmarks of the GPU that is here, written as a profile."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Annotated

import typer

from simgpu.calibrate import coalescer, memory, pipes, power, sync, tensor
from simgpu.calibrate.gpu import Gpu
from simgpu.calibrate.profile import document, run_all, write
from simgpu.errors import MeasureError, UnknownNameError
from simgpu.hardware.load import load_profile

GROUPS = {
    "memory": memory,
    "pipes": pipes,
    "tensor": tensor,
    "sync": sync,
    "coalescer": coalescer,
    "power": power,
}


def calibrate_command(
    output: Annotated[Path, typer.Option(help="The profile to write.")] = Path("my_gpu.yaml"),
    base: Annotated[
        str, typer.Option(help="The profile that it extends: all that is not measured.")
    ] = "h200",
    only: Annotated[
        list[str] | None, typer.Option(help=f"Groups: {', '.join(GROUPS)}; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure this machine's GPU by microbenchmarks and write a profile."""
    chosen = only or list(GROUPS)
    for group in chosen:
        if group not in GROUPS:
            raise UnknownNameError("group", group, GROUPS)
    if output.suffix not in (".yaml", ".yml"):
        raise MeasureError(f"{output}: a profile's file ends in .yaml")
    load_profile(base)
    gpu = Gpu.here()
    benchmarks = [b for group in chosen for b in GROUPS[group].benchmarks()]

    def progress(name: str, text: str) -> None:
        typer.echo(f"{name}: {text}", err=True)

    results, failed = run_all(benchmarks, gpu, progress)
    if not results:
        why = next(iter(failed.values()), "no benchmark was chosen")
        raise MeasureError(f"nothing could be measured: {why}")
    name = re.sub(r"[^a-z0-9_]", "_", output.stem.lower())
    made = write(document(results, gpu, base, name), output)
    if as_json:
        rows = [dataclasses.asdict(r) for r in results]
        data = {"schema": "simgpu.calibration/1", "gpu": gpu.name, "results": rows}
        typer.echo(json.dumps({**data, "left_out": failed}, indent=2))
        return
    measured = sum(row.kind == "measured" for row in made.sources())
    typer.echo(
        f"{len(results)} measured, {len(failed)} left out; "
        f"{output}: {measured} numbers measured, the others from {base}"
    )
