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


#: How persistent CTAs come by their tiles: each the n-th after its last, or the next off a counter.
Persistence = Literal["static", "dynamic"]


class Grid:
    """Axes of a launch and their sizes, fastest first, as CUDA orders x before y before z.

    ``head`` and ``batch`` choose the data; every other axis may also choose the work. Each point is
    a tile of work for a CTA. With ``persistent`` only as many CTAs are launched as fit on the
    device at once, and each takes tile after tile: with n of them CTA i has tiles i, i + n ...
    ("static"), or whoever is done takes the next ("dynamic"). With ``section`` so many heads (of
    all batch entries) are taken together: the first tile of each of them, then the second ...
    """

    def __init__(
        self, *, persistent: Persistence | None = None, section: int | None = None, **axes: int
    ) -> None:
        self.axes, self.persistent, self.section = axes, persistent, section

    def __getitem__(self, axis: str) -> int:
        return self.axes.get(axis, 1)

    @property
    def work_axes(self) -> dict[str, int]:
        """The axes that programs may depend on."""
        return {n: s for n, s in self.axes.items() if n not in ("head", "batch")}

    @property
    def tiles(self) -> int:
        """Tiles of work: as many CTAs, unless they are persistent."""
        return math.prod(self.axes.values())

    def launched(self, slots: int) -> int:
        """Return the CTAs that are launched on a device with room for ``slots`` at once."""
        return min(self.tiles, slots) if self.persistent else self.tiles

    @property
    def neighbours(self) -> int:
        """Tiles of one head that follow one another in launch order."""
        alone = self.section is None or self.section == 1
        return math.prod(self.work_axes.values()) if alone else 1

    def coordinates(self) -> Iterator[dict[str, int]]:
        """Yield the coordinates of each tile in launch order."""
        work = math.prod(self.work_axes.values())
        heads = self.tiles // max(1, work)
        if self.section is None:
            yield from (_point(self.axes, number) for number in range(self.tiles))
            return
        data = {n: s for n, s in self.axes.items() if n in ("head", "batch")}
        for first in range(0, heads, self.section):
            for number in range(work):
                for head in range(first, min(first + self.section, heads)):
                    at = _point(self.work_axes, number) | _point(data, head)
                    yield {name: at[name] for name in self.axes}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return (tuple(self.axes.items()), self.persistent, self.section)

    def __repr__(self) -> str:
        parts = [f"{n}={s}" for n, s in self.axes.items()]
        parts += [f"persistent={self.persistent!r}"] if self.persistent else []
        parts += [f"section={self.section}"] if self.section else []
        return f"Grid({', '.join(parts)})"


def _point(axes: Mapping[str, int], number: int) -> dict[str, int]:
    """Return the coordinates of point ``number``, the first axis fastest."""
    point = {}
    for name, size in axes.items():
        number, point[name] = divmod(number, size)
    return point


@dataclass(frozen=True, slots=True)
class Role:
    """Warps that execute one list of steps together; ``registers`` a thread if set apart.

    In a persistent CTA the first ``early`` steps of a tile come before the last ``late`` steps of
    the tile before.
    """

    name: str
    warps: int
    partition: Partition
    registers: int | None
    body: tuple[Step, ...]
    early: int = 0
    late: int = 0

    @property
    def parts(self) -> tuple[tuple[Step, ...], tuple[Step, ...], tuple[Step, ...]]:
        """The early steps, those between, and the late ones."""
        end = len(self.body) - self.late
        return self.body[: self.early], self.body[self.early : end], self.body[end:]


@dataclass(frozen=True, slots=True)
class TileProgram:
    """What one CTA does with a tile of work: its roles, their storage and their barriers."""

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
        """Bytes of shared memory that the buffers take; what lies over another is not added."""
        ends: dict[str, int] = {}
        for b in self.buffers:
            if b.space == "smem":
                name, end = b.over or b.name, b.offset + b.bytes
                ends[name] = max(ends.get(name, 0), end)
        return sum(ends.values())


@dataclass(frozen=True, slots=True)
class CtaClass:
    """Tiles of the same work: one program, and the work-axis coordinates that share it.

    There is a CTA for each tile, unless the grid is persistent.
    """

    program: TileProgram
    points: tuple[Point, ...]

    @property
    def env(self) -> dict[str, int]:
        """Coordinates of one of these tiles, to evaluate indices with."""
        return dict(self.points[0])


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One kernel of a schedule: its name, its grid, and what one CTA does.

    ``eager``: the host launches it op by op, as PyTorch does, and may be slower than the GPU.
    """

    name: str
    grid: Grid
    build: Callable[[Attention, Cta], None]
    eager: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """A recorded kernel; ``memo`` keeps what readings derive from it once."""

    name: str
    grid: Grid
    classes: tuple[CtaClass, ...]
    eager: bool = False
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def class_of(self, point: Mapping[str, int]) -> int:
        """Return which class the tile at ``point`` belongs to."""
        return self.class_numbers()[tuple((name, point[name]) for name in self.grid.work_axes)]

    def class_numbers(self) -> dict[Point, int]:
        """Return the class of each combination of work-axis coordinates."""
        return {p: number for number, c in enumerate(self.classes) for p in c.points}

    def in_order(self) -> list[int]:
        """Return the class of each tile, in launch order."""
        if "in_order" not in self.memo:
            numbers, axes = self.class_numbers(), list(self.grid.work_axes)
            points = (tuple((n, at[n]) for n in axes) for at in self.grid.coordinates())
            self.memo["in_order"] = [numbers[point] for point in points]
        found: list[int] = self.memo["in_order"]
        return found

    def weights(self) -> list[int]:
        """Return how many tiles of the grid belong to each class."""
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
