"""L2 reads of a launch: what the request coalescers join, and what crosses between partitions.

A coalescer stands between some SMs and L2. Requests for the same bytes that reach it while the
first of them is under way are joined into one read, up to a number. CTAs that march through the
same tiles in step are joined; what puts them out of step is the subject of `joined_share`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from simgpu.program.ops import Copy, Mma
from simgpu.program.program import op_count, operations
from simgpu.program.tile import View
from simgpu.tensor import Tile, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.hardware.sections import Memory
    from simgpu.program.program import CtaClass, Launch

#: With so many stages the loads of a loop are under way for a whole pass before they are awaited.
HIDDEN_STAGES = 3


class March(NamedTuple):
    """How the CTAs of one head go through the tiles of a tensor that they share."""

    ctas: int  # that read the same tile and follow one another in launch order
    passes: float  # tiles that a CTA reads, on average
    hidden: bool  # loads are awaited a pass or more after they were issued
    waves: float  # of CTAs in the launch
    unequal: bool  # CTAs of a head do unequal work
    residents: int  # CTAs an SM


class _Read(NamedTuple):
    """A tile that a program reads: its bytes; whether all CTAs of a head read the same; whether
    its loads are issued so early that nobody waits for them.
    """

    bytes: int
    shared: bool
    early: bool


def l2_read_bytes(
    launch: Launch,
    memory: Memory,
    wave: int,
    residents: int,
    asked: Mapping[str, int],
    beyond: Mapping[str, float],
) -> float:
    """Return the bytes that L2 reads, as Nsight Compute counts them (``lts__t_sectors_op_read``).

    By tensor, ``asked`` are the bytes that CTAs read, ``beyond`` those of them that come from HBM;
    ``wave`` CTAs fit on the GPU at once. What comes from HBM is read in the partition that it
    belongs to and once more in each other partition whose SMs want it.
    """
    ctas = math.prod(launch.grid.work_axes.values())
    neighbours = launch.grid.neighbours
    reads, sizes = _reads(launch), set(map(_size, launch.classes))
    total = 0.0
    for tensor, size in asked.items():
        read, partitions = reads[tensor], memory.l2_partitions
        joined, crossing = 0.0, 1.0 - 1.0 / partitions
        if read.shared and ctas > 1:
            crossing = partitions - 1.0
            march = March(
                ctas=neighbours,
                passes=max(1.0, size / (launch.grid.tiles * read.bytes)),
                hidden=read.early,
                waves=max(1.0, launch.grid.tiles / wave),
                unequal=len(sizes) > 1,
                residents=residents,
            )
            joined = joined_share(memory, march)
        total += size * (1.0 - joined) + beyond.get(tensor, 0.0) * crossing
    return total


def joined_share(memory: Memory, march: March) -> float:
    """Return the share of requests for a shared tile that are joined to another's.

    At best, CTAs that follow one another in launch order stand on neighbouring SMs and all of one
    coalescer's requests are joined. The odds that a request is falls with what pulls CTAs apart:
    passes whose loads nobody waits for, and waves, if CTAs are unequal or share SMs.
    """
    group, most, odds = memory.coalescer_group_sms, memory.coalescer_joins, memory.coalescer_odds
    if group is None or most is None or odds is None:
        return 0.0
    groups, rest = divmod(march.ctas, group)
    best = 1.0 - (groups * math.ceil(group / most) + math.ceil(rest / most)) / march.ctas
    if march.hidden:
        odds *= march.passes ** -(memory.coalescer_passes_exponent or 0.0)
    if march.unequal:
        odds *= march.waves ** -(memory.coalescer_unequal_exponent or 0.0)
    if march.residents > 1:
        odds *= march.waves ** -(memory.coalescer_residents_exponent or 0.0)
    return best * odds / (1.0 + odds)


def _reads(launch: Launch) -> dict[str, _Read]:
    """Return, by tensor, the tile of it that a program reads."""
    found: dict[str, _Read] = {}
    axes = launch.grid.work_axes
    for cta_class in launch.classes:
        for role in cta_class.program.roles:
            copies_only = not any(isinstance(op, Mma) for op in operations(role.body))
            for copy in operations(role.body):
                if not isinstance(copy, Copy) or not isinstance(copy.src, Tile):
                    continue
                tile, to = copy.src, copy.dst
                used = {name for index in (tile.row, tile.col) for name, _ in index.terms}
                size = tile.rows * tile.cols * dtype_bytes(tile.tensor.dtype)
                stages = to.buffer.stages if isinstance(to, View) else 1
                found.setdefault(
                    tile.tensor.name,
                    _Read(size, not used & axes.keys(), copies_only or stages >= HIDDEN_STAGES),
                )
    return found


def _size(cta_class: CtaClass) -> int:
    return sum(op_count(role.body) for role in cta_class.program.roles)
