"""From an operation to jobs: the demand on each unit, the time alone, and the latency that follows.

This is the only place that knows how an architecture executes an operation. It distinguishes by
capability (wgmma or mma.sync, TMA or cp.async), never by GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, assert_never

from simgpu.cost import tcgen05
from simgpu.cost.instructions import by_wgmma, instructions
from simgpu.cost.job import NO_GAP, Job, Jobs, MissRates, demand_of, issue_of
from simgpu.cost.work import (
    held,
    local_bytes,
    operand_bytes,
    operand_bytes_per_warp,
    tile_bytes,
    work,
)
from simgpu.hardware.machine import coalesced_share
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Wait
from simgpu.program.tile import View
from simgpu.tensor import Tile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.hardware.machine import Machine
    from simgpu.program.mix import Mix
    from simgpu.program.ops import Op
    from simgpu.program.program import Role


def jobs(
    op: Op, role: Role, env: Mapping[str, int], machine: Machine, dtype: str, misses: MissRates
) -> Jobs:
    """Return the jobs of one execution of ``op`` by ``role`` on ``machine``."""
    match op:
        case Copy():
            return _copy(op, role, env, machine, misses)
        case Mma():
            return _mma(op, role, machine, dtype)
        case Apply():
            return _apply(op, role, machine, misses)
        case Wait(signal):
            if signal.barrier.kind == "group":
                return Jobs()
            return Jobs((Job(demand_of(), latency=machine.profile.costs.barrier_cycles),))
        case Arrive():
            return Jobs()
        case other:
            assert_never(other)


def _apply(op: Apply, role: Role, machine: Machine, misses: MissRates) -> Jobs:
    mix, costs, fn = instructions(op, role, machine), machine.profile.costs, op.fn
    rows = _rows(op, role, machine)
    alone = costs.row_max_chain_cycles * rows.scores if fn.chain else 0.0
    latency = rows.max_cycles * fn.chain + rows.exp_cycles * fn.exps
    warps = NO_GAP if fn.dense else _per_scheduler(role, machine)
    apply = Job(issue_of(mix), alone, latency, warps)
    before, after = _through_tmem(op, role, machine)
    spilled = local_bytes(op, role)
    if not spilled:
        return Jobs((*before, apply, *after))
    stores, loads = _local(spilled, machine, misses)
    return Jobs((*before, apply, loads, *after), stores)


def _through_tmem(
    op: Apply | Copy, role: Role, machine: Machine
) -> tuple[tuple[Job, ...], tuple[Job, ...]]:
    """Return the loads from tensor memory before an operation, and the stores after it.

    A store ends with a barrier of the warps: one of their threads issues the product that reads it.
    """
    loaded, stored = tcgen05.moved(op, role, machine.profile)
    if not (loaded or stored):
        return (), ()
    wait = machine.profile.memory.tmem_latency_cycles or 0.0
    barrier = machine.profile.costs.barrier_cycles
    few = max(1.0, 1 / _per_scheduler(role, machine))  # a warp reaches a quarter of the lanes
    loads, stores = (
        tuple(
            Job(demand_of(tmem=cycles), cycles * few, latency)
            for cycles in (of((view,), machine) for view in views)
        )
        for views, of, latency in (
            (loaded, tcgen05.load_cycles, wait),
            (stored, tcgen05.store_cycles, wait + barrier),
        )
    )
    return loads, stores


class _Rows(NamedTuple):
    """How many scores of a row a thread holds; what a row maximum and exponentials end with."""

    scores: float
    max_cycles: float
    exp_cycles: float


def _rows(op: Apply, role: Role, machine: Machine) -> _Rows:
    """Return how rows lie in threads: in quads that shuffle, or as tensor memory gives them.

    There a thread has a whole row and asks nobody, or several have parts of it and exchange them
    through shared memory.
    """
    costs = machine.profile.costs
    if not tcgen05.multiplies(role, machine.profile):
        scores = _of_a_row(op.args, role) if op.fn.chain else 0.0
        return _Rows(scores, costs.row_max_cycles, costs.exp_cycles)
    elements = tcgen05.elements_held(op, role)
    exchange = costs.barrier_cycles + machine.profile.memory.smem_latency_cycles
    exchange *= tcgen05.row_threads(op, role) > 1
    return _Rows(elements[0] / elements[1] if op.fn.chain else 0.0, exchange, exchange)


def _local(spilled: int, machine: Machine, misses: MissRates) -> tuple[Job, Job]:
    """Return the way of spilled registers to local memory, and back.

    L1 writes through, so all stores reach L2, in both of its halves (measured on an H200: as many
    bytes as are spilled, times the sector factor); nothing joins this traffic of one warp.
    """
    memory, alone = machine.profile.memory, coalesced_share(machine.profile)
    written, missed = spilled * memory.l2_write_sector_factor, spilled * misses.local
    latency = memory.l2_hit_latency_cycles if misses.local else memory.smem_latency_cycles
    stores = Job(demand_of(lsu=spilled, l2=written / alone))
    return stores, Job(demand_of(lsu=spilled, l2=missed / alone), latency=latency)


def _of_a_row(args: tuple[View, ...], role: Role) -> float:
    """Return how many scores of each of its rows a thread holds: the length of a chain."""
    return held(args[0], role) / held(args[1], role)


def _per_scheduler(role: Role, machine: Machine) -> float:
    return role.warps / machine.profile.occupancy.sub_partitions


def _mma(op: Mma, role: Role, machine: Machine, dtype: str) -> Jobs:
    costs, mix = machine.profile.costs, instructions(op, role, machine)
    if tcgen05.by_tcgen05(op, machine.profile):
        return _tcgen05(op, mix, machine, dtype)
    if not by_wgmma(op, machine.profile):
        return Jobs((_synchronous(op, role, machine, dtype),))
    time = work(op, role, {}).flops_tensor / machine.tensor_flops(dtype)
    smem = operand_bytes(op, role)
    # narrow tiles wait for their operands, and nobody else multiplies meanwhile
    busy = max(time, smem / machine.profile.rates.smem_bytes)
    slots = costs.mma_issue_slots * machine.profile.rates.issue_slots * busy
    demand = issue_of(mix, tensor=busy, smem=smem, issue=slots)
    alone = costs.mma_issue_cycles * mix.tensor / role.warps
    if op.serial:
        alone = busy + costs.mma_serial_cycles * mix.tensor / role.warps
    setup = Job(demand_of(), latency=costs.mma_setup_cycles)
    return Jobs((setup,), Job(demand, alone, costs.mma_latency_cycles, first=True))


def _synchronous(op: Mma, role: Role, machine: Machine, dtype: str) -> Job:
    """Return the job of a product by mma.sync, which holds its warps.

    Its operands pass through the register file, so nobody issues meanwhile: what other warps do
    comes on top (measured on an H200: each FFMA beside it adds a cycle).
    """
    costs, mix = machine.profile.costs, instructions(op, role, machine)
    time = work(op, role, {}).flops_tensor / machine.tensor_flops(dtype)
    smem = operand_bytes_per_warp(op, role) * role.warps
    ports = (costs.mma_sync_slots - 1.0) * mix.tensor
    demand = issue_of(mix, tensor=time, smem=smem, issue=ports)
    alone = costs.mma_sync_cycles * mix.tensor / role.warps
    return Job(demand, alone, costs.mma_sync_latency_cycles, NO_GAP)


def _tcgen05(op: Mma, mix: Mix, machine: Machine, dtype: str) -> Jobs:
    costs = machine.profile.costs
    busy = tcgen05.tensor_cycles(op, machine, dtype)
    slots = costs.mma_issue_slots * machine.profile.rates.issue_slots * busy
    demand = issue_of(mix, tensor=busy, smem=tcgen05.operand_bytes(op), issue=slots)
    alone = costs.mma_issue_cycles * tcgen05.mma_steps(op)
    setup = Job(demand_of(), latency=costs.mma_setup_cycles)
    # a commit arrives at a barrier in shared memory
    latency = costs.mma_latency_cycles + costs.barrier_cycles
    return Jobs((setup,), Job(demand, alone, latency, first=True))


def _copy(
    op: Copy, role: Role, env: Mapping[str, int], machine: Machine, misses: MissRates
) -> Jobs:
    before, after = _through_tmem(op, role, machine)
    jobs = _copy_itself(op, role, env, machine, misses)
    return Jobs((*before, *jobs.held, *after), jobs.behind)


def _copy_itself(
    op: Copy, role: Role, env: Mapping[str, int], machine: Machine, misses: MissRates
) -> Jobs:
    if op.fills_zeros:  # its time is in the costs of a CTA, which were fitted to kernels with it
        return Jobs()
    mix, asked = instructions(op, role, machine), work(op, role, env)
    warps = _per_scheduler(role, machine)
    if isinstance(op.src, Tile):
        return _load(op, mix, asked.global_read_bytes, machine, misses, warps)
    smem = sum(tile_bytes(x) for x in (op.src, op.dst) if _in_smem(x))
    if isinstance(op.dst, Tile):
        written = asked.global_write_bytes
        back = misses.written.get(op.dst.tensor.name, 0.0) * written
        hold = Job(issue_of(mix, smem=smem, lsu=written), warps=warps)
        return Jobs((hold,), Job(demand_of(l2=written, hbm=back)))
    move = Job(issue_of(mix, smem=smem), latency=_smem_latency(op, machine), warps=warps)
    return Jobs((), move) if op.signal else Jobs((move,))


def _smem_latency(op: Copy, machine: Machine) -> float:
    """Return what follows a copy within the SM: a fence before products, or the way back."""
    if not isinstance(op.dst, View) or op.dst.buffer.space == "regs":
        return machine.profile.memory.smem_latency_cycles
    return 0.0 if op.dst.buffer.exchange else machine.profile.costs.fence_cycles


def _load(
    op: Copy, mix: Mix, asked: int, machine: Machine, misses: MissRates, warps: float
) -> Jobs:
    assert isinstance(op.src, Tile)
    memory, fill = machine.profile.memory, tile_bytes(op.src)
    miss = misses.read.get(op.src.tensor.name, 0.0)
    late = max(miss, misses.late.get(op.src.tensor.name, 0.0))
    latency = memory.l2_hit_latency_cycles * (1 - late) + memory.hbm_latency_cycles * late
    if op.path == "tma":
        extra = (memory.tma_latency_cycles or 0.0) - memory.l2_hit_latency_cycles
        fetch = demand_of(l2=asked, hbm=miss * asked, smem=fill)
        return Jobs((Job(issue_of(mix)),), Job(fetch, latency=latency + max(0.0, extra)))
    if op.path == "cp_async":
        take = Job(issue_of(mix, lsu=fill), warps=warps)
        return Jobs((take,), Job(demand_of(l2=asked, hbm=miss * asked, smem=fill), latency=latency))
    # a plain load fills L1 and is read out of it: both pass the 128-byte data port
    fetch = demand_of(l2=asked, hbm=miss * asked, smem=2 * fill)
    take = Job(issue_of(mix, lsu=fill), warps=warps)
    if op.signal is not None:
        return Jobs((take,), Job(fetch, latency=latency))
    arrive = Job(fetch, latency=latency)
    store = (Job(demand_of(smem=fill)),) if _in_smem(op.dst) else ()
    return Jobs((take, arrive, *store))


def _in_smem(operand: object) -> bool:
    return isinstance(operand, View) and operand.buffer.space == "smem"
