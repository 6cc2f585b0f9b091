"""Products by tcgen05.mma, whose accumulators and probabilities lie in tensor memory.

A schedule keeps them in registers; where they are is the machine's matter. Warps load an
accumulator before they compute with it, and store what the next product reads or adds to
(tcgen05.ld and tcgen05.st; order and sizes as Triton 3.6 compiles attention for sm_100).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from simgpu.cost.work import LANES, STATISTICS, held, tile_bytes
from simgpu.program.mix import Mix
from simgpu.program.ops import Apply, Copy, Mma
from simgpu.program.program import operations
from simgpu.program.tile import View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simgpu.hardware.machine import Machine
    from simgpu.hardware.profile import Profile
    from simgpu.program.program import Role, TileProgram
    from simgpu.program.tile import Buffer

TMEM_LANES = 128  # rows of tensor memory, and of the product of one CTA
WORD_BYTES = 4
STEP_BYTES = 32  # depth of one instruction
WIDEST = 256  # columns of one instruction

#: An operation by its function and its tiles in registers, wherever it stands.
_Key = tuple[str, ...]


class Moved(NamedTuple):
    """Tiles that an operation's warps load from tensor memory before it, and store after it."""

    loaded: tuple[View, ...] = ()
    stored: tuple[View, ...] = ()


def by_tcgen05(op: Mma, profile: Profile) -> bool:
    """Say whether a product is a tcgen05.mma: the best that a GPU with tensor memory has."""
    return op.instruction is None and profile.has("tcgen05", "tensor_memory")


def multiplies(role: Role, profile: Profile) -> bool:
    """Say whether a role multiplies by tcgen05.mma."""
    return any(True for _ in _products(role, profile))


def columns(program: TileProgram, profile: Profile) -> int:
    """Return the columns of tensor memory that a CTA's accumulators and probabilities take.

    Accumulators of up to 64 rows share columns two by two, as Triton 3.6 lays them out.
    """
    accumulators: dict[Buffer, None] = {}
    operands: dict[Buffer, None] = {}
    for role in program.roles:
        for op in _products(role, profile):
            accumulators[op.dst.buffer] = None
            if op.a.buffer.space == "regs":
                operands[op.a.buffer] = None
    halves = sorted(map(_columns, (b for b in accumulators if _is_half(b))), reverse=True)
    whole = sum(map(_columns, (b for b in accumulators if not _is_half(b))))
    return whole + sum(halves[::2]) + sum(map(_columns, operands))


def _is_half(buffer: Buffer) -> bool:
    return 2 * buffer.shape[0] <= TMEM_LANES


def _columns(buffer: Buffer) -> int:
    rows = buffer.shape[0] * buffer.stages
    words = buffer.bytes // (rows * WORD_BYTES)
    return words * buffer.stages * math.ceil(buffer.shape[0] / TMEM_LANES)


def _products(role: Role, profile: Profile) -> Iterable[Mma]:
    for op in operations(role.body):
        if isinstance(op, Mma) and by_tcgen05(op, profile):
            yield op


def moved(op: Apply | Copy, role: Role, profile: Profile) -> Moved:
    """Return what the role's warps move between tensor memory and registers around ``op``.

    An accumulator is loaded by the first to touch it since a product wrote it. It is stored by the
    last before a product that adds to it or takes it as an operand, and before whoever loads it.
    One look at the role's operations in program order decides; the same function on the same tiles
    moves the same.
    """
    if not multiplies(role, profile):
        return Moved()
    mine, loaders = _key(op), _loaders(role, profile)
    touched: set[Buffer] = set()  # by this operation, and nobody since
    stored: set[Buffer] = set()
    for other in operations(role.body):
        if isinstance(other, Mma):
            read = {other.a.buffer, *((other.dst.buffer,) if other.accumulate else ())}
            stored |= touched & read
            touched -= {*read, other.dst.buffer}
        elif isinstance(other, Apply | Copy):
            for buffer in (x.buffer for x in _registers(other)):
                if buffer in touched and buffer in loaders.get(_key(other), ()):
                    stored.add(buffer)
                touched.discard(buffer)
                if _key(other) == mine:
                    touched.add(buffer)
    views = _registers(op)
    return Moved(
        tuple(x for x in views if x.buffer in loaders.get(mine, ())),
        tuple(x for x in views if x.buffer in stored),
    )


