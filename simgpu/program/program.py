"""What recording a schedule yields: immutable programs, grouped by launch and by equal work."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from simgpu.program.ops import Repeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from simgpu.problem import Attention
    from simgpu.program.builder import Cta
    from simgpu.program.ops import Op, Step
    from simgpu.program.tile import Barrier, Buffer, Ring

#: Which warps own what: rows of Q, keys, or (Triton's short tiles) columns of O.
Partition = Literal["split-q", "split-k", "split-d"]

#: Coordinates on the axes that choose the work.
Point = tuple[tuple[str, int], ...]


class Grid:
    """Axes of a launch and their sizes, fastest first, as CUDA orders x before y before z.

    ``head`` and ``batch`` choose the data; every other axis may also choose the work.
    """

    def __init__(self, **axes: int) -> None:
        self.axes = axes

    def __getitem__(self, axis: str) -> int:
        return self.axes.get(axis, 1)

    @property
    def work_axes(self) -> dict[str, int]:
        """The axes that programs may depend on."""
        return {n: s for n, s in self.axes.items() if n not in ("head", "batch")}

    @property
    def ctas(self) -> int:
        """CTAs of the launch."""
        return math.prod(self.axes.values())

    def coordinates(self) -> Iterator[dict[str, int]]:
        """Yield the coordinates of each CTA in launch order."""
        names, sizes = list(self.axes), list(self.axes.values())
        for number in range(self.ctas):
            point = {}
            for name, size in zip(names, sizes, strict=True):
                number, point[name] = divmod(number, size)
            yield point

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and list(self.axes.items()) == list(other.axes.items())

    def __hash__(self) -> int:
        return hash(tuple(self.axes.items()))

    def __repr__(self) -> str:
        return f"Grid({', '.join(f'{n}={s}' for n, s in self.axes.items())})"


@dataclass(frozen=True, slots=True)
class Role:
    """Warps that execute one list of steps together; ``registers`` a thread if set apart."""

    name: str
    warps: int
    partition: Partition
    registers: int | None
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class TileProgram:
    """What one CTA does: its roles, their storage and their barriers."""

    roles: tuple[Role, ...]
    buffers: tuple[Buffer, ...]
    barriers: tuple[Barrier, ...]
    rings: tuple[Ring, ...]

    @property
    def warps(self) -> int:
        """Warps of the CTA."""
        return sum(role.warps for role in self.roles)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that the buffers take."""
        return sum(b.bytes for b in self.buffers if b.space == "smem")


@dataclass(frozen=True, slots=True)
class CtaClass:
    """CTAs that do the same work: one program, and the work-axis coordinates that share it."""

    program: TileProgram
    points: tuple[Point, ...]

    @property
    def env(self) -> dict[str, int]:
        """Coordinates of one of these CTAs, to evaluate indices with."""
        return dict(self.points[0])


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One kernel of a schedule: its name, its grid, and what one CTA does."""

    name: str
    grid: Grid
    build: Callable[[Attention, Cta], None]


@dataclass(frozen=True, slots=True)
class Launch:
    """A recorded kernel; ``memo`` keeps what readings derive from it once."""

    name: str
    grid: Grid
    classes: tuple[CtaClass, ...]
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def class_of(self, point: Mapping[str, int]) -> int:
        """Return which class the CTA at ``point`` belongs to."""
        return self.class_numbers()[tuple((name, point[name]) for name in self.grid.work_axes)]

    def class_numbers(self) -> dict[Point, int]:
        """Return the class of each combination of work-axis coordinates."""
        return {p: number for number, c in enumerate(self.classes) for p in c.points}

    def weights(self) -> list[int]:
        """Return how many CTAs of the grid belong to each class."""
        copies = self.grid["head"] * self.grid["batch"]
        return [len(c.points) * copies for c in self.classes]


@dataclass(frozen=True, slots=True)
class Recording:
    """A schedule recorded for a problem: its launches, run in order on one stream.

    ``needs`` are the capabilities without which a GPU cannot run it.
    """

    name: str
    params: dict[str, Any]
    problem: Attention
    launches: tuple[Launch, ...]
    needs: tuple[str, ...] = ()


class Schedule(Protocol):
    """What a schedule class offers: a name and its launches (`grid` and `build` for one).

    The decorator `schedule` supplies ``needs`` and ``resolve`` where a class leaves them out.
    """

    schedule_name: str
    needs: tuple[str, ...]

    def resolve(self, p: Attention) -> Schedule:
        """Return the schedule with what it chooses by the problem."""
        ...

    def launches(self, p: Attention) -> Sequence[LaunchSpec]:
        """Return the kernels to run, in order."""
        ...


def walk(steps: tuple[Step, ...], env: dict[str, int]) -> Iterator[Op]:
    """Yield the operations in program order, setting loop variables in ``env`` on the way.

    ``env`` is shared: read what you need from it before asking for the next operation.
    """
    for step in steps:
        if isinstance(step, Repeat):
            for i in range(step.trips):
                env[step.var] = i
                yield from walk(step.body, env)
        else:
            yield step


def operations(steps: tuple[Step, ...]) -> Iterator[Op]:
    """Yield each recorded operation once, however often loops repeat it."""
    for step in steps:
        if isinstance(step, Repeat):
            yield from operations(step.body)
        else:
            yield step


def op_count(steps: tuple[Step, ...]) -> int:
    """Return how many operations ``walk`` yields."""
    return sum(s.trips * op_count(s.body) if isinstance(s, Repeat) else 1 for s in steps)
