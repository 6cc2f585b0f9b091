"""Findings about a compiled kernel, in words, each with the numbers that show it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

from simgpu.compiled.job import OWN_KERNELS
from simgpu.errors import CompileError
from simgpu.hardware.occupancy import occupancy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.compiled.aot import CompiledKernel
    from simgpu.compiled.job import Job
    from simgpu.compiled.reading import KernelReading
    from simgpu.hardware.profile import Profile

Compile = Callable[["Job"], "tuple[CompiledKernel, ...]"]

# Fewer registers than this beside a large stack is a compiler that gave up, not a small kernel.
_COLLAPSED_REGISTERS, _COLLAPSED_STACK_BYTES = 40, 1024
_ALL_REGISTERS = 255
_SMALLEST_TILE, _TRIES = 16, 12
_TILE_NAME = re.compile(r"^(B[MNKD]|BLOCK(_SIZE)?(_[A-Z0-9]+)?|block_[a-z0-9]+|TILE.*)$")


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: ``code`` names its kind, ``text`` says what is wrong and the way out."""

    code: str
    gpu: str
    kernel: str
    text: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.gpu} {self.kernel}: {self.text} [{self.evidence}]"


def lint(reading: KernelReading, job: Job, profile: Profile, compile_: Compile) -> list[Finding]:
    """Return what is worth knowing about one kernel of ``job`` on ``profile``.

    ``compile_`` compiles other forms of the job, to find what would fit or would not spill.
    """
    found: list[Finding] = []
    for check in (_fit, _collapse, _spills, _roles, _descriptors, _work, _serial):
        said = check(reading, job, profile, compile_)
        if said:
            code, text, evidence = said
            found.append(Finding(code, reading.gpu, reading.kernel.name, text, evidence))
    return found


Said = tuple[str, str, str] | None


def _fit(reading: KernelReading, job: Job, profile: Profile, compile_: Compile) -> Said:
    if reading.occupancy.ctas_per_sm:
        return None
    if reading.occupancy.limiter != "shared":
        return "does-not-fit", "does not fit", reading.occupancy.reason
    fitting = _largest_that_fits(reading.kernel.name, job, profile, compile_)
    advice = f"; the largest that does: {fitting}" if fitting else "; nothing smaller tried does"
    return "does-not-fit", "does not fit in shared memory" + advice, reading.occupancy.reason


def _collapse(reading: KernelReading, job: Job, profile: Profile, compile_: Compile) -> Said:
    kernel = reading.kernel
    if kernel.registers > _COLLAPSED_REGISTERS or kernel.stack_bytes < _COLLAPSED_STACK_BYTES:
        return None
    cured = _same_kernel(kernel.name, _with_options(job, maxnreg=_ALL_REGISTERS), compile_)
    text = "the assembler fell back to few registers and keeps the rest on the stack"
    evidence = f"{kernel.registers} registers, {kernel.stack_bytes:,} bytes of stack"
    if cured and cured.stack_bytes < kernel.stack_bytes:
        text += f"; maxnreg={_ALL_REGISTERS} cures it"
        evidence += f"; then {cured.registers} registers, {cured.stack_bytes:,} bytes"
    return "register-collapse", text, evidence


def _spills(reading: KernelReading, job: Job, profile: Profile, compile_: Compile) -> Said:
    kernel = reading.kernel
    inside = sum(x.stats.spill_loads + x.stats.spill_stores for x in reading.loops)
    if not kernel.stack_bytes or kernel.registers <= _COLLAPSED_REGISTERS:
        return None
    evidence = f"{kernel.registers} registers, {kernel.stack_bytes:,} bytes of stack"
    if not inside:
        return "spills", "spills registers, but not inside the hot loop", evidence
    evidence += f", {inside} loads and stores of it a pass and warp"
    text = "spills registers inside the hot loop: use more warps or a smaller tile"
    return "spills-in-loop", text, evidence


def _roles(reading: KernelReading, job: Job, profile: Profile, compile_: Compile) -> Said:
    if not reading.kernel.wants_roles or reading.specialised:
        return None
    text = "warp specialisation was asked for and not done"
    return "no-roles", text, f"num_warps is still {reading.kernel.warps}"


def _descriptors(reading: KernelReading, job: Job, profile: Profile, compile_: Compile) -> Said:
    kernel = reading.kernel
    copies = sum(x.stats.async_copies + x.stats.tma for x in reading.loops)
    if not kernel.loads_by_descriptor or profile.has("tma") or copies:
        return None
    text = "descriptor loads become plain loads on a GPU without TMA: pass pointers for cp.async"
    plain = sum(x.stats.global_loads for x in reading.loops)
    return "descriptors-without-tma", text, f"{plain} LDG and no LDGSTS in the hot loop"