def _loaders(role: Role, profile: Profile) -> dict[_Key, set[Buffer]]:
    """Return the accumulators that operations are the first to touch since a product wrote them."""
    written: set[Buffer] = set()
    found: dict[_Key, set[Buffer]] = {}
    for op in operations(role.body):
        if isinstance(op, Mma) and by_tcgen05(op, profile):
            written.add(op.dst.buffer)
        elif isinstance(op, Apply | Copy):
            mine = {x.buffer for x in _registers(op)} & written
            found.setdefault(_key(op), set()).update(mine)
            written -= mine
    return found


def _key(op: Apply | Copy) -> _Key:
    name = op.fn.name if isinstance(op, Apply) else "copy"
    return (name, *(x.buffer.name for x in _registers(op)))


def _registers(op: Apply | Copy) -> list[View]:
    operands = op.args if isinstance(op, Apply) else (op.src, op.dst)
    return [x for x in operands if isinstance(x, View) and x.buffer.space == "regs"]


def load_cycles(views: Iterable[View], machine: Machine) -> float:
    """Return the cycles for which warps that load tiles keep tensor memory's port busy."""
    return sum(map(tile_bytes, views)) / (machine.profile.rates.tmem_read_bytes or math.inf)


def store_cycles(views: Iterable[View], machine: Machine) -> float:
    """Return the cycles for which warps that store tiles keep tensor memory's port busy."""
    return sum(map(tile_bytes, views)) / (machine.profile.rates.tmem_write_bytes or math.inf)


def row_threads(op: Apply, role: Role) -> int:
    """Return how many threads share a row: tensor memory gives a whole one to a thread of four
    warps, and parts of it to as many more as there are warps.
    """
    return max(1, LANES * role.warps // op.args[0].buffer.shape[0])


def elements_held(op: Apply, role: Role) -> tuple[float, ...]:
    """Return how many elements of each argument a thread holds, each row's scores in few threads.

    As `held`, but for the numbers about rows, which a row's quad holds elsewhere.
    """
    rows = op.args[0].buffer.shape[0]
    stats = max(1.0, rows / (LANES * role.warps))
    return tuple(
        stats * x.buffer.shape[1] if x.buffer.shape[1] < STATISTICS else held(x, role)
        for x in op.args
    )


def apply_mix(op: Apply, role: Role, profile: Profile) -> Mix:
    """Return the mix of a tile function over all warps, its rows laid out as tensor memory has it.

    Where one instruction takes the maximum of three numbers, a row maximum takes half as many.
    """
    elements = elements_held(op, role)
    mix = op.fn.mix(elements, op.mask is not None)
    if op.fn.chain and profile.has("max3"):
        mix = mix.plus(Mix(alu=-elements[0] / 2))
    return mix.times(role.warps)


def mma_steps(op: Mma) -> int:
    """Return the instructions of a product: 128 rows, up to 256 columns, 32 bytes deep."""
    m, n, k = op.shape
    depth = k * tile_bytes(op.b) // (n * k)
    return math.ceil(m / TMEM_LANES) * math.ceil(n / WIDEST) * math.ceil(depth / STEP_BYTES)


def mma_mix(op: Mma) -> Mix:
    """Return the mix of a product, which one thread issues: descriptors and a multiply a step."""
    steps = mma_steps(op)
    return Mix(tensor=steps, other=4 * steps + 10)


def operand_bytes(op: Mma) -> int:
    """Return the shared bytes that a product reads: B once for 128 rows, A for 256 columns."""
    m, n, _ = op.shape
    a = tile_bytes(op.a) if op.a.buffer.space == "smem" else 0
    return a * math.ceil(n / WIDEST) + tile_bytes(op.b) * math.ceil(m / TMEM_LANES)


def tensor_cycles(op: Mma, machine: Machine, dtype: str) -> float:
    """Return the cycles for which a product keeps the tensor cores: short tiles leave rows idle.

    Like a wgmma it keeps them while it waits for operands of shared memory.
    """
    m, n, k = op.shape
    rows = TMEM_LANES * math.ceil(m / TMEM_LANES)
    busy = 2 * rows * n * k / machine.tensor_flops(dtype)
    return max(busy, operand_bytes(op) / machine.profile.rates.smem_bytes)
