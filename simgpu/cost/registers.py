"""Registers, spills and serial products, estimated from tiles that a role keeps in registers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

from simgpu.cost.instructions import by_wgmma
from simgpu.cost.work import held
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Wait
from simgpu.program.program import operations
from simgpu.program.tile import View
from simgpu.tensor import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simgpu.hardware.profile import Profile
    from simgpu.program.ops import Op
    from simgpu.program.program import Role, TileProgram
    from simgpu.program.tile import Buffer


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
    return max(0, round(max(_product_words(role) for role in program.roles)) - most)


def in_loop(spills: int, profile: Profile) -> int:
    """Return how many of the registers that a thread spills each pass stores and loads."""
    return spills if spills > profile.costs.spills_outside_loop else 0


def serial_products(program: TileProgram, profile: Profile) -> bool:
    """Say whether the compiler will wait for each wgmma before it issues the next.

    ptxas does so where the operands of the products fill a thread's registers (Triton 3.6 for
    sm_90, FlashAttention-2: true of all 43 kernels that it serialises, of 374 read, and besides of
    128×128 tiles at head dim 64 with one stage, which it does not).
    """
    most = profile.occupancy.registers_per_thread_max
    return any(
        _product_words(role) > most and any(by_wgmma(op, profile) for op in _products(role))
        for role in program.roles
    )


def _products(role: Role) -> list[Mma]:
    return [op for op in operations(role.body) if isinstance(op, Mma)]


def _product_words(role: Role) -> float:
    """Return the 32-bit words of a thread that hold operands of products."""
    return sum(_words(role, _products(role)).values())


def _of_role(role: Role, profile: Profile) -> float:
    if role.registers is not None:
        return role.registers
    costs = profile.costs
    words = _words(role, operations(role.body))
    live = sum(n for buffer, n in words.items() if buffer.shape[1] > 1)
    wanted = costs.registers_fixed + costs.registers_per_word * live
    return min(wanted, profile.occupancy.registers_per_thread_max)


def _words(role: Role, ops: Iterable[Op]) -> dict[Buffer, float]:
    """Return the 32-bit words of a thread for each tile in registers that operations touch."""
    views: dict[Buffer, View] = {}
    for op in ops:
        match op:
            case Copy(src, dst):
                operands: tuple[object, ...] = (src, dst)
            case Mma(dst, a, b):
                operands = (dst, a, b)
            case Apply(_, args):
                operands = args
            case Arrive() | Wait():
                operands = ()
            case other:
                assert_never(other)
        views |= {x.buffer: x for x in operands if isinstance(x, View) and x.buffer.space == "regs"}
    return {b: held(x, role) * dtype_bytes(b.dtype) / 4 for b, x in views.items()}
