"""Reading: what a machine makes of a program: instructions, wavefronts, L2 and HBM bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from simgpu.cost.instructions import instructions, wavefronts
from simgpu.cost.job import MissRates
from simgpu.cost.jobs import jobs
from simgpu.cost.work import local_bytes
from simgpu.hardware.machine import UNITS
from simgpu.program.mix import Mix
from simgpu.program.ops import Apply, Copy
from simgpu.program.program import operations
from simgpu.read.coalesce import l2_read_bytes
from simgpu.read.count import count_launch
from simgpu.read.march import unequal
from simgpu.read.tally import tally
from simgpu.tensor import Tile
from simgpu.timing.cache import NEVER, tensor_bytes

if TYPE_CHECKING:
    from simgpu.cost.work import Work
    from simgpu.hardware.machine import Machine
    from simgpu.hardware.sections import Memory
    from simgpu.problem import Attention
    from simgpu.program.ops import Op
    from simgpu.program.program import Launch, Role
    from simgpu.tensor import Tensor
    from simgpu.timing.cache import L2, Reuse

READ, WRITTEN = "read", "written"


@dataclass(frozen=True, slots=True)
class Traffic:
    """One launch on one machine, over the whole grid.

    ``demand`` is what the units of all SMs have to serve (in the order of ``UNITS``); bytes are as
    Nsight Compute counts them: L2 after the request coalescer, HBM beyond L2. ``in_step`` is the
    share of CTAs that march in step with those that started with them.
    """

    work: Work
    mix: Mix
    wavefronts: float
    demand: tuple[float, ...]
    l2_read_bytes: float
    l2_write_bytes: float
    hbm_read_bytes: float
    hbm_write_bytes: float
    misses: MissRates
    in_step: float


class _Served(NamedTuple):
    """What CTAs take, to be added up."""

    mix: Mix = Mix()
    wavefronts: float = 0.0
    demand: tuple[float, ...] = (0.0,) * len(UNITS)

    def plus(self, other: _Served, times: int = 1) -> _Served:
        demand = tuple(a + b * times for a, b in zip(self.demand, other.demand, strict=True))
        mix = self.mix.plus(other.mix.times(times))
        return _Served(mix, self.wavefronts + other.wavefronts * times, demand)


class _InStep(NamedTuple):
    """Shares of a launch's CTAs: those of its first wave, and of later ones those in step."""

    first: float
    later: float

    def late(self, reuse: Reuse) -> float:
        """Return the share of loads that see HBM's latency: in step, one miss is everybody's."""
        return self.first * reuse.late_share(True) + self.later * reuse.late_share(False)


def _in_step(launch: Launch, wave: int, memory: Memory) -> _InStep:
    """Return how many CTAs march in step: all in the first wave, the fewer the more waves."""
    waves = max(1.0, launch.grid.tiles / wave)
    half = memory.in_step_unequal_waves if unequal(launch) else memory.in_step_waves
    kept = 1.0 / (1.0 + (waves / half) ** 2) if half else 0.0
    return _InStep(1.0 / waves, max(0.0, kept - 1.0 / waves))


class _Asked(dict[tuple[str, "Tensor"], int]):
    """Global bytes by direction and tensor, to be added up."""

    def plus(self, other: _Asked, times: int = 1) -> _Asked:
        total = _Asked(self)
        for key, size in other.items():
            total[key] = total.get(key, 0) + size * times
        return total


def traffic(
    launch: Launch, problem: Attention, machine: Machine, slots: int, l2: L2, l1_bytes: float = 0.0
) -> Traffic:
    """Return what one launch makes of the machine, with ``slots`` CTAs resident on each SM.

    ``l2`` is the cache as the launches before left it, ``l1_bytes`` what shared memory leaves of an
    SM's L1: where residents spill more, all of it comes back from L2.
    """
    wave = max(1, slots * machine.sms)
    found = l2.follow(launch, problem, wave)
    beyond = {READ: 0.0, WRITTEN: 0.0}
    rates: dict[str, dict[str, float]] = {READ: {}, WRITTEN: {}}
    asked: dict[str, dict[str, int]] = {READ: {}, WRITTEN: {}}
    passed: dict[str, dict[str, float]] = {READ: {}, WRITTEN: {}}
    for (what, tensor), size in _asked(launch).items():
        name, whole = tensor.name, tensor_bytes(tensor, problem)
        asked[what][name] = size
        passed[what][name] = found[what].get(name, NEVER).beyond(size, whole)
        beyond[what] += passed[what][name]
        rates[what][name] = passed[what][name] / size
    in_step = _in_step(launch, wave, machine.profile.memory)
    misses = MissRates(
        rates[READ],
        rates[WRITTEN],
        {name: in_step.late(found[READ].get(name, NEVER)) for name in rates[READ]},
        float(slots * _spilled(launch) > l1_bytes),
    )
    served = _served(launch, problem, machine, misses)
    work, memory = count_launch(launch), machine.profile.memory
    return Traffic(
        work=work,
        mix=served.mix,
        wavefronts=served.wavefronts,
        demand=served.demand,
        l2_read_bytes=l2_read_bytes(launch, memory, wave, slots, asked[READ], passed[READ])
        + work.local_bytes * misses.local,
        l2_write_bytes=(work.global_write_bytes + work.local_bytes) * memory.l2_write_sector_factor,
        hbm_read_bytes=beyond[READ],
        hbm_write_bytes=beyond[WRITTEN],
        misses=misses,
        in_step=in_step.first + in_step.later,
    )


def _spilled(launch: Launch) -> int:
    """Return the bytes that a CTA's spilled registers take; it writes them again in each pass."""
    roles = launch.classes[0].program.roles
    return sum(
        max((local_bytes(x, r) for x in operations(r.body) if isinstance(x, Apply)), default=0)
        for r in roles
    )


def _asked(launch: Launch) -> _Asked:
    total = tally(launch, _Asked(), _global_bytes)
    return _Asked({key: size for key, size in total.items() if size})


def _global_bytes(op: Op, role: Role, env: dict[str, int]) -> _Asked:
    asked = _Asked()
    if isinstance(op, Copy):
        for tile, what in ((op.src, READ), (op.dst, WRITTEN)):
            if isinstance(tile, Tile):
                asked[what, tile.tensor] = tile.valid_bytes(env)
    return asked


def _served(launch: Launch, problem: Attention, machine: Machine, misses: MissRates) -> _Served:
    def of(op: Op, role: Role, env: dict[str, int]) -> _Served:
        made = jobs(op, role, env, machine, problem.dtype, misses)
        parts = [j.demand for j in (*made.held, *([made.behind] if made.behind else []))]
        demand = tuple(map(sum, zip(*parts, strict=True))) if parts else (0.0,) * len(UNITS)
        mix = instructions(op, role, machine)
        return _Served(mix, wavefronts(op, role, machine, env), demand)

    return tally(launch, _Served(), of)
