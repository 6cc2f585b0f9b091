"""K and V of FlashAttention-3 on their way to the consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.problem import BlockRange
from simgpu.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simgpu.index import Index
    from simgpu.problem import Attention
    from simgpu.program.builder import Cta
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import Ring


class Stream:
    """K and V on their way through two rings, in the order in which they are used.

    ``k_first`` is the order of overlapped passes, which take K of block j with V of block j + 1.
    The CTAs of a ``cluster`` stand at the same tile and get it together.
    """

    def __init__(
        self,
        cta: Cta,
        p: Attention,
        shape: tuple[int, int],
        stages: int,
        consumers: int,
        *,
        k_first: bool,
        scales: bool = False,
        cluster: int = 1,
    ) -> None:
        self.k = cta.ring("k", shape, p.dtype, stages=stages, consumers=consumers)
        self.v = cta.ring("v", shape, p.dtype, stages=stages, consumers=consumers)
        self._problem, self._shape = p, shape
        self._ahead, self._k_first, self._cluster = stages - 1, k_first, cluster
        #: Rings of the scales of K's and V's blocks, where each block has its own.
        self.scales: dict[str, Ring] = {}
        for name in ("K", "V") if scales else ():
            self.scales[name] = cta.ring(
                f"{name.lower()}_scale", (1, 1), "fp32", stages=stages, consumers=consumers
            )

    def produce(
        self, w: RoleBuilder, blocks: list[BlockRange], q: Callable[[RoleBuilder], None]
    ) -> None:
        """Load everything, Q after the first K; the rings' credits hold the producer back."""
        if not blocks:
            q(w)
            return
        first, *others = blocks
        self._load_k(w, first.start)
        q(w)
        if not self._k_first:
            self._load_v(w, first.start)
        for some in others:
            for i in w.repeat(len(some)):
                self._load(w, some.stop - 1 - i)
        self.end(w, blocks[-1])

    def begin(self, w: RoleBuilder, first: BlockRange) -> None:
        """Load the K that is used before any V."""
        if self._k_first:
            self._load_k(w, first.start)

    def end(self, w: RoleBuilder, last: BlockRange) -> None:
        """Load the V that is used after all K."""
        if self._k_first:
            self._load_v(w, last.start)

    def passes(self, w: RoleBuilder, blocks: BlockRange, *, loads: bool) -> Iterator[Index]:
        """Count down through ``blocks``; who ``loads`` does so ``stages`` - 1 passes ahead."""

        def load(i: int | Index) -> None:
            self._load(w, blocks.stop - 1 - i)

        if not loads:
            for i in w.repeat(len(blocks)):
                yield blocks.stop - 1 - i
            return
        for i in w.pipelined(BlockRange(0, len(blocks), blocks.masked), load, self._ahead):
            yield blocks.stop - 1 - i

    def _load(self, w: RoleBuilder, j: int | Index) -> None:
        self._load_k(w, j)
        self._load_v(w, j + 1 if self._k_first else j)

    def _load_k(self, w: RoleBuilder, j: int | Index) -> None:
        rows, cols = self._shape
        tile = self._problem.k.tile(j, rows, cols=cols)
        w.load(tile, self.k, path="tma", multicast=self._cluster)
        for name, ring in self.scales.items():  # V's is wanted when P is rounded, before V
            blocks = self._problem.kv_tiles(rows)
            scale = Tensor(f"{name}_scale", blocks, 1, "fp32", "kv", "input")
            w.load(scale.tile(j, 1), ring, path="tma")

    def _load_v(self, w: RoleBuilder, j: int | Index) -> None:
        rows, cols = self._shape
        tile = self._problem.v.tile(j, rows, cols=cols)
        w.load(tile, self.v, path="tma", multicast=self._cluster)
