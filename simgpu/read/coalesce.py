"""L2 reads of a launch: what the request coalescers join, and what crosses between partitions.

A coalescer stands between some SMs and L2. Requests for the same bytes that reach it while the
first of them is under way are joined into one read, up to a number. CTAs that march through the
same tiles in step are joined; what puts them out of step is the subject of `joined_share`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from simgpu.read.march import reads, unequal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.hardware.sections import Memory
    from simgpu.program.program import Launch


class March(NamedTuple):
    """How the CTAs of one head go through the tiles of a tensor that they share."""

    ctas: int  # that read the same tile and follow one another in launch order
    passes: float  # tiles that a CTA reads, on average
    hidden: bool  # loads are under way while their CTA works on something else
    turns: float  # CTAs, or tiles of persistent ones, that an SM has in the launch
    unequal: bool  # CTAs of a head do unequal work
    residents: int  # CTAs an SM at once
    repeated: bool = False  # warps repeat one another's rows (split-d)
    adrift: bool = False  # several roles multiply, and do not take turns


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
    total, differ = 0.0, unequal(launch)
    for tensor, read in reads(launch).items():
        size, partitions = asked.get(tensor, 0), memory.l2_partitions
        joined, crossing = 0.0, 1.0 - 1.0 / partitions
        if read.shared and ctas > 1:
            crossing = partitions - 1.0
            march = March(
                ctas=launch.grid.neighbours,
                passes=max(1.0, size / (launch.grid.tiles * read.bytes)),
                hidden=read.hidden,
                turns=max(1.0, launch.grid.tiles * residents / wave),
                unequal=differ,
                residents=residents,
                repeated=read.repeated,
                adrift=read.adrift,
            )
            joined = 0.0 if read.apart else joined_share(memory, march)
        if read.multicast > 1:
            joined = 1.0 - 1.0 / read.multicast
        total += size * (1.0 - joined) + beyond.get(tensor, 0.0) * crossing
    return total


def joined_share(memory: Memory, march: March) -> float:
    """Return the share of requests for a shared tile that are joined to another's.

    At best, CTAs that follow one another in launch order stand on neighbouring SMs and all of one
    coalescer's requests are joined. The odds that a request is fall with what pulls CTAs apart:
    each start of a CTA; passes whose loads nobody waits for, which bring nobody back in step, and
    residents then, if work is equal; unequal work; roles or warps that go their own way.
    """
    group, most, odds = memory.coalescer_group_sms, memory.coalescer_joins, memory.coalescer_odds
    if group is None or most is None or odds is None:
        return 0.0
    groups, rest = divmod(march.ctas, group)
    best = 1.0 - (groups * math.ceil(group / most) + math.ceil(rest / most)) / march.ctas
    if march.hidden:
        odds *= march.turns ** -(memory.coalescer_hidden_turns_exponent or 0.0)
        odds *= march.passes ** -(memory.coalescer_passes_exponent or 0.0)
    else:
        odds *= march.turns ** -(memory.coalescer_turns_exponent or 0.0)
    if march.repeated:
        odds *= march.turns ** -(memory.coalescer_repeated_exponent or 0.0)
    if march.unequal:
        odds *= _or_one(memory.coalescer_unequal_odds)
    elif march.hidden:
        odds *= march.residents ** -(memory.coalescer_residents_exponent or 0.0)
    if march.adrift:
        odds *= _or_one(memory.coalescer_adrift_odds)
    return float(best * odds / (1.0 + odds))


def _or_one(factor: float | None) -> float:
    return 1.0 if factor is None else factor