def _work(reading: KernelReading, job: Job, profile: Profile, compile_: Compile) -> Said:
    main, asked = reading.main, reading.kernel.loop_flops
    if main is None or not main.flops or not asked or main.flops in asked:
        return None
    nearest = min(asked, key=lambda flops: abs(flops - main.flops))
    ratio = main.flops / nearest
    warps = reading.kernel.warps_asked
    evidence = f"{main.flops:,} FLOPs a pass, the source has {nearest:,}"
    wgmma = any(x.per == "warpgroup" for x in main.stats.products)
    if ratio > 1 and wgmma:
        text = f"{ratio:.3g}× the tensor work: {warps} warps share too few rows; halve the warps"
        return "duplicated-work", text, evidence
    return "work-differs", f"{ratio:.3g}× the products that the source asks for", evidence


def _serial(reading: KernelReading, job: Job, profile: Profile, compile_: Compile) -> Said:
    waits = max((x.stats.serial_products for x in reading.loops), default=0)
    if not waits:
        return None
    text = "the assembler waits for each wgmma by itself: use more warps or a smaller tile"
    return "serialised-products", text, f"{waits} waits in the hot loop"


def _same_kernel(name: str, job: Job, compile_: Compile) -> CompiledKernel | None:
    try:
        return next((k for k in compile_(job) if k.name == name), None)
    except CompileError:
        return None


def _with_options(job: Job, **options: int) -> Job:
    return replace(job, options={**job.options, **options})


def _largest_that_fits(name: str, job: Job, profile: Profile, compile_: Compile) -> str:
    """Return the settings of the first smaller form that an SM holds, or an empty text."""
    for text, smaller in islice(_smaller(job), _TRIES):
        kernel = _same_kernel(name, smaller, compile_)
        if kernel and _fits(kernel, profile):
            return f"{text}, {kernel.shared_bytes:,} bytes"
    return ""


def _fits(kernel: CompiledKernel, profile: Profile) -> bool:
    found = occupancy(
        profile,
        registers_per_thread=kernel.registers,
        shared_bytes=kernel.shared_bytes,
        warps=kernel.warps,
        tmem_columns=kernel.tensor_memory_columns if profile.has("tensor_memory") else 0,
    )
    return found.ctas_per_sm > 0


def _smaller(job: Job) -> Iterator[tuple[str, Job]]:
    """Yield smaller forms of a job, largest tile first, then most stages."""
    own = job.source in OWN_KERNELS
    tiles, stages = _own_sizes(job) if own else _file_sizes(job)
    shapes: list[dict[str, int]] = [{}]
    for tile, size in tiles.items():
        halves = [size >> n for n in range(8) if size >> n >= _SMALLEST_TILE]
        shapes = [{**shape, tile: half} for shape in shapes for half in halves]
    largest_first = sorted(shapes, key=lambda x: (-prod(x.values()), -min(x.values(), default=0)))
    for shape in largest_first:
        for depth in range(stages, 0, -1):
            if shape == tiles and depth == stages:
                continue
            text = ", ".join(f"{k}={v}" for k, v in shape.items())
            text += ("" if not text else ", ") + f"{'stages' if own else 'num_stages'}={depth}"
            yield text, _resized(job, own, shape, depth)


def _own_sizes(job: Job) -> tuple[dict[str, int], int]:
    params = job.arguments["params"]
    tiles = {k: params[k] for k in ("block_m", "block_n") if params.get(k)}
    return tiles, int(params.get("stages") or 1)


def _file_sizes(job: Job) -> tuple[dict[str, int], int]:
    values = {k: v.get("value") for k, v in job.arguments.items() if _TILE_NAME.match(k)}
    tiles = {k: v for k, v in values.items() if isinstance(v, int) and v >= _SMALLEST_TILE}
    return tiles, int(job.options.get("num_stages", 3))


def _resized(job: Job, own: bool, shape: dict[str, int], stages: int) -> Job:
    if own:
        params: dict[str, Any] = {**job.arguments["params"], **shape, "stages": stages}
        return replace(job, arguments={**job.arguments, "params": params})
    sizes = {name: {"value": size} for name, size in shape.items()}
    return _with_options(replace(job, arguments={**job.arguments, **sizes}), num_stages=stages)
