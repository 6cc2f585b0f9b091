"""The attention problem: shapes, masks, and which tiles they touch.

All mask arithmetic of the project is here. A row sees a contiguous range of keys under every mask
we have, so one function, ``visible_keys``, defines them all and everything else follows from it.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, SupportsIndex

from simgpu.errors import ProblemError
from simgpu.index import Index, as_index
from simgpu.tensor import Tensor, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Blocks ``start`` to ``stop`` (exclusive), all of them in need of a mask or none."""

    start: int
    stop: int
    masked: bool

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class TileMask:
    """The mask of the score tile whose first row and column are given (for `Apply`)."""

    row: Index
    rows: int
    col: Index
    cols: int

    def bind(self, symbols: Mapping[str, Index]) -> TileMask:
        """Return the mask with symbols replaced by indices."""
        row, col = self.row.bind(symbols), self.col.bind(symbols)
        return TileMask(row, self.rows, col, self.cols)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax(Q·Kᵀ·scale)·V for (batch, heads, seq, head_dim) tensors; GQA when heads differ.

    ``seq_q`` queries and ``seq_kv`` keys a head, ``heads_q`` a multiple of ``heads_kv``; ``dtype``
    of Q, K and V is fp8, fp16, bf16, fp32 or fp64. Masks: none; ``causal``, aligned to the bottom
    right corner when the lengths differ (as FlashAttention 2.1 and later do); ``window`` = w,
    causal and at most the w latest keys. Raises ProblemError for what makes no problem.
    """

    batch: int
    heads_q: int
    seq_q: int
    head_dim: int
    heads_kv: int = None  # type: ignore[assignment]  # as many as query heads
    seq_kv: int = None  # type: ignore[assignment]  # as many as queries
    dtype: str = "fp16"
    causal: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        for name, default in (("heads_kv", self.heads_q), ("seq_kv", self.seq_q)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        for name in ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim"):
            _check_count(name, getattr(self, name))
        if self.heads_q % self.heads_kv:
            raise ProblemError(
                f"heads_q {self.heads_q} is not divisible by heads_kv {self.heads_kv}: "
                "each K/V head serves the same number of query heads"
            )
        dtype_bytes(self.dtype)
        if self.window is not None:
            _check_count("window", self.window)
            object.__setattr__(self, "causal", True)

    @property
    def mask(self) -> Literal["none", "causal", "window"]:
        """The mask's name."""
        if self.window is not None:
            return "window"
        return "causal" if self.causal else "none"

    @property
    def group(self) -> int:
        """Query heads that share one K/V head."""
        return self.heads_q // self.heads_kv

    @property
    def scale(self) -> float:
        """1/√head_dim."""
        return 1.0 / math.sqrt(self.head_dim)

    @property
    def q(self) -> Tensor:
        """Q, (seq_q, head_dim) a query head."""
        return Tensor("Q", self.seq_q, self.head_dim, self.dtype, "q", "input")

    @property
    def k(self) -> Tensor:
        """K, (seq_kv, head_dim) a K/V head."""
        return Tensor("K", self.seq_kv, self.head_dim, self.dtype, "kv", "input")

    @property
    def v(self) -> Tensor:
        """V, (seq_kv, head_dim) a K/V head."""
        return Tensor("V", self.seq_kv, self.head_dim, self.dtype, "kv", "input")

    @property
    def o(self) -> Tensor:
        """O, (seq_q, head_dim) a query head; bf16 for fp8 problems, as FlashAttention-3 has it."""
        dtype = "bf16" if self.dtype == "fp8" else self.dtype
        return Tensor("O", self.seq_q, self.head_dim, dtype, "q", "output")

    @property
    def lse(self) -> Tensor:
        """Log-sum-exp of each row, natural logarithm; fp32 (fp64 for fp64 problems)."""
        dtype = "fp64" if self.dtype == "fp64" else "fp32"
        return Tensor("LSE", self.seq_q, 1, dtype, "q", "output")

    def scratch(
        self, name: str, rows: int, cols: int, dtype: str, heads: Literal["q", "kv"] = "q"
    ) -> Tensor:
        """Return a tensor that lives in global memory between launches; it starts as NaN."""
        return Tensor(name, rows, cols, dtype, heads, "scratch")

    def q_tiles(self, block_m: int) -> int:
        """Number of Q tiles of ``block_m`` rows."""
        return -(-self.seq_q // block_m)

    def kv_tiles(self, block_n: int) -> int:
        """Number of K/V tiles of ``block_n`` keys."""
        return -(-self.seq_kv // block_n)

    def visible_keys(self, row: int) -> tuple[int, int]:
        """Return the keys [first, last) that query ``row`` sees; equal bounds when it sees none."""
        if not self.causal:
            return 0, self.seq_kv
        diagonal = row + self.seq_kv - self.seq_q
        last = min(max(diagonal + 1, 0), self.seq_kv)
        first = 0 if self.window is None else max(diagonal + 1 - self.window, 0)
        return min(first, last), last

    def visible(self, row: int, rows: int, col: int, cols: int) -> NDArray[np.bool_]:
        """Return which of rows × cols scores exist and are visible; False outside the problem."""
        import numpy as np

        keys = np.arange(col, col + cols)
        bounds = np.zeros((rows, 2), np.int64)
        for i in range(min(rows, self.seq_q - row)):
            bounds[i] = self.visible_keys(row + i)
        first, last = bounds.T
        seen: NDArray[np.bool_] = (keys >= first[:, None]) & (keys < last[:, None])
        return seen

    def tile_state(
        self, row: int, rows: int, col: int, cols: int
    ) -> Literal["empty", "partial", "full"]:
        """Say whether a score tile is wholly hidden, partly visible, or wholly visible.

        Rows past the end of the problem count as visible: nobody stores them.
        """
        top, bottom = self.visible_keys(row), self.visible_keys(min(row + rows, self.seq_q) - 1)
        if col >= bottom[1] or col + cols <= top[0] or bottom[0] == bottom[1]:
            return "empty"
        inside = col >= bottom[0] and col + cols <= top[1]
        return "full" if inside and col + cols <= self.seq_kv else "partial"

    def kv_ranges(self, m: SupportsIndex, block_m: int, block_n: int) -> list[BlockRange]:
        """Return the K/V blocks that Q tile ``m`` needs, in order; hidden blocks are left out.

        At most three ranges: masked (the window's left edge), full, masked (the diagonal and the
        ragged end). A causal row range without keys gives an empty list. Without a mask the answer
        is the same for every tile, and ``m`` is not looked at.
        """
        m = operator.index(m) if self.causal else 0
        row, rows = m * block_m, block_m
        states = {
            j: self.tile_state(row, rows, j * block_n, block_n)
            for j in self._candidates(m, block_m, block_n)
        }
        return _ranges(states)

    def q_ranges(self, n: int, block_n: int, block_m: int) -> list[BlockRange]:
        """Return the Q blocks that see K/V block ``n``, in order (FA1's inner loop)."""
        col = n * block_n
        tiles = range(self.q_tiles(block_m))
        return _ranges({i: self.tile_state(i * block_m, block_m, col, block_n) for i in tiles})

    def _candidates(self, m: int, block_m: int, block_n: int) -> range:
        first = self.visible_keys(m * block_m)[0]
        last = self.visible_keys(min((m + 1) * block_m, self.seq_q) - 1)[1]
        return range(first // block_n, -(-last // block_n))

    def tile_mask(self, i: int | Index, block_m: int, j: int | Index, block_n: int) -> TileMask:
        """Return the mask of score tile (i, j), for an `Apply`."""
        return TileMask(as_index(i) * block_m, block_m, as_index(j) * block_n, block_n)

    @property
    def useful_flops(self) -> int:
        """4·Nq·Nk·d·heads·batch, half of it when causal (the field's convention, not a count).

        With a window, the visible share of the scores takes the place of the half.
        """
        full = 4 * self.seq_q * self.seq_kv * self.head_dim * self.heads_q * self.batch
        if self.window is not None:
            seen = sum(b - a for a, b in map(self.visible_keys, range(self.seq_q)))
            return full * seen // (self.seq_q * self.seq_kv)
        return full // 2 if self.causal else full


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ProblemError(f"{name} is {value!r}: it must be a whole number of at least 1")


def _ranges(states: Mapping[int, str]) -> list[BlockRange]:
    """Group consecutive blocks of one state; empty blocks end a range and are dropped."""
    ranges: list[BlockRange] = []
    for block, state in states.items():
        if state == "empty":
            continue
        masked = state == "partial"
        if ranges and ranges[-1].stop == block and ranges[-1].masked == masked:
            ranges[-1] = BlockRange(ranges[-1].start, block + 1, masked)
        else:
            ranges.append(BlockRange(block, block + 1, masked))
    return ranges
