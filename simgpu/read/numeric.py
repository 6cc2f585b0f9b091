"""Reading: NumPy executes the program, in any legal interleaving of its roles.

All heads and batch entries run at once (the leading axes of every array), since they share one
program. Storage starts as NaN and a released ring slot is overwritten with NaN, so that a missing
wait or release is a wrong number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, assert_never

import numpy as np

from simgpu.program.interleave import (
    AdversarialOrder,
    Order,
    Phases,
    ProgramOrder,
    RandomOrder,
    interleave,
)
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Wait
from simgpu.program.storage import Storage
from simgpu.program.tile import View
from simgpu.program.worklist import executions
from simgpu.read.reference import tensor_shape
from simgpu.tensor import Tile, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from simgpu.problem import Attention
    from simgpu.program.interleave import Action
    from simgpu.program.ops import Op, Step
    from simgpu.program.program import Launch, Recording, TileProgram
    from simgpu.program.tile import Barrier, Operand
    from simgpu.tensor import Tensor

    Array = NDArray[Any]

OrderName = Literal["program", "random", "adversarial"]


class Seen(NamedTuple):
    """An operation just executed, with its loop variables, and what storage holds now.

    ``at`` is where the CTA's tile lies in the grid, its first if it is persistent. ``buffers`` are
    the CTA's, by name and stage, (batch, heads, rows, cols); ``memory`` the global tensors by name.
    Both are the live arrays: copy what is to be kept.
    """

    launch: str
    at: dict[str, int]
    op: Op
    env: dict[str, int]
    buffers: Mapping[tuple[str, int], Array]
    memory: Mapping[str, Array]


def run_numeric(
    recording: Recording,
    inputs: dict[str, Array],
    *,
    order: OrderName = "program",
    seed: int = 0,
    watch: Callable[[Seen], None] | None = None,
) -> dict[str, Array]:
    """Execute every launch and return its output and scratch tensors by name.

    Of a persistent launch one CTA takes all tiles of a head.
    ``inputs`` holds Q, K, V as (batch, heads, seq, head_dim). ``watch`` is called after each
    operation. Raises VerifyError on a deadlock.
    """
    memory = {name: np.array(array) for name, array in inputs.items()}
    for number, launch in enumerate(recording.launches):
        for program, at in executions(launch):
            chosen = _order(order, f"{seed} {number} {tuple(at.items())}")
            cta = _NumericCta(recording.problem, launch, program, memory)
            for action in cta.run(dict(at), chosen):
                if watch is not None:
                    seen = action.op, action.env, cta.buffers, memory
                    watch(Seen(launch.name, dict(at), *seen))
    return {n: a for n, a in memory.items() if n not in inputs}


def _order(name: OrderName, seed: str) -> Order:
    match name:
        case "program":
            return ProgramOrder()
        case "random":
            return RandomOrder(seed)
        case "adversarial":
            return AdversarialOrder(seed)
        case other:
            assert_never(other)


class _NumericCta:
    """The storage of one CTA for all heads and batch entries at once."""

    def __init__(
        self, problem: Attention, launch: Launch, program: TileProgram, memory: dict[str, Array]
    ) -> None:
        self._problem, self._memory, self._program = problem, memory, program
        self._lead = (problem.batch, launch.grid["head"])
        self._kv_head = np.arange(self._lead[1]) // problem.group
        self.buffers = {
            (b.name, slot): np.full((*self._lead, *b.shape), np.nan, numpy_dtype(b.dtype))
            for b in program.buffers
            for slot in range(b.stages)
        }
        self._released = {ring.empty.name: ring for ring in program.rings}
        self._storage = Storage(program.buffers)
        for role in program.roles:
            self._allocate(role.body)

    def _allocate(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            if isinstance(step, Copy):
                for x in (step.src, step.dst):
                    if isinstance(x, Tile) and x.tensor.name not in self._memory:
                        shape = tensor_shape(self._problem, x.tensor)
                        empty = np.full(shape, np.nan, numpy_dtype(x.tensor.dtype))
                        self._memory[x.tensor.name] = empty
            elif not isinstance(step, Mma | Apply | Arrive | Wait):
                self._allocate(step.body)

    def run(self, env: dict[str, int], order: Order) -> Iterator[Action]:
        """Execute the CTA at coordinates ``env``; yield each action when it has been done."""
        phases = Phases()
        with np.errstate(invalid="ignore", over="ignore"):
            for action in interleave(self._program, env, order, phases):
                if action.kind != "issue":
                    self._execute(action, phases)
                    yield action

    def _execute(self, action: Action, phases: Phases) -> None:
        op, env = action.op, action.env
        match op:
            case Copy():
                self._write(op.dst, self._read(op.src, env), env, op.reduce == "add")
            case Mma():
                self._mma(op, env)
            case Apply(fn, args, mask, scale):
                visible = None
                if mask is not None:
                    row, col = mask.row.at(env), mask.col.at(env)
                    visible = self._problem.visible(row, mask.rows, col, mask.cols)
                fn.run(tuple(self._view(x, env) for x in args), visible, scale)
            case Arrive(signal):
                self._poison(signal.barrier, signal.use.at(env), phases)
            case Wait():
                pass
            case other:
                assert_never(other)

    def _mma(self, op: Mma, env: dict[str, int]) -> None:
        dst = self._view(op.dst, env)
        a, b = (self._view(x, env).astype(dst.dtype) for x in (op.a, op.b))
        rows, depth = a.shape[-2], a.shape[-1] // op.parts
        for part in range(op.parts):
            inner = slice(part * depth, (part + 1) * depth)
            product = a[..., inner] @ b[..., inner, :]
            out = dst[..., part * rows : (part + 1) * rows, :]
            out[...] = out + product if op.accumulate else product

    def _poison(self, barrier: Barrier, use: int, phases: Phases) -> None:
        """Overwrite a ring slot once its last consumer has released it."""
        ring = self._released.get(barrier.name)
        if ring is None or use < 0:
            return
        slot = use % barrier.stages
        if phases.last_arrival(barrier, slot):
            self.buffers[ring.buffer.name, slot][...] = np.nan

    def _view(self, view: View, env: dict[str, int]) -> Array:
        array = self.buffers[view.buffer.name, view.slot(env)]
        return np.swapaxes(array, -1, -2) if view.transposed else array

    def _read(self, operand: Operand, env: dict[str, int]) -> Array:
        if isinstance(operand, View):
            return self._view(operand, env)
        shape = (*self._lead, operand.rows, operand.cols)
        value = np.zeros(shape, numpy_dtype(operand.tensor.dtype))
        rows, cols = operand.valid(env)
        value[..., :rows, :cols] = self._region(operand, env)[:, self._heads(operand.tensor)]
        return value

    def _region(self, tile: Tile, env: dict[str, int]) -> Array:
        (rows, cols), row, col = tile.valid(env), tile.row.at(env), tile.col.at(env)
        return self._memory[tile.tensor.name][..., row : row + rows, col : col + cols]

    def _heads(self, tensor: Tensor) -> Array:
        return np.arange(self._lead[1]) if tensor.heads == "q" else self._kv_head

    def _write(self, operand: Operand, value: Array, env: dict[str, int], add: bool) -> None:
        if isinstance(operand, View):
            view = self._view(operand, env)
            view[...] = value.astype(view.dtype)
            for beside in self._storage.beside(operand.buffer.name, operand.slot(env)):
                self.buffers[beside][...] = np.nan
            return
        rows, cols = operand.valid(env)
        region, heads = self._region(operand, env), self._heads(operand.tensor)
        value = value[..., :rows, :cols].astype(region.dtype)
        if add:
            np.add.at(region, (slice(None), heads), value)  # type: ignore[arg-type]
        else:
            region[:, heads] = value
