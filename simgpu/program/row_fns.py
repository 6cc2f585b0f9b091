"""Tile functions of unfused attention: softmax over whole rows, masks, element by element.

As in `fns`, a cost is the mix of one warp, given how many elements of each argument a thread holds;
a row's statistics are held by all threads among which the row is spread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.program.fns import block_max_of, finite, log_sum_exp_of
from simgpu.program.mix import Mix
from simgpu.program.tilefn import TileFn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from simgpu.program.fns import Array


def _row_exp(args: tuple[Array, ...], visible: object, scale: float) -> None:
    import numpy as np

    s, m, l = args
    np.exp2(s - finite(m), out=s)
    l[...] = s.sum(axis=-1, keepdims=True)


def _row_divide(args: tuple[Array, ...], visible: object, scale: float) -> None:
    import numpy as np

    s, p, m, l = args
    p[...] = (s / np.where(l != 0, l, l.dtype.type(1))).astype(p.dtype)
    log_sum_exp_of((m, l), None, scale)


def _hide(args: tuple[Array, ...], visible: NDArray[np.bool_] | None, scale: float) -> None:
    import numpy as np

    (s,) = args
    if visible is not None:
        s[...] = np.where(visible, s, -np.inf)


def _whole_max_mix(held: tuple[float, ...], masked: bool) -> Mix:
    s, rows = held
    # HADD2 widens a score; five shuffles a row in a warp, two or so between warps
    hidden = Mix(alu=3 * s) if masked else Mix()
    return Mix(fma=s, alu=s + 4 * rows + 2, lsu=5 * rows + 2).plus(hidden)


def _row_exp_mix(held: tuple[float, ...], masked: bool) -> Mix:
    s, rows = held[0], held[1]
    return Mix(mufu=s, fma=3 * s + 4 * rows, alu=2 * rows, lsu=5 * rows + 2)


def _row_divide_mix(held: tuple[float, ...], masked: bool) -> Mix:
    s, rows = held[0], held[2]
    # a guarded division is three FMUL; the logarithm is a polynomial on the FMA pipe
    return Mix(mufu=rows, fma=3 * s + 20 * rows + 12, alu=s / 2 + 27 * rows)


def _hide_mix(held: tuple[float, ...], masked: bool) -> Mix:
    return Mix(alu=3.4 * held[0]) if masked else Mix()  # compare, select, and unpack predicates


def _elementwise_mix(held: tuple[float, ...], masked: bool) -> Mix:
    # PyTorch's elementwise_kernel<128, 4> takes an SM of an H200 22 to 25 cycles for 32 elements,
    # in copies, additions and masked fills alike (pytorch_standard.json): division by strides.
    return Mix(fma=44 * held[0], alu=44 * held[0])


#: (s, m): `block_max` of whole rows, each spread over many threads.
whole_max = TileFn("whole_max", block_max_of, _whole_max_mix, chain=True)
#: (s, m, l): s ← exp2(s - m); l ← row sums, over whole rows.
row_exp = TileFn("row_exp", _row_exp, _row_exp_mix, exps=True)
#: (s, p, m, l): p ← s / l; l ← log-sum-exp.
row_divide = TileFn("row_divide", _row_divide, _row_divide_mix)
#: (s): s ← -inf where the mask hides it.
hide = TileFn("hide", _hide, _hide_mix)
#: (x): `hide`, or nothing, an element of 2 bytes at a time, each with its address worked out.
elementwise = TileFn("elementwise", _hide, _elementwise_mix)
