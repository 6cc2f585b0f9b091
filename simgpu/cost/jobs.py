"""From an operation to jobs: the demand on each unit, the time alone, and the latency that follows.

This is the only place that knows how an architecture executes an operation. It distinguishes by
capability (wgmma or mma.sync, TMA or cp.async), never by GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from simgpu.cost.instructions import by_wgmma, held, instructions
from simgpu.cost.work import (
    local_bytes,
    operand_bytes,
    operand_bytes_per_warp,
    tile_bytes,
    work,
)
from simgpu.hardware.machine import ALU, FMA, ISSUE, MUFU, UNITS, coalesced_share
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Wait
from simgpu.program.tile import View
from simgpu.tensor import Tile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.hardware.machine import Demand, Machine
    from simgpu.program.mix import Mix
    from simgpu.program.ops import Op
    from simgpu.program.program import Role


#: Warps whose instructions leave no issue slot empty, one warp's as good as any number of warps'.
NO_GAP = math.inf


@dataclass(frozen=True, slots=True)
class Job:
    """Demand by unit, the least cycles it takes alone, and cycles of latency after it is served.

    ``warps`` is how many warps a scheduler issue its instructions: the more there are, the fewer
    issue slots stay empty. An MMA in flight has none.
    """

    demand: Demand
    solo: float = 0.0
    latency: float = 0.0
    warps: float = 0.0

    @property
    def busy(self) -> bool:
        """Whether any unit has to serve it."""
        return self.solo > 0.0 or any(self.demand)

    def stretched(self, by: float) -> Job:
        """Return the job with ``by`` times the demand and the latency."""
        demand = tuple(amount * by for amount in self.demand)
        return Job(demand, self.solo * by, self.latency * by, self.warps)


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

    ``read`` and ``written`` are shares of bytes that go to HBM. ``late`` is the share of loads that
    see HBM's latency all the same: when a whole wave marches in step, one miss is everybody's.
    ``local`` is the share of spilled registers that L1 does not hold when they are loaded again.
    """

    read: Mapping[str, float] = field(default_factory=dict)
    written: Mapping[str, float] = field(default_factory=dict)
    late: float = 0.0
    local: float = 0.0


def _demand(**units: float) -> Demand:
    values = [0.0] * len(UNITS)
    for name, value in units.items():
        values[UNITS.index(name)] = value
    return tuple(values)


def _issue(mix: Mix, **units: float) -> Demand:
    demand = list(_demand(**units))
    for unit, count in ((MUFU, mix.mufu), (FMA, mix.fma), (ALU, mix.alu), (ISSUE, mix.total)):
        demand[unit] += count
    return tuple(demand)


def jobs(
    op: Op, role: Role, env: Mapping[str, int], machine: Machine, dtype: str, misses: MissRates
) -> Jobs:
    """Return the jobs of one execution of ``op`` by ``role`` on ``machine``."""
    match op:
        case Copy():
            return _copy(op, role, env, machine, misses)
        case Mma():
            return _mma(op, role, machine, dtype)
        case Apply(fn, args):
            mix, costs = instructions(op, role, machine), machine.profile.costs
            alone = costs.row_max_chain_cycles * _of_a_row(args, role) if fn.chain else 0.0
            latency = costs.row_max_cycles * fn.chain + costs.exp_cycles * fn.exps
            warps = NO_GAP if fn.dense else _per_scheduler(role, machine)
            apply = Job(_issue(mix), alone, latency, warps)
            spilled = local_bytes(op, role)
            if not spilled:
                return Jobs((apply,))
            stores, loads = _local(spilled, machine, misses)
            return Jobs((apply, loads), stores)
        case Wait(signal):
            if signal.barrier.kind == "group":
                return Jobs()
            return Jobs((Job(_demand(), latency=machine.profile.costs.barrier_cycles),))
        case Arrive():
            return Jobs()
        case other:
            assert_never(other)


def _local(spilled: int, machine: Machine, misses: MissRates) -> tuple[Job, Job]:
    """Return the way of spilled registers to local memory, and back.

    L1 writes through, so all stores reach L2, in both of its halves (measured on an H200: as many
    bytes as are spilled, times the sector factor); nothing joins this traffic of one warp.
    """
    memory, alone = machine.profile.memory, coalesced_share(machine.profile)
    written, missed = spilled * memory.l2_write_sector_factor, spilled * misses.local
    latency = memory.l2_hit_latency_cycles if misses.local else memory.smem_latency_cycles
    stores = Job(_demand(lsu=spilled, l2=written / alone))
    return stores, Job(_demand(lsu=spilled, l2=missed / alone), latency=latency)


def _of_a_row(args: tuple[View, ...], role: Role) -> float:
    """Return how many scores of each of its rows a thread holds: the length of a chain."""
    return held(args[0], role) / held(args[1], role)


