"""What attention is: a float64 reference, and standard attention with a kernel's own roundings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.tensor import accumulator, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simgpu.problem import Attention

    Array = NDArray[Any]


def random_inputs(problem: Attention, seed: int = 0) -> dict[str, Array]:
    """Return Q, K and V from N(0, 1) in the problem's dtype: (batch, heads, seq, head_dim)."""
    rng = np.random.default_rng(seed)
    return {
        t.name: rng.standard_normal(tensor_shape(problem, t)).astype(numpy_dtype(t.dtype))
        for t in (problem.q, problem.k, problem.v)
    }


def tensor_shape(problem: Attention, tensor: Any) -> tuple[int, int, int, int]:
    """Return (batch, heads, rows, cols) of a tensor of this problem."""
    heads = problem.heads_q if tensor.heads == "q" else problem.heads_kv
    return problem.batch, heads, tensor.rows, tensor.cols


def reference(problem: Attention, inputs: dict[str, Array]) -> dict[str, Array]:
    """Return O and LSE in float64, from the definition; rows without keys give 0 and -inf."""
    exact = np.dtype(np.float64)
    return _attend(problem, inputs, exact, exact, exact)


def standard_rounded(
    problem: Attention,
    inputs: dict[str, Array],
    *,
    scores: str | None = None,
    divide_first: bool = False,
) -> dict[str, Array]:
    """Return standard attention with a kernel's roundings: the yardstick for a schedule's error.

    S is kept in the accumulator's precision (or rounded to dtype ``scores``), P rounded to the
    problem's dtype before PV, and O at the end. P is divided by its row sums after PV, as fused
    kernels do, or with ``divide_first`` before it is rounded, as unfused ones do.
    """
    acc, low = numpy_dtype(accumulator(problem.dtype)), numpy_dtype(problem.dtype)
    out = _attend(problem, inputs, acc, low, numpy_dtype(scores) if scores else acc, divide_first)
    return {"O": out["O"].astype(low), "LSE": out["LSE"]}


def _attend(
    problem: Attention,
    inputs: dict[str, Array],
    acc: np.dtype[Any],
    low: np.dtype[Any],
    stored: np.dtype[Any],
    divide_first: bool = False,
) -> dict[str, Array]:
    q = inputs["Q"].astype(acc)
    k, v = (np.repeat(inputs[n].astype(acc), problem.group, axis=1) for n in ("K", "V"))
    s = (q @ np.swapaxes(k, -1, -2)) * acc.type(problem.scale)
    s = s.astype(stored).astype(acc)
    s = np.where(problem.visible(0, problem.seq_q, 0, problem.seq_kv), s, -np.inf)
    m = s.max(axis=-1, keepdims=True)
    base = np.where(np.isneginf(m), acc.type(0), m)
    p = np.exp(s - base)
    l = p.sum(axis=-1, keepdims=True)
    seen = np.where(l > 0, l, acc.type(1))
    before, after = (seen, acc.type(1)) if divide_first else (acc.type(1), seen)
    o = np.where(l > 0, ((p / before).astype(low).astype(acc) @ v) / after, acc.type(0))
    return {"O": o, "LSE": np.where(l > 0, np.log(seen) + base, -np.inf)}


def relative_error(out: Array, ref: Array) -> float:
    """Return the largest ‖out − ref‖ / ‖ref‖ over heads; NaN counts as infinite."""
    difference = np.linalg.norm(out.astype(np.float64) - ref, axis=(-1, -2))
    norm = np.linalg.norm(ref.astype(np.float64), axis=(-1, -2))
    ratio = difference / np.where(norm > 0, norm, 1.0)
    return float("inf") if np.isnan(ratio).any() else float(ratio.max())
