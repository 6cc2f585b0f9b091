"""What a tile function is: meaning and cost in one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from simgpu.program.mix import Mix

    Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TileFn:
    """A named tile function.

    ``run(args, visible, scale)`` works in place on arrays whose last two axes are a tile's rows and
    columns; ``visible`` is the mask of the first argument or None. ``mix(held, masked)`` is the
    cost of one warp that holds ``held[i]`` elements of argument i a thread; ``exps`` says whether
    each element of the first argument is exponentiated. ``chain`` marks a dependent chain along a
    row, bound by latency. ``dense``: beside the instructions that wait for one another there are
    so many that wait for none that a lone warp leaves no issue slot empty.
    """

    name: str
    run: Callable[[tuple[Array, ...], NDArray[np.bool_] | None, float], None]
    mix: Callable[[tuple[float, ...], bool], Mix]
    exps: bool = False
    chain: bool = False
    dense: bool = False

    def __str__(self) -> str:
        return self.name
