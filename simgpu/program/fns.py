"""Tile functions: what the non-matmul steps compute, and the instructions they take.

Meaning and cost sit in one object so that they cannot drift apart. A cost is the mix of one warp,
given how many elements of each argument a thread holds; a row's statistics are held by the four
lanes of its quad. The counts are what ptxas emits for sm_90 (Triton 3.6, 192 kernels read); pipes
other than these keep within 2 % of the executed totals in the mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.program.mix import Mix
from simgpu.program.tilefn import TileFn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453


def _init(args: tuple[Array, ...], visible: object, scale: float) -> None:
    m, l, *accumulators = args
    m[...] = -float("inf")
    l[...] = 0
    for o in accumulators:
        o[...] = 0


def _zero(args: tuple[Array, ...], visible: object, scale: float) -> None:
    for x in args:
        x[...] = 0


def _one(args: tuple[Array, ...], visible: object, scale: float) -> None:
    for x in args:
        x[...] = 1


def _row_max(args: tuple[Array, ...], visible: NDArray[np.bool_] | None, scale: float) -> None:
    import numpy as np

    s, m, m_new = args
    np.multiply(s, s.dtype.type(scale * LOG2E), out=s)
    if visible is not None:
        s[...] = np.where(visible, s, -np.inf)
    np.maximum(m, s.max(axis=-1, keepdims=True), out=m_new)


def finite(m: Array) -> Array:
    """Rows that have seen no key have maximum -inf; subtracting it would give NaN."""
    import numpy as np

    return np.where(np.isneginf(m), m.dtype.type(0), m)


def _exp_and_rescale(args: tuple[Array, ...], visible: object, scale: float) -> None:
    import numpy as np

    s, p, m, m_new, l, *accumulators = args
    base = finite(m_new)
    alpha = np.exp2(m - base)
    np.exp2(s - base, out=s)
    p[...] = s.astype(p.dtype)
    l[...] = l * alpha + s.sum(axis=-1, keepdims=True)
    for o in accumulators:
        o *= alpha
    m[...] = m_new


def _exponentials(args: tuple[Array, ...], visible: object, scale: float) -> None:
    import numpy as np

    s, m, m_new, l, alpha = args
    base = finite(m_new)
    alpha[...] = np.exp2(m - base)
    np.exp2(s - base, out=s)
    l[...] = l * alpha + s.sum(axis=-1, keepdims=True)
    m[...] = m_new


def _rescale(args: tuple[Array, ...], visible: object, scale: float) -> None:
    s, p, alpha, *accumulators = args
    p[...] = s.astype(p.dtype)
    for o in accumulators:
        o *= alpha


def _rescale_rows(args: tuple[Array, ...], visible: object, scale: float) -> None:
    o, alpha = args
    o *= alpha


def _descale(args: tuple[Array, ...], visible: object, scale: float) -> None:
    s, *scales = args
    for x in scales:
        s *= x


def _rescale_block(args: tuple[Array, ...], visible: object, scale: float) -> None:
    s, p, alpha, old, new, *accumulators = args
    p[...] = s.astype(p.dtype)
    for o in accumulators:
        o *= alpha * (old / new)
    old[...] = new


def _normalize(args: tuple[Array, ...], visible: object, scale: float) -> None:
    import numpy as np

    o, m, l = args
    seen = l != 0  # NaN is seen: it must not become a row without keys
    o[...] = np.where(seen, o / np.where(seen, l, l.dtype.type(1)), o.dtype.type(0))
    log_sum_exp_of((m, l), None, scale)


def block_max_of(args: tuple[Array, ...], visible: NDArray[np.bool_] | None, scale: float) -> None:
    """Scale and mask scores, and write the maxima of their rows, by part of the columns."""
    import numpy as np

    s, m = args
    np.multiply(s, s.dtype.type(scale * LOG2E), out=s)
    if visible is not None:
        s[...] = np.where(visible, s, -np.inf)
    m[...] = _by_part(s, m).max(axis=-1)


def _by_part(s: Array, stats: Array) -> Array:
    """Cut the columns of s into as many parts as the statistics have columns."""
    return s.reshape(*s.shape[:-1], stats.shape[-1], -1)


def _block_exp(args: tuple[Array, ...], visible: object, scale: float) -> None:
    import numpy as np

    s, p, m, l = args
    np.exp2(s - finite(m.max(axis=-1, keepdims=True)), out=s)
    p[...] = s.astype(p.dtype)
    l[...] = _by_part(s, l).sum(axis=-1)


def _merge_block(args: tuple[Array, ...], visible: object, scale: float) -> None:
    import numpy as np

    o, m, l, pv, m_block, l_block = args
    m_all = m_block.max(axis=-1, keepdims=True)
    m_new = np.maximum(m, m_all)
    base = finite(m_new)
    old = np.exp2(m - base) * l
    new = np.exp2(m_all - base)
    l[...] = old + new * l_block.sum(axis=-1, keepdims=True)
    m[...] = m_new
    whole = pv.reshape(*pv.shape[:-2], -1, *o.shape[-2:]).sum(axis=-3)
    seen = l != 0  # NaN is seen: it must not become a row without keys
    safe = np.where(seen, l, l.dtype.type(1))
    o[...] = np.where(seen, (old * o + new * whole) / safe, o.dtype.type(0))


def log_sum_exp_of(args: tuple[Array, ...], visible: object, scale: float) -> None:
    """Write the natural log-sum-exp of rows over their sums."""
    import numpy as np

    m, l = args
    seen = l != 0  # NaN is seen: it must not become a row without keys
    log = np.log(np.where(seen, l, l.dtype.type(1))) + finite(m) * l.dtype.type(LN2)
    l[...] = np.where(seen, log, -np.inf)


def _scale(args: tuple[Array, ...], visible: object, scale: float) -> None:
    (s,) = args
    s *= s.dtype.type(scale)


def _init_mix(held: tuple[float, ...], masked: bool) -> Mix:
    return Mix(alu=sum(held[2:]) / 2)  # CS2R zeroes two registers


def _zero_mix(held: tuple[float, ...], masked: bool) -> Mix:
    return Mix(alu=sum(held) / 2)


def _row_max_mix(held: tuple[float, ...], masked: bool) -> Mix:
    s, rows = held[0], held[1]
    # FMNMX in the thread, after two shuffles, and with the old maximum; one FMUL scales the result,
    # unless a mask needs scaled scores: then FMUL, compare, select and an index each.
    if masked:
        return Mix(alu=4 * s + 2 * rows + 15, lsu=2 * rows, fma=s)
    return Mix(alu=s + 2 * rows, lsu=2 * rows, fma=rows)


def _exp_and_rescale_mix(held: tuple[float, ...], masked: bool) -> Mix:
    s, rows, o = held[0], held[2], sum(held[5:])
    # FFMA and FADD a score, FMUL an accumulator; F2FP packs two; all four lanes compute alpha.
    return Mix(mufu=s + rows, fma=2 * s + 3 * rows + o, alu=s / 2, lsu=2 * rows)


def _exponentials_mix(held: tuple[float, ...], masked: bool) -> Mix:
    s, rows = held[0], held[1]
    return Mix(mufu=s + rows, fma=2 * s + 3 * rows, lsu=2 * rows)


def _rescale_mix(held: tuple[float, ...], masked: bool) -> Mix:
    return Mix(fma=sum(held[3:]), alu=held[0] / 2)


def _rescale_rows_mix(held: tuple[float, ...], masked: bool) -> Mix:
    return Mix(fma=held[0])


def _descale_mix(held: tuple[float, ...], masked: bool) -> Mix:
    return Mix(fma=1, lsu=1)  # the product of the scales goes into the FFMA of the exponentials


def _rescale_block_mix(held: tuple[float, ...], masked: bool) -> Mix:
    # alpha takes the quotient of the scales in: a reciprocal, and an FMUL for the two rows or so
    return _rescale_mix((held[0], held[1], held[2], *held[5:]), masked).plus(
        Mix(mufu=1, fma=1 + held[2], lsu=1)
    )


def _normalize_mix(held: tuple[float, ...], masked: bool) -> Mix:
    o, rows = held[0], held[1]
    # a guarded division is three FMUL; the logarithm is a polynomial on the FMA pipe.
    return Mix(mufu=rows, fma=3 * o + 19 * rows + 9, alu=o + 12 * rows + 48)


def _block_max_mix(held: tuple[float, ...], masked: bool) -> Mix:
    return _row_max_mix(held, masked)


def _block_exp_mix(held: tuple[float, ...], masked: bool) -> Mix:
    s, rows = held[0], held[2]
    return Mix(mufu=s, fma=2 * s + 2 * rows, alu=s / 2 + rows, lsu=2 * rows)


def _merge_block_mix(held: tuple[float, ...], masked: bool) -> Mix:
    o, rows, pv = held[0], held[1], held[3]
    # FADD for each further part; then FMUL, FFMA and a guarded division an element.
    return Mix(mufu=3 * rows, fma=pv + 4 * o + 6 * rows, alu=o + 4 * rows)


def _log_sum_exp_mix(held: tuple[float, ...], masked: bool) -> Mix:
    rows = held[0]
    return Mix(mufu=rows, fma=19 * rows + 9, alu=12 * rows + 48)


def _scale_mix(held: tuple[float, ...], masked: bool) -> Mix:
    return Mix(fma=held[0])


#: (m, l, o ...) ← (-inf, 0, 0 ...): the state before any key.
init = TileFn("init", _init, _init_mix)
#: (o ...) ← 0.
zero = TileFn("zero", _zero, _zero_mix)
#: (x ...) ← 1.
one = TileFn("one", _one, _zero_mix)
#: (s, m, m_new): s ← s·scale·log₂e, masked; m_new ← max(m, row maximum of s).
row_max = TileFn("row_max", _row_max, _row_max_mix, chain=True)
#: (s, p, m, m_new, l, o ...): p ← exp2(s - m_new); l, o ← rescaled by exp2(m - m_new); m ← m_new.
exp_and_rescale = TileFn("exp_and_rescale", _exp_and_rescale, _exp_and_rescale_mix, exps=True)
#: (s, m, m_new, l, alpha): s ← exp2(s - m_new); alpha ← exp2(m - m_new); l ← l·alpha + row sums.
exponentials = TileFn("exponentials", _exponentials, _exponentials_mix, exps=True)
#: (s, p, alpha, o ...): p ← s; o ← o·alpha. With `exponentials` the same as `exp_and_rescale`.
rescale = TileFn("rescale", _rescale, _rescale_mix)
#: (o, alpha): o ← o·alpha.
rescale_rows = TileFn("rescale_rows", _rescale_rows, _rescale_rows_mix)
#: (s, scales ...): s ← s · scales, each of one number: what a block's values were divided by.
descale = TileFn("descale", _descale, _descale_mix)
#: (s, p, alpha, old, new, o ...): `rescale` of an o kept in units of the scale of V's block.
rescale_block = TileFn("rescale_block", _rescale_block, _rescale_block_mix)
#: (o, m, l): o ← o / l; l ← log-sum-exp. Rows without keys give 0 and -inf.
normalize = TileFn("normalize", _normalize, _normalize_mix)
#: (s, m): s ← s·scale·log₂e, masked; m ← row maxima, one for each part of the columns.
block_max = TileFn("block_max", block_max_of, _block_max_mix, chain=True)
#: (s, p, m, l): p ← exp2(s - greatest m of the row); l ← row sums, one for each part.
block_exp = TileFn("block_exp", _block_exp, _block_exp_mix, exps=True)
#: (o, m, l, pv, m_block, l_block): FA1's update of a normalised o and its statistics by one block.
merge_block = TileFn("merge_block", _merge_block, _merge_block_mix)
#: (m, l): l ← log-sum-exp; -inf for rows without keys.
log_sum_exp = TileFn("log_sum_exp", log_sum_exp_of, _log_sum_exp_mix)
#: (s): s ← s·scale.
scale = TileFn("scale", _scale, _scale_mix)
