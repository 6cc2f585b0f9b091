"""What a persistent CTA does: the programs of its tiles one after the other.

Each role goes on to its next tile by itself, as soon as barriers let it: their phases continue from
tile to tile, so a producer loads the next tile's K while consumers store the last one's O.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from simgpu.errors import ScheduleError
from simgpu.index import Index
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Repeat, Wait
from simgpu.program.program import TileProgram
from simgpu.program.tile import Signal, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from simgpu.program.ops import Op, Step
    from simgpu.program.program import Launch, Role

#: Tiles that show everything of a hand-over: one before, one after, and one that knows no first.
LEAST = 3

T = TypeVar("T")


class WorkTile(NamedTuple):
    """A tile of work: its program, and its coordinates in the grid."""

    program: TileProgram
    at: Mapping[str, int]


def worklist(tiles: Sequence[WorkTile]) -> TileProgram:
    """Return the program of a CTA that takes ``tiles`` (one at least), with coordinates put in.

    Uses of barriers and of rings continue where the tile before ended. Raises ScheduleError for
    tiles of different roles.
    """
    first = tiles[0].program
    bodies: list[list[Step]] = [[] for _ in first.roles]
    lates: list[list[Step]] = [[] for _ in first.roles]
    shift: dict[str, int] = {}
    for program, at in tiles:
        if [_kind(role) for role in program.roles] != [_kind(role) for role in first.roles]:
            raise ScheduleError("tiles of one persistent CTA must have the same roles")
        symbols = {name: Index(value) for name, value in at.items()}
        slots = shift | {r.buffer.name: shift.get(r.full.name, 0) for r in program.rings}
        for body, late, role in zip(bodies, lates, program.roles, strict=True):
            early, between, last = (
                [_shifted(step.bind(symbols), slots) for step in part] for part in role.parts
            )
            body += [*early, *late, *between]
            late[:] = last
        shift = after(shift, uses(program))
    roles = (
        replace(role, body=(*body, *late), early=0, late=0)
        for role, body, late in zip(first.roles, bodies, lates, strict=True)
    )
    programs = [tile.program for tile in tiles]
    return TileProgram(
        tuple(roles),
        _distinct(b for p in programs for b in p.buffers),
        _distinct(b for p in programs for b in p.barriers),
        _distinct(r for p in programs for r in p.rings),
    )


def executions(launch: Launch) -> Iterator[WorkTile]:
    """Yield CTAs that do all of a launch's work for one head: a tile each, or all by one CTA."""
    tiles = [WorkTile(c.program, dict(point)) for c in launch.classes for point in c.points]
    if launch.grid.persistent is None:
        yield from tiles
    else:
        ordered = {tuple(tile.at.items()): tile for tile in tiles}
        points = dict.fromkeys(
            tuple((n, at[n]) for n in launch.grid.work_axes) for at in launch.grid.coordinates()
        )
        taken = [ordered[point] for point in points]
        yield WorkTile(worklist(taken), taken[0].at)


def examples(launch: Launch) -> Iterator[WorkTile]:
    """Yield CTAs that show all that can happen: one of each class, or one that takes one of each.

    A persistent one takes `LEAST` tiles at least.
    """
    tiles = [WorkTile(c.program, c.env) for c in launch.classes]
    if launch.grid.persistent is None:
        yield from tiles
    else:
        taken = tiles * -(-LEAST // len(tiles))
        yield WorkTile(worklist(taken), taken[0].at)


def uses(program: TileProgram) -> dict[str, int]:
    """Return how many uses of each barrier one tile makes: those that somebody arrives for."""
    found: dict[str, int] = {}
    for role in program.roles:
        for signal, last in _arrivals(role.body, {}):
            name = signal.barrier.name
            found[name] = max(found.get(name, 0), last + 1)
    return found


def after(shift: Mapping[str, int], one: Mapping[str, int]) -> dict[str, int]:
    """Return by how much uses are counted on when a tile with ``one``'s uses has been taken."""
    return {name: shift.get(name, 0) + one.get(name, 0) for name in {**shift, **one}}


def shifted(step: Op, shift: Mapping[str, int]) -> Op:
    """Return an operation whose uses are counted on by ``shift``, by name of barrier or ring."""
    found = _shifted(step, shift)
    assert not isinstance(found, Repeat)
    return found


def _shifted(step: Step, shift: Mapping[str, int]) -> Step:
    match step:
        case Repeat(body=body):
            return replace(step, body=tuple(_shifted(s, shift) for s in body))
        case Copy(src, dst, signal=signal):
            src, dst = (_later(x, shift) if isinstance(x, View) else x for x in (src, dst))
            return replace(step, src=src, dst=dst, signal=_on(signal, shift))
        case Mma(dst, a, b, signal=signal):
            dst, a, b = (_later(x, shift) for x in (dst, a, b))
            return replace(step, dst=dst, a=a, b=b, signal=_on(signal, shift))
        case Apply(args=args):
            return replace(step, args=tuple(_later(x, shift) for x in args))
        case Arrive(signal) | Wait(signal):
            return replace(step, signal=Signal(signal.barrier, _use(signal, shift)))


def _on(signal: Signal | None, shift: Mapping[str, int]) -> Signal | None:
    return Signal(signal.barrier, _use(signal, shift)) if signal else None


def _use(signal: Signal, shift: Mapping[str, int]) -> Index:
    return signal.use + shift.get(signal.barrier.name, 0)


def _later(view: View, shift: Mapping[str, int]) -> View:
    return replace(view, use=view.use + shift.get(view.buffer.name, 0))


def _arrivals(steps: tuple[Step, ...], last: Mapping[str, int]) -> Iterator[tuple[Signal, int]]:
    """Yield each arrival and the last of its uses: uses rise from pass to pass."""
    for step in steps:
        if isinstance(step, Repeat):
            yield from _arrivals(step.body, {**last, step.var: step.trips - 1})
        elif not isinstance(step, Apply | Wait) and step.signal is not None:
            yield step.signal, _number(step, step.signal, last)


def _number(op: Op, signal: Signal, last: Mapping[str, int]) -> int:
    try:
        return signal.use.at(last)
    except KeyError as error:
        raise ScheduleError(f"{op}: which phase it belongs to depends on the grid") from error


def _kind(role: Role) -> tuple[object, ...]:
    return role.name, role.warps, role.partition, role.registers


def _distinct(things: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(things))
