"""An instruction of a compiled loop, as a scheduler sees it."""

from __future__ import annotations

from typing import Literal, NamedTuple

SCOREBOARDS = 6
#: What a scheduler tells apart: ``mma`` reads A from shared memory, ``mma_registers`` from
#: registers; ``wait_mma`` and ``wait_copies`` leave some groups pending. ``mbarrier`` tests or
#: arrives at one whose data is there; turns go round among the warpgroups of a CTA.
Kind = Literal[
    "mma", "mma_registers", "wait_mma", "wait_copies", "commit", "barrier", "mbarrier", "take_turn",
    "give_turn", "copy", "load", "shared", "shuffle", "mufu", "alu", "other",
]  # fmt: skip


class Issued(NamedTuple):
    """One instruction as a scheduler sees it.

    ``stall`` cycles pass before the warp's next; ``waits`` is a mask of scoreboards that must be
    clear before it issues, ``result`` and ``reads`` those it sets until its result is there, or its
    operands are read (7: none). ``even`` and ``odd`` registers are read from each bank. ``n`` are a
    product's columns, the groups that a wait leaves pending, a shared access's bytes a lane, or the
    warpgroups that meet at a barrier (0: all of the CTA); ``last`` says that a product closes its
    group.
    """

    kind: Kind
    stall: int = 1
    waits: int = 0
    result: int = 7
    reads: int = 7
    even: int = 0
    odd: int = 0
    n: int = 0
    last: bool = False
