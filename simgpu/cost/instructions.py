"""Warp instructions of an operation on one architecture, and its shared-memory wavefronts.

The analytic mix: structure read off the SASS of 192 Triton kernels for sm_90 (loads of 16 bytes a
thread, HGMMA 16 deep, one shuffle a row and step). Tile functions bring their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

from simgpu.cost import tcgen05
from simgpu.cost.work import (
    LANES,
    held,
    operand_bytes,
    operand_bytes_per_warp,
    repeats,
    tile_bytes,
)
from simgpu.program.mix import Mix
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Wait
from simgpu.program.tile import View
from simgpu.tensor import Tile, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.hardware.machine import Machine
    from simgpu.hardware.profile import Profile
    from simgpu.program.ops import Op
    from simgpu.program.program import Role

BYTES_PER_LANE = 16  # the widest load or store of a thread
WAVEFRONT_BYTES = 128


def instructions(op: Op, role: Role, machine: Machine) -> Mix:
    """Return the mix of one execution, over all warps of the role."""
    match op:
        case Copy():
            return Mix() if op.fills_zeros else _copy(op, role)
        case Mma():
            return _mma(op, role, machine)
        case Apply(adjust=adjust, spilled=spilled):
            # STL and LDL, two registers each
            mix = _apply(op, role, machine).plus(Mix(lsu=float(spilled * role.warps)))
            return mix.plus(adjust) if adjust else mix
        case Arrive(signal):
            return Mix(other=role.warps * (signal.barrier.kind != "group"))
        case Wait(signal):
            return Mix(other=role.warps * (1 if signal.barrier.kind == "group" else 2))
        case other:
            assert_never(other)


def wavefronts(op: Op, role: Role, machine: Machine, env: Mapping[str, int]) -> float:
    """Return wavefronts as l1tex__data_pipe_lsu_wavefronts_mem_shared counts them.

    MMA operands, plain loads and stores, and one for each shuffle; fills by cp.async and TMA do
    not show, except for two bookkeeping accesses a warp and cp.async copy, and the zeros that a
    cp.async writes for what lies outside the tensor.
    """
    match op:
        case Mma():
            if tcgen05.by_tcgen05(op, machine.profile):
                return tcgen05.operand_bytes(op) / WAVEFRONT_BYTES
            if by_wgmma(op, machine.profile):
                return operand_bytes(op, role) / WAVEFRONT_BYTES
            return operand_bytes_per_warp(op, role) * role.warps / WAVEFRONT_BYTES
        case Apply():
            return _apply(op, role, machine).lsu
        case Copy(src, dst, path):
            if path == "cp_async":
                return 2.0 * role.warps + (_zeros(src, env) if isinstance(src, Tile) else 0.0)
            if path == "tma":
                return 0.0
            sides = [x for x in (src, dst) if isinstance(x, View) and x.buffer.space == "smem"]
            return sum(map(tile_bytes, sides)) / WAVEFRONT_BYTES
        case Arrive() | Wait():
            return 0.0
        case other:
            assert_never(other)


def _zeros(src: Tile, env: Mapping[str, int]) -> float:
    """Return the wavefronts of what cp.async fills with zeros: whole rows, and the ends of others.

    Ends of two rows lie in the same banks, so each takes wavefronts of its own.
    """
    rows, cols = src.valid(env)
    size = dtype_bytes(src.tensor.dtype)
    end = math.ceil((src.cols - cols) * size / WAVEFRONT_BYTES) if cols else 0
    return rows * end + (src.rows - rows) * src.cols * size / WAVEFRONT_BYTES


def by_wgmma(op: Mma, profile: Profile) -> bool:
    """Say whether a product is a wgmma: what its kernel is written with, else the best there is."""
    return op.instruction != "mma.sync" and profile.has("wgmma")


def _apply(op: Apply, role: Role, machine: Machine) -> Mix:
    if tcgen05.multiplies(role, machine.profile):
        return tcgen05.apply_mix(op, role, machine.profile)
    of_warp = op.fn.mix(tuple(held(x, role) for x in op.args), op.mask is not None)
    return of_warp.times(role.warps)


def _copy(op: Copy, role: Role) -> Mix:
    if op.path == "tma":
        return Mix(other=8)  # one elected lane: coordinates, expected bytes, the copy
    moved = op.dst if isinstance(op.dst, Tile) else op.src  # the side outside, if there is one
    accesses = max(1.0, tile_bytes(moved) / (BYTES_PER_LANE * LANES * role.warps))
    if op.path == "cp_async":
        return Mix(fma=accesses, alu=2.5 + accesses / 3, lsu=accesses + 2.5, other=13).times(
            role.warps
        )
    return _plain_copy(op, accesses).times(role.warps)


def _plain_copy(op: Copy, accesses: float) -> Mix:
    src, dst = op.src, op.dst
    if op.guarded:  # an address and a predicate for each access; a load zeroes what is outside
        loads = isinstance(src, Tile)
        return Mix(fma=0.6 * accesses, alu=(4.5 + 2 * loads) * accesses, lsu=accesses, other=4)
    through_smem = any(isinstance(x, View) and x.buffer.space == "smem" for x in (src, dst))
    if isinstance(src, Tile):
        if through_smem:  # LDG and STS, with the addresses of a prologue
            return Mix(fma=14, alu=7 * accesses + 18, lsu=2 * accesses, other=40)
        return Mix(fma=accesses, alu=1 + accesses / 2, lsu=accesses, other=4)
    if isinstance(dst, Tile):
        return Mix(alu=accesses / 2, lsu=accesses * (2 if through_smem else 1), other=8)
    narrowed = dtype_bytes(dst.buffer.dtype) / dtype_bytes(src.buffer.dtype)
    packs = accesses * BYTES_PER_LANE / 8 if narrowed < 1 else 0  # F2FP packs two fp32
    exchanged = any(isinstance(x, View) and x.buffer.exchange for x in (src, dst))
    if exchanged and not packs:  # MOV and IMAD.MOV gather what a 16-byte access takes
        return Mix(alu=1.6 * accesses, fma=0.4 * accesses, lsu=accesses)
    return Mix(alu=packs, lsu=accesses * min(1.0, narrowed) + 2, other=2)


def _mma(op: Mma, role: Role, machine: Machine) -> Mix:
    if tcgen05.by_tcgen05(op, machine.profile):
        return tcgen05.mma_mix(op)
    m, n, k = op.shape
    times = repeats(role, m)
    if by_wgmma(op, machine.profile):
        tiles = max(1.0, m * times / (16 * role.warps))
        chains = 1 if op.dst.buffer.by_columns else times
        steps = tiles * chains * math.ceil(k / 16) * math.ceil(n / 256)
        return Mix(tensor=steps, other=steps + 6).times(role.warps)
    executed = 1 if op.dst.buffer.by_columns else times
    steps = m * n * k * executed / (16 * 8 * 16 * role.warps)
    loads = operand_bytes_per_warp(op, role) / (BYTES_PER_LANE * LANES)
    return Mix(tensor=steps, lsu=loads, alu=loads / 2).times(role.warps)
