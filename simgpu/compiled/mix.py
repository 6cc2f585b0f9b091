"""The link to the machine: what the compiler made of a schedule's kernel, ready for timing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from simgpu.compiled.aot import CompiledKernel, compile_job
from simgpu.compiled.flow import executed, is_mma, mma_loops, nested
from simgpu.compiled.job import OWN_KERNELS, architecture, own_job
from simgpu.compiled.loopcode import loop_code
from simgpu.compiled.sass import PipeCounts, Stats, count_pipes, read_stretch
from simgpu.errors import UnsupportedError
from simgpu.program.mix import Mix

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from simgpu.compiled.flow import Stretch
    from simgpu.hardware.profile import Profile
    from simgpu.problem import Attention
    from simgpu.timing.issued import Issued

# Parameters of a schedule that decide nothing its kernel could be told.
_NOT_THE_KERNELS = ("warp_partition",)

#: Parameters that our Triton kernels do not have, and what they may be.
TRITONS = {"order": ("triton", "qk_ahead"), "instruction": (None,), "fast_math": (True,)}
_TOLERANCE = 0.10
_WARPGROUP = 4  # warps


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMix:
    """Instructions of a CTA by pipe, all its warps together, and what the CTA occupies.

    ``prologue`` is executed once, then ``full`` for each pass without a mask, ``between`` once if
    there are masked passes, ``masked`` for each of them, and ``epilogue`` once. ``full_stats`` and
    ``masked_stats`` tell more of a pass, per warp; None where there is no such pass. A masked pass
    that the compiler took out of its loop ends with its last product. ``full_code`` is the loop of
    full passes as a scheduler sees it.
    """

    kernel: str
    source: str
    registers: int
    spills: int
    shared_bytes: int
    warps: int
    prologue: PipeCounts
    full: PipeCounts
    between: PipeCounts
    masked: PipeCounts
    epilogue: PipeCounts
    full_stats: Stats | None
    masked_stats: Stats | None
    full_code: tuple[Issued, ...] = ()

    @property
    def loops(self) -> tuple[tuple[Issued, ...], ...]:
        """The loop of each warpgroup of the CTA, where it can be followed."""
        return (self.full_code,) * math.ceil(self.warps / _WARPGROUP) if self.full_code else ()

    @property
    def serial_products(self) -> int:
        """Products of a pass that the compiler waits for one by one."""
        found = [x for x in (self.full_stats, self.masked_stats) if x]
        return max((x.serial_products for x in found), default=0)

    def executed(self, full_passes: int, masked_passes: int) -> PipeCounts:
        """Return all that a CTA of so many passes executes."""
        once = self.prologue + self.epilogue
        middle = self.between + self.masked * masked_passes if masked_passes else PipeCounts()
        return once + self.full * full_passes + middle


def compiled_mix(
    schedule: str,
    params: Mapping[str, Any],
    problem: Attention,
    profile: Profile,
    *,
    line_info: bool = True,
    cache_dir: str | Path | None = None,
) -> CompiledMix:
    """Return the mix of a schedule that is one launch; see `compiled_mixes`."""
    found = compiled_mixes(
        schedule, params, problem, profile, line_info=line_info, cache_dir=cache_dir
    )
    if len(found) != 1:
        raise UnsupportedError(f"{schedule} is {len(found)} launches: each has a mix of its own")
    return found[0]


def compiled_mixes(
    schedule: str,
    params: Mapping[str, Any],
    problem: Attention,
    profile: Profile,
    *,
    line_info: bool = True,
    cache_dir: str | Path | None = None,
) -> tuple[CompiledMix, ...]:
    """Return a mix for each launch of the Triton kernel of ``schedule``, in launch order.

    ``params`` are the schedule's (``block_m``, ``stages`` ...). ``line_info`` is Triton's default;
    our measurements are made without, which can change a few instructions.

    Raises MissingExtraError without Triton, CompileError, and UnsupportedError for schedules
    without a Triton kernel, for kernels whose warps have roles, and for a loop around the hot loop
    (FA1, the backward pass).
    """
    if schedule not in OWN_KERNELS:
        raise UnsupportedError(f"no Triton kernel of schedule {schedule!r} to compile")
    for name, values in TRITONS.items():
        if params.get(name, values[0]) not in values:
            raise UnsupportedError(f"no Triton kernel of {schedule} with {name}={params[name]}")
    kept = {k: v for k, v in params.items() if k not in (*_NOT_THE_KERNELS, *TRITONS)}
    job = own_job(schedule, kept, problem, architecture(profile), line_info=line_info)
    return tuple(mix_of(kernel) for kernel in compile_job(job, cache_dir=cache_dir))


def mix_of(kernel: CompiledKernel) -> CompiledMix:
    """Return the mix of one compiled kernel. Raises UnsupportedError, see `compiled_mixes`."""
    listing = kernel.listing
    loops = mma_loops(listing)
    if kernel.warps > kernel.warps_asked:
        raise UnsupportedError(f"the warps of {kernel.name} have roles: there is no common mix")
    if nested(listing, loops) or len(loops) > 2:
        raise UnsupportedError(f"{kernel.name} has more loops than full and masked passes: no mix")
    parts = executed(listing, loops, [1] * len(loops))
    sections: dict[str, list[Stretch]] = {}
    for part in parts:
        sections.setdefault(part.section, []).append(part)
    code = listing.instructions

    def of(name: str) -> list[int]:
        return [i for p in sections.get(name, ()) for i in range(p.first, p.last + 1)]

    prologue, full, after = of("prologue"), of("loop 0"), of("after 0")
    between: list[int] = []
    masked: list[int] = []
    if len(loops) == 2:
        between, masked, after = after, of("loop 1"), of("after 1")
    elif (end := _unrolled_pass(kernel, full, after)) > 0:
        masked, after = after[:end], after[end:]
    counts = [_count(kernel, part) for part in (prologue, full, between, masked, after)]
    return CompiledMix(
        kernel=kernel.name,
        source=f"Triton {kernel.triton_version}, {kernel.target}",
        registers=kernel.registers,
        spills=kernel.spills,
        shared_bytes=kernel.shared_bytes,
        warps=kernel.warps,
        **dict(zip(("prologue", "full", "between", "masked", "epilogue"), counts, strict=True)),
        full_stats=read_stretch([code[i] for i in full], code) if full else None,
        masked_stats=read_stretch([code[i] for i in masked], code) if masked else None,
        full_code=loop_code(code[i] for i in full),
    )


def differences(analytic: Mix, compiled: Mix) -> list[str]:
    """Return one line for each pipe whose analytic count is more than 10 % off the compiled one."""
    out = []
    for pipe, given, found in zip(Mix._fields, analytic, compiled, strict=True):
        if abs(given - found) <= _TOLERANCE * max(found, 1):
            continue
        share = f"{given / found - 1:+.0%}" if found else "where there is none"
        out.append(f"{pipe}: analytic {given:,.0f}, compiled {found:,.0f} instructions ({share})")
    return out


def _count(kernel: CompiledKernel, positions: Iterable[int]) -> PipeCounts:
    code = [kernel.listing.instructions[i] for i in positions]
    counts = count_pipes(code) * kernel.warps
    issued_by_one = sum(x.base.startswith("UTC") and is_mma(x.opcode) for x in code)
    return replace(counts, tensor=counts.tensor - issued_by_one * (kernel.warps - 1))


def _unrolled_pass(kernel: CompiledKernel, full: list[int], after: list[int]) -> int:
    """Return how many positions of ``after`` are a masked pass taken out of its loop, or 0."""
    code = kernel.listing.instructions
    exps = [sum(code[i].opcode == "MUFU.EX2" for i in part) for part in (full, after)]
    products = [n for n, i in enumerate(after) if is_mma(code[i].opcode)]
    return products[-1] + 1 if products and 2 * exps[1] > exps[0] > 0 else 0
