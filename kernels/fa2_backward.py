"""FlashAttention-2 backward (Dao 2023, arXiv 2307.08691, algorithm 2).

Three launches: D = rowsum(O ∘ dO); dK and dV, one program a block of keys; and dQ, either in a row
pass of its own (``dq="rows"``: S and dP are computed twice, results repeat bit by bit) or by atomic
adds into a float32 tensor from the key programs (``dq="atomics"``: five products in place of seven,
the order of the adds is free).
"""

# Annotations stay objects here: Triton reads them.
from typing import Any, Literal

import torch
import triton
import triton.language as tl

from simgpu.errors import ScheduleError
from simgpu.kernels.common import check_tiles, load_rows, shape_of, store_rows

# The best measured on an H200 at 4 batches, 16 heads and 4096 (docs/reference/kernels.md).
DEFAULTS: dict[int, dict[str, Any]] = {
    64: {"block_m": 128, "block_n": 128, "warps": 8, "stages": 2},
    128: {"block_m": 64, "block_n": 128, "warps": 8, "stages": 2},
    256: {"block_m": 64, "block_n": 64, "warps": 8, "stages": 1},
}
ROW_DEFAULTS: dict[int, dict[str, Any]] = {
    64: {"block_m": 128, "block_n": 64, "warps": 8, "stages": 2},
    128: {"block_m": 128, "block_n": 128, "warps": 8, "stages": 2},
    256: {"block_m": 64, "block_n": 64, "warps": 8, "stages": 1},
}


@triton.jit
def fa2_backward_delta(
    OUT, DO, DELTA, DQ32, NQ,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr,
    RAGGED_Q: tl.constexpr, ATOMIC: tl.constexpr,
):  # fmt: skip
    """D = rowsum(O ∘ dO) for one query tile; zeroes the tile's dQ sum where atomics need it."""
    PAD: tl.constexpr = D != DP
    bh = tl.program_id(1)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, DP)
    base = bh.to(tl.int64) * NQ * D
    o = load_rows(OUT + base, rows, cols, NQ, D, RAGGED_Q, PAD).to(tl.float32)
    do = load_rows(DO + base, rows, cols, NQ, D, RAGGED_Q, PAD).to(tl.float32)
    tl.store(DELTA + bh * NQ + rows, tl.sum(o * do, 1), mask=rows < NQ)
    if ATOMIC:
        store_rows(DQ32 + base, rows, cols, NQ, tl.zeros([BM, DP], tl.float32), D, RAGGED_Q, PAD)


@triton.jit
def _row_block(
    dk, dv, k, v, Q, DO, LSE, DELTA, DQ32, i, keys, cols, scale, NQ, NK,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr,
    MASKED: tl.constexpr, RAGGED_Q: tl.constexpr, RAGGED_K: tl.constexpr, ATOMIC: tl.constexpr,
):  # fmt: skip
    """Add the query rows i .. i + BM to dK and dV of one block of keys, all tiles transposed."""
    PAD: tl.constexpr = D != DP
    rows = i + tl.arange(0, BM)
    q = load_rows(Q, rows, cols, NQ, D, RAGGED_Q, PAD)
    st = tl.dot(k, tl.trans(q))
    # Rows past the end read +inf: their probabilities are exactly 0.
    lse = tl.load(LSE + rows, mask=rows < NQ, other=float("inf"))
    pt = tl.exp2(st * (scale * 1.4426950408889634) - (lse * 1.4426950408889634)[None, :])
    if MASKED:
        pt = tl.where(rows[None, :] + (NK - NQ) >= keys[:, None], pt, 0.0)
    if RAGGED_K:
        pt = tl.where(keys[:, None] < NK, pt, 0.0)
    do = load_rows(DO, rows, cols, NQ, D, RAGGED_Q, PAD)
    dv = tl.dot(pt.to(do.dtype), do, dv)
    delta = tl.load(DELTA + rows, mask=rows < NQ, other=0.0)
    dpt = tl.dot(v, tl.trans(do))
    dst = (pt * (dpt - delta[None, :])).to(q.dtype)
    dk = tl.dot(dst, q, dk)
    if ATOMIC:
        dq = tl.dot(tl.trans(dst), k) * scale
        at = DQ32 + rows[:, None] * D + cols[None, :]
        if RAGGED_Q or PAD:
            inside = (rows[:, None] < NQ) & (cols[None, :] < D)
            tl.atomic_add(at, dq, mask=inside, sem="relaxed")
        else:
            tl.atomic_add(at, dq, sem="relaxed")
    return dk, dv


