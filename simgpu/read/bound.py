"""Reading: the least time that a launch could take, whatever the order of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.hardware.machine import UNITS
from simgpu.program.program import op_count
from simgpu.timing.steady import SmTimes

if TYPE_CHECKING:
    from simgpu.hardware.machine import Machine
    from simgpu.program.program import Launch
    from simgpu.read.traffic import Traffic

CRITICAL_PATH = "critical_path"


def bound(launch: Launch, dtype: str, machine: Machine, traffic: Traffic) -> dict[str, float]:
    """Return lower bounds in cycles: each unit's whole demand over its rate, and the longest CTA.

    ``critical_path`` is the launch overhead and the longest CTA's life when nothing ever waits for
    a unit: the dependences alone.
    """
    bounds = {
        name: traffic.demand[unit] / (machine.capacity[unit] * machine.sms)
        for unit, name in enumerate(UNITS)
        if machine.has_unit(unit)
    }
    # the longest CTA may have L2 and HBM to itself
    alone = machine.shared_by(1)
    unlimited = SmTimes(machine, dtype, traffic.misses, alone, limited=False)
    path = unlimited.life(launch, longest(launch), 1).cycles
    return {**bounds, CRITICAL_PATH: machine.profile.costs.launch_cycles + path}


def longest(launch: Launch) -> int:
    """Return the number of the class whose CTAs execute the most operations."""
    sizes = [sum(op_count(r.body) for r in c.program.roles) for c in launch.classes]
    return sizes.index(max(sizes))
