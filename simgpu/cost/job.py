"""Jobs: what the machine serves of an operation. Demand on each unit, time alone, latency."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simgpu.hardware.machine import ALU, FMA, HBM, ISSUE, MUFU, UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.hardware.machine import Demand
    from simgpu.program.mix import Mix

#: Warps whose instructions leave no issue slot empty, one warp's as good as any number of warps'.
NO_GAP = math.inf


@dataclass(frozen=True, slots=True)
class Job:
    """Demand by unit, the least cycles it takes alone, and cycles of latency after it is served.

    ``warps`` is how many warps a scheduler issue its instructions: the more there are, the fewer
    issue slots stay empty. An MMA in flight has none; it is served ``first``, before jobs that are
    not and after those that came earlier.
    """

    demand: Demand
    solo: float = 0.0
    latency: float = 0.0
    warps: float = 0.0
    first: bool = False

    @property
    def busy(self) -> bool:
        """Whether any unit has to serve it."""
        return self.solo > 0.0 or any(self.demand)

    def stretched(self, by: float) -> Job:
        """Return the job with ``by`` times the demand, but for HBM's bytes, and the latency."""
        demand = tuple(x if unit == HBM else x * by for unit, x in enumerate(self.demand))
        return Job(demand, self.solo * by, self.latency * by, self.warps, self.first)


@dataclass(frozen=True, slots=True)
class Jobs:
    """What an operation makes of a role: ``held`` one after the other, ``behind`` its back.

    A copy moves while its role is held by issuing it; an MMA starts when its role has issued it.
    """

    held: tuple[Job, ...] = ()
    behind: Job | None = None

    def stretched(self, by: float) -> Jobs:
        """Return jobs that take ``by`` times as long, alone and beside others."""
        if by == 1.0:
            return self
        behind = self.behind.stretched(by) if self.behind else None
        return Jobs(tuple(job.stretched(by) for job in self.held), behind)


@dataclass(frozen=True, slots=True)
class MissRates:
    """How much of each tensor's traffic L2 does not hold, by tensor name; default none.

    ``read`` and ``written`` are shares of bytes that go to HBM. ``late`` is the share of a tensor's
    loads that see HBM's latency all the same: when a whole wave marches in step, one miss is
    everybody's.
    ``local`` is the share of spilled registers that L1 does not hold when they are loaded again.
    """

    read: Mapping[str, float] = field(default_factory=dict)
    written: Mapping[str, float] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)
    local: float = 0.0


def demand_of(**units: float) -> Demand:
    """Return the demand on units by name, none on the others."""
    values = [0.0] * len(UNITS)
    for name, value in units.items():
        values[UNITS.index(name)] = value
    return tuple(values)


def issue_of(mix: Mix, **units: float) -> Demand:
    """Return the demand of instructions on their pipes and issue slots, and on other units."""
    demand = list(demand_of(**units))
    for unit, count in ((MUFU, mix.mufu), (FMA, mix.fma), (ALU, mix.alu), (ISSUE, mix.total)):
        demand[unit] += count
    return tuple(demand)
