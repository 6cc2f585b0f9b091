"""A recorded program as text: what `simgpu show` prints, and how errors name an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from simgpu.program.ops import Apply, Arrive, Copy, Mma, Repeat, Wait
from simgpu.tensor import Tile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.program.ops import Op, Step
    from simgpu.program.program import TileProgram
    from simgpu.program.tile import Operand


def describe(op: Op) -> str:
    """Return one line for an operation."""
    match op:
        case Copy(src, dst, path, signal, reduce):
            how = f" by {path}" if path != "direct" else ""
            arrow = "+=" if reduce else "<-"
            return f"copy  {dst} {arrow} {src}{how}{f' -> {signal}' if signal else ''}"
        case Mma(dst, a, b, accumulate, signal, parts, instruction=instruction):
            how = f" in {parts} parts" if parts > 1 else ""
            how += f" by {instruction}" if instruction else ""
            sign = "+=" if accumulate else "="
            return f"mma   {dst} {sign} {a}·{b}{how}{f' -> {signal}' if signal else ''}"
        case Apply(fn, args, mask, _, adjust):
            named = ", ".join(map(str, args))
            compiled = f" adjusted by {adjust}" if adjust else ""
            return f"apply {fn}({named}){' masked' if mask else ''}{compiled}"
        case Arrive(signal):
            return f"arrive {signal}"
        case Wait(signal, lag):
            return f"wait  {signal}{f' - {lag} phase' if lag else ''}"
        case other:
            assert_never(other)


def title(op: Op) -> str:
    """Return an operation's name in a timeline: what it does to what, without numbers."""
    match op:
        case Copy(src, dst):
            return f"copy {_name(dst if isinstance(dst, Tile) else src)}"
        case Mma(dst):
            return f"mma {_name(dst)}"
        case Apply(fn):
            return str(fn)
        case Arrive(signal):
            return f"arrive {signal.barrier.name}"
        case Wait(signal):
            return f"wait {signal.barrier.name}"
        case other:
            assert_never(other)


def details(op: Op) -> dict[str, Any]:
    """Return what a timeline says of an operation without loop variables: tile, bytes, phase.

    ``op`` is its whole line, ``tile`` the global tile, ``bytes`` those that lie inside the tensor;
    ``use``, ``slot`` and ``phase`` are those of the barrier that it arrives at or waits for.
    """
    found: dict[str, Any] = {"op": describe(op)}
    if isinstance(op, Copy):
        for tile in (op.src, op.dst):
            if isinstance(tile, Tile):
                found |= {"tile": str(tile), "bytes": tile.valid_bytes({})}
    signal = None if isinstance(op, Apply) else op.signal
    if signal is not None:
        use, stages = signal.use.at({}), signal.barrier.stages
        found |= {"barrier": signal.barrier.name, "use": use, "slot": use % stages}
        found["phase"] = use // stages
    return found


def _name(operand: Operand) -> str:
    return operand.tensor.name if isinstance(operand, Tile) else operand.buffer.name


def listing(program: TileProgram) -> str:
    """Return the whole program: storage, barriers, and each role's steps with loops indented."""
    lines = []
    for b in program.buffers:
        stages = f" × {b.stages} stages" if b.stages > 1 else ""
        size = f"{b.shape[0]}×{b.shape[1]} {b.dtype}{stages}"
        over = f" over {b.over}" if b.over else ""
        lines.append(f"{b.space:5} {b.name:10} {size:28} {b.bytes:>8,} B{over}")
    shown = [b for b in program.barriers if b.kind != "group"]
    for barrier in shown:
        stages = f" × {barrier.stages}" if barrier.stages > 1 else ""
        lines.append(f"{barrier.kind:8} {barrier.name}{stages}, {barrier.count} arrivals a phase")
    lines.append(f"shared memory: {program.shared_bytes:,} bytes; warps: {program.warps}")
    for role in program.roles:
        registers = f", {role.registers} registers" if role.registers else ""
        lines.append("")
        lines.append(f"role {role.name}: {role.warps} warps, {role.partition}{registers}")
        lines.extend(_steps(role.body, 1))
    return "\n".join(lines)


def _steps(steps: tuple[Step, ...], depth: int) -> Iterator[str]:
    for step in steps:
        if isinstance(step, Repeat):
            yield f"{'  ' * depth}repeat {step.var} < {step.trips}:"
            yield from _steps(step.body, depth + 1)
        else:
            yield "  " * depth + describe(step)
