"""On-chip storage that schedules declare: buffers, rings of stages, the barriers beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from simgpu.index import Index
from simgpu.tensor import Tile, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

Space = Literal["smem", "regs"]

_ZERO = Index()


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tile in shared memory or registers; ``stages`` of them when it is a ring.

    Where warps repeat one another's rows (split-d), a tile shared out ``by_columns`` is not. An
    ``exchange`` buffer holds what warps pass to one another. One that lies ``over`` another buffer
    has its bytes from ``offset`` on in place of bytes of its own. ``threads`` hold each row of a
    tile of statistics; None where it is the quad that holds a row of a product.
    """

    name: str
    shape: tuple[int, int]
    dtype: str
    space: Space
    stages: int = 1
    by_columns: bool = False
    exchange: bool = False
    over: str | None = None
    offset: int = 0
    threads: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all stages."""
        return math.prod(self.shape) * dtype_bytes(self.dtype) * self.stages

    @property
    def T(self) -> View:
        """The buffer read transposed."""
        return View(self).T


@dataclass(frozen=True, slots=True)
class View:
    """One stage of a buffer as an operand: the ``use``-th fill lies in slot ``use mod stages``."""

    buffer: Buffer
    use: Index = _ZERO
    transposed: bool = False

    def slot(self, env: Mapping[str, int]) -> int:
        """Return the stage that holds this use."""
        return self.use.at(env) % self.buffer.stages

    @property
    def T(self) -> View:
        """The view read transposed."""
        return replace(self, transposed=not self.transposed)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols) as an operand."""
        rows, cols = self.buffer.shape
        return (cols, rows) if self.transposed else (rows, cols)

    def bind(self, symbols: Mapping[str, Index]) -> View:
        """Return the view with symbols replaced by indices."""
        return replace(self, use=self.use.bind(symbols))

    def __str__(self) -> str:
        ring = f"[({self.use})%{self.buffer.stages}]" if self.buffer.stages > 1 else ""
        return f"{self.buffer.name}{ring}{'ᵀ' if self.transposed else ''}"


Operand = Tile | View


@dataclass(frozen=True, slots=True)
class Barrier:
    """A counter of phases for each of ``stages`` slots; a phase completes after ``count`` arrivals.

    ``mbarrier`` lives in shared memory, ``named`` is bar.sync or bar.arrive, and ``group`` is what
    a warp keeps of its own asynchronous work (wgmma.wait_group, a scoreboard): no instruction
    arrives on it.
    """

    name: str
    kind: Literal["mbarrier", "named", "group"]
    count: int = 1
    stages: int = 1


@dataclass(frozen=True, slots=True)
class Signal:
    """An arrival on the barrier phase that belongs to the ``use``-th use of its slots.

    Use u means slot ``u mod stages``, phase ``u div stages``. An arrival or a wait for a use below
    zero is void: every barrier begins as if an earlier phase had completed.
    """

    barrier: Barrier
    use: Index

    def bind(self, symbols: Mapping[str, Index]) -> Signal:
        """Return the signal with symbols replaced by indices."""
        return Signal(self.barrier, self.use.bind(symbols))

    def __str__(self) -> str:
        return f"{self.barrier.name}#{self.use}"


@dataclass(frozen=True, slots=True)
class Ring:
    """A buffer of several stages with its full and empty barriers, one of each a stage."""

    buffer: Buffer
    full: Barrier
    empty: Barrier
