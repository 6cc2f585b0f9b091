"""Programs cut down for timing: long loops lose passes, and equal work becomes equal programs.

In a long loop every pass after the first few takes the same time, so a loop of n passes is known
from two shorter ones. What remains is renumbered (ring uses, barrier phases) so that it is a legal
program, and tiles that lie inside their tensor forget where, so that a causal grid has a handful of
distinct programs to simulate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simgpu.index import Index
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Repeat, Wait
from simgpu.tensor import Tile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.program.ops import Step
    from simgpu.program.program import Role, TileProgram
    from simgpu.program.tile import Operand

    #: What a loop does, whatever its tiles: loops of one kind take the same time a pass.
    Kind = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shortened:
    """A shorter program and how many passes of each kind of loop it lacks."""

    program: TileProgram
    removed: tuple[tuple[Kind, int], ...]


def shorten(
    program: TileProgram, coordinates: Mapping[str, int], keep: Mapping[Kind, int], default: int
) -> Shortened:
    """Cut top-level loops down to ``keep[kind]`` (else ``default``) passes in every role.

    Loops of different roles belong together by their order; when the roles do not have the same
    number of long loops nothing is cut.
    """
    longs = [[s for s in r.body if isinstance(s, Repeat) and s.trips > default] for r in program.roles]
    if len({len(loops) for loops in longs}) != 1:
        longs = [[] for _ in program.roles]
    kinds = [loop_kind(loop) for loop in longs[0]]
    removed = []
    for i, kind in enumerate(kinds):
        fewest = min(loops[i].trips for loops in longs)
        removed.append(max(0, fewest - keep.get(kind, default)))
    roles = tuple(
        _shorten_role(role, dict(zip((s.var for s in loops), removed, strict=True)), coordinates)
        for role, loops in zip(program.roles, longs, strict=True)
    )
    totals: dict[Kind, int] = {}
    for kind, count in zip(kinds, removed, strict=True):
        totals[kind] = totals.get(kind, 0) + count
    return Shortened(replace(program, roles=roles), tuple(totals.items()))


def loop_kind(loop: Repeat) -> Kind:
    """Return what distinguishes loops whose passes take different times."""
    return tuple(_kind(step) for step in loop.body)


def _kind(step: Step) -> str:
    match step:
        case Copy(src, dst, path):
            return f"copy {_name(src)} {_name(dst)} {path}"
        case Mma(dst, a, b):
            return f"mma {dst.buffer.name} {a.buffer.name} {b.buffer.name}"
        case Apply(fn, args, mask):
            return f"apply {fn} {args[0].buffer.name} {mask is not None}"
        case Arrive(signal) | Wait(signal):
            return f"{type(step).__name__} {signal.barrier.name}"
        case Repeat(_, trips):
            return f"repeat {trips} {loop_kind(step)}"


def _name(operand: Operand) -> str:
    return operand.tensor.name if isinstance(operand, Tile) else operand.buffer.name


def _shorten_role(role: Role, removed: Mapping[str, int], coordinates: Mapping[str, int]) -> Role:
    shift: dict[str, int] = {}
    body: list[Step] = []
    for step in role.body:
        cut = removed.get(step.var, 0) if isinstance(step, Repeat) else 0
        if isinstance(step, Repeat):
            shorter = replace(step, trips=step.trips - cut)
            body.append(_renumber(shorter, shift, coordinates))
            for barrier, stride in _strides(step).items():
                shift[barrier] = shift.get(barrier, 0) + cut * stride
        else:
            body.append(_renumber(step, shift, coordinates))
    return replace(role, body=tuple(body))


def _strides(loop: Repeat) -> dict[str, int]:
    """Return by how much each barrier's uses advance in one pass."""
    strides: dict[str, int] = {}
    for step in loop.body:
        if isinstance(step, Repeat):
            strides |= _strides(replace(step, var=loop.var))
        elif not isinstance(step, Apply) and step.signal:
            signal = step.signal
            strides[signal.barrier.name] = dict(signal.use.terms).get(loop.var, 0)
    return strides


def _renumber(step: Step, shift: Mapping[str, int], env: Mapping[str, int]) -> Step:
    if isinstance(step, Repeat):
        last = {**env, step.var: step.trips - 1}
        return replace(step, body=tuple(_renumber(s, shift, last) for s in step.body))
    if isinstance(step, Apply):
        mask = replace(step.mask, row=Index(), col=Index()) if step.mask else None
        args = tuple(replace(x, use=Index()) for x in step.args)
        return replace(step, args=args, mask=mask)
    signal = step.signal
    if signal is not None:
        signal = replace(signal, use=signal.use - shift.get(signal.barrier.name, 0))
    match step:
        case Copy(src, dst):
            return replace(step, src=_place(src, env), dst=_place(dst, env), signal=signal)
        case Mma(dst, a, b):
            dst, a, b = (replace(x, use=Index()) for x in (dst, a, b))
            return replace(step, dst=dst, a=a, b=b, signal=signal)
        case Arrive():
            assert signal is not None
            return Arrive(signal)
        case Wait():
            assert signal is not None
            return replace(step, signal=signal)


def _place(operand: Operand, env: Mapping[str, int]) -> Operand:
    """Forget where a tile lies if all of it is inside its tensor wherever the loops take it."""
    if isinstance(operand, Tile):
        if operand.valid(env) == (operand.rows, min(operand.cols, operand.tensor.cols)):
            return replace(operand, row=Index(), col=Index())
        return operand
    return replace(operand, use=Index())
