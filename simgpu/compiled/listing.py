"""A SASS listing as data: one instruction after the other, branch targets as positions.

The text form (`Listing.to_text`) is what the cache keeps and what test fixtures are made of:
``address stall line predicate opcode operands``, one instruction a line, branches to an address;
``stall/waits/result/reads`` in place of the stall where the scoreboards are known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
_LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_CODE = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P(?:T|\d+))\s+)?([A-Z][A-Z0-9_a-z.]*)(.*?);"
)
_HIGH_WORD = re.compile(r"^\s*/\*\s*0x([0-9a-f]{16})\s*\*/\s*$")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_SCHEDULING = re.compile(r"\s+[?&][A-Za-z0-9_={},]+")
# Bits 105 to 121 of the 128-bit word, so 41 to 57 of its upper half: stall, the scoreboards of
# result and operands, and a mask of those waited for.
_STALL, _RESULT, _OPERANDS, _WAITS = 41, 46, 49, 52
NO_SCOREBOARD = 7
NO_CONTROL = 7 << _RESULT | 7 << _OPERANDS
_BRANCHES = ("BRA", "CALL", "BSSY")


class Instruction(NamedTuple):
    """One SASS instruction.

    ``stall`` is the static count of cycles before the warp's next issue; ``line`` the source line,
    0 without line information. ``target`` is the address a branch goes to, or -1. Of six
    scoreboards, ``waits`` is a mask of those that must be clear before it issues, ``result`` and
    ``reads`` are set by it until its result is there, or its operands are read.
    """

    address: int
    stall: int
    line: int
    predicate: str
    opcode: str
    operands: str
    target: int = -1
    waits: int = 0
    result: int = NO_SCOREBOARD
    reads: int = NO_SCOREBOARD

    @property
    def base(self) -> str:
        """The opcode without its modifiers: ``FFMA`` of ``FFMA.FTZ``."""
        return self.opcode.partition(".")[0]

    @property
    def conditional(self) -> bool:
        """Whether it may be passed over: a predicate, or a branch with more than its target."""
        if self.predicate not in ("", "@PT", "@UPT"):
            return True
        return self.base == "BRA" and bool(self.operands)


@dataclass(frozen=True)
class Listing:
    """The instructions of one kernel in address order."""

    instructions: tuple[Instruction, ...]

    def __len__(self) -> int:
        return len(self.instructions)

    @cached_property
    def jumps(self) -> dict[int, int]:
        """Position of every branch → position it goes to."""
        at = {x.address: i for i, x in enumerate(self.instructions)}
        return {
            i: at[x.target]
            for i, x in enumerate(self.instructions)
            if x.base == "BRA" and x.target in at
        }

    def to_text(self) -> str:
        """Return the text form, which `from_text` reads back."""
        rows = []
        for x in self.instructions:
            goal = f" ->{x.target:x}" if x.target >= 0 else ""
            code = " ".join(part for part in (x.predicate, x.opcode, x.operands) if part)
            control = f"{x.stall}/{x.waits}/{x.result}/{x.reads}"
            rows.append(f"{x.address:x} {control} {x.line} {code}{goal}\n")
        return "".join(rows)

    @classmethod
    def from_text(cls, text: str) -> Listing:
        """Read the text form; lines that start with ``#`` are comments."""
        rows = (row for row in text.splitlines() if row and not row.startswith("#"))
        return cls(tuple(map(_from_row, rows)))

    @classmethod
    def from_nvdisasm(cls, text: str) -> Listing:
        """Read what ``nvdisasm -c -hex -g`` prints for a cubin with one kernel."""
        return cls(tuple(_read_nvdisasm(text)))


def _from_row(row: str) -> Instruction:
    address, control, line, code = row.split(" ", 3)
    stall, *scoreboards = map(int, control.split("/"))
    waits, result, reads = scoreboards or (0, NO_SCOREBOARD, NO_SCOREBOARD)
    code, _, goal = code.partition(" ->")
    predicate, rest = code.split(" ", 1) if code.startswith("@") else ("", code)
    opcode, _, operands = rest.partition(" ")
    target = int(goal, 16) if goal else -1
    return Instruction(
        int(address, 16),
        stall,
        int(line),
        predicate,
        opcode,
        operands,
        target,
        waits,
        result,
        reads,
    )


def _read_nvdisasm(text: str) -> list[Instruction]:
    found: list[tuple[int, str, str, str, str, int]] = []
    control: dict[int, int] = {}
    labels: dict[str, int] = {}
    pending: list[str] = []
    line, file = 0, ""
    for row in text.splitlines():
        if match := _HIGH_WORD.match(row):
            control.setdefault(len(found) - 1, int(match[1], 16))
        elif match := _CODE.match(row):
            address = int(match[1], 16)
            labels.update(dict.fromkeys(pending, address))
            pending = []
            operands = _SCHEDULING.sub("", match[4]).strip()
            goal = _TARGET.search(operands)
            label = goal[1] if goal else ""
            operands = _TARGET.sub("", operands).strip().rstrip(",")
            found.append((address, match[2] or "", match[3], operands, label, line))
        elif match := _LABEL.match(row):
            pending.append(match[1])
        elif match := _LINE.match(row):
            file = file or match[1]  # the kernel's own: what it inlines keeps the caller's line
            line = int(match[2]) if match[1] == file else line
        elif row.lstrip().startswith(".section") and found:
            break  # helper functions behind the kernel
    read = []
    for i, (address, predicate, opcode, operands, label, line) in enumerate(found):
        goal_at = labels.get(label, -1) if opcode.startswith(_BRANCHES) else -1
        word = control.get(i, NO_CONTROL)
        read.append(
            Instruction(
                address,
                word >> _STALL & 15,
                line,
                predicate,
                opcode,
                operands,
                goal_at,
                word >> _WAITS & 63,
                word >> _RESULT & 7,
                word >> _OPERANDS & 7,
            )
        )
    return read
