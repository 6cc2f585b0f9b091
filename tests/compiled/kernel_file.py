"""Kernels as a user might have them in a file: pointers, descriptors with roles, and Gluon."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.jit
def forward(
    Q, K, V, OUT, L, sm_scale, N,
    H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """FlashAttention-2 forward, pointer loads: a full and, under a causal mask, a masked loop."""
    i = tl.program_id(0)
    bh = tl.program_id(1)
    base = bh.to(tl.int64) * N * D
    rm = i * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    rn = tl.arange(0, BN)
    q = tl.load(Q + base + rm[:, None] * D + rd[None, :])
    m = tl.full([BM], -float("inf"), tl.float32)
    ell = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    s2 = sm_scale * 1.4426950408889634
    hi = N
    if CAUSAL:
        full = (i * BM) // BN * BN
        hi = (i + 1) * BM
    else:
        full = N
    for j in tl.range(0, full, BN):
        k = tl.load(K + base + (j + rn)[None, :] * D + rd[:, None])
        s = tl.dot(q, k)
        mn = tl.maximum(m, tl.max(s, 1) * s2)
        p = tl.exp2(s * s2 - mn[:, None])
        a = tl.exp2(m - mn)
        ell = ell * a + tl.sum(p, 1)
        acc = acc * a[:, None]
        v = tl.load(V + base + (j + rn)[:, None] * D + rd[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc)
        m = mn
    if CAUSAL:
        for j in tl.range(full, hi, BN):
            k = tl.load(K + base + (j + rn)[None, :] * D + rd[:, None])
            s = tl.dot(q, k)
            s = tl.where(rm[:, None] >= (j + rn)[None, :], s * s2, -1e6)
            mn = tl.maximum(m, tl.max(s, 1))
            p = tl.exp2(s - mn[:, None])
            a = tl.exp2(m - mn)
            ell = ell * a + tl.sum(p, 1)
            acc = acc * a[:, None]
            v = tl.load(V + base + (j + rn)[:, None] * D + rd[None, :])
            acc = tl.dot(p.to(v.dtype), v, acc)
            m = mn
    acc = acc / ell[:, None]
    tl.store(OUT + base + rm[:, None] * D + rd[None, :], acc.to(OUT.dtype.element_ty))
    tl.store(L + bh * N + rm, m + tl.log2(ell))


@triton.jit
def with_roles(
    Q, K, V, OUT, sm_scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, WS: tl.constexpr
):
    """The same through tensor descriptors, its loop with one role a warp partition if WS."""
    i = tl.program_id(0) * BM
    q = Q.load([i, 0])
    m = tl.full([BM], -float("inf"), tl.float32)
    ell = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for j in tl.range(0, N, BN, warp_specialize=WS):
        s = tl.dot(q, K.load([j, 0]).T) * sm_scale
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - mn[:, None])
        a = tl.exp2(m - mn)
        ell = ell * a + tl.sum(p, 1)
        acc = acc * a[:, None]
        acc = tl.dot(p.to(q.dtype), V.load([j, 0]), acc)
        m = mn
    OUT.store([i, 0], (acc / ell[:, None]).to(q.dtype))


@gluon.jit
def copy(X, Y, N: gl.constexpr):
    """A Gluon kernel without products."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    at = gl.arange(0, N, layout=layout)
    gl.store(Y + at, gl.load(X + at) * 2.0)


NOT_A_KERNEL = 3
