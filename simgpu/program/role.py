"""Recording a role: plain calls become operations, in program order.

A loop body is recorded once and its counters become affine in the loop variable when the loop ends.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from simgpu.errors import ScheduleError
from simgpu.index import Index
from simgpu.program.ops import Apply, Arrive, Copy, Instruction, Mma, Path, Repeat, Wait
from simgpu.program.tile import Barrier, Operand, Ring, Signal, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simgpu.problem import BlockRange, TileMask
    from simgpu.program.builder import Cta
    from simgpu.program.ops import Step
    from simgpu.program.tilefn import TileFn
    from simgpu.tensor import Tile


@dataclass(slots=True)
class _Frame:
    """A loop being recorded: counters touched inside it start from a placeholder symbol."""

    var: str
    steps: list[Step] = field(default_factory=list)
    counters: dict[str, Index] = field(default_factory=dict)


class RoleBuilder:
    """Records the operations of one role."""

    def __init__(self, cta: Cta, name: str, instruction: Instruction | None = None) -> None:
        self._name, self._instruction = name, instruction
        self._frames = [_Frame("")]
        self._loops = 0
        self._mma = cta._barrier(f"{name}.mma", "group", 1, 1)
        self._fetches = {"loads": cta._barrier(f"{name}.loads", "group", 1, 1)}
        self._cta = cta
        self._sync: Barrier | None = None
        self._early = 0
        self._late: int | None = None

    @property
    def steps(self) -> list[Step]:
        """What has been recorded so far."""
        return self._frames[-1].steps

    @property
    def overlap(self) -> tuple[int, int]:
        """How many of the first steps are early, and how many of the last are late."""
        return self._early, 0 if self._late is None else len(self.steps) - self._late

    def early(self) -> None:
        """What was recorded so far comes, in a persistent CTA, before the last tile's `late`."""
        self._early = len(self.steps)

    def late(self) -> None:
        """What is recorded from here on comes, in a persistent CTA, after the next `early`."""
        self._late = len(self.steps)

    # -- loops and counters

    def repeat(self, trips: int) -> Iterator[Index]:
        """Record the body of ``for i in w.repeat(trips)`` once; i is symbolic inside."""
        if trips <= 0:
            return
        frame = _Frame(f"i{self._loops}")
        self._loops += 1
        self._frames.append(frame)
        i = Index(terms=((frame.var, 1),))
        yield i
        self._frames.pop()
        symbols: dict[str, Index] = {}
        for key, end in frame.counters.items():
            symbol = _placeholder(frame.var, key)
            stride = (end - Index(terms=((symbol, 1),))).base
            begin = self._count(key)
            symbols[symbol] = begin + i * stride
            self._frames[-1].counters[key] = begin + stride * trips
        self.steps.append(Repeat(frame.var, trips, tuple(s.bind(symbols) for s in frame.steps)))

    def pipelined(
        self,
        blocks: BlockRange,
        load: Callable[[int | Index], None],
        ahead: int,
        past_end: Callable[[int | Index], None] | None = None,
    ) -> Iterator[Index]:
        """Loop over ``blocks`` with the loads of block j + ``ahead`` issued at the end of pass j.

        The first ``ahead`` blocks are loaded before the loop. With ``ahead`` 0 nothing is loaded
        here: the body does it itself. ``past_end`` takes the place of ``load`` for each of the
        ``ahead`` blocks behind the last one, which it counts from 0; without it they are left out.
        """
        steady = max(len(blocks) - ahead, 0)
        few = len(blocks) - steady  # loads before the loop, and passes after the last load
        if ahead:
            for j in self.repeat(few):
                load(j + blocks.start)
            if past_end:
                for j in self.repeat(ahead - few):
                    past_end(j)
        for j in self.repeat(steady):
            yield j + blocks.start
            if ahead:
                load(j + blocks.start + ahead)
        for j in self.repeat(few):
            yield j + blocks.start + steady
            if past_end:
                past_end(j + (ahead - few))

    def _count(self, key: str) -> Index:
        frame = self._frames[-1]
        if key not in frame.counters:
            symbol = ((_placeholder(frame.var, key), 1),) if frame.var else ()
            frame.counters[key] = Index(terms=symbol)
        return frame.counters[key]

    def _next(self, key: str) -> Index:
        """Return the counter's value and advance it."""
        value = self._count(key)
        self._frames[-1].counters[key] = value + 1
        return value

    # -- data movement

    def copy(
        self,
        src: Operand,
        dst: Operand,
        *,
        path: Path = "direct",
        signal: Signal | Barrier | None = None,
        reduce: Literal["add"] | None = None,
        guarded: bool = False,
    ) -> None:
        """Copy a tile; asynchronously when a signal, or a barrier to arrive at, is given."""
        if isinstance(signal, Barrier):
            signal = self._arrival(signal)
        self.steps.append(Copy(src, dst, path, signal, reduce, guarded))

    def fetch(
        self, src: Operand, dst: View, *, group: str = "loads", guarded: bool = False
    ) -> Signal:
        """Start loading a tile, or storing it to shared memory; wait for the signal before use.

        The warps do it themselves, between other instructions; one such copy of a group at a time.
        """
        if group not in self._fetches:
            self._fetches[group] = self._cta._barrier(f"{self._name}.{group}", "group", 1, 1)
        signal = Signal(self._fetches[group], self._next(group))
        self.copy(src, dst, signal=signal, guarded=guarded)
        return signal

    def load(self, src: Tile, ring: Ring, *, path: Path, multicast: int = 1) -> None:
        """Acquire the ring's next slot and start filling it; landing completes its full barrier.

        With ``multicast`` by TMA so many CTAs of a cluster get the tile by one read.
        """
        fill = self._next(f"{ring.buffer.name}.fill")
        self.steps.append(Wait(Signal(ring.empty, fill), lag=1))
        full = Signal(ring.full, fill)
        self.steps.append(Copy(src, View(ring.buffer, fill), path, full, multicast=multicast))

    def zero_fill(self, src: Tile, ring: Ring, *, past: int | Index) -> None:
        """Issue a cp.async of which nothing lies in the tensor: it writes zeros, nobody waits.

        They go where the ``past``-th load from here on would go.
        """
        slot = self._count(f"{ring.buffer.name}.fill") + past
        self.copy(src, View(ring.buffer, slot), path="cp_async")

    def take(self, ring: Ring) -> View:
        """Wait for the ring's next slot to be full, and return it."""
        use = self._next(f"{ring.buffer.name}.take")
        self.steps.append(Wait(Signal(ring.full, use)))
        return View(ring.buffer, use)

    def release(self, ring: Ring, *, lag: int = 0) -> None:
        """Give back the slot taken last, or ``lag`` slots before (nothing, while there is none)."""
        last = self._count(f"{ring.buffer.name}.take") - 1 - lag
        self.steps.append(Arrive(Signal(ring.empty, last)))

    @contextmanager
    def consume(self, ring: Ring) -> Iterator[View]:
        """Take the next slot for the length of a ``with`` block, then release it."""
        yield self.take(ring)
        self.release(ring)

    # -- arithmetic

    def mma(
        self, dst: View, a: View, b: View, *, accumulate: bool = True, parts: int = 1
    ) -> Signal:
        """Issue dst (+)= a·b; wait for the returned signal (or `wait_mma`) before using dst."""
        if a.shape[1] != b.shape[0]:
            raise ScheduleError(f"mma {a}·{b}: inner sides {a.shape[1]} and {b.shape[0]} differ")
        signal = Signal(self._mma, self._next("mma"))
        instruction = self._instruction
        self.steps.append(Mma(dst, a, b, accumulate, signal, parts, instruction=instruction))
        return signal

    def wait_mma(self, pending: int = 0) -> None:
        """Wait until at most ``pending`` of this role's MMAs are still in flight."""
        self.steps.append(Wait(Signal(self._mma, self._count("mma") - 1 - pending)))

    def apply(
        self, fn: TileFn, *args: View, mask: TileMask | None = None, scale: float = 1.0
    ) -> None:
        """Run a tile function on the given tiles, in place."""
        self.steps.append(Apply(fn, args, mask, scale))

    # -- synchronisation

    def arrive(self, barrier: Barrier) -> None:
        """Arrive at the barrier's next phase."""
        self.steps.append(Arrive(self._arrival(barrier)))

    def _arrival(self, barrier: Barrier) -> Signal:
        return Signal(barrier, self._next(f"{barrier.name}.arrive"))

    def sync(self) -> None:
        """Synchronise the warps of this role (bar.sync)."""
        self._sync = self._sync or self._cta.barrier(f"{self._name}.sync")
        self.arrive(self._sync)
        self.wait(self._sync)

    def wait(self, on: Barrier | Signal, *, ahead: int = 0) -> None:
        """Wait for a signal, or for the barrier's next phase (``ahead`` phases count as done)."""
        if isinstance(on, Barrier):
            on = Signal(on, self._next(f"{on.name}.wait"))
        self.steps.append(Wait(on, ahead))


def _placeholder(var: str, key: str) -> str:
    return f"{var}:{key}"
