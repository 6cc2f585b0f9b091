"""``simgpu compile``: what a kernel needs and does on several GPUs: table, JSON, findings."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from simgpu.compiled.aot import CompiledKernel, compile_job, compile_jobs
from simgpu.compiled.job import (
    OWN_KERNELS,
    Job,
    architecture,
    file_job,
    own_job,
    parse_settings,
)
from simgpu.compiled.lint import Finding, lint
from simgpu.compiled.reading import KernelReading, LoopReading, read_kernel
from simgpu.errors import CompileError
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from simgpu.hardware.profile import Profile

DEFAULT_PROBLEM = Attention(batch=4, heads_q=32, seq_q=4096, head_dim=128)
# Triton fills in what is left out where it launches; here it must stand in the job to be varied.
_DEFAULT_TILE = {"fa2": {"block_m": 128, "block_n": 64}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileReport:
    """Readings of every launch on every GPU, findings, and GPUs for which it failed and why."""

    kernel: str
    readings: tuple[KernelReading, ...]
    findings: tuple[Finding, ...]
    failures: tuple[str, ...]
    linted: bool

    @property
    def text(self) -> str:
        """The report for a terminal."""
        parts = [_table(group) for group in _by_kernel(self.readings)]
        parts += self.failures
        if self.linted:
            parts += [str(f) for f in self.findings] or ["no findings"]
        return "\n".join(part.rstrip() for part in parts) + "\n"

    def to_json(self) -> str:
        """Return the report as JSON text."""
        content = {
            "kernel": self.kernel,
            "readings": [_reading_json(r) for r in self.readings],
            "findings": [asdict(f) for f in self.findings],
            "failures": list(self.failures),
        }
        return json.dumps(content, indent=2)


def compile_report(
    kernel: str,
    gpus: Sequence[str],
    *,
    settings: Iterable[str] = (),
    problem: Attention = DEFAULT_PROBLEM,
    with_lint: bool = False,
    line_info: bool = True,
    cache_dir: str | Path | None = None,
) -> CompileReport:
    """Compile ``kernel`` for each of ``gpus`` and return what its code says.

    ``kernel`` is one of `OWN_KERNELS` or ``file.py:kernel``. ``settings`` are ``NAME=VALUE`` texts:
    parameters of our kernels (``block_m=128``), or arguments of a file's kernel as
    `parse_settings` reads them; in both, Triton's launch options (``maxnreg=128``). ``problem``
    gives our kernels their shapes. Raises CompileError if no GPU gave a result, ProfileError and
    MissingExtraError.
    """
    settings = list(settings)
    profiles = [load_profile(gpu) for gpu in gpus]
    jobs = [_job(kernel, settings, problem, p, line_info=line_info) for p in profiles]
    answers = compile_jobs(jobs, cache_dir=cache_dir)
    readings: list[KernelReading] = []
    findings: list[Finding] = []
    failures: list[str] = []
    compile_ = partial(compile_job, cache_dir=cache_dir)
    for profile, job, answer in zip(profiles, jobs, answers, strict=True):
        if isinstance(answer, CompileError):
            failures.append(f"{profile.name}: {answer}")
            continue
        new = [read_kernel(found, profile) for found in answer]
        readings += new
        if with_lint:
            findings += [f for r in new for f in lint(r, job, profile, compile_)]
    if not readings:
        raise CompileError("; ".join(failures) or "no GPU was named")
    return CompileReport(
        kernel=kernel,
        readings=tuple(readings),
        findings=tuple(findings),
        failures=tuple(failures),
        linted=with_lint,
    )


def _job(
    kernel: str, settings: list[str], problem: Attention, profile: Profile, *, line_info: bool
) -> Job:
    arch = architecture(profile)
    if kernel not in OWN_KERNELS:
        return file_job(kernel, settings, arch, line_info=line_info)
    arguments, options = parse_settings(settings)
    params = {name: x.get("value", x.get("type")) for name, x in arguments.items()}
    for name in ("warps", "stages"):
        if (option := f"num_{name}") in options:
            raise CompileError(f"{option}: our kernels call it {name}")
    params = {**_DEFAULT_TILE.get(kernel, {}), **params}
    return own_job(kernel, params, problem, arch, options=options, line_info=line_info)


def _by_kernel(readings: Iterable[KernelReading]) -> list[list[KernelReading]]:
    groups: dict[str, list[KernelReading]] = {}
    for reading in readings:
        groups.setdefault(reading.kernel.name, []).append(reading)
    return list(groups.values())


def _table(readings: list[KernelReading]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    kernel = readings[0].kernel
    table = Table(title=kernel.name, title_justify="left", box=box.SIMPLE)
    table.add_column("")
    for reading in readings:
        table.add_column(reading.gpu, justify="right")
    rows = [dict(_rows(reading)) for reading in readings]
    for name in dict.fromkeys(name for row in rows for name in row):
        table.add_row(name, *(row.get(name, "") for row in rows))
    out = io.StringIO()
    Console(file=out, width=40 + 20 * len(readings), color_system=None).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _rows(reading: KernelReading) -> list[tuple[str, str]]:
    kernel, occupied = reading.kernel, reading.occupancy
    why = "does not fit" if occupied.reason else f"by {occupied.limiter}"
    rows = [
        ("architecture", f"sm_{kernel.arch}"),
        ("registers", f"{kernel.registers}"),
        ("spilled registers", f"{kernel.spills}"),
        ("shared memory, bytes", f"{kernel.shared_bytes:,}"),
        ("warps", f"{kernel.warps}"),
        ("CTAs an SM", f"{occupied.ctas_per_sm} ({why})"),
    ]
    if kernel.tensor_memory_columns:
        rows.append(("tensor memory, columns", f"{kernel.tensor_memory_columns}"))
    many = len(reading.loops) > 1
    for n, loop in enumerate(reading.loops):
        label = f"{loop.role} loop {n}: " if many else "loop: "
        rows += [(label + name, text) for name, text in _loop_rows(loop)]
    return rows


def _loop_rows(loop: LoopReading) -> list[tuple[str, str]]:
    s = loop.stats
    products = ", ".join(f"{x.count} {x.opcode}" for x in s.products)
    rows = [
        ("products", products),
        ("MFLOP a pass", f"{loop.flops / 1e6:.2f}" if loop.flops else ""),
        *((pipe.upper(), f"{getattr(s.pipes, pipe)}") for pipe in ("xu", "fma", "alu", "lsu")),
        ("loads", _loads(loop)),
        ("barriers", f"{s.barriers}"),
        ("spill loads and stores", f"{s.spill_loads + s.spill_stores or ''}"),
        ("issued", f"{s.pipes.total}"),
        ("static cycles", f"{s.stall_cycles}"),
        ("source lines", f"{s.lines[0]}–{s.lines[1]}" if s.lines[1] else ""),
    ]
    return [(name, text) for name, text in rows if text]


def _loads(loop: LoopReading) -> str:
    s = loop.stats
    kinds = {"LDGSTS": s.async_copies, "LDG": s.global_loads, "TMA": s.tma, "LDS": s.shared_loads}
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)


def _reading_json(reading: KernelReading) -> dict[str, Any]:
    kernel: CompiledKernel = reading.kernel
    content = {k: v for k, v in asdict(kernel).items() if k != "text"}
    return {
        "gpu": reading.gpu,
        **content,
        "occupancy": asdict(reading.occupancy),
        "loops": [
            {"role": loop.role, "flops": loop.flops, **asdict(loop.stats)} for loop in reading.loops
        ],
    }
