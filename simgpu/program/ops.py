"""The operations a program is made of: a closed union that every reading matches whole.

An asynchronous operation returns at issue and signals when it has landed; whoever needs the result
waits for that signal. Everything else blocks its role until it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from simgpu.tensor import Tile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.index import Index
    from simgpu.problem import TileMask
    from simgpu.program.mix import Mix
    from simgpu.program.tile import Barrier, Operand, Signal, View
    from simgpu.program.tilefn import TileFn

#: How bytes travel: by the TMA unit, by cp.async, by a warp's own loads and stores.
Path = Literal["tma", "cp_async", "direct"]

#: The instruction that a kernel multiplies with, by its name in PTX.
Instruction = Literal["mma.sync", "wgmma"]


@dataclass(frozen=True, slots=True)
class Copy:
    """Move a tile between global memory, shared memory and registers.

    With ``signal`` it is asynchronous: it orders nothing until its signal is waited for. A cp.async
    copy holds the issuing warps until the load unit has taken it; a TMA copy holds nobody.
    ``reduce="add"`` adds to the destination atomically (global memory only). ``guarded``: each
    access is predicated, on bounds that the kernel does not know when it is compiled. By TMA
    ``multicast`` CTAs of a cluster get the same tile by one read of L2.
    """

    src: Operand
    dst: Operand
    path: Path = "direct"
    signal: Signal | None = None
    reduce: Literal["add"] | None = None
    guarded: bool = False
    multicast: int = 1

    @property
    def fills_zeros(self) -> bool:
        """Whether it is a cp.async that is switched off: it writes zeros, and nobody waits."""
        off = isinstance(self.src, Tile) and self.src.outside
        return off and self.path == "cp_async" and self.signal is None

    def bind(self, symbols: Mapping[str, Index]) -> Copy:
        """Return the copy with symbols replaced by indices."""
        signal = self.signal.bind(symbols) if self.signal else None
        src, dst = self.src.bind(symbols), self.dst.bind(symbols)
        return replace(self, src=src, dst=dst, signal=signal)


@dataclass(frozen=True, slots=True)
class Mma:
    """dst (+)= a·b on the tensor cores; MMAs of one role execute in order.

    ``signal`` makes it asynchronous (wgmma, tcgen05); a machine whose MMA is synchronous executes
    it at issue. ``parts`` > 1 splits the inner dimension: part g of dst (rows g·M to (g+1)·M) is
    a[:, part g]·b[part g, :], as warps do that own separate keys (split-K). ``serial``: the
    compiler waits for each of its instructions before it issues the next. ``instruction`` is what
    the kernel is written with; None: the best that the machine has.
    """

    dst: View
    a: View
    b: View
    accumulate: bool
    signal: Signal | None = None
    parts: int = 1
    serial: bool = False
    instruction: Instruction | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, K) of the whole product."""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]

    def bind(self, symbols: Mapping[str, Index]) -> Mma:
        """Return the MMA with symbols replaced by indices."""
        signal = self.signal.bind(symbols) if self.signal else None
        dst, a, b = (x.bind(symbols) for x in (self.dst, self.a, self.b))
        return replace(self, dst=dst, a=a, b=b, signal=signal)


@dataclass(frozen=True, slots=True)
class Apply:
    """Run a tile function on register or shared tiles, in place; blocks its role.

    ``adjust`` is what a compiler's counts add to the analytic mix of the steps around this one,
    over all warps; it may be negative on a pipe. ``spilled`` registers of a thread go to local
    memory and come back meanwhile.
    """

    fn: TileFn
    args: tuple[View, ...]
    mask: TileMask | None = None
    scale: float = 1.0
    adjust: Mix | None = None
    spilled: int = 0

    def bind(self, symbols: Mapping[str, Index]) -> Apply:
        """Return the application with symbols replaced by indices."""
        mask = self.mask.bind(symbols) if self.mask else None
        return replace(self, args=tuple(x.bind(symbols) for x in self.args), mask=mask)


@dataclass(frozen=True, slots=True)
class Arrive:
    """Arrive at a barrier; orders everything this role did before it, blocks nothing."""

    signal: Signal

    def bind(self, symbols: Mapping[str, Index]) -> Arrive:
        """Return the arrival with symbols replaced by indices."""
        return Arrive(self.signal.bind(symbols))


@dataclass(frozen=True, slots=True)
class Wait:
    """Block until the phase of ``signal`` has completed (``lag`` phases earlier, if given).

    A producer that wants to fill use u of a ring waits with lag 1: for the release of the use that
    held the slot before.
    """

    signal: Signal
    lag: int = 0

    @property
    def barrier(self) -> Barrier:
        """The barrier waited on."""
        return self.signal.barrier

    def bind(self, symbols: Mapping[str, Index]) -> Wait:
        """Return the wait with symbols replaced by indices."""
        return Wait(self.signal.bind(symbols), self.lag)


Op = Copy | Mma | Apply | Arrive | Wait


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop body recorded once: executed for ``var`` = 0 … trips - 1.

    ``stretch`` is how much longer a pass takes, as it was compiled, than its operations say.
    """

    var: str
    trips: int
    body: tuple[Op | Repeat, ...]
    stretch: float = 1.0

    def bind(self, symbols: Mapping[str, Index]) -> Repeat:
        """Return the loop with an outer loop's symbols replaced in its body."""
        return replace(self, body=tuple(op.bind(symbols) for op in self.body))


Step = Op | Repeat
