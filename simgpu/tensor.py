"""Tensors in global memory and the tiles of them that schedules name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from simgpu.errors import ProblemError, did_you_mean
from simgpu.index import Index, as_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

#: Bytes an element, by the names that problems use.
DTYPE_BYTES = {"fp8": 1, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}


def dtype_bytes(dtype: str) -> int:
    """Return the bytes of one element; ProblemError for an unknown dtype."""
    if dtype not in DTYPE_BYTES:
        raise ProblemError(f"dtype {dtype!r} is unknown{did_you_mean(dtype, DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


def numpy_dtype(dtype: str) -> np.dtype[np.generic]:
    """Return the NumPy dtype (bf16 and fp8 e4m3 by ml_dtypes)."""
    import ml_dtypes
    import numpy as np

    dtype_bytes(dtype)
    found: object = {
        "fp8": ml_dtypes.float8_e4m3fn,
        "bf16": ml_dtypes.bfloat16,
        "fp16": np.float16,
        "fp32": np.float32,
        "fp64": np.float64,
    }[dtype]
    return np.dtype(found)  # type: ignore[call-overload,no-any-return]


def accumulator(dtype: str) -> str:
    """Return the dtype in which products of ``dtype`` are summed: fp64 for fp64, else fp32."""
    return "fp64" if dtype == "fp64" else "fp32"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One (batch, heads, rows, cols) array in global memory; tiles are cut from rows and cols.

    ``heads`` says whether there is one matrix for each query head or for each K/V head;
    ``kind`` whether the kernel reads it, writes it, or uses it between its launches.
    """

    name: str
    rows: int
    cols: int
    dtype: str
    heads: Literal["q", "kv"]
    kind: Literal["input", "output", "scratch"]

    def tile(
        self, row_block: int | Index, rows: int, col_block: int | Index = 0, cols: int | None = None
    ) -> Tile:
        """Return block ``row_block`` of height ``rows`` (and of width ``cols``, default all)."""
        cols = self.cols if cols is None else cols
        return Tile(self, as_index(row_block) * rows, rows, as_index(col_block) * cols, cols)


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows × cols elements of a tensor; what lies outside the tensor reads 0 and is not written."""

    tensor: Tensor
    row: Index
    rows: int
    col: Index
    cols: int

    @property
    def outside(self) -> bool:
        """Whether it lies beyond the end of its tensor, wherever a loop or a CTA stands."""
        return not self.row.terms and self.row.base >= self.tensor.rows

    def valid(self, env: Mapping[str, int]) -> tuple[int, int]:
        """Return the (rows, cols) that lie inside the tensor."""
        rows = min(self.rows, self.tensor.rows - self.row.at(env))
        cols = min(self.cols, self.tensor.cols - self.col.at(env))
        return max(rows, 0), max(cols, 0)

    def valid_bytes(self, env: Mapping[str, int]) -> int:
        """Return the bytes of what lies inside the tensor."""
        return math.prod(self.valid(env)) * dtype_bytes(self.tensor.dtype)

    def bind(self, symbols: Mapping[str, Index]) -> Tile:
        """Return the tile with symbols replaced by indices."""
        row, col = self.row.bind(symbols), self.col.bind(symbols)
        return Tile(self.tensor, row, self.rows, col, self.cols)

    def __str__(self) -> str:
        cols = "" if self.cols == self.tensor.cols else f", {self.col}:+{self.cols}"
        return f"{self.tensor.name}[{self.row}:+{self.rows}{cols}]"
