"""One compiled kernel on one GPU: what fits, and what its hot loops do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgpu.compiled.flow import Loop, executed, hot_loops, is_mma, mma_loops
from simgpu.compiled.sass import PipeCounts, Stats, count_pipes, read_stretch
from simgpu.hardware.occupancy import Occupancy, occupancy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.compiled.aot import CompiledKernel
    from simgpu.hardware.profile import Profile

_WARPS_OF_A_WARPGROUP = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReading:
    """One hot loop. ``role`` says what its warps do; ``flops`` are of a CTA in one pass.

    ``flops`` is 0 where the products' shapes cannot be read from the code.
    """

    role: str
    loop: Loop
    stats: Stats
    flops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReading:
    """What a compiled kernel needs on one GPU and what its loops execute, per warp and pass."""

    kernel: CompiledKernel
    gpu: str
    occupancy: Occupancy
    loops: tuple[LoopReading, ...]

    @property
    def main(self) -> LoopReading | None:
        """The loop with the most tensor work, the first one among equals; None without any."""
        return max(
            (loop for loop in self.loops if loop.stats.products),
            key=lambda loop: (loop.flops, loop.stats.pipes.tensor),
            default=None,
        )

    @property
    def specialised(self) -> bool:
        """Whether the compiler gave warps different roles."""
        return self.kernel.warps > self.kernel.warps_asked


def read_kernel(kernel: CompiledKernel, profile: Profile) -> KernelReading:
    """Return what ``kernel`` needs on ``profile`` and what its hot loops do."""
    return KernelReading(
        kernel=kernel,
        gpu=profile.name,
        occupancy=occupancy(
            profile,
            registers_per_thread=kernel.registers,
            shared_bytes=kernel.shared_bytes,
            warps=kernel.warps,
            tmem_columns=kernel.tensor_memory_columns if profile.has("tensor_memory") else 0,
        ),
        loops=tuple(_read_loop(kernel, loop) for loop in hot_loops(kernel.listing)),
    )


def executed_by_cta(kernel: CompiledKernel, passes: Sequence[int]) -> PipeCounts:
    """Return what a CTA executes when its product loops are passed ``passes`` times each.

    All warps are taken to run the same code.
    """
    code = kernel.listing.instructions
    total = PipeCounts()
    for part in executed(kernel.listing, mma_loops(kernel.listing), passes):
        total += count_pipes(code[part.first : part.last + 1]) * part.times
    return total * kernel.warps


def _read_loop(kernel: CompiledKernel, loop: Loop) -> LoopReading:
    code = kernel.listing.instructions
    body = code[loop.first : loop.last + 1]
    stats = read_stretch(body, code[: loop.first])
    copies = {"cta": 1, "warp": kernel.warps_asked}
    copies["warpgroup"] = kernel.warps_asked // _WARPS_OF_A_WARPGROUP
    known = all(x.flops for x in stats.products)
    flops = sum(x.flops * copies[x.per] for x in stats.products) if known else 0
    role = _role(stats) if kernel.warps > kernel.warps_asked else "all"
    return LoopReading(role=role, loop=loop, stats=stats, flops=flops)


def _role(stats: Stats) -> str:
    if stats.products:
        return "mma"
    if stats.exps > 1 and stats.exps >= stats.pipes.fma // 8:
        return "softmax"
    return "load" if stats.tma else "correction"


def has_products(kernel: CompiledKernel) -> bool:
    """Whether the kernel uses tensor cores at all."""
    return any(is_mma(x.opcode) for x in kernel.listing.instructions)
