"""Reading: what the program asks for, whatever machine runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.cost.work import Work, work
from simgpu.read.tally import tally

if TYPE_CHECKING:
    from simgpu.program.program import Launch, Recording


def count_launch(launch: Launch) -> Work:
    """Return what all CTAs of a launch ask for."""
    return tally(launch, Work(), work)


def count(recording: Recording) -> Work:
    """Return what all launches ask for: bytes, executed FLOPs, exponentials, barriers, atomics.

    FLOPs include padding, masked scores and what warps repeat (split-d); global bytes do not
    include padding.
    """
    total = Work()
    for launch in recording.launches:
        total = total.plus(count_launch(launch))
    return total
