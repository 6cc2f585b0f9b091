"""``simgpu.run``: from a schedule, a problem and a GPU to a Run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simgpu.cost.registers import estimated_registers
from simgpu.errors import ScheduleError, UnknownNameError, UnsupportedError, did_you_mean
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import HBM, UNITS, Machine
from simgpu.hardware.occupancy import Occupancy, occupancy
from simgpu.program.record import record
from simgpu.program.verify import check_fit
from simgpu.read.bound import bound, longest
from simgpu.read.traffic import traffic
from simgpu.result.run import REPORTED_UNITS, STALLS, LaunchResult, Run
from simgpu.schedules import make_schedule, schedule_class, schedule_names
from simgpu.timing.cache import L2
from simgpu.timing.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from simgpu.compiled.adjust import CompiledRecording
    from simgpu.hardware.profile import Profile
    from simgpu.problem import Attention
    from simgpu.program.program import Launch, Recording, Schedule
    from simgpu.read.traffic import Traffic
    from simgpu.timing.simulate import LaunchTime

RESOURCES = ("registers", "shared_bytes")
MIXES = ("analytic", "compiled")


def run(
    schedule: Schedule | str,
    problem: Attention,
    gpu: str | Path | Profile = "h200",
    *,
    params: Mapping[str, Any] | None = None,
    resources: Mapping[str, int] | None = None,
    clock_mhz: float | None = None,
    exact: bool = False,
    mix: str = "analytic",
) -> Run:
    """Predict a schedule on a problem and a GPU.

    ``schedule`` is an object or a name with ``params``; ``gpu`` a profile, its name or a YAML file.
    ``resources`` gives what a compiler found ("registers" a thread, "shared_bytes" a CTA) in place
    of estimates. ``exact`` simulates every CTA on every SM. ``mix`` "compiled" takes instructions
    and resources from the schedule's kernel, compiled by Triton for this GPU. Raises SimgpuError
    for anything that cannot be: an unknown name, a tile that does not fit, a dtype without a rate.
    """
    made = _schedule(schedule, params)
    recording = record(made, problem)
    machine = Machine.from_profile(_profile(gpu), clock_mhz)
    check_capabilities(recording, machine.profile)
    compiled = _compiled(made, recording, machine, mix)
    recording = compiled.recording if compiled else recording
    found = compiled.resources if compiled else ({},) * len(recording.launches)
    l2 = L2(machine.profile.memory.l2_effective_bytes)
    launches = tuple(
        _run_launch(launch, recording, machine, l2, {**sizes, **(resources or {})}, exact)
        for launch, sizes in zip(recording.launches, found, strict=True)
    )
    launches = (*launches[:-1], _less_residue(launches[-1], machine))
    return _result(recording, machine, launches, resources, exact, compiled)


def check_capabilities(recording: Recording, profile: Profile) -> None:
    """Raise UnsupportedError when the GPU lacks what the schedule is made of."""
    lacking = [name for name in recording.needs if name not in profile.capabilities]
    if lacking:
        raise UnsupportedError(
            f"{recording.name} needs {' and '.join(recording.needs)}; "
            f"{profile.name} has no {' and no '.join(lacking)}"
        )


def _compiled(
    schedule: Schedule, recording: Recording, machine: Machine, mix: str
) -> CompiledRecording | None:
    """Return the recording as Triton compiles it, or None for the analytic mix."""
    if mix not in MIXES:
        raise UnknownNameError("mix", mix, MIXES)
    if mix == "analytic":
        return None
    from simgpu.compiled.adjust import compile_recording

    ours = recording.name in schedule_names()
    if not ours or not isinstance(schedule, schedule_class(recording.name)):
        raise UnsupportedError(f"no Triton kernel of {type(schedule).__name__} to compile")
    return compile_recording(recording, machine)


def _less_residue(last: LaunchResult, machine: Machine) -> LaunchResult:
    """Return the last launch without the bytes that stay dirty in L2 when it ends."""
    residue = machine.profile.memory.l2_dirty_residue_bytes
    return replace(last, hbm_write_bytes=max(0.0, last.hbm_write_bytes - residue))


def _schedule(schedule: Schedule | str, params: Mapping[str, Any] | None) -> Schedule:
    if isinstance(schedule, str):
        return make_schedule(schedule, params)
    if params:
        raise ScheduleError("params go with a schedule's name; an object has its own already")
    return schedule


def _profile(gpu: str | Path | Profile) -> Profile:
    from simgpu.hardware.profile import Profile as ProfileModel

    return gpu if isinstance(gpu, ProfileModel) else load_profile(gpu)


def _run_launch(
    launch: Launch,
    recording: Recording,
    machine: Machine,
    l2: L2,
    resources: dict[str, int],
    exact: bool,
) -> LaunchResult:
    problem = recording.problem
    machine.tensor_flops(problem.dtype)
    fit, registers, shared = _occupancy(launch, machine, resources)
    served = traffic(launch, problem, machine, fit.ctas_per_sm, l2)
    bounds = bound(launch, problem.dtype, machine, served)
    time = simulate(
        launch,
        problem.dtype,
        machine,
        fit.ctas_per_sm,
        served.misses,
        exact=exact,
        hbm_bytes=served.demand[HBM],
    )
    program = launch.classes[longest(launch)].program
    cycles = time.cycles
    return LaunchResult(
        name=launch.name,
        grid=dict(launch.grid.axes),
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
        utilization=_utilization(served, machine, problem.dtype, cycles),
        stalls=_stalls(time, launch, machine, fit.ctas_per_sm),
        registers=registers,
        registers_estimated="registers" not in resources,
        shared_bytes=shared,
        warps=program.warps,
    )


def _occupancy(
    launch: Launch, machine: Machine, resources: dict[str, int]
) -> tuple[Occupancy, int, int]:
    for name in resources:
        if name not in RESOURCES:
            raise ScheduleError(f"unknown resource {name!r}{did_you_mean(name, RESOURCES)}")
    if resources.get("registers", 1) < 1:
        raise ScheduleError(f"registers is {resources['registers']}: it must be at least 1")
    profile, program = machine.profile, launch.classes[longest(launch)].program
    shared = resources.get("shared_bytes", program.shared_bytes)
    registers = resources.get("registers", 0) or estimated_registers(program, profile)
    if "shared_bytes" not in resources:
        check_fit(program, profile.occupancy.smem_per_cta_max_bytes)
    fit = occupancy(
        profile, registers_per_thread=registers, shared_bytes=shared, warps=program.warps
    )
    if not fit.ctas_per_sm:
        raise ScheduleError(f"{launch.name} does not fit on {profile.name}: {fit.reason}")
    return fit, registers, shared


def _utilization(served: Traffic, machine: Machine, dtype: str, cycles: float) -> dict[str, float]:
    """Return the share of each unit's peak over the kernel; issue against all slots."""
    demand = dict(zip(UNITS, served.demand, strict=True))
    peak = dict(zip(UNITS, machine.capacity, strict=True))
    demand["tensor"] = served.work.flops_tensor / machine.tensor_flops(dtype)
    demand["issue"], peak["issue"] = served.mix.total, machine.profile.rates.issue_slots
    peak["hbm"] = machine.hbm_bytes_per_cycle / machine.sms
    used = {
        name: demand[unit] / (peak[unit] * machine.sms * cycles)
        for name, unit in REPORTED_UNITS.items()
    }
    return {**used, "tmem": 0.0}


