"""Registers, spills and serial products, estimated from tiles that a role keeps in registers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simgpu.cost.instructions import held
from simgpu.program.ops import Apply, Copy, Mma, Repeat
from simgpu.program.tile import View
from simgpu.tensor import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.hardware.profile import Profile
    from simgpu.program.ops import Step
    from simgpu.program.program import Role, TileProgram


def estimated_registers(program: TileProgram, profile: Profile) -> int:
    """Return registers a thread, the mean over warps where roles differ (setmaxnreg).

    Warps that set their own registers share what the CTA was given at launch, which the hardware
    rounds up to whole groups of four warps, one for each quarter of the SM.
    Every tile that a role touches in registers is taken to be live; 16-bit copies of 32-bit tiles
    reuse their registers. Capped at what a thread may have: beyond, a compiler spills.
    """
    total = sum(role.warps * _of_role(role, profile) for role in program.roles)
    warps, group = program.warps, profile.occupancy.sub_partitions
    if any(role.registers is not None for role in program.roles):
        warps = math.ceil(warps / group) * group
    return math.ceil(total / warps)


def estimated_spills(program: TileProgram, profile: Profile) -> int:
    """Return the registers a thread that the products' operands want beyond what it may have.

    A compiler spills more (H200: 130 to 270 where this says 50 to 100).
    """
    most = profile.occupancy.registers_per_thread_max
    return max(0, round(max(_product_words(role) for role in program.roles)) - most - 1)


def serial_products(program: TileProgram, profile: Profile) -> bool:
    """Say whether the compiler will wait for each wgmma before it issues the next.

    ptxas does so where the operands of the products fill the register file (sm_90, Triton 3.6: all
    43 of 374 kernels that serialise, and two of 64 keys and one stage that do not).
    """
    most = profile.occupancy.registers_per_thread_max
    return profile.has("wgmma") and any(_product_words(r) > most for r in program.roles)


def _product_words(role: Role) -> float:
    """Return the 32-bit words of a thread that hold operands of products."""
    views = {x.buffer: x for x in _operands(role.body) if x.buffer.space == "regs"}
    return sum(held(x, role) * dtype_bytes(b.dtype) / 4 for b, x in views.items())


def _operands(steps: tuple[Step, ...]) -> Iterator[View]:
    for step in steps:
        if isinstance(step, Repeat):
            yield from _operands(step.body)
        elif isinstance(step, Mma):
            yield from (step.dst, step.a, step.b)


def _of_role(role: Role, profile: Profile) -> float:
    if role.registers is not None:
        return role.registers
    costs = profile.costs
    views = {x.buffer: x for x in _in_registers(role.body)}
    words = sum(
        held(x, role) * dtype_bytes(b.dtype) / 4 for b, x in views.items() if b.shape[1] > 1
    )
    live = costs.registers_fixed + costs.registers_per_word * words
    return min(live, profile.occupancy.registers_per_thread_max)


def _in_registers(steps: tuple[Step, ...]) -> Iterator[View]:
    for step in steps:
        match step:
            case Repeat(_, _, body):
                yield from _in_registers(body)
            case Copy(src, dst):
                operands: tuple[object, ...] = (src, dst)
                yield from (x for x in operands if isinstance(x, View) and x.buffer.space == "regs")
            case Mma(dst, a, b):
                yield from (x for x in (dst, a, b) if x.buffer.space == "regs")
            case Apply(_, args):
                yield from (x for x in args if x.buffer.space == "regs")
            case _:
                pass
