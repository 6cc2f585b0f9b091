"""A compiled loop as a scheduler sees it, and its short form for files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from simgpu.compiled.sass import pipe_of
from simgpu.timing.issued import Issued

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from simgpu.compiled.listing import Instruction
    from simgpu.timing.issued import Kind

_COLUMNS = re.compile(r"\.64x(\d+)x")
_A_IN_REGISTERS = re.compile(r"R\d+, R\d")
_PENDING = re.compile(r", (0x[0-9a-f]+)")
_THREADS = re.compile(r"^\w+, (0x[0-9a-f]+)")
_REGISTER = re.compile(r"(?<![A-Z])R(\d+)")
_KINDS: dict[str, Kind] = {
    "LDGDEPBAR": "commit",
    "BAR": "barrier",
    "SYNCS": "mbarrier",
    "LDGSTS": "copy",
    "LDG": "load",
    "SHFL": "shuffle",
    "MUFU": "mufu",
    **dict.fromkeys(("LDS", "STS", "LDSM", "STSM", "LDL", "STL"), "shared"),
}
_WGMMA = ("HGMMA", "QGMMA")  # operands of 16 bits, of 8
_NOT_FOLLOWED = ("UTMALDG", "UBLKCP")
_STORES = ("STS", "STSM", "STL", "LDGSTS")
_WARPGROUP = 128  # threads
#: Bytes a lane of a shared access by the width in its opcode.
_WIDTHS = {"128": 16, "64": 8}


def loop_code(body: Iterable[Instruction]) -> tuple[Issued, ...]:
    """Return a loop's instructions as `simgpu.timing.issue` follows them.

    A register that the instruction before read at the same place and kept (``.reuse``) is not read
    again. Empty where TMA loads, whose barriers are not followed, and without wgmma.
    """
    out: list[Issued] = []
    kept: dict[int, int] = {}
    body = tuple(body)
    loads_by_tma = any(x.base.startswith(_NOT_FOLLOWED) for x in body)
    if loads_by_tma or not any(x.base in _WGMMA for x in body):
        return ()
    for x in body:
        banks, kept = _reads(x, kept)
        kind, n, last = _kind(x)
        out.append(Issued(kind, max(1, x.stall), x.waits, x.result, x.reads, *banks, n, last))
    return tuple(out)


def _kind(x: Instruction) -> tuple[Kind, int, bool]:
    """Return what a scheduler tells apart, its number, and whether it closes a group."""
    if x.base in _WGMMA:
        found = _COLUMNS.search(x.opcode)
        columns = int(found[1]) if found else 0
        kind: Kind = "mma_registers" if _A_IN_REGISTERS.match(x.operands) else "mma"
        return kind, columns, "gsb0" in x.operands
    if x.opcode.startswith(("WARPGROUP.DEPBAR", "DEPBAR")):
        kind = "wait_mma" if x.opcode.startswith("W") else "wait_copies"
        pending = _PENDING.search(x.operands)
        return kind, int(pending[1], 16) if pending else 0, False
    if x.predicate == "@!PT":
        return "other", 0, False
    kind = _KINDS.get(x.base, "alu" if pipe_of(x) == "alu" else "other")
    if kind == "barrier":
        threads = _THREADS.match(x.operands)
        return kind, int(threads[1], 16) // _WARPGROUP if threads else 0, False
    width = next((n for text, n in _WIDTHS.items() if text in x.opcode), 4)
    return kind, width if kind == "shared" else 0, False


def _reads(x: Instruction, kept: dict[int, int]) -> tuple[tuple[int, int], dict[int, int]]:
    """Return the registers read from the even and the odd bank, and what is kept for the next."""
    if x.base in _WGMMA or x.predicate == "@!PT":
        return (0, 0), {}
    operands = x.operands.split(",")
    counts, keeps = [0, 0], {}
    for place, text in enumerate(operands if x.base in _STORES else operands[1:]):
        wide = ".64" in text
        for match in _REGISTER.finditer(text):
            register = int(match[1])
            if kept.get(place) != register:
                counts[register % 2] += 1
                counts[1 - register % 2] += wide
            if ".reuse" in text:
                keeps[place] = register
    return (counts[0], counts[1]), keeps


def to_json(code: Sequence[Issued]) -> dict[str, Any]:
    """Return a loop as JSON values: its distinct instructions, and their order."""
    rows = list(dict.fromkeys(code))
    number = {row: n for n, row in enumerate(rows)}
    return {"rows": [list(row) for row in rows], "code": [number[x] for x in code]}


def from_json(found: dict[str, Any]) -> tuple[Issued, ...]:
    """Return the loop that `to_json` wrote."""
    rows = [Issued(*row) for row in found["rows"]]
    return tuple(rows[n] for n in found["code"])
