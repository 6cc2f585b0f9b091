"""Adding something up over every operation of a program, without expanding its loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from simgpu.program.ops import Repeat
from simgpu.program.program import walk
from simgpu.timing.shorten import outline

if TYPE_CHECKING:
    from collections.abc import Callable

    from simgpu.program.ops import Op, Step
    from simgpu.program.program import Launch, Role
    from simgpu.timing.shorten import Cut, Kind


class Addable(Protocol):
    """Something with a sum and multiples."""

    def plus(self, other: Self, times: int = 1) -> Self:
        """Return this and ``times`` the other."""
        ...


T = TypeVar("T", bound=Addable)


def tally(launch: Launch, zero: T, of: Callable[[Op, Role, dict[str, int]], T]) -> T:
    """Return the sum of ``of(op, role, variables)`` over all operations of all CTAs of a launch.

    ``of`` may depend on clipping and on whether an arrival is void, and on nothing else that
    differs from pass to pass. Classes that differ only in the length of their loops are added up
    once.
    """
    total = zero
    programs: dict[int, T] = {}
    passes: dict[Kind, T] = {}
    weighted = zip(launch.classes, outline(launch), launch.weights(), strict=True)
    for cta_class, short, weight in weighted:
        env, key = cta_class.env, id(short.program)
        if key not in programs:
            one = zero
            for role in short.program.roles:
                one = one.plus(_steps(role.body, role, env, zero, of))
            programs[key] = one
        total = total.plus(programs[key], weight)
        for cut in short.cuts:
            if cut.kind not in passes:
                passes[cut.kind] = _middle_pass(cut, env, zero, of)
            total = total.plus(passes[cut.kind], cut.passes * weight)
    return total


def _middle_pass(
    cut: Cut, env: dict[str, int], zero: T, of: Callable[[Op, Role, dict[str, int]], T]
) -> T:
    total = zero
    for role, loop in cut.loops:
        inside = {**env, loop.var: loop.trips // 2}
        total = total.plus(_steps(loop.body, role, inside, zero, of))
    return total


def _steps(
    steps: tuple[Step, ...],
    role: Role,
    env: dict[str, int],
    zero: T,
    of: Callable[[Op, Role, dict[str, int]], T],
) -> T:
    total = zero
    for step in steps:
        if not isinstance(step, Repeat):
            total = total.plus(of(step, role, env))
            continue
        first, last = (
            _steps(step.body, role, {**env, step.var: i}, zero, of) for i in (0, step.trips - 1)
        )
        if first == last:
            total = total.plus(first, step.trips)
        else:
            inner = dict(env)
            for op in walk((step,), inner):
                total = total.plus(of(op, role, inner))
    return total
