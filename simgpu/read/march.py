"""What a program says of how its CTAs read the tiles that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simgpu.program.ops import Apply, Arrive, Copy, Mma, Repeat, Wait
from simgpu.program.program import op_count, operations, walk
from simgpu.program.tile import View
from simgpu.tensor import Tile, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from simgpu.program.ops import Op, Step
    from simgpu.program.program import Launch, Role, TileProgram

#: With so many stages the loads of a loop are under way for a whole pass before they are awaited.
HIDDEN_STAGES = 3


class Read(NamedTuple):
    """A tensor that a launch reads, by tiles of so many ``bytes``.

    ``shared``: all CTAs of a head read the same tiles; ``hidden``: nobody waits for a load as soon
    as it is issued; ``apart``: CTAs begin at different tiles, and so are never at the same;
    ``repeated``: by warps that repeat rows; ``adrift``: for roles that take no turns; ``multicast``
    CTAs get a tile by one read.
    """

    bytes: int
    shared: bool
    hidden: bool
    apart: bool
    repeated: bool
    adrift: bool
    multicast: int


def reads(launch: Launch) -> dict[str, Read]:
    """Return, by tensor, how the CTAs of a launch read it."""
    found: dict[str, Read] = {}
    axes, firsts = launch.grid.work_axes, _firsts(launch)
    for program in {id(c.program): c.program for c in launch.classes}.values():
        adrift = _adrift(program)
        for role in program.roles:
            for copy, tile in _loads(operations(role.body)):
                name = tile.tensor.name
                if name in found:
                    continue
                used = {axis for index in (tile.row, tile.col) for axis, _ in index.terms}
                found[name] = Read(
                    bytes=tile.rows * tile.cols * dtype_bytes(tile.tensor.dtype),
                    shared=not used & axes.keys(),
                    hidden=_hidden(name, copy, role),
                    apart=len(firsts[name]) > 1,
                    repeated=role.partition == "split-d",
                    adrift=adrift,
                    multicast=copy.multicast,
                )
    return found


def unequal(launch: Launch) -> bool:
    """Say whether CTAs of a head do unequal work."""
    sizes = {sum(op_count(r.body) for r in c.program.roles) for c in launch.classes}
    return len(sizes) > 1


def _loads(ops: Iterator[Op]) -> Iterator[tuple[Copy, Tile]]:
    """Yield the copies that read a tensor, and the tile that they read."""
    for op in ops:
        if isinstance(op, Copy) and isinstance(op.src, Tile) and not op.fills_zeros:
            yield op, op.src


def _firsts(launch: Launch) -> dict[str, set[int]]:
    """Return, by tensor, the rows at which the CTAs begin to read it."""
    found: dict[str, set[int]] = {}
    for cta_class in launch.classes:
        begun: dict[str, int] = {}
        for role in cta_class.program.roles:
            names = {tile.tensor.name for _, tile in _loads(operations(role.body))}
            env = dict(cta_class.env)
            steps = _loads(walk(role.body, env))
            while not names <= begun.keys():
                _, tile = next(steps)
                begun.setdefault(tile.tensor.name, tile.row.at(env))
        for name, row in begun.items():
            found.setdefault(name, set()).add(row)
    return found


def _hidden(tensor: str, copy: Copy, role: Role) -> bool:
    if not any(isinstance(op, Mma) for op in operations(role.body)):
        return True
    stages = copy.dst.buffer.stages if isinstance(copy.dst, View) else 1
    return stages >= HIDDEN_STAGES or any(_works_meanwhile(tensor, b) for b in _bodies(role.body))


def _bodies(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Yield the bodies of all loops."""
    for step in steps:
        if isinstance(step, Repeat):
            yield step.body
            yield from _bodies(step.body)


def _works_meanwhile(tensor: str, body: tuple[Step, ...]) -> bool:
    """Say whether a pass begins other work between a load of a tensor and the wait for it."""
    for i, op in enumerate(body):
        if isinstance(op, Copy) and isinstance(op.src, Tile) and op.src.tensor.name == tensor:
            for later in (*body[i + 1 :], *body[:i]):
                if isinstance(later, Apply | Mma):
                    return op.signal is not None
                if isinstance(later, Wait) and op.signal and later.barrier == op.signal.barrier:
                    break
    return False


def _adrift(program: TileProgram) -> bool:
    """Say whether several roles multiply, none of which waits for another in its loops."""
    multiply = [
        [op for body in _bodies(role.body) for op in body]
        for role in program.roles
        if any(isinstance(op, Mma) for op in operations(role.body))
    ]
    for one in multiply:
        awaited = {op.barrier.name for op in one if isinstance(op, Wait)}
        for other in multiply:
            arrived = {op.signal.barrier.name for op in other if isinstance(op, Arrive)}
            if other is not one and awaited & arrived:
                return False
    return len(multiply) > 1
