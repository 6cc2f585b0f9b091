"""Timelines measured inside a kernel: the Chrome traces that Triton's Proton writes.

Proton's instrumentation stamps scopes with the SM's clock. Its trace has a process for each CTA
("fa3 Core17 CTA5") and a thread for each warp ("warp 4 (line 0)"; scopes that overlap have lines of
their own). A CTA begins at a time in ns; within it times are cycles, written as if one took 1 ns
(`third_party/proton/common/lib/TraceDataIO/TraceWriter.cpp` of triton-lang/triton). The committed
excerpts name a CTA and its roles ("CTA 0", "consumer 1"), and their `_meta` says that times are SM
cycles.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from simgpu.errors import MeasureError

if TYPE_CHECKING:
    import os

PROCESS = re.compile(r"(?:(?P<kernel>.+?) Core(?P<sm>\d+) )?CTA ?(?P<cta>\d+)(?: \[.*\])?")
THREAD = re.compile(r"(?P<who>(?:warp|consumer|producer) ?\d*)(?: \(line (?P<line>\d+)\))?")
#: What a cycle is written as, unless the record says otherwise.
AS_IF_MHZ = 1000.0
#: How `_meta` of an excerpt says that its times are cycles.
IN_CYCLES = "SM cycles"
#: Proton rounds times to single precision, so that neighbours may overlap by as much.
SINGLE = 2.0**-22


class Row(NamedTuple):
    """One warp or role of one CTA; overlapping scopes lie on different lines.

    ``kernel`` is empty and ``sm`` -1 where the trace does not say.
    """

    kernel: str
    sm: int
    cta: int
    who: str
    line: int


class Record(NamedTuple):
    """A scope as a warp passed it: cycles since the first record of its CTA."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows of records in order of time, and when each CTA begins, ns after the first."""

    source: str
    rows: dict[Row, tuple[Record, ...]]
    begins: dict[tuple[str, int, int], float]


def read_proton(path: str | os.PathLike[str]) -> Measured:
    """Read a trace; MeasureError says why a file is not one."""
    rows: dict[Row, list[Record]] = {}
    events, mhz = _events(Path(path))
    for number, event in enumerate(events):
        where = _row(event)
        if where is not None:
            record = _record(event, f"{path}: traceEvents[{number}]", mhz)
            rows.setdefault(where, []).append(record)
    if not rows:
        raise MeasureError(
            f"{path}: no warp of a CTA among its events; record one with Proton's instrumentation: "
            'proton.start(name, data="trace", backend="instrumentation")'
        )
    return _arranged(str(path), rows)


def _events(path: Path) -> tuple[list[Any], float]:
    """Return the events, and cycles for each µs of their times."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MeasureError(
            f"cannot read {path}: {(error.strerror or str(error)).lower()}"
        ) from None
    except ValueError as error:
        raise MeasureError(f"{path} is not a Chrome trace, which is JSON: {error}") from None
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise MeasureError(f'{path} is not a Chrome trace: it has no list "traceEvents"')
    meta = data.get("_meta") if isinstance(data, dict) else None
    cycles = isinstance(meta, dict) and str(meta.get("unit")).startswith(IN_CYCLES)
    return events, 1.0 if cycles else AS_IF_MHZ


def _row(event: Any) -> Row | None:
    """Return the row of a complete event of a warp; None for anything else."""
    if not isinstance(event, dict) or event.get("ph") != "X" or event.get("cat") == "flow":
        return None
    process = PROCESS.fullmatch(str(event.get("pid")))
    thread = THREAD.fullmatch(str(event.get("tid")))
    if not process or not thread:
        return None
    sm, cta, line = process["sm"] or -1, process["cta"], thread["line"] or 0
    return Row(process["kernel"] or "", int(sm), int(cta), thread["who"], int(line))


def _record(event: dict[str, Any], where: str, mhz: float) -> Record:
    """Return a record with times as they stand in the file, in cycles."""
    args = event.get("args")
    mhz = _number(args, "Frequency (MHz)", where, mhz)
    start, cycles = (_number(event, name, where) * mhz for name in ("ts", "dur"))
    if cycles < 0:
        raise MeasureError(f"{where}: dur or the frequency is negative")
    return Record(str(event.get("name")), start, start + cycles)


def _number(of: Any, name: str, where: str, default: float | None = None) -> float:
    value = of.get(name, default) if isinstance(of, dict) else default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MeasureError(f"{where}: {name} is {value!r}: it must be a number")
    return float(value)


def _arranged(source: str, rows: dict[Row, list[Record]]) -> Measured:
    """Count each CTA's cycles from its first record."""
    begins: dict[tuple[str, int, int], float] = {}
    for row, records in rows.items():
        first = min(record.start for record in records)
        begins[row[:3]] = min(first, begins.get(row[:3], first))
    zero = min(begins.values())
    arranged = {
        row: _in_order(source, row, records, begins[row[:3]])
        for row, records in sorted(rows.items(), key=lambda item: _order(item[0]))
    }
    return Measured(source, arranged, {cta: begin - zero for cta, begin in begins.items()})


def _order(row: Row) -> tuple[Any, ...]:
    return (*row[:3], len(row.who), row.who, row.line)


def _in_order(source: str, row: Row, records: list[Record], begin: float) -> tuple[Record, ...]:
    """Return a row's records by time, without what rounding makes them overlap."""
    placed: list[Record] = []
    for name, start, end in sorted(records, key=lambda record: record[1:]):
        if placed and start - begin < placed[-1].end:
            if placed[-1].end - (start - begin) > abs(end) * SINGLE:
                raise MeasureError(
                    f"{source}: {placed[-1].name} and {name} overlap on {row.who} of CTA "
                    f"{row.cta}, line {row.line}: Proton gives such scopes lines of their own"
                )
            placed[-1] = placed[-1]._replace(end=start - begin)
        placed.append(Record(name, start - begin, end - begin))
    return tuple(placed)
