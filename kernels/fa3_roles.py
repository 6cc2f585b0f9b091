"""What the warps of FlashAttention-3's kernel do: a producer and two consumers, in Gluon.

K and V pass through rings of ``STAGES`` tiles, each with a full and an empty mbarrier. A consumer
issues QKᵀ of the next block before PV of this one. With ping-pong, ``turn[i]`` lets consumer i
issue its two products, and it hands the turn on before its softmax. Key blocks come last to first,
so that those that need a mask come at the start. A persistent program takes tile after tile: each
role goes on to its next tile by itself, ``t`` counts blocks and ``n`` tiles over all of them.
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

from simgpu.kernels.fa3_tiles import following, masked_scores, softmax, tile_at

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
    next_buf, next_full, next_empty, COUNTER, NQ, NK, HEADS, TOGETHER, G: gl.constexpr,
    CAUSAL: gl.constexpr, LONGEST: gl.constexpr, DYNAMIC: gl.constexpr,
):  # fmt: skip
    """Load K, Q and V of every tile, as slots become empty."""
    ROWS: gl.constexpr = q_buf.type.shape[2]
    BN: gl.constexpr = k_buf.type.shape[2]
    STAGES: gl.constexpr = k_buf.type.shape[0]
    WORD: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    tiles = gl.cdiv(NQ, 2 * ROWS) * HEADS
    index = gl.program_id(0)
    n = 0
    t = 0
    while index < tiles:
        following = index + gl.num_programs(0)
        bh, row, blocks, _ = tile_at(index, NQ, NK, HEADS, TOGETHER, 2 * ROWS, BN, CAUSAL, LONGEST)
        head = bh // G
        for b in range(blocks):
            slot = t % STAGES
            phase = (t // STAGES) & 1
            key = (blocks - 1 - b) * BN
            mbarrier.wait(k_empty.index(slot), phase ^ 1)
            _load(k_desc, head, key, k_full.index(slot), k_buf.index(slot))
            if b == 0:
                # Q is free when the last K of the tile before is.
                last = gl.maximum(t - 1, 0)
                mbarrier.wait(k_empty.index(last % STAGES), (last // STAGES) & 1, pred=t > 0)
                for i in gl.static_range(2):
                    _load(q_desc, bh, row + i * ROWS, q_full.index(i), q_buf.index(i))
                if DYNAMIC:
                    following = gl.num_programs(0) + gl.atomic_add(COUNTER, 1, sem="relaxed")
                    mbarrier.wait(next_empty.index(n & 1), ((n >> 1) & 1) ^ 1)
                    next_buf.index(n & 1).store(gl.full([1], following, gl.int32, layout=WORD))
                    mbarrier.arrive(next_full.index(n & 1), count=1)
            mbarrier.wait(v_empty.index(slot), phase ^ 1)
            _load(v_desc, head, key, v_full.index(slot), v_buf.index(slot))
            t += 1
        index = following
        n += 1


@gluon.jit
def _scores(q, k_buf, slot, S_L: gl.constexpr):
    """Issue QKᵀ."""
    ROWS: gl.constexpr = q.type.shape[0]
    BN: gl.constexpr = k_buf.type.shape[2]
    zeros = gl.zeros([ROWS, BN], gl.float32, layout=S_L)
    k = _tile(k_buf, slot).permute((1, 0))
    return warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)


@gluon.jit
def _pass(
    t, o, p, m, ell, q, k_buf, v_buf, k_full, k_empty, v_full, v_empty, turn, key, limit, masked,
    s2, WHO: gl.constexpr, MASKS: gl.constexpr, PINGPONG: gl.constexpr, S_L: gl.constexpr,
    P_L: gl.constexpr,
):  # fmt: skip
    """Scores and softmax of block ``t`` with PV of the block before in flight."""
    STAGES: gl.constexpr = k_buf.type.shape[0]
    RO_L: gl.constexpr = gl.SliceLayout(1, o.type.layout)
    slot = t % STAGES
    before = (t - 1) % STAGES
    mbarrier.wait(k_full.index(slot), (t // STAGES) & 1)
    if PINGPONG:
        mbarrier.wait(turn.index(WHO), t & 1)
    s = _scores(q, k_buf, slot, S_L)
    mbarrier.wait(v_full.index(before), ((t - 1) // STAGES) & 1)
    o = warpgroup_mma(p, _tile(v_buf, before), o, is_async=True)
    if PINGPONG:
        mbarrier.arrive(turn.index(1 - WHO), count=1)
    s = warpgroup_mma_wait(1, deps=(s,))
    mbarrier.arrive(k_empty.index(slot), count=1)
    if MASKS:
        # The maximum in both branches: ptxas moves the wait for PV up to where they join.
        if masked:
            s = masked_scores(s, key, limit)
            top = gl.max(s, 1)
        else:
            top = gl.max(s, 1)
    else:
        top = gl.max(s, 1)
    p_new, m, ell, fix = softmax(s, top, m, ell, s2, False, P_L, k_buf.dtype)
    o, p = warpgroup_mma_wait(0, deps=(o, p))
    mbarrier.arrive(v_empty.index(before), count=1)
    o = o * gl.convert_layout(fix, RO_L)[:, None]
    return o, p_new, m, ell


@gluon.jit
def _store(
    o, m, ell, o_desc, LSE, o_buf, bh, first_row, rows, diagonal, NQ, WHO: gl.constexpr,
    RAGGED_Q: gl.constexpr, BLIND: gl.constexpr,
):  # fmt: skip
    """Write O by way of shared memory, and the natural log-sum-exp."""
    RO_L: gl.constexpr = gl.SliceLayout(1, o.type.layout)
    ell = gl.convert_layout(gl.sum(ell, 1), m.type.layout)
    if BLIND:
        ell = gl.where(diagonal >= 0, ell, 1.0)
        m = gl.where(diagonal >= 0, m, float("-inf"))
        o = gl.where((gl.convert_layout(diagonal, RO_L) >= 0)[:, None], o, 0.0)
    o = o * gl.convert_layout(1.0 / ell, RO_L)[:, None]
    lse = (m + gl.log2(ell)) * 0.6931471805599453
    if RAGGED_Q:
        gl.store(LSE + bh * NQ + rows, lse, mask=rows < NQ)
    else:
        gl.store(LSE + bh * NQ + rows, lse)
    tma.store_wait(0)  # the tile before has left
    _tile(o_buf, WHO).store(o.to(o_buf.dtype))
    fence_async_shared()
    tma_store(o_desc, [bh, first_row, 0], o_buf.index(WHO))


@gluon.jit
def _consumer(
    WHO: gl.constexpr, o_desc, LSE, q_buf, k_buf, v_buf, o_buf, q_full, k_full, k_empty, v_full,
    v_empty, turn, next_buf, next_full, next_empty, NQ, NK, HEADS, TOGETHER, s2,
    CAUSAL: gl.constexpr, LONGEST: gl.constexpr, PERSISTENT: gl.constexpr, DYNAMIC: gl.constexpr,
    RAGGED_Q: gl.constexpr, RAGGED_K: gl.constexpr, BLIND: gl.constexpr, PINGPONG: gl.constexpr,
):  # fmt: skip
    """Attention of 64 rows of every tile: algorithm 2 of the paper."""
    ROWS: gl.constexpr = q_buf.type.shape[2]
    D: gl.constexpr = q_buf.type.shape[3]
    BN: gl.constexpr = k_buf.type.shape[2]
    STAGES: gl.constexpr = k_buf.type.shape[0]
    S_L: gl.constexpr = _accumulator(BN)
    O_L: gl.constexpr = _accumulator(D)
    P_L: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=O_L, k_width=2)
    R_L: gl.constexpr = gl.SliceLayout(1, S_L)
    MASKS: gl.constexpr = CAUSAL or RAGGED_K

    q = _tile(q_buf, WHO)
    tiles = gl.cdiv(NQ, 2 * ROWS) * HEADS
    index = gl.program_id(0)
    n = 0
    t = 0
    mbarrier.wait(q_full.index(WHO), 0)
    mbarrier.wait(k_full.index(0), 0)
    if PINGPONG:
        mbarrier.wait(turn.index(WHO), 0)
    s = _scores(q, k_buf, 0, S_L)
    if PINGPONG:
        mbarrier.arrive(turn.index(1 - WHO), count=1)
    s = warpgroup_mma_wait(0, deps=(s,))
    mbarrier.arrive(k_empty.index(0), count=1)
    while index < tiles:
        bh, row, blocks, masked = tile_at(
            index, NQ, NK, HEADS, TOGETHER, 2 * ROWS, BN, CAUSAL, LONGEST
        )
        first_row = row + WHO * ROWS
        rows = first_row + gl.arange(0, ROWS, layout=R_L)
        diagonal = rows + (NK - NQ)
        limit = gl.full([ROWS], NK - 1, gl.int32, layout=R_L)
        if CAUSAL:
            limit = diagonal
        last = (blocks - 1) * BN
        m = gl.full([ROWS], 0.0, gl.float32, layout=R_L)
        if MASKS:
            s = masked_scores(s, last, limit)
        p, m, ell, _ = softmax(s, gl.max(s, 1), m, m, s2, True, P_L, k_buf.dtype)
        o = gl.zeros([ROWS, D], gl.float32, layout=O_L)
        for b in range(1, blocks):
            o, p, m, ell = _pass(
                t + b, o, p, m, ell, q, k_buf, v_buf, k_full, k_empty, v_full, v_empty, turn,
                last - b * BN, limit, b < masked, s2, WHO, MASKS, PINGPONG, S_L, P_L,
            )  # fmt: skip
        t += blocks
        n += 1
        before = (t - 1) % STAGES
        mbarrier.wait(v_full.index(before), ((t - 1) // STAGES) & 1)
        if PERSISTENT:
            # The next tile's first scores behind this one's last PV, under the store. After the
            # last tile they are of what lies there, and nobody reads them.
            index = following(index, n - 1, next_buf, next_full, next_empty, DYNAMIC)
            more = index < tiles
            slot = t % STAGES
            mbarrier.wait(k_full.index(slot), (t // STAGES) & 1, pred=more)
            mbarrier.wait(q_full.index(WHO), n & 1, pred=more)
            if PINGPONG:
                mbarrier.wait(turn.index(WHO), t & 1, pred=more)
            o = warpgroup_mma(p, _tile(v_buf, before), o, is_async=True)
            s = _scores(q, k_buf, slot, S_L)
            if PINGPONG:
                mbarrier.arrive(turn.index(1 - WHO), count=1, pred=more)
            o, p = warpgroup_mma_wait(1, deps=(o, p))
            mbarrier.arrive(v_empty.index(before), count=1)
        else:
            index = tiles
            o = warpgroup_mma(p, _tile(v_buf, before), o, is_async=True)
            o, p = warpgroup_mma_wait(0, deps=(o, p))
        _store(
            o, m, ell, o_desc, LSE, o_buf, bh, first_row, rows, diagonal, NQ, WHO, RAGGED_Q, BLIND
        )
        if PERSISTENT:
            s = warpgroup_mma_wait(0, deps=(s,))
            mbarrier.arrive(k_empty.index(t % STAGES), count=1, pred=index < tiles)
    tma.store_wait(0)


# Partitions take a function each; what tells the consumers apart must be known when they compile.
@gluon.jit
def consumer0(
    o_desc, LSE, q_buf, k_buf, v_buf, o_buf, q_full, k_full, k_empty, v_full, v_empty,
    turn, next_buf, next_full, next_empty, NQ, NK, HEADS, TOGETHER, s2,
    CAUSAL: gl.constexpr, LONGEST: gl.constexpr, PERSISTENT: gl.constexpr, DYNAMIC: gl.constexpr,
    RAGGED_Q: gl.constexpr, RAGGED_K: gl.constexpr, BLIND: gl.constexpr, PINGPONG: gl.constexpr,
):  # fmt: skip
    """Rows 0 to 63 of each tile."""
    _consumer(
        0,
        o_desc, LSE, q_buf, k_buf, v_buf, o_buf, q_full, k_full, k_empty, v_full, v_empty,
        turn, next_buf, next_full, next_empty, NQ, NK, HEADS, TOGETHER, s2,
        CAUSAL, LONGEST, PERSISTENT, DYNAMIC,
        RAGGED_Q, RAGGED_K, BLIND, PINGPONG,
    )  # fmt: skip


@gluon.jit
def consumer1(
    o_desc, LSE, q_buf, k_buf, v_buf, o_buf, q_full, k_full, k_empty, v_full, v_empty,
    turn, next_buf, next_full, next_empty, NQ, NK, HEADS, TOGETHER, s2,
    CAUSAL: gl.constexpr, LONGEST: gl.constexpr, PERSISTENT: gl.constexpr, DYNAMIC: gl.constexpr,
    RAGGED_Q: gl.constexpr, RAGGED_K: gl.constexpr, BLIND: gl.constexpr, PINGPONG: gl.constexpr,
):  # fmt: skip
    """Rows 64 to 127 of each tile."""
    _consumer(
        1,
        o_desc, LSE, q_buf, k_buf, v_buf, o_buf, q_full, k_full, k_empty, v_full, v_empty,
        turn, next_buf, next_full, next_empty, NQ, NK, HEADS, TOGETHER, s2,
        CAUSAL, LONGEST, PERSISTENT, DYNAMIC,
        RAGGED_Q, RAGGED_K, BLIND, PINGPONG,
    )  # fmt: skip