@triton.jit
def fa2_backward_kv(
    Q, K, V, DO, LSE, DELTA, DQ32, DK, DV, scale, NQ, NK,
    G: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, RAGGED_Q: tl.constexpr, RAGGED_K: tl.constexpr, ATOMIC: tl.constexpr,
):  # fmt: skip
    """dK and dV of one block of keys, over all query heads of its group.

    Grid (key tiles, batch × heads_kv), x fastest.
    """
    PAD: tl.constexpr = D != DP
    j = tl.program_id(0)
    head = tl.program_id(1)
    keys = j * BN + tl.arange(0, BN)
    cols = tl.arange(0, DP)
    base = head.to(tl.int64) * NK * D
    k = load_rows(K + base, keys, cols, NK, D, RAGGED_K, PAD)
    v = load_rows(V + base, keys, cols, NK, D, RAGGED_K, PAD)
    dk = tl.zeros([BN, DP], tl.float32)
    dv = tl.zeros([BN, DP], tl.float32)
    first = 0
    full = 0
    if CAUSAL:
        first = tl.maximum(j * BN - (NK - NQ), 0) // BM * BM
        full = tl.cdiv(tl.maximum((j + 1) * BN - 1 - (NK - NQ), 0), BM) * BM
        full = tl.minimum(full, tl.cdiv(NQ, BM) * BM)
    for g in tl.range(0, G, num_stages=1):
        bh = (head * G + g).to(tl.int64)
        q = Q + bh * NQ * D
        do = DO + bh * NQ * D
        dq = DQ32 + bh * NQ * D
        lse = LSE + bh * NQ
        delta = DELTA + bh * NQ
        if CAUSAL:
            for i in tl.range(first, full, BM):
                dk, dv = _row_block(
                    dk, dv, k, v, q, do, lse, delta, dq, i, keys, cols, scale, NQ, NK,
                    D, DP, BM, True, RAGGED_Q, RAGGED_K, ATOMIC,
                )  # fmt: skip
        for i in tl.range(full, NQ, BM):
            dk, dv = _row_block(
                dk, dv, k, v, q, do, lse, delta, dq, i, keys, cols, scale, NQ, NK,
                D, DP, BM, False, RAGGED_Q, RAGGED_K, ATOMIC,
            )  # fmt: skip
    store_rows(DK + base, keys, cols, NK, dk * scale, D, RAGGED_K, PAD)
    store_rows(DV + base, keys, cols, NK, dv, D, RAGGED_K, PAD)


