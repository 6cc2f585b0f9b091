"""What a compiler makes of a recorded kernel: registers it spills, products it serialises.

The recorded schedule stays what it is: its operations, their order and its barriers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simgpu.program.ops import Apply, Mma, Repeat
from simgpu.program.program import Launch

if TYPE_CHECKING:
    from simgpu.program.ops import Step
    from simgpu.program.program import Role, TileProgram


def as_compiled(launch: Launch, *, spills: int, serial: bool) -> Launch:
    """Return the launch with what its compiler found, in place of what it had of it.

    Each softmax pass stores and loads ``spills`` registers a thread; ``serial`` makes every product
    wait for the one before.
    """
    programs: dict[int, TileProgram] = {}
    for program in (c.program for c in launch.classes):
        if id(program) not in programs:
            roles = tuple(_role(role, spills, serial) for role in program.roles)
            programs[id(program)] = replace(program, roles=roles)
    classes = (replace(c, program=programs[id(c.program)]) for c in launch.classes)
    return Launch(launch.name, launch.grid, tuple(classes), launch.eager)


def _role(role: Role, spills: int, serial: bool) -> Role:
    return replace(role, body=_steps(role.body, spills, serial))


def _steps(steps: tuple[Step, ...], spills: int, serial: bool) -> tuple[Step, ...]:
    return tuple(_step(step, spills, serial) for step in steps)


def _step(step: Step, spills: int, serial: bool) -> Step:
    if isinstance(step, Repeat):
        return replace(step, body=_steps(step.body, spills, serial))
    if isinstance(step, Apply) and step.fn.exps:
        return replace(step, spilled=spills)
    if isinstance(step, Mma):
        return replace(step, serial=serial)
    return step
