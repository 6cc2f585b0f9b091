"""Law: a loop recorded once does what the same loop unrolled does, operation by operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.index import Index
from simgpu.program.program import walk
from simgpu.program.record import record
from simgpu.program.role import RoleBuilder
from simgpu.read.numeric import run_numeric
from simgpu.read.reference import random_inputs
from tests.laws.cases import problems, schedules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.program.ops import Op
    from simgpu.program.program import Recording


def unrolled(self: RoleBuilder, trips: int) -> Iterator[Index]:
    """`RoleBuilder.repeat` as a plain Python loop."""
    yield from map(Index, range(trips))


def operations(recording: Recording) -> list[list[Op]]:
    """Every role's operations in program order, with loop variables replaced by numbers."""
    bodies = []
    for launch in recording.launches:
        for cta_class in launch.classes:
            for role in cta_class.program.roles:
                env: dict[str, int] = {}
                steps = walk(role.body, env)
                bodies.append([op.bind({n: Index(i) for n, i in env.items()}) for op in steps])
    return bodies


@pytest.mark.parametrize("name", schedules)
@given(data=st.data(), problem=problems(), seed=st.integers(0, 100))
def test_repeated_and_unrolled_are_the_same(name, data, problem, seed):
    schedule = data.draw(schedules[name])
    repeated = record(schedule, problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoleBuilder, "repeat", unrolled)
        flat = record(schedule, problem)
    assert operations(repeated) == operations(flat)

    inputs = random_inputs(problem, seed)
    one, other = (run_numeric(r, inputs, order="random", seed=seed) for r in (repeated, flat))
    assert one["O"].tobytes() == other["O"].tobytes()
