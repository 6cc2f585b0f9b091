"""What every prediction begins with: a schedule recorded, and its launches placed on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu.compiled.adjust import compile_recording, known_recording
from simgpu.compiled.known_loops import known_loops
from simgpu.compiled.passes import with_pass_times
from simgpu.cost import tcgen05
from simgpu.cost.registers import (
    estimated_registers,
    estimated_spills,
    in_loop,
    serial_products,
)
from simgpu.errors import ScheduleError, UnknownNameError, UnsupportedError, did_you_mean
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import Machine
from simgpu.hardware.occupancy import occupancy
from simgpu.program.found import as_compiled
from simgpu.program.record import record
from simgpu.program.verify import check_fit
from simgpu.read.bound import longest
from simgpu.read.traffic import traffic
from simgpu.schedules import make_schedule, schedule_class, schedule_names
from simgpu.timing.cache import L2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from simgpu.compiled.adjust import CompiledRecording
    from simgpu.compiled.known_loops import KnownLoops
    from simgpu.hardware.occupancy import Occupancy
    from simgpu.hardware.profile import Profile
    from simgpu.problem import Attention
    from simgpu.program.program import Launch, Recording, Schedule
    from simgpu.read.traffic import Traffic
    from simgpu.timing.issued import Issued

#: What a compiler finds, and the least that each can be.
RESOURCES = {"registers": 1, "shared_bytes": 0, "spills": 0, "serial_products": 0}
MIXES = ("auto", "analytic", "compiled")

if TYPE_CHECKING:
    #: Resources for all launches alike, or a mapping for each.
    Resources = Mapping[str, int] | Sequence[Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Case:
    """A recording as it runs on a machine, with the resources of each launch.

    ``given`` is what the user gave: for all launches, or a list of one for each. ``known`` are the
    loops of a kernel where they are known without its mix.
    """

    recording: Recording
    machine: Machine
    resources: tuple[dict[str, int], ...]
    given: dict[str, int] | list[dict[str, int]]
    compiled: CompiledRecording | None
    known: KnownLoops | None

    @property
    def loops(self) -> tuple[tuple[tuple[Issued, ...], ...], ...]:
        """Of each launch, the compiled loop of each warpgroup that multiplies."""
        if self.compiled:
            return tuple(mix.loops for mix in self.compiled.mixes)
        return (self.known.loops if self.known else (),) * len(self.resources)


@dataclass(frozen=True, slots=True)
class Placed:
    """A launch on its machine: what fits on an SM, and what its traffic makes of L2 and HBM.

    ``spills`` are registers a thread; ``estimated`` names what no compiler has told.
    """

    launch: Launch
    fit: Occupancy
    registers: int
    shared: int
    spills: int
    serial: bool
    estimated: tuple[str, ...]
    served: Traffic


def prepare(
    schedule: Schedule | str,
    problem: Attention,
    gpu: str | Path | Profile,
    params: Mapping[str, Any] | None,
    resources: Resources | None,
    clock_mhz: float | None,
    mix: str,
) -> Case:
    """Record a schedule for a machine; arguments and errors are those of `simgpu.run`."""
    made = _schedule(schedule, params)
    recording = record(made, problem)
    machine = Machine.from_profile(_profile(gpu), clock_mhz)
    check_capabilities(recording, machine.profile)
    given = _by_launch(resources or {}, recording)
    compiled = _compiled(made, recording, machine, mix)
    if mix == "auto" and compiled and not _agree(compiled, given, machine.profile):
        compiled = None
    recording = compiled.recording if compiled else recording
    found = compiled.resources if compiled else ({},) * len(recording.launches)
    of_launch = tuple({**x, **y} for x, y in zip(found, given, strict=True))
    told = dict(given[0]) if resources is None or isinstance(resources, Mapping) else given
    known = _known(made, recording, machine.profile) if mix == "auto" and not compiled else None
    return Case(recording, machine, of_launch, told, compiled, known)


def _by_launch(resources: Resources, recording: Recording) -> list[dict[str, int]]:
    """Return a mapping for each launch; ScheduleError for another number of them."""
    launches = recording.launches
    if isinstance(resources, Mapping):
        return [dict(resources) for _ in launches]
    if len(resources) != len(launches):
        names = ", ".join(launch.name for launch in launches)
        raise ScheduleError(
            f"resources are given for {len(resources)} launches; "
            f"{recording.name} has {len(launches)}: {names}"
        )
    return [dict(x) for x in resources]


def place(case: Case) -> Iterator[Placed]:
    """Yield the launches in order, each with L2 as those before have left it."""
    problem, machine = case.recording.problem, case.machine
    l2 = L2(machine.profile.memory.l2_effective_bytes)
    machine.tensor_flops(problem.dtype)
    launches = zip(case.recording.launches, case.resources, case.loops, strict=True)
    for launch, resources, loops in launches:
        fit, registers, shared = _occupancy(launch, machine, resources)
        spills, serial = _spills(launch, machine.profile, resources)
        spilled = in_loop(spills, machine.profile)
        launch = as_compiled(launch, spills=spilled, serial=serial)
        served = traffic(launch, problem, machine, fit.ctas_per_sm, l2, fit.l1_bytes)
        if loops and not spilled:  # local memory's traffic is not followed in compiled loops
            with_times = (machine, problem.dtype, fit.ctas_per_sm, served)
            launch = with_pass_times(launch, loops, *with_times)
        estimated = tuple(name for name in RESOURCES if name not in resources)
        yield Placed(launch, fit, registers, shared, spills, serial, estimated, served)


def _spills(launch: Launch, profile: Profile, resources: dict[str, int]) -> tuple[int, bool]:
    """Return the registers that a thread spills and whether products are serial, or estimates."""
    program = launch.classes[longest(launch)].program
    spills = resources.get("spills", estimated_spills(program, profile))
    return spills, bool(resources.get("serial_products", serial_products(program, profile)))


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
    ours = _ours(schedule, recording)
    if mix == "analytic" or (mix == "auto" and not ours):
        return None
    if mix == "auto":
        return known_recording(recording, machine)
    if not ours:
        raise UnsupportedError(f"no Triton kernel of {type(schedule).__name__} to compile")
    return compile_recording(recording, machine)


def _ours(schedule: Schedule, recording: Recording) -> bool:
    if recording.name not in schedule_names():
        return False
    return isinstance(schedule, schedule_class(recording.name))


def _known(schedule: Schedule, recording: Recording, profile: Profile) -> KnownLoops | None:
    if not _ours(schedule, recording):
        return None
    return known_loops(recording.name, recording.params, recording.problem, profile)


def _agree(
    compiled: CompiledRecording, given: Sequence[Mapping[str, int]], profile: Profile
) -> bool:
    """Say whether a known kernel may be the one that ``given`` resources were found of.

    Registers move a little with a kernel's source; spills and serial products make another loop.
    """
    for found, told in zip(compiled.resources, given, strict=True):
        spills = (in_loop(x.get("spills", found["spills"]), profile) for x in (told, found))
        serial = (x.get("serial_products", found["serial_products"]) for x in (told, found))
        if len({n > 0 for n in spills}) > 1 or len({n > 0 for n in serial}) > 1:
            return False
    return True


def _schedule(schedule: Schedule | str, params: Mapping[str, Any] | None) -> Schedule:
    if isinstance(schedule, str):
        return make_schedule(schedule, params)
    if params:
        raise ScheduleError("params go with a schedule's name; an object has its own already")
    return schedule


def _profile(gpu: str | Path | Profile) -> Profile:
    from simgpu.hardware.profile import Profile as ProfileModel

    return gpu if isinstance(gpu, ProfileModel) else load_profile(gpu)


def _occupancy(
    launch: Launch, machine: Machine, resources: dict[str, int]
) -> tuple[Occupancy, int, int]:
    for name in resources:
        if name not in RESOURCES:
            raise ScheduleError(f"unknown resource {name!r}{did_you_mean(name, RESOURCES)}")
        if resources[name] < RESOURCES[name]:
            raise ScheduleError(
                f"{name} is {resources[name]}: it must be at least {RESOURCES[name]}"
            )
    profile, program = machine.profile, launch.classes[longest(launch)].program
    shared = resources.get("shared_bytes", program.shared_bytes)
    registers = resources.get("registers", 0) or estimated_registers(program, profile)
    if "shared_bytes" not in resources:
        check_fit(program, profile.occupancy.smem_per_cta_max_bytes)
    fit = occupancy(
        profile,
        registers_per_thread=registers,
        shared_bytes=shared,
        warps=program.warps,
        tmem_columns=tcgen05.columns(program, profile),
    )
    if not fit.ctas_per_sm:
        raise ScheduleError(f"{launch.name} does not fit on {profile.name}: {fit.reason}")
    return fit, registers, shared
