"""Independent predictions shared out to processes, where joblib is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Fewer items than this are not worth the start of other processes.
FEW = 8


def each(
    function: Callable[[Any], Any], items: Sequence[Any], workers: int | None
) -> Iterator[Any]:
    """Yield ``function(item)`` for each item, in order.

    ``workers`` processes share them (None: one a core, if there are enough items); without joblib
    they are done here, one after the other.
    """
    if workers == 1 or (workers is None and len(items) < FEW):
        return map(function, items)
    try:
        from joblib import Parallel, delayed
    except ImportError:
        return map(function, items)
    shared = Parallel(n_jobs=workers or -1, batch_size=1, return_as="generator")
    found: Iterator[Any] = shared(delayed(function)(item) for item in items)
    return found
