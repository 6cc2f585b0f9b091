"""Which tile a program of FlashAttention-3's kernel has, and the softmax of one block, in Gluon."""

# Annotations stay objects here: Triton reads them.
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier


@gluon.jit
def tile_at(index, NQ, NK, HEADS, TOGETHER, BM: gl.constexpr, BN: gl.constexpr,
            CAUSAL: gl.constexpr, LONGEST: gl.constexpr):  # fmt: skip
    """Head and first row of a tile, its key blocks, and how many of them need a mask.

    With LONGEST, tiles of most keys come first in sections of TOGETHER heads: few enough to find
    their K and V in L2.
    """
    tiles = gl.cdiv(NQ, BM)
    if LONGEST:
        first = index // (TOGETHER * tiles) * TOGETHER
        inside = index - first * tiles
        heads = gl.minimum(TOGETHER, HEADS - first)
        bh = first + inside % heads
        row = (tiles - 1 - inside // heads) * BM
    else:
        bh = index // tiles
        row = index % tiles * BM
    blocks = gl.cdiv(NK, BN)
    full = NK // BN
    if CAUSAL:
        seen = gl.minimum(row + BM + (NK - NQ), NK)
        blocks = gl.maximum(gl.cdiv(seen, BN), 1)  # rows that see nothing take a block all the same
        full = gl.minimum(full, gl.maximum(row + (NK - NQ) + 1, 0) // BN)
    return bh, row, blocks, gl.maximum(blocks - full, 0)


@gluon.jit
def following(index, n, next_buf, next_full, next_empty, DYNAMIC: gl.constexpr):
    """The tile after this program's ``n``-th."""
    if DYNAMIC:
        mbarrier.wait(next_full.index(n & 1), (n >> 1) & 1)
        word = next_buf.index(n & 1).load(gl.BlockedLayout([1], [32], [4], [0]))
        mbarrier.arrive(next_empty.index(n & 1), count=1)
        following = gl.max(word, 0)
    else:
        following = index + gl.num_programs(0)
    return following


@gluon.jit
def masked_scores(s, key, limit):
    """Scores of the keys up to each row's ``limit``; a floor in place of the others."""
    at = key + gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, s.type.layout))
    # A finite floor: −inf minus −inf would be NaN in rows that have seen no key yet. A power of
    # two: its product with the scale is exact, so that the difference from the maximum is 0.
    return gl.where(at[None, :] <= limit[:, None], s, -(2.0**100))


@gluon.jit
def softmax(
    s, top, m, ell, s2, FIRST: gl.constexpr, P_L: gl.constexpr, DTYPE: gl.constexpr
):  # fmt: skip
    """Fold scores with row maxima ``top`` into (m, ell); also P and the factor of old sums.

    ``ell`` has four partial sums a row, one a thread.
    """
    new = top * s2
    if not FIRST:
        new = gl.maximum(m, new)
    p = gl.exp2(s * s2 - new[:, None])
    fix = gl.exp2(m - new)
    part = gl.sum(gl.sum(p.reshape([p.shape[0], p.shape[1] // 8, 4, 2]), 3), 1)
    if FIRST:
        ell = part
    else:
        ell = ell * gl.convert_layout(fix, gl.SliceLayout(1, part.type.layout))[:, None] + part
    return gl.convert_layout(p.to(DTYPE), P_L), new, ell, fix
