"""Inputs of an fp8 problem: block quantisation and incoherent processing.

Source: FlashAttention-3 (Shah et al., 2024, arXiv 2407.08608), section 3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.errors import ProblemError
from simgpu.tensor import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

LARGEST = 448.0  # of e4m3


def quantize(x: Array, block: int | None = None) -> tuple[Array, Array]:
    """Return ``x`` in e4m3 and its scales, one for ``block`` rows (default: for the whole array).

    ``x`` is (batch, heads, rows, columns) and the scales (batch, heads, blocks, 1) in fp32; a
    block's values are its e4m3 values times its scale.
    """
    rows = x.shape[2]
    step = block or rows
    starts = range(0, rows, step)
    largest = np.maximum.reduceat(np.abs(x.astype(np.float32)).max(axis=3), starts, axis=2)
    if block is None:
        largest = np.full_like(largest, largest.max())
    scales = np.where(largest > 0, largest / np.float32(LARGEST), np.float32(1))[..., None]
    each = np.repeat(scales, step, axis=2)[:, :, :rows]
    low: Array = (x.astype(np.float32) / each).astype(numpy_dtype("fp8"))
    return low, scales


def incoherent(x: Array, seed: int = 0) -> Array:
    """Multiply the rows of ``x`` by random signs and a Hadamard matrix: orthogonal, O(d log d).

    Done to Q and K with one seed it leaves QKᵀ as it is and spreads outliers over a row. Raises
    ProblemError unless the columns are a power of two.
    """
    d = x.shape[-1]
    if d & (d - 1):
        raise ProblemError(f"head_dim is {d}: a Hadamard matrix needs a power of two")
    signs = np.random.default_rng(seed).choice(np.array([-1.0, 1.0], np.float32), d)
    y: Array = x.astype(np.float32) * signs
    half = 1
    while half < d:
        pairs = y.reshape(*x.shape[:-1], d // (2 * half), 2, half)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        y = np.stack((a + b, a - b), axis=-2).reshape(x.shape)
        half *= 2
    y /= np.float32(np.sqrt(d))
    return y


def fp8_inputs(
    inputs: dict[str, Array],
    block_m: int,
    block_n: int,
    *,
    by_block: bool = True,
    spread: bool = True,
    seed: int = 0,
) -> dict[str, Array]:
    """Return what an fp8 schedule with ``block_scales`` reads, from Q, K and V of more bits.

    ``by_block`` gives each block of ``block_m`` rows of Q and of ``block_n`` keys its scale, else
    each tensor has one; ``spread`` is incoherent processing
    of Q and K.
    """
    found: dict[str, Array] = {}
    for name, rows in (("Q", block_m), ("K", block_n), ("V", block_n)):
        x = inputs[name].astype(np.float32)
        if spread and name != "V":
            x = incoherent(x, seed)
        found[name], scales = quantize(x, rows if by_block else None)
        wanted = -(-x.shape[2] // rows)
        found[f"{name}_scale"] = np.broadcast_to(scales, (*x.shape[:2], wanted, 1)).copy()
    return found
