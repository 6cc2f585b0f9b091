"""Standard attention: QKᵀ, softmax and PV as three kernels, with S and P through global memory.

S and P are (batch × heads_q, seq_q, seq_kv) in the dtype of q. Nothing is skipped under a causal
mask: hidden scores are written as −inf, as an unfused implementation does.
"""

# Annotations stay objects here: Triton reads them.
from typing import Any

import torch
import triton
import triton.language as tl

from simgpu.kernels.common import (
    check_tiles,
    load_cols,
    load_rows,
    shape_of,
    store_rows,
)


@triton.jit
def standard_scores(
    Q, K, S, scale, NQ, NK,
    G: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, RAGGED_Q: tl.constexpr, RAGGED_K: tl.constexpr,
):  # fmt: skip
    """One (BM, BN) tile of S = scale·QKᵀ. Grid (query tiles, key tiles, batch × heads_q)."""
    PAD: tl.constexpr = D != DP
    bh = tl.program_id(2)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    keys = tl.program_id(1) * BN + tl.arange(0, BN)
    cols = tl.arange(0, DP)
    q = load_rows(Q + bh.to(tl.int64) * NQ * D, rows, cols, NQ, D, RAGGED_Q, PAD)
    k = load_cols(K + (bh // G).to(tl.int64) * NK * D, keys, cols, NK, D, RAGGED_K, PAD)
    s = tl.dot(q, k) * scale
    if CAUSAL:
        s = tl.where(rows[:, None] + (NK - NQ) >= keys[None, :], s, -float("inf"))
    at = S + bh.to(tl.int64) * NQ * NK + rows[:, None] * NK + keys[None, :]
    s = s.to(S.dtype.element_ty)
    if RAGGED_Q or RAGGED_K:
        tl.store(at, s, mask=(rows[:, None] < NQ) & (keys[None, :] < NK))
    else:
        tl.store(at, s)


@triton.jit
def standard_softmax(S, P, LSE, NQ, NK, R: tl.constexpr, NP: tl.constexpr):
    """R whole rows of P = softmax(S). Grid (row blocks, batch × heads_q)."""
    bh = tl.program_id(1)
    rows = tl.program_id(0) * R + tl.arange(0, R)
    keys = tl.arange(0, NP)
    at = bh.to(tl.int64) * NQ * NK + rows[:, None] * NK + keys[None, :]
    inside = (rows[:, None] < NQ) & (keys[None, :] < NK)
    s = tl.load(S + at, mask=inside, other=-float("inf")).to(tl.float32)
    m = tl.max(s, 1)
    # A row that sees no key has m = −inf, and −inf minus −inf is NaN.
    floor = tl.where(m == -float("inf"), 0.0, m)
    p = tl.exp2((s - floor[:, None]) * 1.4426950408889634)
    ell = tl.sum(p, 1)
    safe = tl.where(ell == 0.0, 1.0, ell)
    p = p / safe[:, None]
    tl.store(P + at, p.to(P.dtype.element_ty), mask=inside)
    tl.store(LSE + bh * NQ + rows, m + tl.log(safe), mask=rows < NQ)


@triton.jit
def standard_output(
    P, V, OUT, NQ, NK,
    G: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    RAGGED_Q: tl.constexpr, RAGGED_K: tl.constexpr,
):  # fmt: skip
    """One query tile of O = PV. Grid (query tiles, batch × heads_q)."""
    PAD: tl.constexpr = D != DP
    bh = tl.program_id(1)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, DP)
    base = P + bh.to(tl.int64) * NQ * NK
    V += (bh // G).to(tl.int64) * NK * D
    acc = tl.zeros([BM, DP], tl.float32)
    for j in tl.range(0, NK, BN):
        keys = j + tl.arange(0, BN)
        at = base + rows[:, None] * NK + keys[None, :]
        if RAGGED_Q or RAGGED_K:
            p = tl.load(at, mask=(rows[:, None] < NQ) & (keys[None, :] < NK), other=0.0)
        else:
            p = tl.load(at)
        v = load_rows(V, keys, cols, NK, D, RAGGED_K, PAD)
        acc = tl.dot(p, v, acc)
    store_rows(OUT + bh.to(tl.int64) * NQ * D, rows, cols, NQ, acc, D, RAGGED_Q, PAD)


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    scale: float,
    block_m: int = 128,
    block_n: int = 64,
    warps: int = 4,
    stages: int = 3,
) -> tuple[Any, ...]:
    """Write attention into ``out`` and its natural log-sum-exp into ``lse``; all contiguous.

    Shapes as in `simgpu.kernels.fa2.forward`. Scratch in global memory: S and P, 2 × batch ×
    heads_q × seq_q × seq_kv elements. The parameters are those of both matrix products. Returns the
    three compiled kernels in launch order. Raises `ProblemError` and `ScheduleError`.
    Source: arXiv 2205.14135, algorithm 0.
    """
    shape = shape_of(q, k, v)
    check_tiles(block_m=block_m, block_n=block_n)
    heads = shape.batch * shape.heads_q
    ragged_q, ragged_k = shape.seq_q % block_m != 0, shape.seq_kv % block_n != 0
    tiles = triton.cdiv(shape.seq_q, block_m)
    width = triton.next_power_of_2(shape.seq_kv)
    rows = max(1, 8192 // width)
    s, p = torch.empty(
        (2, heads, shape.seq_q, shape.seq_kv), dtype=q.dtype, device=q.device
    ).unbind()
    launch = {"num_warps": warps, "num_stages": stages}
    tile = {"G": shape.group, "D": shape.head_dim, "DP": shape.padded, "BM": block_m, "BN": block_n}
    tile |= {"RAGGED_Q": ragged_q, "RAGGED_K": ragged_k}
    scores = standard_scores[(tiles, triton.cdiv(shape.seq_kv, block_n), heads)](
        q, k, s, scale, shape.seq_q, shape.seq_kv, CAUSAL=causal, **tile, **launch
    )
    softmax = standard_softmax[(triton.cdiv(shape.seq_q, rows), heads)](
        s, p, lse, shape.seq_q, shape.seq_kv, R=rows, NP=width, num_warps=8
    )
    output = standard_output[(tiles, heads)](p, v, out, shape.seq_q, shape.seq_kv, **tile, **launch)
    return scores, softmax, output
