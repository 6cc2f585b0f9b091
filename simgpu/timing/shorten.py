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
from simgpu.program.tile import Signal, View
from simgpu.tensor import Tile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.program.ops import Step
    from simgpu.program.program import Launch, Role, TileProgram
    from simgpu.program.tile import Operand

    #: What a loop does in every role, and how its tiles are clipped, wherever they lie: loops of
    #: one kind take the same time a pass.
    Kind = tuple[tuple[str, ...], ...]


#: Passes that are left of a long loop.
FEW = 5


@dataclass(frozen=True, slots=True)
class Cut:
    """Passes that a shortened program lacks: how many, of which kind, and the loop of each role."""

    kind: Kind
    passes: int
    loops: tuple[tuple[Role, Repeat], ...]


@dataclass(frozen=True, slots=True)
class Shortened:
    """A shorter program and what it lacks."""

    program: TileProgram
    cuts: tuple[Cut, ...]

    @property
    def removed(self) -> dict[Kind, int]:
        """Passes that are missing, by kind of loop."""
        total: dict[Kind, int] = {}
        for cut in self.cuts:
            total[cut.kind] = total.get(cut.kind, 0) + cut.passes
        return total


def outline(launch: Launch) -> tuple[Shortened, ...]:
    """Return every class of a launch cut short; equal short programs are one object."""
    if "outline" not in launch.memo:
        programs: dict[TileProgram, TileProgram] = {}
        shorts = []
        for cta_class in launch.classes:
            short = shorten(cta_class.program, cta_class.env)
            program = programs.setdefault(short.program, short.program)
            shorts.append(Shortened(program, short.cuts))
        launch.memo["outline"] = tuple(shorts)
    found: tuple[Shortened, ...] = launch.memo["outline"]
    return found


def shorten(
    program: TileProgram,
    coordinates: Mapping[str, int],
    keep: Mapping[Kind, int] | None = None,
    default: int = FEW,
) -> Shortened:
    """Cut top-level loops down to ``keep[kind]`` (else ``default``) passes in every role.

    The first passes go, so that a clipped last one stays. Loops of different roles belong together
    by their order; when the roles do not have the same number of long loops nothing is cut. Rings
    of ``FEW`` slots and more need more passes to fill, and keep as many more.
    """
    more = max(0, max((b.stages for b in program.barriers), default=0) - (FEW - 1))
    longs = [
        [s for s in r.body if isinstance(s, Repeat) and s.trips > default + more]
        for r in program.roles
    ]
    if len({len(loops) for loops in longs}) != 1:
        longs = [[] for _ in program.roles]
    cuts = []
    for loops in zip(*longs, strict=True):
        kind = tuple(loop_kind(loop, coordinates) for loop in loops)
        passes = min(loop.trips for loop in loops) - (keep or {}).get(kind, default) - more
        if passes > 0:
            cuts.append(Cut(kind, passes, tuple(zip(program.roles, loops, strict=True))))
    removed = [
        {loops[i].var: cut.passes for cut in cuts for loops in [[loop for _, loop in cut.loops]]}
        for i in range(len(program.roles))
    ]
    roles = tuple(
        _shorten_role(role, cut, coordinates)
        for role, cut in zip(program.roles, removed, strict=True)
    )
    return Shortened(replace(program, roles=roles), tuple(cuts))


def loop_kind(loop: Repeat, env: Mapping[str, int]) -> tuple[str, ...]:
    """Return what distinguishes loops whose passes take different times."""
    middle = {**env, loop.var: loop.trips // 2}
    return (f"stretch {loop.stretch}", *(_kind(step, middle) for step in loop.body))


def _kind(step: Step, env: Mapping[str, int]) -> str:
    match step:
        case Copy(src, dst, path):
            return f"copy {_name(src, env)} {_name(dst, env)} {path}"
        case Mma(dst, a, b):
            return f"mma {dst.buffer.name} {a.buffer.name} {b.buffer.name}"
        case Apply(fn, args, mask, _, adjust):
            return f"apply {fn} {args[0].buffer.name} {mask is not None} {adjust}"
        case Arrive(signal) | Wait(signal):
            return f"{type(step).__name__} {signal.barrier.name}"
        case Repeat(_, trips):
            return f"repeat {trips} {loop_kind(step, env)}"


def _name(operand: Operand, env: Mapping[str, int]) -> str:
    if isinstance(operand, View):
        return operand.buffer.name
    return f"{operand.tensor.name} {operand.valid(env)}"


def _shorten_role(role: Role, removed: Mapping[str, int], coordinates: Mapping[str, int]) -> Role:
    shift: dict[str, int] = {}
    body: list[Step] = []
    for step in role.body:
        cut = removed.get(step.var, 0) if isinstance(step, Repeat) else 0
        if isinstance(step, Repeat) and cut:
            later = {step.var: Index(cut, ((step.var, 1),))}
            body.append(_renumber(step, shift, (coordinates,), later, step.trips - cut))
            for barrier, stride in _strides(step).items():
                shift[barrier] = shift.get(barrier, 0) + cut * stride
        else:
            body.append(_renumber(step, shift, (coordinates,), {}))
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


def _renumber(
    step: Step,
    shift: Mapping[str, int],
    ends: tuple[Mapping[str, int], ...],
    later: Mapping[str, Index],
    trips: int | None = None,
) -> Step:
    """Return a step with uses as the shortened program counts them, and tiles of later passes.

    ``ends`` are the variables in the first and last passes of the loops around it.
    """
    if isinstance(step, Repeat):
        left = step.trips if trips is None else trips
        ends = tuple({**env, step.var: i} for env in ends for i in {0, left - 1})
        body = tuple(_renumber(s, shift, ends, later) for s in step.body)
        return replace(step, trips=left, body=body)
    if isinstance(step, Apply):
        mask = replace(step.mask, row=Index(), col=Index()) if step.mask else None
        args = tuple(_slotless(x) for x in step.args)
        return replace(step, args=args, mask=mask)
    signal = step.signal
    if signal is not None:
        signal = Signal(signal.barrier, signal.use - shift.get(signal.barrier.name, 0))
    match step:
        case Copy(src, dst):
            src, dst = _place(src, ends, later), _place(dst, ends, later)
            return replace(step, src=src, dst=dst, signal=signal)
        case Mma(dst, a, b):
            dst, a, b = (_slotless(x) for x in (dst, a, b))
            return replace(step, dst=dst, a=a, b=b, signal=signal)
        case Arrive():
            assert signal is not None
            return Arrive(signal)
        case Wait(_, lag):
            assert signal is not None
            return Wait(signal, lag)


def _slotless(view: View) -> View:
    """Timing does not depend on which slot of a ring is used."""
    return View(view.buffer, Index(), view.transposed)


def _place(
    operand: Operand, ends: tuple[Mapping[str, int], ...], later: Mapping[str, Index]
) -> Operand:
    """Forget where a tile lies if all of it is inside its tensor wherever the loops take it."""
    if isinstance(operand, View):
        return _slotless(operand)
    tile = operand.bind(later)
    whole = tile.rows, min(tile.cols, tile.tensor.cols)
    if all(tile.valid(env) == whole for env in ends):
        return Tile(tile.tensor, Index(), tile.rows, Index(), tile.cols)
    return tile
