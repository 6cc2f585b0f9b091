"""FlashAttention-2 forward (Dao 2023, arXiv 2307.08691, algorithm 1).

One program owns ``block_m`` query rows of one head and streams K/V past them in blocks of
``block_n``. Causal programs run a full loop over blocks that no row masks and a masked loop over
the rest; ragged key lengths put their last block into the masked loop too.
"""

# Annotations stay objects here: Triton reads them.
from typing import Any, Literal

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from simgpu.errors import ScheduleError
from simgpu.kernels.common import (
    Shape,
    blind,
    check_tiles,
    load_cols,
    load_rows,
    shape_of,
    store_rows,
)

# The best measured on an H200 at 4 batches, 32 heads and 4096 (docs/reference/kernels.md).
DEFAULTS: dict[int, dict[str, Any]] = {
    64: {"block_m": 128, "block_n": 64, "warps": 8, "stages": 3},
    128: {"block_m": 128, "block_n": 64, "warps": 4, "stages": 2},
    256: {"block_m": 128, "block_n": 64, "warps": 8, "stages": 2},
}


@triton.jit
def _block(
    acc, ell, m, q, K, V, head, j, rows, keys, cols, s2, NQ, NK,
    D: tl.constexpr, DP: tl.constexpr, BN: tl.constexpr,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, RAGGED: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Fold the keys j .. j + BN into the running (acc, ell, m) of a query tile."""
    PAD: tl.constexpr = D != DP
    if TMA:
        k = K.load([head, j, 0]).reshape(BN, DP).T
    else:
        k = load_cols(K, j + keys, cols, NK, D, RAGGED, PAD)
    s = tl.dot(q, k)
    if MASKED:
        # A finite floor: −inf minus −inf would be NaN in rows that have seen no key yet.
        at = j + keys
        if CAUSAL and RAGGED:
            visible = (rows[:, None] + (NK - NQ) >= at[None, :]) & (at[None, :] < NK)
        elif CAUSAL:
            visible = rows[:, None] + (NK - NQ) >= at[None, :]
        else:
            visible = at[None, :] < NK
        s = tl.where(visible, s * s2, -1.0e30)
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - mn[:, None])
    else:
        mn = tl.maximum(m, tl.max(s, 1) * s2)
        p = tl.exp2(s * s2 - mn[:, None])
    a = tl.exp2(m - mn)
    ell = ell * a + tl.sum(p, 1)
    acc = acc * a[:, None]
    if TMA:
        v = V.load([head, j, 0]).reshape(BN, DP)
    else:
        v = load_rows(V, j + keys, cols, NK, D, RAGGED, PAD)
    acc = tl.dot(p.to(v.dtype), v, acc)
    return acc, ell, mn


@triton.jit
def fa2_forward(
    Q, K, V, OUT, LSE, scale, NQ, NK,
    G: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, RAGGED_Q: tl.constexpr, RAGGED_K: tl.constexpr,
    BLIND: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """One query tile of one head. Grid (query tiles, batch × heads_q), x fastest."""
    PAD: tl.constexpr = D != DP
    i = tl.program_id(0)
    bh = tl.program_id(1)
    head = bh // G
    rows = i * BM + tl.arange(0, BM)
    cols = tl.arange(0, DP)
    keys = tl.arange(0, BN)
    if TMA:
        q = Q.load([bh, i * BM, 0]).reshape(BM, DP)
    else:
        q = load_rows(Q + bh.to(tl.int64) * NQ * D, rows, cols, NQ, D, RAGGED_Q, PAD)
        K += head.to(tl.int64) * NK * D
        V += head.to(tl.int64) * NK * D
    m = tl.full([BM], -float("inf"), tl.float32)
    ell = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, DP], tl.float32)
    s2 = scale * 1.4426950408889634
    full = NK
    hi = NK
    if CAUSAL:
        full = tl.maximum(i * BM + (NK - NQ) + 1, 0) // BN * BN
        hi = tl.minimum((i + 1) * BM + (NK - NQ), NK)
    if RAGGED_K:
        full = tl.minimum(full, NK // BN * BN)
    for j in tl.range(0, full, BN):
        acc, ell, m = _block(
            acc, ell, m, q, K, V, head, j, rows, keys, cols, s2, NQ, NK,
            D, DP, BN, False, CAUSAL, False, TMA,
        )  # fmt: skip
    if CAUSAL or RAGGED_K:
        for j in tl.range(full, hi, BN):
            acc, ell, m = _block(
                acc, ell, m, q, K, V, head, j, rows, keys, cols, s2, NQ, NK,
                D, DP, BN, True, CAUSAL, RAGGED_K, TMA,
            )  # fmt: skip
    if BLIND:
        seen = rows + (NK - NQ) >= 0
        acc = tl.where(seen[:, None], acc, 0.0)
        ell = tl.where(seen, ell, 1.0)
        m = tl.where(seen, m, -float("inf"))
    acc = acc / ell[:, None]
    if TMA:
        OUT.store([bh, i * BM, 0], acc.to(q.dtype).reshape(1, BM, DP))
    else:
        store_rows(OUT + bh.to(tl.int64) * NQ * D, rows, cols, NQ, acc, D, RAGGED_Q, PAD)
    lse = (m + tl.log2(ell)) * 0.6931471805599453
    if RAGGED_Q:
        tl.store(LSE + bh * NQ + rows, lse, mask=rows < NQ)
    else:
        tl.store(LSE + bh * NQ + rows, lse)


def defaults(head_dim: int) -> dict[str, Any]:
    """The measured best tile for a head dim, that of the next larger one where it has none."""
    return DEFAULTS[next(d for d in sorted(DEFAULTS) if d >= head_dim)]


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    scale: float,
    block_m: int | None = None,
    block_n: int | None = None,
    warps: int | None = None,
    stages: int | None = None,
    loads: Literal["cp_async", "tma"] = "cp_async",
) -> tuple[Any, ...]:
    """Write attention into ``out`` and its natural log-sum-exp into ``lse``; all contiguous.

    ``q`` and ``out`` are (batch, heads_q, seq_q, head_dim), ``lse`` is float32 without head_dim.
    ``loads="tma"`` loads and stores tiles through tensor descriptors (Hopper and later) in place of
    pointers (from sm_80). What is left out comes from `defaults`. Returns the compiled kernels that
    were launched. Raises `ProblemError` and `ScheduleError`. Source: arXiv 2307.08691, section 3.1.
    """
    shape = shape_of(q, k, v)
    best = defaults(shape.head_dim)
    bm = block_m or best["block_m"]
    bn = block_n or best["block_n"]
    check_tiles(block_m=bm, block_n=bn)
    if loads not in ("cp_async", "tma"):
        raise ScheduleError(f"loads={loads!r}: 'cp_async' or 'tma'")
    tma = loads == "tma"
    args = _descriptors(shape, bm, bn, q, k, v, out) if tma else (q, k, v, out)
    kernel = fa2_forward[(triton.cdiv(shape.seq_q, bm), shape.batch * shape.heads_q)](
        *args,
        lse,
        scale,
        shape.seq_q,
        shape.seq_kv,
        G=shape.group,
        D=shape.head_dim,
        DP=shape.padded,
        BM=bm,
        BN=bn,
        CAUSAL=causal,
        RAGGED_Q=shape.seq_q % bm != 0,
        RAGGED_K=shape.seq_kv % bn != 0,
        BLIND=blind(shape, causal),
        TMA=tma,
        num_warps=warps or best["warps"],
        num_stages=stages or best["stages"],
    )
    return (kernel,)


def _descriptors(shape: Shape, bm: int, bn: int, *tensors: torch.Tensor) -> tuple[Any, ...]:
    """Tensor descriptors of q, k, v, out as (heads, length, head_dim): tiles never leave a head."""
    rows = (bm, bn, bn, bm)
    return tuple(
        TensorDescriptor.from_tensor(x.flatten(0, 1), [1, n, shape.padded])
        for x, n in zip(tensors, rows, strict=True)
    )
