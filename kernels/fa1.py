"""FlashAttention-1 forward (Dao et al. 2022, arXiv 2205.14135, algorithm 1).

One program owns one head. The outer loop takes K/V blocks, the inner loop query blocks; the
normalised output and the row statistics m and ℓ go through global memory for every pair of blocks,
in float32 (fp16 would round the output once a block), and the last K/V block of a query block
writes the output in the dtype of q.
"""

# Annotations stay objects here: Triton reads them.
from typing import Any

import torch
import triton
import triton.language as tl

from simgpu.kernels.common import (
    blind,
    check_tiles,
    load_cols,
    load_rows,
    shape_of,
    store_rows,
)


@triton.jit
def fa1_forward(
    Q, K, V, OUT, LSE, ACC, M, L, scale, NQ, NK,
    G: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, RAGGED_Q: tl.constexpr, RAGGED_K: tl.constexpr, BLIND: tl.constexpr,
):  # fmt: skip
    """One head. Grid (batch × heads_q)."""
    PAD: tl.constexpr = D != DP
    bh = tl.program_id(0)
    Q += bh.to(tl.int64) * NQ * D
    OUT += bh.to(tl.int64) * NQ * D
    ACC += bh.to(tl.int64) * NQ * D
    K += (bh // G).to(tl.int64) * NK * D
    V += (bh // G).to(tl.int64) * NK * D
    LSE += bh * NQ
    M += bh * NQ
    L += bh * NQ
    cols = tl.arange(0, DP)
    s2 = scale * 1.4426950408889634
    tiles = tl.cdiv(NQ, BM)
    if BLIND:
        # Whole query blocks that see no key: the loops below never come to them.
        for i in tl.range(0, (NQ - NK) // BM):
            rows = i * BM + tl.arange(0, BM)
            store_rows(OUT, rows, cols, NQ, tl.zeros([BM, DP], tl.float32), D, RAGGED_Q, PAD)
            tl.store(LSE + rows, tl.full([BM], -float("inf"), tl.float32), mask=rows < NQ)
    for j in tl.range(0, NK, BN, num_stages=1):
        keys = j + tl.arange(0, BN)
        k = load_cols(K, keys, cols, NK, D, RAGGED_K, PAD)
        v = load_rows(V, keys, cols, NK, D, RAGGED_K, PAD)
        first = 0
        if CAUSAL:
            first = tl.maximum(j - (NK - NQ), 0) // BM
        for i in tl.range(first, tiles):
            rows = i * BM + tl.arange(0, BM)
            inside = rows < NQ
            q = load_rows(Q, rows, cols, NQ, D, RAGGED_Q, PAD)
            s = tl.dot(q, k) * s2
            hi = NK
            if CAUSAL:
                hi = tl.minimum(NK, (i + 1) * BM + (NK - NQ))
                s = tl.where(rows[:, None] + (NK - NQ) >= keys[None, :], s, -1.0e30)
            if RAGGED_K:
                s = tl.where(keys[None, :] < NK, s, -1.0e30)
            mt = tl.max(s, 1)
            p = tl.exp2(s - mt[:, None])
            m = tl.load(M + rows, mask=inside & (j > 0), other=-float("inf"))
            ell = tl.load(L + rows, mask=inside & (j > 0), other=0.0)
            mn = tl.maximum(m, mt)
            old = tl.exp2(m - mn) * ell
            new = tl.exp2(mt - mn)
            ell = old + new * tl.sum(p, 1)
            at = rows[:, None] * D + cols[None, :]
            whole = inside[:, None] & (cols[None, :] < D)
            o = tl.load(ACC + at, mask=whole & (j > 0), other=0.0)
            pv = tl.dot(p.to(v.dtype), v)
            o = (old[:, None] * o + new[:, None] * pv) / ell[:, None]
            last = j + BN >= hi
            lse = (mn + tl.log2(ell)) * 0.6931471805599453
            tl.store(M + rows, mn, mask=inside & (not last))
            tl.store(L + rows, ell, mask=inside & (not last))
            tl.store(ACC + at, o, mask=whole & (not last))
            if BLIND:
                seen = rows + (NK - NQ) >= 0
                o = tl.where(seen[:, None], o, 0.0)
                lse = tl.where(seen, lse, -float("inf"))
            tl.store(OUT + at, o.to(OUT.dtype.element_ty), mask=whole & last)
            tl.store(LSE + rows, lse, mask=inside & last)
        # The next block's threads read what this block's threads wrote.
        tl.debug_barrier()


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    scale: float,
    block_m: int = 64,
    block_n: int = 64,
    warps: int = 4,
    stages: int = 1,
) -> tuple[Any, ...]:
    """Write attention into ``out`` and its natural log-sum-exp into ``lse``; all contiguous.

    Shapes as in `simgpu.kernels.fa2.forward`. Scratch in global memory: a float32 output and two
    float32 row vectors. Returns the compiled kernels that were launched. Raises `ProblemError` and
    `ScheduleError`. Source: arXiv 2205.14135, algorithm 1 (causal: blocks above the diagonal are
    skipped).
    """
    shape = shape_of(q, k, v)
    check_tiles(block_m=block_m, block_n=block_n)
    acc = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    stats = torch.empty((2, *lse.shape), dtype=torch.float32, device=q.device)
    kernel = fa1_forward[(shape.batch * shape.heads_q,)](
        q,
        k,
        v,
        out,
        lse,
        acc,
        stats[0],
        stats[1],
        scale,
        shape.seq_q,
        shape.seq_kv,
        G=shape.group,
        D=shape.head_dim,
        DP=shape.padded,
        BM=block_m,
        BN=block_n,
        CAUSAL=causal,
        RAGGED_Q=shape.seq_q % block_m != 0,
        RAGGED_K=shape.seq_kv % block_n != 0,
        BLIND=blind(shape, causal),
        num_warps=warps,
        num_stages=stages,
    )
    return (kernel,)
