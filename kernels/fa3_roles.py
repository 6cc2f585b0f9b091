"""What the warps of FlashAttention-3's kernel do: a producer and two consumers, in Gluon.

K and V pass through rings of ``STAGES`` tiles, each with a full and an empty mbarrier. A consumer
issues QKᵀ of the next block before PV of this one, and does its softmax under PV. With ping-pong,
``turn[i]`` lets consumer i issue its two products, and it hands the turn on before its softmax. Key
blocks come last to first, so that those that need a mask come at the start.
"""

# Annotations stay objects here: Triton reads them.
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Triton 3.9 renames both copies.
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.constexpr_function
def _accumulator(cols):
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, min(cols, 256), 16]
    )


@gluon.jit
def _tile(buffers, slot):
    """One slot of a (slots, 1, rows, columns) buffer as a matrix."""
    ROWS: gl.constexpr = buffers.type.shape[2]
    COLS: gl.constexpr = buffers.type.shape[3]
    return buffers.index(slot).reshape([ROWS, COLS])


@gluon.jit
def _load(desc, head, row, full, buffer):
    mbarrier.expect(full, desc.block_type.nbytes)
    tma_load(desc, [head, row, 0], full, buffer)


@gluon.jit
def producer(
    q_desc, k_desc, v_desc, q_buf, k_buf, v_buf, q_full, k_full, k_empty, v_full, v_empty,
    bh, row, blocks, G: gl.constexpr,
):  # fmt: skip
    """Load Q, then K and V of every block, as slots become empty."""
    ROWS: gl.constexpr = q_buf.type.shape[2]
    BN: gl.constexpr = k_buf.type.shape[2]
    STAGES: gl.constexpr = k_buf.type.shape[0]
    head = bh // G
    for i in gl.static_range(2):
        _load(q_desc, bh, row + i * ROWS, q_full.index(i), q_buf.index(i))
    for t in range(blocks):
        slot = t % STAGES
        phase = (t // STAGES) & 1
        key = (blocks - 1 - t) * BN
        mbarrier.wait(k_empty.index(slot), phase ^ 1)
        _load(k_desc, head, key, k_full.index(slot), k_buf.index(slot))
        mbarrier.wait(v_empty.index(slot), phase ^ 1)
        _load(v_desc, head, key, v_full.index(slot), v_buf.index(slot))


@gluon.jit
def _softmax(
    s, m, ell, key, diagonal, NK, s2,
    MASKED: gl.constexpr, CAUSAL: gl.constexpr, P_L: gl.constexpr, DTYPE: gl.constexpr,
):  # fmt: skip
    """Fold scores of the keys from ``key`` on into (m, ell); also P and the factor of old sums."""
    BN: gl.constexpr = s.shape[1]
    if MASKED:
        at = key + gl.arange(0, BN, layout=gl.SliceLayout(0, s.type.layout))
        visible = (at < NK)[None, :]
        if CAUSAL:
            visible = visible & (at[None, :] <= diagonal[:, None])
        # A finite floor: −inf minus −inf would be NaN in rows that have seen no key yet.
        s = gl.where(visible, s * s2, -1.0e30)
        new = gl.maximum(m, gl.max(s, 1))
        p = gl.exp2(s - new[:, None])
    else:
        new = gl.maximum(m, gl.max(s, 1) * s2)
        p = gl.exp2(s * s2 - new[:, None])
    fix = gl.exp2(m - new)
    return gl.convert_layout(p.to(DTYPE), P_L), new, ell * fix + gl.sum(p, 1), fix


@gluon.jit
def _pass(
    t, o, p, m, ell, q, k_buf, v_buf, k_full, k_empty, v_full, v_empty, turn,
    key, diagonal, NK, s2, WHO: gl.constexpr, MASKED: gl.constexpr, CAUSAL: gl.constexpr,
    PINGPONG: gl.constexpr, S_L: gl.constexpr, P_L: gl.constexpr,
):  # fmt: skip
    """Scores and softmax of block ``t`` with PV of the block before in flight."""
    STAGES: gl.constexpr = k_buf.type.shape[0]
    ROWS: gl.constexpr = q.type.shape[0]
    BN: gl.constexpr = k_buf.type.shape[2]
    RO_L: gl.constexpr = gl.SliceLayout(1, o.type.layout)
    slot = t % STAGES
    before = (t - 1) % STAGES
    mbarrier.wait(k_full.index(slot), (t // STAGES) & 1)
    if PINGPONG:
        mbarrier.wait(turn.index(WHO), t & 1)
    zeros = gl.zeros([ROWS, BN], gl.float32, layout=S_L)
    k = _tile(k_buf, slot).permute((1, 0))
    s = warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(before), ((t - 1) // STAGES) & 1)
    o = warpgroup_mma(p, _tile(v_buf, before), o, is_async=True)
    if PINGPONG:
        mbarrier.arrive(turn.index(1 - WHO), count=1)
    s = warpgroup_mma_wait(1, deps=(s,))
    mbarrier.arrive(k_empty.index(slot), count=1)
    p_new, m, ell, fix = _softmax(
        s, m, ell, key, diagonal, NK, s2, MASKED, CAUSAL, P_L, k_buf.dtype
    )
    o, p = warpgroup_mma_wait(0, deps=(o, p))
    mbarrier.arrive(v_empty.index(before), count=1)
    o = o * gl.convert_layout(fix, RO_L)[:, None]
    return o, p_new, m, ell


@gluon.jit
def _consumer(
    WHO: gl.constexpr, o_desc, LSE, q_buf, k_buf, v_buf, q_full, k_full, k_empty, v_full, v_empty,
    turn, bh, row, blocks, masked, NQ, NK, s2,
    CAUSAL: gl.constexpr, RAGGED_Q: gl.constexpr, RAGGED_K: gl.constexpr, BLIND: gl.constexpr,
    PINGPONG: gl.constexpr,
):  # fmt: skip
    """Attention of 64 rows: algorithm 2 of the paper."""
    ROWS: gl.constexpr = q_buf.type.shape[2]
    D: gl.constexpr = q_buf.type.shape[3]
    BN: gl.constexpr = k_buf.type.shape[2]
    STAGES: gl.constexpr = k_buf.type.shape[0]
    S_L: gl.constexpr = _accumulator(BN)
    O_L: gl.constexpr = _accumulator(D)
    P_L: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=O_L, k_width=2)
    R_L: gl.constexpr = gl.SliceLayout(1, S_L)
    RO_L: gl.constexpr = gl.SliceLayout(1, O_L)
    MASKS: gl.constexpr = CAUSAL or RAGGED_K

    first_row = row + WHO * ROWS
    rows = first_row + gl.arange(0, ROWS, layout=R_L)
    diagonal = rows + (NK - NQ)
    m = gl.full([ROWS], float("-inf"), gl.float32, layout=R_L)
    ell = gl.full([ROWS], 0.0, gl.float32, layout=R_L)
    o = gl.zeros([ROWS, D], gl.float32, layout=O_L)
    q = _tile(q_buf, WHO)
    last = (blocks - 1) * BN

    mbarrier.wait(q_full.index(WHO), 0)
    mbarrier.wait(k_full.index(0), 0)
    if PINGPONG:
        mbarrier.wait(turn.index(WHO), 0)
    zeros = gl.zeros([ROWS, BN], gl.float32, layout=S_L)
    k = _tile(k_buf, 0).permute((1, 0))
    s = warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)
    if PINGPONG:
        mbarrier.arrive(turn.index(1 - WHO), count=1)
    s = warpgroup_mma_wait(0, deps=(s,))
    mbarrier.arrive(k_empty.index(0), count=1)
    p, m, ell, _ = _softmax(s, m, ell, last, diagonal, NK, s2, MASKS, CAUSAL, P_L, k_buf.dtype)

    if MASKS:
        for t in range(1, masked):
            o, p, m, ell = _pass(
                t, o, p, m, ell, q, k_buf, v_buf, k_full, k_empty, v_full, v_empty, turn,
                last - t * BN, diagonal, NK, s2, WHO, True, CAUSAL, PINGPONG, S_L, P_L,
            )  # fmt: skip
    for t in range(gl.maximum(masked, 1), blocks):
        o, p, m, ell = _pass(
            t, o, p, m, ell, q, k_buf, v_buf, k_full, k_empty, v_full, v_empty, turn,
            last - t * BN, diagonal, NK, s2, WHO, False, CAUSAL, PINGPONG, S_L, P_L,
        )  # fmt: skip

    slot = (blocks - 1) % STAGES
    mbarrier.wait(v_full.index(slot), ((blocks - 1) // STAGES) & 1)
    o = warpgroup_mma(p, _tile(v_buf, slot), o, is_async=True)
    o = warpgroup_mma_wait(0, deps=(o,))

    if BLIND:
        ell = gl.where(diagonal >= 0, ell, 1.0)
        m = gl.where(diagonal >= 0, m, float("-inf"))
        o = gl.where((gl.convert_layout(diagonal, RO_L) >= 0)[:, None], o, 0.0)
    o = o / gl.convert_layout(ell, RO_L)[:, None]
    lse = (m + gl.log2(ell)) * 0.6931471805599453
    if RAGGED_Q:
        gl.store(LSE + bh * NQ + rows, lse, mask=rows < NQ)
    else:
        gl.store(LSE + bh * NQ + rows, lse)
    q.store(o.to(q_buf.dtype))
    fence_async_shared()
    tma_store(o_desc, [bh, first_row, 0], q_buf.index(WHO))
    tma.store_wait(0)


# Partitions take a function each; what tells the consumers apart must be known when they compile.
@gluon.jit
def consumer0(
    o_desc, LSE, q_buf, k_buf, v_buf, q_full, k_full, k_empty, v_full, v_empty, turn,
    bh, row, blocks, masked, NQ, NK, s2, CAUSAL: gl.constexpr, RAGGED_Q: gl.constexpr,
    RAGGED_K: gl.constexpr, BLIND: gl.constexpr, PINGPONG: gl.constexpr,
):  # fmt: skip
    """Rows 0 to 63 of the tile."""
    _consumer(
        0, o_desc, LSE, q_buf, k_buf, v_buf, q_full, k_full, k_empty, v_full, v_empty, turn,
        bh, row, blocks, masked, NQ, NK, s2, CAUSAL, RAGGED_Q, RAGGED_K, BLIND, PINGPONG,
    )  # fmt: skip


@gluon.jit
def consumer1(
    o_desc, LSE, q_buf, k_buf, v_buf, q_full, k_full, k_empty, v_full, v_empty, turn,
    bh, row, blocks, masked, NQ, NK, s2, CAUSAL: gl.constexpr, RAGGED_Q: gl.constexpr,
    RAGGED_K: gl.constexpr, BLIND: gl.constexpr, PINGPONG: gl.constexpr,
):  # fmt: skip
    """Rows 64 to 127 of the tile."""
    _consumer(
        1, o_desc, LSE, q_buf, k_buf, v_buf, q_full, k_full, k_empty, v_full, v_empty, turn,
        bh, row, blocks, masked, NQ, NK, s2, CAUSAL, RAGGED_Q, RAGGED_K, BLIND, PINGPONG,
    )  # fmt: skip
