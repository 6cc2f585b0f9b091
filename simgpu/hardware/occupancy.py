"""How many CTAs of a kernel an SM holds, by the rules of ``cuda_occupancy.h``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from simgpu.errors import ScheduleError

if TYPE_CHECKING:
    from simgpu.hardware.profile import Profile
    from simgpu.hardware.sections import OccupancyLimits

_KIB = 1024


class Limits(NamedTuple):
    """CTAs an SM could hold if only this resource were limited; None for what a kernel has not."""

    registers: int
    shared: int
    warps: int
    blocks: int
    tensor_memory: int | None = None

    @property
    def least(self) -> int:
        """CTAs that all of them allow."""
        return min(n for n in self if n is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What one SM holds of one kernel.

    ``shared_at_carveout`` is the shared-memory limit as Nsight Compute reports it, at the
    carve-out that the driver is inferred to choose. It never lowers ``ctas_per_sm``.
    ``l1_bytes`` is what shared memory leaves of the memory that it has in common with L1.
    If ``ctas_per_sm`` is 0, ``reason`` says what was wanted and what there is; else it is empty.
    """

    ctas_per_sm: int
    warps_per_sm: int
    limits: Limits
    limiter: str
    shared_at_carveout: int
    l1_bytes: int
    reason: str


def occupancy(
    profile: Profile,
    *,
    registers_per_thread: int,
    shared_bytes: int,
    warps: int,
    tmem_columns: int = 0,
) -> Occupancy:
    """Return how many CTAs of ``warps`` warps an SM holds.

    ``shared_bytes`` is what the kernel asks for, without the driver's reserve, ``tmem_columns``
    what it uses of tensor memory (given out in powers of two: PTX ISA, tcgen05.alloc). A kernel
    that fits nowhere is an answer (0 CTAs and a reason). Raises ScheduleError for counts that no
    kernel has.
    """
    for name, given, least in (
        ("registers_per_thread", registers_per_thread, 1),
        ("shared_bytes", shared_bytes, 0),
        ("warps", warps, 1),
        ("tmem_columns", tmem_columns, 0),
    ):
        if given < least:
            raise ScheduleError(f"{name} is {given}; it must be at least {least}")
    sm, warp_size = profile.occupancy, profile.device.warp_size
    limits = Limits(
        registers=_by_registers(sm, registers_per_thread, warps, warp_size),
        shared=_by_shared(sm, shared_bytes),
        warps=0 if warps * warp_size > sm.threads_per_cta_max else sm.warps_per_sm // warps,
        blocks=sm.ctas_per_sm,
        tensor_memory=_by_tensor_memory(sm, tmem_columns) if tmem_columns else None,
    )
    ctas = limits.least
    asked = _Asked(registers_per_thread, shared_bytes, warps, warp_size, tmem_columns)
    return Occupancy(
        ctas_per_sm=ctas,
        warps_per_sm=ctas * warps,
        limits=limits,
        limiter=Limits._fields[limits.index(ctas)],
        shared_at_carveout=_at_carveout(sm, shared_bytes, limits),
        l1_bytes=max(0, sm.l1_and_smem_bytes - _carveout(sm, shared_bytes, limits)),
        reason="" if ctas else _reason(sm, asked, limits),
    )


class _Asked(NamedTuple):
    """What a CTA asks for."""

    per_thread: int
    shared_bytes: int
    warps: int
    warp_size: int
    tmem_columns: int


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _registers_per_warp(sm: OccupancyLimits, per_thread: int, warp_size: int) -> int:
    return _round_up(per_thread * warp_size, sm.register_unit_per_warp)


def _registers_assumed(sm: OccupancyLimits, per_thread: int, warps: int, warp_size: int) -> int:
    # the launch check counts as if all sub-partitions were given the same number of warps
    return _registers_per_warp(sm, per_thread, warp_size) * _round_up(warps, sm.sub_partitions)


def _by_registers(sm: OccupancyLimits, per_thread: int, warps: int, warp_size: int) -> int:
    assumed = _registers_assumed(sm, per_thread, warps, warp_size)
    if per_thread > sm.registers_per_thread_max or assumed > sm.registers_per_cta_max:
        return 0
    per_warp = _registers_per_warp(sm, per_thread, warp_size)
    warps_per_part = sm.registers_per_sm // sm.sub_partitions // per_warp
    return warps_per_part * sm.sub_partitions // warps


def _allocated(sm: OccupancyLimits, shared_bytes: int) -> int:
    return _round_up(shared_bytes + sm.smem_reserved_per_cta_bytes, sm.smem_unit_bytes)


def _by_shared(sm: OccupancyLimits, shared_bytes: int) -> int:
    if shared_bytes > sm.smem_per_cta_max_bytes:
        return 0
    allocated = _allocated(sm, shared_bytes)
    return sm.smem_per_sm_bytes // allocated if allocated else sm.ctas_per_sm


def _by_tensor_memory(sm: OccupancyLimits, columns: int) -> int:
    taken = max(sm.tmem_unit_columns or 1, 1 << (columns - 1).bit_length())
    return (sm.tmem_columns or 0) // taken


def _at_carveout(sm: OccupancyLimits, shared_bytes: int, limits: Limits) -> int:
    """Shared-memory limit at the carve-out that the driver is inferred to choose."""
    allocated = _allocated(sm, shared_bytes)
    return _carveout(sm, shared_bytes, limits) // allocated if allocated else limits.shared


def _carveout(sm: OccupancyLimits, shared_bytes: int, limits: Limits) -> int:
    """Bytes that the driver gives shared memory: docs/decisions/0002-profiles.md."""
    if shared_bytes > sm.smem_static_limit_bytes:
        return sm.smem_per_sm_bytes
    allocated = _allocated(sm, shared_bytes)
    ctas = max(1, min(limits.registers, limits.warps, limits.blocks))
    need = ctas * allocated
    if ctas > 1:
        need = max(need, min(2 * need, sm.smem_carveout_headroom_kb * _KIB))
    fitting = [kb * _KIB for kb in sm.smem_carveouts_kb if kb * _KIB >= need]
    return min(*fitting, sm.smem_per_sm_bytes) if fitting else sm.smem_per_sm_bytes


def _reason(sm: OccupancyLimits, asked: _Asked, limits: Limits) -> str:
    """Say why not even one CTA fits: the first resource of which it wants too much."""
    per_thread, shared_bytes, warps, warp_size, columns = asked
    threads = warps * warp_size
    if threads > sm.threads_per_cta_max:
        return f"a CTA wants {threads} threads; it may have {sm.threads_per_cta_max}"
    if warps > sm.warps_per_sm:
        return f"a CTA wants {warps} warps; an SM has {sm.warps_per_sm}"
    if per_thread > sm.registers_per_thread_max:
        most = sm.registers_per_thread_max
        return f"a thread wants {per_thread} registers; it may have {most}"
    if limits.registers == 0:
        wanted = _registers_assumed(sm, per_thread, warps, warp_size)
        most = min(sm.registers_per_cta_max, sm.registers_per_sm)
        return f"a CTA wants {wanted} registers; it may have {most}"
    if limits.tensor_memory == 0:
        most = sm.tmem_columns or 0
        return f"a CTA wants {columns} columns of tensor memory; an SM has {most}"
    most = min(sm.smem_per_cta_max_bytes, sm.smem_per_sm_bytes - sm.smem_reserved_per_cta_bytes)
    return f"a CTA wants {shared_bytes} bytes of shared memory; it may have {most}"
