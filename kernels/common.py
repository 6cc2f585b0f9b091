"""What every kernel shares: shape checks, the geometry of a launch, and tile loads."""

# Annotations stay objects here: Triton reads them.
import os
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from simgpu.errors import ProblemError, ScheduleError, UnsupportedError

HEAD_DIM_MAX = 256


@triton.jit
def load_rows(base, rows, cols, n, D: tl.constexpr, RAGGED: tl.constexpr, PAD: tl.constexpr):
    """Rows of a row-major (n, D) matrix as a (rows, columns) tile, zero outside the matrix."""
    at = base + rows[:, None] * D + cols[None, :]
    if RAGGED and PAD:
        x = tl.load(at, mask=(rows[:, None] < n) & (cols[None, :] < D), other=0.0)
    elif RAGGED:
        x = tl.load(at, mask=rows[:, None] < n, other=0.0)
    elif PAD:
        x = tl.load(at, mask=cols[None, :] < D, other=0.0)
    else:
        x = tl.load(at)
    return x


@triton.jit
def load_cols(base, rows, cols, n, D: tl.constexpr, RAGGED: tl.constexpr, PAD: tl.constexpr):
    """The same rows as a (columns, rows) tile: a transposed view, read along D."""
    at = base + rows[None, :] * D + cols[:, None]
    if RAGGED and PAD:
        x = tl.load(at, mask=(rows[None, :] < n) & (cols[:, None] < D), other=0.0)
    elif RAGGED:
        x = tl.load(at, mask=rows[None, :] < n, other=0.0)
    elif PAD:
        x = tl.load(at, mask=cols[:, None] < D, other=0.0)
    else:
        x = tl.load(at)
    return x


@triton.jit
def store_rows(base, rows, cols, n, x, D: tl.constexpr, RAGGED: tl.constexpr, PAD: tl.constexpr):
    """Write a (rows, columns) tile into a row-major (n, D) matrix; what lies outside is left."""
    at = base + rows[:, None] * D + cols[None, :]
    x = x.to(base.dtype.element_ty)
    if RAGGED and PAD:
        tl.store(at, x, mask=(rows[:, None] < n) & (cols[None, :] < D))
    elif RAGGED:
        tl.store(at, x, mask=rows[:, None] < n)
    elif PAD:
        tl.store(at, x, mask=cols[None, :] < D)
    else:
        tl.store(at, x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One attention problem as the kernels see it, read off the tensors."""

    batch: int
    heads_q: int
    heads_kv: int
    seq_q: int
    seq_kv: int
    head_dim: int

    @property
    def group(self) -> int:
        """Query heads that share one K/V head."""
        return self.heads_q // self.heads_kv

    @property
    def padded(self) -> int:
        """Head dim as a tile holds it: the next power of two, 16 at least."""
        return max(16, int(triton.next_power_of_2(self.head_dim)))


def shape_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Shape:
    """Read (batch, heads, length, head_dim) inputs; `ProblemError` says what is off."""
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ProblemError("q, k and v must be (batch, heads, length, head_dim) tensors")
    if k.shape != v.shape:
        raise ProblemError(f"k {tuple(k.shape)} and v {tuple(v.shape)} must have one shape")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ProblemError(f"q {tuple(q.shape)} and k {tuple(k.shape)} differ in batch or head_dim")
    if 0 in q.shape or 0 in k.shape or q.shape[1] % k.shape[1]:
        raise ProblemError(f"{q.shape[1]} query heads do not divide among {k.shape[1]} K/V heads")
    if q.shape[3] > HEAD_DIM_MAX or q.shape[3] % 8:
        raise ProblemError(f"head_dim {q.shape[3]}: needs a multiple of 8, {HEAD_DIM_MAX} at most")
    if not q.dtype == k.dtype == v.dtype:
        raise ProblemError(f"q, k and v must have one dtype, not {q.dtype}, {k.dtype}, {v.dtype}")
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ProblemError(f"dtype {q.dtype}: the kernels take float16, bfloat16 and float32")
    if not q.is_cuda and not interpreted():
        raise UnsupportedError(
            "the kernels need CUDA tensors; on a CPU set TRITON_INTERPRET=1 before Triton is loaded"
        )
    return Shape(
        batch=q.shape[0],
        heads_q=q.shape[1],
        heads_kv=k.shape[1],
        seq_q=q.shape[2],
        seq_kv=k.shape[2],
        head_dim=q.shape[3],
    )


def interpreted() -> bool:
    """Whether Triton runs kernels on the CPU, one program after the other."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def check_tiles(**sizes: int) -> None:
    """`ScheduleError` unless every block size is a power of two from 16, as ``tl.dot`` needs."""
    for name, size in sizes.items():
        if size < 16 or size & (size - 1):
            raise ScheduleError(f"{name}={size}: needs a power of two, 16 or more")


def blind(shape: Shape, causal: bool) -> bool:
    """Whether some query rows see no key at all (causal with more queries than keys)."""
    return causal and shape.seq_q > shape.seq_kv
