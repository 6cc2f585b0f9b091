"""Options that commands share, and how they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simgpu.errors import ScheduleError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from simgpu.problem import Attention

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
Trace = Annotated[
    Path | None, typer.Option(help="Write one SM's timeline, simulated exactly, for Perfetto.")
]
TraceMeasured = Annotated[
    Path | None, typer.Option(help="Of --trace: a Chrome trace of Proton's to stand beside.")
]
TraceLaunch = Annotated[int | None, typer.Option(help="Of --trace: which kernel, from 0.")]
TraceSm = Annotated[int | None, typer.Option(help="Of --trace: which SM, from 0.")]
TraceWaves = Annotated[
    int | None, typer.Option(help="Of --trace: follow only so many CTAs a slot; quicker.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of tables.")]
Html = Annotated[Path | None, typer.Option(help="Write a page: one self-contained HTML file.")]


def make_problem(
    heads: int, kv_heads: int | None, seqlen: int, seqlen_k: int | None, **others: Any
) -> Attention:
    """Build the problem from the options of the command line."""
    from simgpu.problem import Attention

    return Attention(
        heads_q=heads,
        heads_kv=heads if kv_heads is None else kv_heads,
        seq_q=seqlen,
        seq_kv=seqlen if seqlen_k is None else seqlen_k,
        **others,
    )


def settings(texts: Iterable[str], flag: str) -> dict[str, str]:
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


def read_resources(text: str | None) -> dict[str, int]:
    """Read ``registers=N,shared_bytes=N,spills=N,serial_products=N``, or some of them."""
    from simgpu.place import RESOURCES

    found: dict[str, int] = {}
    for key, value in settings(text.split(",") if text else [], "--resources").items():
        if key not in RESOURCES:
            raise ScheduleError(f"unknown resource {key!r}{did_you_mean(key, RESOURCES)}")
        least = RESOURCES[key]
        if not value.isdecimal() or int(value) < least:
            raise ScheduleError(
                f"--resources {key}={value}: it must be a whole number of at least {least}"
            )
        found[key] = int(value)
    return found


def show_result(as_json: bool, text: Callable[[], str], data: Callable[[], Any]) -> None:
    """Print a result as text or JSON, whichever was asked for."""
    if as_json:
        typer.echo(json.dumps(data(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        typer.echo(text())
