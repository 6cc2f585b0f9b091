"""Time of a launch: the fast way, from lives on one SM, or the exact way, every SM simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgpu.program.program import op_count
from simgpu.timing.device import Dispatcher, split_life
from simgpu.timing.exact import simulate_exactly
from simgpu.timing.found import Found
from simgpu.timing.persistent import persistent
from simgpu.timing.steady import Life, SmTimes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.cost.job import MissRates
    from simgpu.hardware.machine import Machine
    from simgpu.program.program import Launch
    from simgpu.timing.device import Load

#: Times that the share of HBM is corrected, at most, and when it is close enough.
ROUNDS, CLOSE = 5, 0.02

#: Waves of a long grid that are dispatched one by one; its middle repeats.
WAVES = 6


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """Cycles of one launch, CTA-cycles of residence over all SMs, and role-cycles by reason.

    ``resident`` is the number of CTAs on the device from each moment (cycles) on: a step for each
    wave, or for each CTA that leaves a slot empty. The exact mode does not tell it.
    """

    cycles: float
    residence: float
    time: dict[str, float]
    resident: tuple[tuple[float, int], ...] = ()


#: HBM busy for less than this share of a launch is not what it waits for; between the two, the
#: correction grows to its whole, so that a little more bandwidth changes time by a little.
SELDOM, OFTEN = 0.2, 0.6


def simulate(
    launch: Launch,
    dtype: str,
    machine: Machine,
    slots: int,
    misses: MissRates,
    *,
    exact: bool,
    hbm_bytes: float = 0.0,
) -> LaunchTime:
    """Return the time of a launch with ``slots`` CTAs resident on each SM.

    ``exact`` simulates every CTA on every SM; without it each situation is simulated once.
    ``hbm_bytes`` is what the launch moves in all: how long HBM is busy with it says with how many
    SMs an SM shares it (at first with all, then with those that use it at the same time).
    """
    used, found = hbm_share(launch, dtype, machine, slots, misses, hbm_bytes)
    if exact:
        found = Found(*simulate_exactly(launch, dtype, machine, slots, misses, used))
    launching = machine.profile.costs.launch_cycles
    resident = tuple((launching + moment, ctas) for moment, ctas in found.resident)
    return LaunchTime(launching + found.end, found.residence, found.time, resident)


def hbm_share(
    launch: Launch,
    dtype: str,
    machine: Machine,
    slots: int,
    misses: MissRates,
    hbm_bytes: float,
) -> tuple[float, Found]:
    """Return the share of the SMs that use HBM at the same moment, and the fast mode's result.

    ``hbm_bytes`` is what the launch moves in all, ``slots`` how many CTAs are on an SM.
    """
    launching = machine.profile.costs.launch_cycles
    used, found = 1.0, _fast(launch, dtype, machine, slots, misses, 1.0)
    for _ in range(ROUNDS):
        busy = hbm_bytes / (machine.hbm_bytes_per_cycle * (found.end + launching))
        aim = _hbm_shared_with(busy)
        if used - aim < CLOSE:
            break
        used = (aim + used) / 2
        found = _fast(launch, dtype, machine, slots, misses, used)
    return used, found


def _hbm_shared_with(busy: float) -> float:
    """Return the share of the SMs that use HBM at the same moment, if it is busy so much."""
    weight = min(1.0, max(0.0, (busy - SELDOM) / (OFTEN - SELDOM)))
    return 1.0 - weight * (1.0 - min(busy, 1.0))


def _fast(
    launch: Launch, dtype: str, machine: Machine, slots: int, misses: MissRates, hbm_used: float
) -> Found:
    ctas, sms = launch.grid.tiles, machine.sms
    if launch.grid.persistent and ctas > slots * sms:
        return persistent(launch, dtype, machine, slots, misses, hbm_used)
    times = SmTimes(machine, dtype, misses, machine.shared_by(min(ctas, sms), hbm_used))
    most = min(slots, math.ceil(ctas / sms))
    together = times.lives(launch, most)
    if len({sum(op_count(r.body) for r in c.program.roles) for c in launch.classes}) == 1:
        rest = ctas % (slots * sms)
        last = together
        if rest:
            tail = SmTimes(machine, dtype, misses, machine.shared_by(min(rest, sms), hbm_used))
            last = tail.lives(launch, math.ceil(rest / sms))
            if len(launch.classes) > 1 and ctas > slots * sms:
                # Clipped tiles put SMs out of step: the more CTAs are left, the more of them find
                # all slots of an SM free.
                ends = zip(tail.lives(launch, 1), tail.lives(launch, slots), strict=True)
                share = rest / (slots * sms)
                last = [one.plus(one, -share).plus(full, share) for one, full in ends]
        wave = slots * sms
        between = together if ctas <= wave else times.lives_in_steady(launch, slots)
        return _in_waves(launch, wave, between, last)
    alone = times.lives(launch, 1)
    slowdown = _slowdown(alone, together, most)
    loads = [
        split_life(a.cycles, b.cycles, slowdown[most]) for a, b in zip(alone, together, strict=True)
    ]
    end, residence, resident = _dispatch(launch, machine, slots, slowdown, loads, together)
    time = Life(0.0, {}).plus(_mean(launch, together), ctas).time
    return Found(end, residence, time, resident)


def _mean(launch: Launch, lives: Sequence[Life]) -> Life:
    total = Life(0.0, {})
    for life, weight in zip(lives, launch.weights(), strict=True):
        total = total.plus(life, weight / launch.grid.tiles)
    return total


def _in_waves(launch: Launch, wave: int, between: Sequence[Life], last: Sequence[Life]) -> Found:
    """Return the waves of CTAs that do equal work, but for clipped tiles; the last may be short.

    The last wave lives as one that starts in step; each before it adds what one CTA more takes
    ``between`` others.
    """
    before = math.ceil(launch.grid.tiles / wave) - 1
    rest = launch.grid.tiles - before * wave
    life, final = _mean(launch, between), _mean(launch, last)
    served = Life(0.0, {}).plus(life, before * wave).plus(final, rest)
    end = before * life.cycles + max(x.cycles for x in last)
    steps = [(number * life.cycles, wave) for number in range(before)]
    resident = (*steps, (before * life.cycles, rest), (end, 0))
    return Found(end, served.cycles, served.time, resident)


def _slowdown(alone: Sequence[Life], together: Sequence[Life], most: int) -> list[float]:
    """Return by how much r residents stretch work, for r = 0 … ``most``; linear between the ends.

    The stretch at full residency is that of what the longest CTA does more than the shortest.
    """
    long, short = (f(range(len(alone)), key=lambda i: alone[i].cycles) for f in (max, min))
    work = alone[long].cycles - alone[short].cycles
    shared = together[long].cycles - together[short].cycles
    full = max(1.0, shared / work) if work > 0 else 1.0
    return [1.0] + [1.0 + (full - 1.0) * (r - 1) / max(1, most - 1) for r in range(1, most + 1)]


def _dispatch(
    launch: Launch,
    machine: Machine,
    slots: int,
    slowdown: Sequence[float],
    loads: Sequence[Load],
    together: Sequence[Life],
) -> tuple[float, float, tuple[tuple[float, int], ...]]:
    """Dispatch in launch order; a long grid's middle is as its full SMs are."""
    order = launch.in_order()
    heads = launch.grid["head"] * launch.grid["batch"]
    section = len(order) // heads * (launch.grid.section or 1)
    followed = math.ceil(WAVES * machine.sms * slots / section)
    passed = max(0, len(order) // section - followed) * section
    queue = [loads[c] for c in order[passed:]]
    steps: list[tuple[float, int]] = []
    device = Dispatcher(machine.sms, slots, slowdown)
    end, residence = device.makespan(queue, lambda now, ctas: steps.append((now, ctas)))
    skipped = sum(together[c].cycles for c in order[:passed])
    later = skipped / (machine.sms * slots)
    # slots stay full until the queue is empty, so what was skipped lies before the second step
    resident = (*steps[:1], *((now + later, ctas) for now, ctas in steps[1:]))
    return end + later, residence + skipped, resident