def _per_scheduler(role: Role, machine: Machine) -> float:
    return role.warps / machine.profile.occupancy.sub_partitions


def _mma(op: Mma, role: Role, machine: Machine, dtype: str) -> Jobs:
    if not by_wgmma(op, machine.profile):
        return Jobs((_synchronous(op, role, machine, dtype),))
    costs, mix = machine.profile.costs, instructions(op, role, machine)
    time = work(op, role, {}).flops_tensor / machine.tensor_flops(dtype)
    smem = operand_bytes(op, role)
    # narrow tiles wait for their operands, and nobody else multiplies meanwhile
    busy = max(time, smem / machine.profile.rates.smem_bytes)
    slots = costs.mma_issue_slots * machine.profile.rates.issue_slots * time
    demand = _issue(mix, tensor=busy, smem=smem, issue=slots)
    alone = costs.mma_issue_cycles * mix.tensor / role.warps
    if op.serial:
        alone = busy + costs.mma_serial_cycles * mix.tensor / role.warps
    setup = Job(_demand(), latency=costs.mma_setup_cycles)
    return Jobs((setup,), Job(demand, alone, costs.mma_latency_cycles))


def _synchronous(op: Mma, role: Role, machine: Machine, dtype: str) -> Job:
    """Return the job of a product by mma.sync, which holds its warps.

    Its operands pass through the register file, so nobody issues meanwhile: what other warps do
    comes on top (measured on an H200: each FFMA beside it adds a cycle).
    """
    costs, mix = machine.profile.costs, instructions(op, role, machine)
    time = work(op, role, {}).flops_tensor / machine.tensor_flops(dtype)
    smem = operand_bytes_per_warp(op, role) * role.warps
    if op.instruction is None and machine.profile.has("tcgen05"):
        # taken to be as fast as tcgen05, which is not modelled
        return Job(_issue(mix, tensor=time, smem=smem), warps=_per_scheduler(role, machine))
    ports = (costs.mma_sync_slots - 1.0) * mix.tensor
    demand = _issue(mix, tensor=time, smem=smem, issue=ports)
    alone = costs.mma_sync_cycles * mix.tensor / role.warps
    return Job(demand, alone, costs.mma_sync_latency_cycles, NO_GAP)


def _copy(
    op: Copy, role: Role, env: Mapping[str, int], machine: Machine, misses: MissRates
) -> Jobs:
    mix, asked = instructions(op, role, machine), work(op, role, env)
    warps = _per_scheduler(role, machine)
    if isinstance(op.src, Tile):
        return _load(op, mix, asked.global_read_bytes, machine, misses, warps)
    smem = sum(tile_bytes(x) for x in (op.src, op.dst) if _in_smem(x))
    if isinstance(op.dst, Tile):
        written = asked.global_write_bytes
        back = misses.written.get(op.dst.tensor.name, 0.0) * written
        hold = Job(_issue(mix, smem=smem, lsu=written), warps=warps)
        return Jobs((hold,), Job(_demand(l2=written, hbm=back)))
    fence = machine.profile.costs.fence_cycles if _in_smem(op.dst) else 0.0
    move = Job(_issue(mix, smem=smem), latency=fence, warps=warps)
    return Jobs((), move) if op.signal else Jobs((move,))


def _load(
    op: Copy, mix: Mix, asked: int, machine: Machine, misses: MissRates, warps: float
) -> Jobs:
    assert isinstance(op.src, Tile)
    memory, fill = machine.profile.memory, tile_bytes(op.dst)
    miss = misses.read.get(op.src.tensor.name, 0.0)
    late = max(miss, misses.late)
    latency = memory.l2_hit_latency_cycles * (1 - late) + memory.hbm_latency_cycles * late
    if op.path == "tma":
        extra = (memory.tma_latency_cycles or 0.0) - memory.l2_hit_latency_cycles
        fetch = _demand(l2=asked, hbm=miss * asked, smem=fill)
        return Jobs((Job(_issue(mix)),), Job(fetch, latency=latency + max(0.0, extra)))
    if op.path == "cp_async":
        take = Job(_issue(mix, lsu=fill), warps=warps)
        return Jobs((take,), Job(_demand(l2=asked, hbm=miss * asked, smem=fill), latency=latency))
    # a plain load fills L1 and is read out of it: both pass the 128-byte data port
    fetch = _demand(l2=asked, hbm=miss * asked, smem=2 * fill)
    take = Job(_issue(mix, lsu=fill), warps=warps)
    if op.signal is not None:
        return Jobs((take,), Job(fetch, latency=latency))
    arrive = Job(fetch, latency=latency)
    store = (Job(_demand(smem=fill)),) if _in_smem(op.dst) else ()
    return Jobs((take, arrive, *store))


def _in_smem(operand: object) -> bool:
    return isinstance(operand, View) and operand.buffer.space == "smem"
