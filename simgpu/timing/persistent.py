"""The fast way with persistent CTAs: what a tile costs after another, and who takes which.

A CTA's first tile costs a life, each further one what it adds to the life of a CTA that has had
others: its start overlaps the end of the tile before. All slots are taken from the start to the
end, so that residents have the same company until the first CTA finds no tile.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from typing import TYPE_CHECKING

from simgpu.timing.found import Found
from simgpu.timing.steady import Life, SmTimes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.cost.job import MissRates
    from simgpu.hardware.machine import Machine
    from simgpu.program.program import Launch

#: Tiles that a CTA has had before one that follows others; the second may yet end out of step.
BEFORE = 2


def persistent(
    launch: Launch, dtype: str, machine: Machine, slots: int, misses: MissRates, hbm_used: float
) -> Found:
    """Return what is found of a persistent launch with more tiles than ``slots`` on each SM hold.

    ``hbm_used`` is the share of SMs with which an SM shares HBM.
    """
    ctas = slots * machine.sms
    times = SmTimes(machine, dtype, misses, machine.shared_by(machine.sms, hbm_used))
    first, then = times.lives(launch, slots), times.lives(launch, slots, BEFORE)
    last = then
    rest = launch.grid.tiles % ctas
    if rest and launch.grid.persistent == "static":
        # Equal lists but for one tile: some SMs are done, and the others have L2 and HBM to share.
        tail = SmTimes(machine, dtype, misses, machine.shared_by(min(rest, machine.sms), hbm_used))
        last = tail.lives(launch, math.ceil(rest / machine.sms), BEFORE)
    costs = first, then, last
    order = _kinds(launch, ctas, rest if last is not then else 0)
    ends = _ends(launch, ctas, [costs[kind][c].cycles for kind, c in order])
    total = Life(0.0, {})
    for (kind, c), tiles in Counter(order).items():
        total = total.plus(costs[kind][c], tiles)
    steps = [(end, ctas - 1 - number) for number, end in enumerate(sorted(ends))]
    return Found(max(ends), sum(ends), total.time, ((0.0, ctas), *steps))


def _kinds(launch: Launch, ctas: int, rest: int) -> list[tuple[int, int]]:
    """Return of each tile whether it is a CTA's first, a later, or one of ``rest``; its class."""
    tiles = launch.grid.tiles
    return [
        (0 if number < ctas else 1 if number < tiles - rest else 2, c)
        for number, c in enumerate(launch.in_order())
    ]


def _ends(launch: Launch, ctas: int, cycles: Sequence[float]) -> list[float]:
    """Return when each CTA ends, given the cycles of each tile in launch order."""
    if launch.grid.persistent == "static":
        return [sum(cycles[cta::ctas]) for cta in range(ctas)]
    ends = list(cycles[:ctas])
    heapq.heapify(ends)
    for later in cycles[ctas:]:
        heapq.heapreplace(ends, ends[0] + later)
    return ends
