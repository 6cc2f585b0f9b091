"""From a schedule and a problem to recorded launches."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from simgpu.errors import ScheduleError
from simgpu.program.builder import Cta
from simgpu.program.ops import Copy, Mma
from simgpu.program.program import CtaClass, Grid, Launch, LaunchSpec, Recording, operations
from simgpu.tensor import Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from simgpu.problem import Attention
    from simgpu.program.ops import Step
    from simgpu.program.program import Point, Schedule, TileProgram
    from simgpu.tensor import Tensor


def schedule(name: str) -> Callable[[type[Any]], type[Any]]:
    """Name a schedule class, and give it what it leaves out.

    One with ``grid`` and ``build`` gets ``launches`` for one kernel. ``needs`` are capabilities of
    a GPU (default none); ``resolve(p)`` is the schedule with what it chooses by the problem.
    """

    def named(cls: type[Any]) -> type[Any]:
        cls.schedule_name = name
        if not hasattr(cls, "launches"):
            cls.launches = _single_launch
        if not hasattr(cls, "needs"):
            cls.needs = ()
        if not hasattr(cls, "resolve"):
            cls.resolve = _as_it_is
        return cls

    return named


def _single_launch(self: Any, p: Attention) -> Sequence[LaunchSpec]:
    grid: Grid = self.grid(p)
    return [LaunchSpec(self.schedule_name, grid, self.build)]


def _as_it_is(self: Any, p: Attention) -> Any:
    return self


def record(schedule: Schedule, problem: Attention) -> Recording:
    """Record every kernel of ``schedule``; CTAs that do the same work share a program.

    Raises ScheduleError when the schedule cannot be built for this problem.
    """
    schedule = schedule.resolve(problem)
    launches = tuple(_record_launch(spec, problem) for spec in schedule.launches(problem))
    _check_names(launches)
    params = dataclasses.asdict(schedule)  # type: ignore[call-overload]
    needs = (*schedule.needs, *(n for n in _instructions(launches) if n not in schedule.needs))
    return Recording(schedule.schedule_name, params, problem, launches, needs)


def _instructions(launches: tuple[Launch, ...]) -> list[str]:
    """Return the capabilities behind the instructions that products are written with."""
    roles = {role for launch in launches for c in launch.classes for role in c.program.roles}
    ops = (op for role in roles for op in operations(role.body) if isinstance(op, Mma))
    return sorted({op.instruction.replace(".", "_") for op in ops if op.instruction})


def _check_names(launches: tuple[Launch, ...]) -> None:
    """Refuse two tensors of one name, such as a scratch tensor called O."""
    known: dict[str, Tensor] = {}
    for launch in launches:
        for cta_class in launch.classes:
            for tile in (t for role in cta_class.program.roles for t in _tiles(role.body)):
                tensor = known.setdefault(tile.tensor.name, tile.tensor)
                if tensor != tile.tensor:
                    kinds = " and ".join(
                        f"{t.rows}×{t.cols} {t.dtype} ({t.kind})" for t in (tensor, tile.tensor)
                    )
                    raise ScheduleError(
                        f"two tensors are called {tensor.name!r}: {kinds}; rename one"
                    )


def _record_launch(spec: LaunchSpec, problem: Attention) -> Launch:
    axes = spec.grid.work_axes
    recorded: dict[tuple[int, ...], int] = {}
    programs: dict[TileProgram, int] = {}
    placed: list[list[Tile]] = []
    looked_at: set[str] = set(axes)
    classes: dict[tuple[int, tuple[tuple[int, int], ...]], list[Point]] = {}
    for values in itertools.product(*map(range, axes.values())):
        point = tuple(zip(axes, values, strict=True))
        work = tuple(v for n, v in point if n in looked_at)
        if work not in recorded:
            cta = Cta(dict(point))
            spec.build(problem, cta)
            program = cta.finish()
            if not recorded:
                looked_at = cta.looked_at
                work = tuple(v for n, v in point if n in looked_at)
            recorded[work] = programs.setdefault(program, len(programs))
            if len(placed) < len(programs):
                placed.append(_placed_by_coordinates(program, set(axes)))
        number, env = recorded[work], dict(point)
        # a ragged end is other work
        clipped = tuple(tile.valid(env) for tile in placed[number])
        classes.setdefault((number, clipped), []).append(point)
    by_number = list(programs)
    return Launch(
        spec.name,
        spec.grid,
        tuple(CtaClass(by_number[n], tuple(points)) for (n, _), points in classes.items()),
        spec.eager,
    )


def _placed_by_coordinates(program: TileProgram, axes: set[str]) -> list[Tile]:
    """Return the tiles whose place depends on a CTA's coordinates alone, and not on a loop."""
    return [
        tile
        for role in program.roles
        for tile in _tiles(role.body)
        if (names := {name for name, _ in (*tile.row.terms, *tile.col.terms)}) and names <= axes
    ]


def _tiles(steps: tuple[Step, ...]) -> Iterator[Tile]:
    for op in operations(steps):
        if isinstance(op, Copy):
            yield from (x for x in (op.src, op.dst) if isinstance(x, Tile))
