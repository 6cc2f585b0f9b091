"""Loops of consumers, whose warps have roles: they test mbarriers and issue products in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.compiled.flow import Loop, mma_loops
from simgpu.compiled.loopcode import loop_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.compiled.listing import Instruction, Listing
    from simgpu.timing.issued import Issued, Kind

#: A stretch with more selects than this masks scores.
_FEW_SELECTS = 8
_SELECTS = ("FSEL", "SEL")


def consumer_loops(listing: Listing) -> tuple[tuple[Issued, ...], ...]:
    """Return the code of a pass without a mask of each loop that holds products.

    Turns are named barriers that one consumer waits at and another arrives at (FA3's package), or
    an mbarrier that is tested between those of K and V (our Gluon kernel, `kernels/fa3_roles.py`).
    """
    return tuple(_with_turns(body) for body in _bodies(listing))


def _bodies(listing: Listing) -> list[tuple[Instruction, ...]]:
    return [_full_pass(listing, loop) for loop in mma_loops(listing)]


def _full_pass(listing: Listing, loop: Loop) -> tuple[Instruction, ...]:
    """Return what a warp executes of a loop when it has nothing to mask."""
    code, out, at = listing.instructions, [], loop.first
    while at <= loop.last:
        x, goal = code[at], listing.jumps.get(at, -1)
        out.append(x)
        inside = at < goal <= loop.last
        at = goal if inside and (not x.conditional or _masks(code[at + 1 : goal])) else at + 1
    return tuple(out)


def _masks(stretch: Sequence[Instruction]) -> bool:
    return sum(x.base in _SELECTS for x in stretch) > _FEW_SELECTS


def _with_turns(body: Sequence[Instruction]) -> tuple[Issued, ...]:
    """Return the loop's code, turns told from other barriers."""
    turns: dict[int, Kind] = {}
    tests = [i for i, x in enumerate(body) if x.base == "SYNCS" and "TRYWAIT" in x.opcode]
    arrives = [i for i, x in enumerate(body) if x.base == "SYNCS" and "ARRIVE" in x.opcode]
    gives = [i for i, x in enumerate(body) if x.opcode.startswith("BAR.ARV")]
    if gives:
        takes = [i for i, x in enumerate(body[: gives[0]]) if x.base == "BAR"]
        turns = {takes[-1]: "take_turn", gives[0]: "give_turn"}
    elif len(tests) == len(arrives) == 3:  # of K, the turn, and V
        turns = {tests[1]: "take_turn", arrives[0]: "give_turn"}
    return tuple(
        x._replace(kind=turns[i]) if i in turns else x for i, x in enumerate(loop_code(body))
    )