def _stalls(time: LaunchTime, launch: Launch, machine: Machine, slots: int) -> dict[str, float]:
    """Return shares of role time; idle is what resident slots have no CTA for."""
    roles = len(launch.classes[0].program.roles)
    most = min(slots, -(-launch.grid.ctas // machine.sms))
    idle = max(0.0, time.cycles * machine.sms * most - time.residence) * roles
    spent = {**{reason: 0.0 for reason in STALLS}, **time.time, "idle": idle}
    total = sum(spent.values())
    return {reason: spent[reason] / total for reason in STALLS}


def _result(
    recording: Recording,
    machine: Machine,
    launches: tuple[LaunchResult, ...],
    resources: Mapping[str, int] | None,
    exact: bool,
    compiled: CompiledRecording | None,
) -> Run:
    profile = machine.profile
    kinds: dict[str, int] = {}
    for row in profile.sources():
        kinds[row.kind] = kinds.get(row.kind, 0) + 1
    provenance = {
        "profile_numbers": kinds,
        "mode": "exact" if exact else "fast",
        "resources": dict(resources or {}),
        "sms": machine.sms,
        "clock": "sustained" if machine.clock_mhz == profile.device.sustained_mhz else "given",
        **(compiled.provenance if compiled else {}),
    }
    return Run(
        recording.name,
        recording.params,
        recording.problem,
        profile.name,
        profile.digest,
        machine.clock_mhz,
        "compiled" if compiled else "analytic",
        launches,
        provenance,
    )
