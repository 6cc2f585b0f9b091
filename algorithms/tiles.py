"""What every tile schedule checks and decides about its tile and its warps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from simgpu.errors import ScheduleError
from simgpu.problem import BlockRange
from simgpu.tensor import dtype_bytes

if TYPE_CHECKING:
    from simgpu.problem import Attention
    from simgpu.program.program import Partition

#: Bytes of L2 that K and V of the heads of a section may take. Source: FlashAttention-3's
#: hopper/tile_scheduler.hpp (Dao-AILab/flash-attention), whatever the GPU.
SECTION_BYTES = 32 << 20

ROWS_PER_WARP = 16  # an MMA's height for one warp, on every architecture since sm_80


class Tiled(Protocol):
    """A schedule with a tile and warps."""

    @property
    def block_m(self) -> int:
        """Rows of a Q tile."""
        ...

    @property
    def block_n(self) -> int:
        """Keys of a K/V tile."""
        ...

    @property
    def warps(self) -> int:
        """Warps that share the tile."""
        ...

    @property
    def warp_partition(self) -> Partition:
        """Which warps own what."""
        ...


def check_tiles(schedule: Tiled) -> None:
    """Raise ScheduleError unless the tile is made of whole MMAs by a usual number of warps."""
    for name in ("block_m", "block_n"):
        value = getattr(schedule, name)
        if value < ROWS_PER_WARP or value % ROWS_PER_WARP:
            raise ScheduleError(f"{name} is {value}: it must be a positive multiple of 16")
    if schedule.warps not in (1, 2, 4, 8, 12, 16):
        raise ScheduleError(f"warps is {schedule.warps}: it must be 1, 2, 4, 8, 12 or 16")


def padded(cols: int) -> int:
    """Return the columns a tile takes on chip: the next power of two, at least 16, as in Triton."""
    return max(16, 1 << (cols - 1).bit_length())


def padded_to_16(cols: int) -> int:
    """Return the columns a tile takes on chip where an MMA's depth is all that counts (CUTLASS)."""
    return -(-cols // 16) * 16


def heads_together(p: Attention) -> int:
    """Return the query heads of a section: few enough to find their K and V in L2.

    A power of two of K/V heads that fit in ``SECTION_BYTES``, one at least; no more than there are.
    """
    one = 2 * p.seq_kv * p.head_dim * dtype_bytes(p.dtype)
    fit = max(1, SECTION_BYTES // one)
    return min(p.group * (1 << (fit.bit_length() - 1)), p.batch * p.heads_q)


def warps_own(schedule: Tiled) -> Partition:
    """Return the partition that the tile allows: too few rows for the warps force split-d."""
    if schedule.block_m < ROWS_PER_WARP * schedule.warps:
        return "split-d"
    return schedule.warp_partition


def last_to_first(ranges: list[BlockRange], apart: int) -> list[BlockRange]:
    """Return block ranges in falling order, the first ``apart`` blocks each a range of its own.

    Only the first block may reach beyond the problem; where V follows K a block later it does so in
    the second pass.
    """
    falling: list[BlockRange] = []
    for some in reversed(ranges):
        stop = some.stop
        while len(falling) < apart and stop > some.start:
            falling.append(BlockRange(stop - 1, stop, some.masked))
            stop -= 1
        if stop > some.start:
            falling.append(BlockRange(some.start, stop, some.masked))
    return falling
