"""What is served behind a role's back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from simgpu.cost.job import Job
    from simgpu.cost.work import Work
    from simgpu.program.ops import Copy, Mma
    from simgpu.program.program import Role


class Behind(NamedTuple):
    """A job that is served behind its role's back, and the flight's number if it is watched."""

    job: Job
    op: Copy | Mma
    role: Role
    use: int
    asked: Work
    number: int
    issued: float