@triton.jit
def _key_block(
    dq, q, do, lse2, delta, K, V, j, rows, keys, cols, s2, NQ, NK,
    D: tl.constexpr, DP: tl.constexpr,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """Add the keys j .. j + BN to dQ of one query tile."""
    PAD: tl.constexpr = D != DP
    at = j + keys
    k = load_rows(K, at, cols, NK, D, RAGGED, PAD)
    s = tl.dot(q, tl.trans(k))
    p = tl.exp2(s * s2 - lse2[:, None])
    if MASKED and CAUSAL:
        p = tl.where(rows[:, None] + (NK - NQ) >= at[None, :], p, 0.0)
    if RAGGED:
        p = tl.where(at[None, :] < NK, p, 0.0)
    v = load_rows(V, at, cols, NK, D, RAGGED, PAD)
    dp = tl.dot(do, tl.trans(v))
    ds = p * (dp - delta[:, None])
    return tl.dot(ds.to(k.dtype), k, dq)


@triton.jit
def fa2_backward_rows(
    Q, K, V, DO, LSE, DELTA, DQ, scale, NQ, NK,
    G: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, RAGGED_Q: tl.constexpr, RAGGED_K: tl.constexpr,
):  # fmt: skip
    """dQ of one query tile. Grid (query tiles, batch × heads_q), x fastest."""
    PAD: tl.constexpr = D != DP
    i = tl.program_id(0)
    bh = tl.program_id(1)
    rows = i * BM + tl.arange(0, BM)
    cols = tl.arange(0, DP)
    keys = tl.arange(0, BN)
    base = bh.to(tl.int64) * NQ * D
    K += (bh // G).to(tl.int64) * NK * D
    V += (bh // G).to(tl.int64) * NK * D
    q = load_rows(Q + base, rows, cols, NQ, D, RAGGED_Q, PAD)
    do = load_rows(DO + base, rows, cols, NQ, D, RAGGED_Q, PAD)
    lse2 = tl.load(LSE + bh * NQ + rows, mask=rows < NQ, other=float("inf")) * 1.4426950408889634
    delta = tl.load(DELTA + bh * NQ + rows, mask=rows < NQ, other=0.0)
    dq = tl.zeros([BM, DP], tl.float32)
    s2 = scale * 1.4426950408889634
    full = NK
    hi = NK
    if CAUSAL:
        full = tl.maximum(i * BM + (NK - NQ) + 1, 0) // BN * BN
        hi = tl.minimum((i + 1) * BM + (NK - NQ), NK)
    if RAGGED_K:
        full = tl.minimum(full, NK // BN * BN)
    for j in tl.range(0, full, BN):
        dq = _key_block(
            dq, q, do, lse2, delta, K, V, j, rows, keys, cols, s2, NQ, NK,
            D, DP, False, CAUSAL, False,
        )  # fmt: skip
    if CAUSAL or RAGGED_K:
        for j in tl.range(full, hi, BN):
            dq = _key_block(
                dq, q, do, lse2, delta, K, V, j, rows, keys, cols, s2, NQ, NK,
                D, DP, True, CAUSAL, RAGGED_K,
            )  # fmt: skip
    store_rows(DQ + base, rows, cols, NQ, dq * scale, D, RAGGED_Q, PAD)


@triton.jit
def fa2_backward_cast(DQ32, DQ, size, BLOCK: tl.constexpr):
    """Round the summed dQ to its dtype. Grid (blocks)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(DQ32 + at, mask=at < size)
    tl.store(DQ + at, x.to(DQ.dtype.element_ty), mask=at < size)


def defaults(head_dim: int, rows: bool = False) -> dict[str, Any]:
    """The best tile of the dK/dV launch (or of the dQ row pass) measured for a head dim.

    A head dim that was not measured takes that of the next larger one.
    """
    table = ROW_DEFAULTS if rows else DEFAULTS
    return table[next(d for d in sorted(table) if d >= head_dim)]


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    dq: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
    *,
    causal: bool,
    scale: float,
    block_m: int | None = None,
    block_n: int | None = None,
    warps: int | None = None,
    stages: int | None = None,
    dq_by: Literal["rows", "atomics"] = "rows",
    row_block_m: int | None = None,
    row_block_n: int | None = None,
    row_warps: int | None = None,
    row_stages: int | None = None,
) -> tuple[Any, ...]:
    """Write the gradients of attention into ``dq``, ``dk`` and ``dv``; all tensors contiguous.

    ``out`` and ``lse`` are the forward pass's results, ``dout`` the gradient of ``out``; shapes as
    in `simgpu.kernels.fa2.forward`. ``block_m``, ``block_n``, ``warps`` and ``stages`` belong to
    the dK/dV launch, the ``row_`` ones to the dQ pass of ``dq_by="rows"``. Returns the compiled
    kernels in launch order. Raises `ProblemError` and `ScheduleError`.
    Source: arXiv 2307.08691, algorithm 2.
    """
    shape = shape_of(q, k, v)
    best = defaults(shape.head_dim)
    row = defaults(shape.head_dim, rows=True)
    bm, bn = block_m or best["block_m"], block_n or best["block_n"]
    rm, rn = row_block_m or row["block_m"], row_block_n or row["block_n"]
    check_tiles(block_m=bm, block_n=bn, row_block_m=rm, row_block_n=rn)
    if dq_by not in ("rows", "atomics"):
        raise ScheduleError(f"dq_by={dq_by!r}: 'rows' or 'atomics'")
    atomic = dq_by == "atomics"
    heads, dims = shape.batch * shape.heads_q, {"D": shape.head_dim, "DP": shape.padded}
    delta = torch.empty_like(lse)
    dq32 = torch.empty(q.shape, dtype=torch.float32, device=q.device) if atomic else delta
    first = fa2_backward_delta[(triton.cdiv(shape.seq_q, 64), heads)](
        out, dout, delta, dq32, shape.seq_q, BM=64, RAGGED_Q=shape.seq_q % 64 != 0,
        ATOMIC=atomic, **dims, num_warps=4,
    )  # fmt: skip
    second = fa2_backward_kv[(triton.cdiv(shape.seq_kv, bn), shape.batch * shape.heads_kv)](
        q, k, v, dout, lse, delta, dq32, dk, dv, scale, shape.seq_q, shape.seq_kv,
        G=shape.group, BM=bm, BN=bn, CAUSAL=causal, RAGGED_Q=shape.seq_q % bm != 0,
        RAGGED_K=shape.seq_kv % bn != 0, ATOMIC=atomic, **dims,
        num_warps=warps or best["warps"], num_stages=stages or best["stages"],
    )  # fmt: skip
    if atomic:
        third = fa2_backward_cast[(triton.cdiv(q.numel(), 4096),)](
            dq32, dq, q.numel(), BLOCK=4096, num_warps=4
        )
    else:
        third = fa2_backward_rows[(triton.cdiv(shape.seq_q, rm), heads)](
            q, k, v, dout, lse, delta, dq, scale, shape.seq_q, shape.seq_kv,
            G=shape.group, BM=rm, BN=rn, CAUSAL=causal,
            RAGGED_Q=shape.seq_q % rm != 0, RAGGED_K=shape.seq_kv % rn != 0,
            **dims, num_warps=row_warps or row["warps"], num_stages=row_stages or row["stages"],
        )  # fmt: skip
    return first, second, third
