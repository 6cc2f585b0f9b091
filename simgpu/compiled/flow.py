"""Where a listing loops, and which instructions a CTA of given trip counts executes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.compiled.listing import Instruction, Listing

# What a loop must hold to be work: spinning on a barrier and zeroing memory are not.
_MMA = ("HMMA", "QMMA", "IMMA", "OMMA", "DMMA", "HGMMA", "QGMMA", "IGMMA")
_WORK = ("MUFU", "UTMALDG", "LDTM", "LDGSTS", "LDG", "RED", "REDG", "STG")


def is_mma(opcode: str) -> bool:
    """Whether the opcode is a tensor-core product of any generation."""
    base = opcode.partition(".")[0]
    return base in _MMA or (base.startswith("UTC") and base.endswith("MMA"))


@dataclass(frozen=True, slots=True)
class Loop:
    """The positions of a loop body, both inclusive; ``last`` is the backward branch."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Instructions ``first`` to ``last`` (inclusive), executed ``times`` times in ``section``."""

    section: str
    first: int
    last: int
    times: int


def hot_loops(listing: Listing) -> tuple[Loop, ...]:
    """Return the innermost loops that do work, in address order.

    A kernel whose warps have roles has one for each, and only one of them holds products. Retries
    of a barrier, which branch back from behind the kernel's EXIT, are no loops.
    """
    code = listing.instructions
    ends = [i for i, x in enumerate(code) if x.base == "EXIT"]
    last_of: dict[int, int] = {}
    for i, target in listing.jumps.items():
        if target <= i and not any(target <= e <= i for e in ends):
            last_of[target] = max(i, last_of.get(target, i))
    loops = [Loop(first, last) for first, last in sorted(last_of.items())]
    working = [loop for loop in loops if _works(code[loop.first : loop.last + 1])]
    return tuple(
        x
        for x in working
        if not any(y is not x and x.first <= y.first and y.last <= x.last for y in working)
    )


def mma_loops(listing: Listing) -> tuple[Loop, ...]:
    """Return those of `hot_loops` that hold tensor-core products."""
    code = listing.instructions
    return tuple(
        loop
        for loop in hot_loops(listing)
        if any(is_mma(x.opcode) for x in code[loop.first : loop.last + 1])
    )


def nested(listing: Listing, loops: Sequence[Loop]) -> bool:
    """Whether another loop lies around one of ``loops``."""
    ends = [i for i, x in enumerate(listing.instructions) if x.base == "EXIT"]
    return any(
        goal < loop.first and loop.last < i and not any(goal <= e <= i for e in ends)
        for i, goal in listing.jumps.items()
        for loop in loops
    )


def _works(body: Sequence[Instruction]) -> bool:
    return any(is_mma(x.opcode) or x.base in _WORK for x in body)


def executed(
    listing: Listing, loops: tuple[Loop, ...], passes: Sequence[int]
) -> tuple[Stretch, ...]:
    """Return what one warp executes when ``loops`` are passed ``passes`` times each.

    At a conditional forward branch it takes the side from which the next loop can still be
    reached if that loop has passes, and the other side if it has none; a branch that decides no
    loop is not taken. Sections: ``prologue``, ``loop 0``, ``after 0``, ``loop 1``, ``after 1`` ...
    Warps that leave at a predicated EXIT count as if they stayed.
    """
    left = dict(zip((loop.first for loop in loops), passes, strict=True))
    reach = _reach(listing, set(left))
    number = {loop.first: n for n, loop in enumerate(loops)}
    out: list[Stretch] = []
    done: set[int] = set()
    section, start, at = "prologue", 0, 0
    while at < len(listing):
        x = listing.instructions[at]
        if at in left and at not in done:
            if start < at:
                out.append(Stretch(section, start, at - 1, 1))
            loop = loops[number[at]]
            out.append(Stretch(f"loop {number[at]}", loop.first, loop.last, left[at]))
            done.add(at)
            section, at = f"after {number[at]}", loop.last + 1
            start = at
            continue
        if x.base == "EXIT" and not x.conditional:
            break
        goal = listing.jumps.get(at, -1)
        if goal > at:
            out.append(Stretch(section, start, at, 1))
            if x.conditional:
                goal, skipped = _side(reach, set(left) - done, left, at + 1, goal)
                done |= skipped
                section = f"after {max(number[h] for h in skipped)}" if skipped else section
            start = at = goal
            continue
        at += 1
    if start < len(listing):
        out.append(Stretch(section, start, min(at, len(listing) - 1), 1))
    return tuple(out)


def _side(
    reach: list[frozenset[int]], open_heads: set[int], left: dict[int, int], here: int, there: int
) -> tuple[int, set[int]]:
    """Return where a conditional branch goes, and the loop heads that this passes over."""
    stay, go = reach[here] & open_heads, reach[there] & open_heads
    decided = stay ^ go
    if not decided:
        return here, set()
    head = min(decided)
    if left[head]:
        return (there if head in go else here), set()
    return (here if head in go else there), {head}


def _reach(listing: Listing, heads: set[int]) -> list[frozenset[int]]:
    """Return for each position, and the end, the loop heads on some forward path from it.

    Code behind the last EXIT, where a warp waits for a barrier, leads back to where it came from.
    """
    code, jumps = listing.instructions, listing.jumps
    last_exit = max((i for i, x in enumerate(code) if x.base == "EXIT"), default=len(code))
    none: frozenset[int] = frozenset()
    reach = [none] * (len(code) + 1)
    for at in [*range(len(code) - 1, -1, -1), *range(len(code) - 1, last_exit, -1)]:
        x, goal = code[at], jumps.get(at, -1)
        ends = (goal >= 0 or x.base == "EXIT") and not x.conditional
        found = none if ends else reach[at + 1]
        if goal > at or (goal >= 0 and at > last_exit):
            found |= reach[goal]
        reach[at] = found | {at} if at in heads else found
    return reach
