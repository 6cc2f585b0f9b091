"""The page that teaches: online softmax, bytes, loop orders and ping-pong, on our own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.report import lessons
from simgpu.report.html import page
from simgpu.report.recurrence import recurrence
from simgpu.report.words import amount

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def explain_page(
    *,
    lengths: Sequence[int] = lessons.LENGTHS,
    gpus: Sequence[str] = lessons.GPUS,
    progress: Callable[[], None] = lambda: None,
) -> str:
    """Return the page; ``lengths`` and ``gpus`` are those that its sliders offer."""
    from simgpu import __version__

    sizes = lessons.sizes()
    return page(
        "explain.jinja",
        title="Attention, tile by tile",
        recurrence=recurrence(),
        traffic=lessons.traffic(lengths=lengths, gpus=gpus, progress=progress),
        orders=lessons.orders(),
        exchange=lessons.exchange(),
        pingpong=lessons.pingpong(),
        sizes={
            "n": sizes["n"],
            "on_chip": amount(sizes["on_chip"]),
            "in_hbm": amount(sizes["in_hbm"]),
        },
        version=__version__,
    )
