"""``simgpu.run`` and ``simgpu.timeline``: from a schedule, a problem and a GPU to a result."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from simgpu.errors import SimgpuError, UnknownNameError
from simgpu.hardware.machine import HBM, ISSUE, REPORTED_UNITS, TENSOR, Machine
from simgpu.place import place, prepare
from simgpu.read.bound import bound, longest
from simgpu.result.run import STALLS, LaunchResult, Run
from simgpu.tensor import dtype_bytes
from simgpu.timing.clock import Activity, board_clock
from simgpu.timing.follow import follow
from simgpu.timing.simulate import SELDOM, hbm_share, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from simgpu.hardware.profile import Profile
    from simgpu.place import Case, Placed, Resources
    from simgpu.problem import Attention
    from simgpu.program.program import Launch, Schedule
    from simgpu.read.traffic import Traffic
    from simgpu.timing.simulate import LaunchTime
    from simgpu.timing.timeline import Timeline

#: Where the clock comes from when none is given.
CLOCKS = ("board", "sustained")


def run(
    schedule: Schedule | str,
    problem: Attention,
    gpu: str | Path | Profile = "h200",
    *,
    params: Mapping[str, Any] | None = None,
    resources: Resources | None = None,
    clock_mhz: float | None = None,
    clock: str = "board",
    exact: bool = False,
    mix: str = "auto",
) -> Run:
    """Predict a schedule on a problem and a GPU.

    ``schedule`` is an object or a name with ``params``; ``gpu`` a profile, its name or a YAML file.
    ``resources`` gives what a compiler found in place of estimates: "registers" a thread,
    "shared_bytes" a CTA, "spills" (registers of a thread in local memory), "serial_products" (wgmma
    of a pass that it waits for one by one). It is one mapping for all launches, or a sequence of
    one for each, in order. ``clock_mhz`` fixes the clock; else ``clock`` "board" is the one at
    which power meets its limit (the sustained one where the profile has no energies), "sustained"
    the profile's. ``exact`` simulates every CTA on every SM. ``mix`` "compiled" takes instructions,
    resources and the loops' times from the schedule's kernel, compiled by Triton for this GPU;
    "auto" from one that came compiled with simgpu, if it is among them, else it is "analytic".

    Raises SimgpuError for anything that cannot be: an unknown name, a tile that does not fit, a
    dtype without a rate.
    """
    if clock not in CLOCKS:
        raise UnknownNameError("clock", clock, CLOCKS)
    case = prepare(schedule, problem, gpu, params, resources, clock_mhz, mix)
    found = _result(case, _launches(case, exact), exact)
    if clock_mhz is not None or clock == "sustained" or case.machine.profile.energy is None:
        return found
    return _at_board_clock(case, found, exact)


def timeline(
    schedule: Schedule | str,
    problem: Attention,
    gpu: str | Path | Profile = "h200",
    *,
    params: Mapping[str, Any] | None = None,
    resources: Resources | None = None,
    clock_mhz: float | None = None,
    mix: str = "auto",
    launch: int = 0,
    sm: int = 0,
    waves: int | None = None,
) -> Timeline:
    """Simulate one launch of a run exactly and return what SM number ``sm`` does.

    Arguments as in `run`, but the clock is the sustained one unless ``clock_mhz`` is given (a
    run's, for instance). ``launch`` counts from 0. Where all CTAs do equal work one or two SMs are
    simulated; else all are, which takes minutes for thousands of CTAs. ``waves`` follows only so
    many CTAs a slot, or tiles of persistent ones (the timeline is then not ``complete``). Raises
    SimgpuError as `run` does, and for a launch or an SM that is not there.
    """
    case = prepare(schedule, problem, gpu, params, resources, clock_mhz, mix)
    names = [found.name for found in case.recording.launches]
    if not 0 <= launch < len(names):
        raise SimgpuError(
            f"launch is {launch}: {case.recording.name} has {', '.join(names)}, counted from 0"
        )
    placed = next(islice(place(case), launch, None))
    args = (placed.launch, problem.dtype, case.machine, placed.fit.ctas_per_sm)
    misses, hbm_bytes = placed.served.misses, placed.served.demand[HBM]
    used, _ = hbm_share(*args, misses, hbm_bytes)
    return follow(*args, misses, used, sm=sm, waves=waves, schedule=case.recording.name)


def _launches(case: Case, exact: bool) -> tuple[LaunchResult, ...]:
    launches = tuple(_run_launch(placed, case, exact) for placed in place(case))
    return (*launches[:-1], _less_residue(launches[-1], case.machine))


def _at_board_clock(case: Case, found: Run, exact: bool) -> Run:
    """Return ``found`` at the clock that its activity allows.

    Cycles do not depend on the clock but for HBM, whose bytes a cycle do: where a launch waits for
    HBM, cycles are predicted again.
    """
    clock = board_clock(case.machine.profile, activity(found))
    at_clock = replace(case, machine=Machine.from_profile(case.machine.profile, clock))
    waits = any(launch.utilization["hbm"] >= SELDOM for launch in found.launches)
    launches = _launches(at_clock, exact) if waits else found.launches
    return _result(at_clock, launches, exact, "board")


def activity(found: Run, cycles: float | None = None) -> Activity:
    """Return what a run does, from which its clock follows; in ``cycles`` instead of its own."""
    sms, own = found.provenance["sms"], found.cycles
    # the energies are those of 16-bit operands; narrower ones are taken to need as much a bit
    of_16_bits = dtype_bytes(found.problem.dtype) / dtype_bytes("fp16")
    working = sum(
        min(1.0, x.ctas / sms) * x.cycles / own for x in found.launches if x.work.flops_tensor
    )
    return Activity(
        cycles=own if cycles is None else cycles,
        tensor_flops=sum(x.work.flops_tensor for x in found.launches) * of_16_bits,
        instructions=sum(x.mix.total for x in found.launches),
        l2_bytes=sum(x.work.global_read_bytes for x in found.launches),
        hbm_bytes=sum(x.hbm_read_bytes + x.hbm_write_bytes for x in found.launches),
        working_sms=working,
    )


def _less_residue(last: LaunchResult, machine: Machine) -> LaunchResult:
    """Return the last launch without the bytes that stay dirty in L2 when it ends."""
    residue = machine.profile.memory.l2_dirty_residue_bytes
    return replace(last, hbm_write_bytes=max(0.0, last.hbm_write_bytes - residue))


def _run_launch(placed: Placed, case: Case, exact: bool) -> LaunchResult:
    launch, fit, served = placed.launch, placed.fit, placed.served
    dtype, machine = case.recording.problem.dtype, case.machine
    bounds = bound(launch, dtype, machine, served)
    time = simulate(
        launch,
        dtype,
        machine,
        fit.ctas_per_sm,
        served.misses,
        exact=exact,
        hbm_bytes=served.demand[HBM],
    )
    program = launch.classes[longest(launch)].program
    cycles = max(time.cycles, _host_cycles(launch, machine))
    time = replace(time, cycles=cycles)
    return LaunchResult(
        name=launch.name,
        grid=dict(launch.grid.axes),
        ctas=launch.grid.launched(fit.ctas_per_sm * machine.sms),
        persistent=launch.grid.persistent,
        cycles=cycles,
        bounds=bounds,
        work=served.work,
        mix=served.mix,
        wavefronts=served.wavefronts,
        l2_read_bytes=served.l2_read_bytes,
        l2_write_bytes=served.l2_write_bytes,
        hbm_read_bytes=served.hbm_read_bytes,
        hbm_write_bytes=served.hbm_write_bytes,
        occupancy=fit,
        achieved_warps_per_sm=time.residence * program.warps / (cycles * machine.sms),
        utilization=_utilization(served, machine, dtype, cycles),
        stalls=_stalls(time, launch, machine, fit.ctas_per_sm),
        registers=placed.registers,
        registers_estimated="registers" in placed.estimated,
        shared_bytes=placed.shared,
        spills=placed.spills,
        serial_products=placed.serial,
        warps=program.warps,
        resident=time.resident,
    )


def _host_cycles(launch: Launch, machine: Machine) -> float:
    """Return the cycles in which the host launches a kernel, where it does so op by op."""
    microseconds = machine.profile.costs.eager_launch_us
    return microseconds * machine.clock_mhz if launch.eager and microseconds else 0.0


def _utilization(served: Traffic, machine: Machine, dtype: str, cycles: float) -> dict[str, float]:
    """Return the share of each unit's peak over the kernel; issue against all slots."""
    demand = list(served.demand)
    demand[TENSOR] = served.work.flops_tensor / machine.tensor_flops(dtype)
    demand[ISSUE] = served.mix.total
    return {
        name: demand[unit] / (machine.capacity[unit] * machine.sms * cycles)
        for name, unit in REPORTED_UNITS.items()
    }


def _stalls(time: LaunchTime, launch: Launch, machine: Machine, slots: int) -> dict[str, float]:
    """Return shares of role time; idle is what resident slots have no CTA for."""
    roles = len(launch.classes[0].program.roles)
    most = min(slots, -(-launch.grid.tiles // machine.sms))
    idle = max(0.0, time.cycles * machine.sms * most - time.residence) * roles
    spent = {**{reason: 0.0 for reason in STALLS}, **time.time, "idle": idle}
    total = sum(spent.values())
    return {reason: spent[reason] / total for reason in STALLS}


def _result(
    case: Case, launches: tuple[LaunchResult, ...], exact: bool, clock: str | None = None
) -> Run:
    profile, compiled = case.machine.profile, case.compiled
    kinds: dict[str, int] = {}
    for row in profile.sources():
        kinds[row.kind] = kinds.get(row.kind, 0) + 1
    sustained = case.machine.clock_mhz == profile.device.sustained_mhz
    provenance = {
        "profile_numbers": kinds,
        "mode": "exact" if exact else "fast",
        "resources": case.given,
        "sms": case.machine.sms,
        "clock": clock or ("sustained" if sustained else "given"),
        **(compiled.provenance if compiled else {}),
        **({"loops_source": case.known.source} if case.known else {}),
    }
    return Run(
        case.recording.name,
        case.recording.params,
        case.recording.problem,
        profile.name,
        profile.digest,
        case.machine.clock_mhz,
        "compiled" if compiled else "analytic",
        launches,
        provenance,
    )
