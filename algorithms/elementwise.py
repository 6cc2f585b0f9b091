"""Kernels that touch a tensor element by element, as PyTorch's elementwise_kernel<128, 4> does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.program import row_fns
from simgpu.program.program import Grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from simgpu.index import Index
    from simgpu.problem import Attention, TileMask
    from simgpu.program.builder import Cta
    from simgpu.tensor import Tensor

THREADS, EACH = 128, 4


def _block(rows: int, cols: int) -> tuple[int, int]:
    """Return the rows and columns of one CTA."""
    wide = min(cols, THREADS * EACH)
    return max(1, min(rows, THREADS * EACH // wide)), wide


def elements(rows: int, cols: int, p: Attention) -> Grid:
    """Return the grid over a tensor of ``rows`` and ``cols`` for each query head."""
    high, wide = _block(rows, cols)
    return Grid(n=-(-cols // wide), m=-(-rows // high), head=p.heads_q, batch=p.batch)


def touch_elements(
    cta: Cta,
    source: Tensor,
    target: Tensor,
    mask: Callable[[Index, int, Index, int], TileMask] | None,
) -> None:
    """Record one CTA that reads elements of one tensor, masks them, and writes another."""
    high, wide = _block(source.rows, source.cols)
    x = cta.regs("x", (high, wide), source.dtype)
    with cta.role("all", warps=THREADS // 32) as w:
        w.copy(source.tile(cta.m, high, cta.n, wide), x)
        w.apply(row_fns.elementwise, x, mask=mask(cta.m, high, cta.n, wide) if mask else None)
        w.copy(x, target.tile(cta.m, high, cta.n, wide))
