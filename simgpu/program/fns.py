"""Tile functions: what the non-matmul steps compute, and the instructions they take.

Meaning and cost sit in one object so that they cannot drift apart. A cost is the number of 32-lane
warp instructions by pipe for the whole tile, when no warp repeats another's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453


@dataclass(frozen=True, slots=True)
class TileFn:
    """A named tile function.

    ``run(args, visible, scale)`` works in place on arrays whose last two axes are a tile's rows and
    columns; ``visible`` is the mask of the first argument or None. ``mix`` gives the cost.
    """

    name: str
    run: Callable[[tuple[Array, ...], NDArray[np.bool_] | None, float], None]

    def __str__(self) -> str:
        return self.name


def _init(args: tuple[Array, ...], visible: object, scale: float) -> None:
    m, l, *accumulators = args
    m[...] = -float("inf")
    l[...] = 0
    for o in accumulators:
        o[...] = 0


def _row_max(args: tuple[Array, ...], visible: NDArray[np.bool_] | None, scale: float) -> None:
    import numpy as np

    s, m, m_new = args
    np.multiply(s, s.dtype.type(scale * LOG2E), out=s)
    if visible is not None:
        s[...] = np.where(visible, s, -np.inf)
    np.maximum(m, s.max(axis=-1, keepdims=True), out=m_new)


def _finite(m: Array) -> Array:
    """Rows that have seen no key have maximum -inf; subtracting it would give NaN."""
    import numpy as np

    return np.where(np.isneginf(m), m.dtype.type(0), m)


def _exp_and_rescale(args: tuple[Array, ...], visible: object, scale: float) -> None:
    import numpy as np

    s, p, m, m_new, l, *accumulators = args
    base = _finite(m_new)
    alpha = np.exp2(m - base)
    np.exp2(s - base, out=s)
    p[...] = s.astype(p.dtype)
    l[...] = l * alpha + s.sum(axis=-1, keepdims=True)
    for o in accumulators:
        o *= alpha
    m[...] = m_new


def _normalize(args: tuple[Array, ...], visible: object, scale: float) -> None:
    import numpy as np

    o, m, l = args
    seen = l > 0
    o[...] = np.where(seen, o / np.where(seen, l, l.dtype.type(1)), o.dtype.type(0))
    log = np.log(np.where(seen, l, l.dtype.type(1))) + _finite(m) * l.dtype.type(LN2)
    l[...] = np.where(seen, log, -np.inf)


#: (m, l, o ...) ← (-inf, 0, 0 ...): the state before any key.
init = TileFn("init", _init)
#: (s, m, m_new): s ← s·scale·log₂e, masked; m_new ← max(m, row maximum of s).
row_max = TileFn("row_max", _row_max)
#: (s, p, m, m_new, l, o ...): p ← exp2(s - m_new); l, o ← rescaled by exp2(m - m_new); m ← m_new.
exp_and_rescale = TileFn("exp_and_rescale", _exp_and_rescale)
#: (o, m, l): o ← o / l; l ← log-sum-exp. Rows without keys give 0 and -inf.
normalize = TileFn("normalize", _normalize)
