"""A launch whose loops take as long as the compiled ones do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from simgpu.hardware.machine import HBM, L2
from simgpu.program.ops import Apply, Copy, Repeat
from simgpu.program.program import Launch, operations
from simgpu.read.bound import longest
from simgpu.read.march import reads
from simgpu.tensor import Tile, dtype_bytes
from simgpu.timing.issue import pass_cycles
from simgpu.timing.shorten import outline
from simgpu.timing.steady import SmTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from simgpu.cost.job import MissRates
    from simgpu.hardware.machine import Machine
    from simgpu.program.ops import Op, Step
    from simgpu.program.program import Role, TileProgram
    from simgpu.read.traffic import Traffic
    from simgpu.timing.issued import Issued
    from simgpu.timing.shorten import Kind


def with_pass_times(
    launch: Launch,
    loops: Sequence[Sequence[Issued]],
    machine: Machine,
    dtype: str,
    slots: int,
    served: Traffic,
) -> Launch:
    """Return the launch with its softmax loops stretched to the time of the compiled loop.

    ``loops`` holds the loop of each warpgroup of a CTA that multiplies.

    A pass takes a weighted mean of two times: that of its operations as events, and that of its
    instructions, followed with as many CTAs on an SM as run. The two are off for reasons of their
    own (decision 7). The same stretch serves the loop of masked passes, which is too short to
    be followed. A launch is left as it is where its passes are few, or the profile has no numbers
    for compiled loops.
    """
    misses = served.misses
    number, residents = longest(launch), min(slots, math.ceil(launch.grid.tiles / machine.sms))
    kind = full_passes(launch, number)
    numbers = machine.profile.issue
    if kind is None or not loops or numbers is None:
        return launch
    share = machine.shared_by(min(launch.grid.tiles, machine.sms))
    # how fast HBM is, the stretched loop will see
    times = SmTimes(machine, dtype, misses, (*share[:HBM], share[L2]))
    events = times.one_pass(launch, kind, residents)
    late = _late(launch.classes[number].program, misses)
    # two keep their distance if both are in step; who waits for its loads lets others pass
    held = served.in_step**2 if reads(launch)["K"].hidden else numbers.held_exposed_share
    found = pass_cycles(loops, machine, residents, late, held)
    return stretched(launch, 1.0 + numbers.weight * (found / events - 1.0))


def _late(program: TileProgram, misses: MissRates) -> float:
    """Return the share of what loops load that sees HBM's latency, by bytes."""
    late = loaded = 0.0
    for op in _in_loops(program):
        if isinstance(op, Copy) and isinstance(op.src, Tile):
            size, name = op.src.rows * op.src.cols, op.src.tensor.name
            size *= dtype_bytes(op.src.tensor.dtype)
            late += size * max(x.get(name, 0.0) for x in (misses.late, misses.read))
            loaded += size
    return late / loaded if loaded else 0.0


def _in_loops(program: TileProgram) -> Iterator[Op]:
    """Yield the operations of the loops of all roles."""
    for role in program.roles:
        for step in role.body:
            if isinstance(step, Repeat):
                yield from operations(step.body)


def full_passes(launch: Launch, number: int) -> Kind | None:
    """Return the kind of the long loop of passes without a mask, if there is one."""
    for cut in outline(launch)[number].cuts:
        applied = [
            op for _, loop in cut.loops for op in operations(loop.body) if isinstance(op, Apply)
        ]
        if any(op.fn.exps for op in applied) and all(op.mask is None for op in applied):
            return cut.kind
    return None


def stretched(launch: Launch, by: float) -> Launch:
    """Return the launch with its softmax loops ``by`` times as long."""
    programs: dict[int, TileProgram] = {}
    for program in (c.program for c in launch.classes):
        if id(program) not in programs:
            roles = tuple(_role(role, by) for role in program.roles)
            programs[id(program)] = replace(program, roles=roles)
    classes = (replace(c, program=programs[id(c.program)]) for c in launch.classes)
    return Launch(launch.name, launch.grid, tuple(classes))


def _role(role: Role, by: float) -> Role:
    return replace(role, body=tuple(_step(step, by) for step in role.body))


def _step(step: Step, by: float) -> Step:
    if isinstance(step, Repeat) and any(
        isinstance(op, Apply) and op.fn.exps for op in operations(step.body)
    ):
        return replace(step, stretch=by)
    return step
