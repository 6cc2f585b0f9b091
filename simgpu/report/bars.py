"""What a page draws as bars: labels, shares and their texts, one cell for each column."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simgpu.report.remedies import compulsory_bytes
from simgpu.report.words import COMPUTE, LIMITS, MEMORY, STALLS, UNITS, amount, percent, whole

if TYPE_CHECKING:
    from simgpu.problem import Attention
    from simgpu.report.sections import Record

    Columns = dict[str, Record]

WORK = "work"


class Cell(NamedTuple):
    """A bar's length as a share of its track, and what stands beside it."""

    share: float
    text: str


class Bar(NamedTuple):
    """A row of bars: ``key`` chooses the colour."""

    key: str
    label: str
    cells: list[Cell]


def bounds(columns: Columns) -> list[Bar]:
    """Lower bounds as shares of the prediction, greatest first."""
    first = next(reversed(columns.values()))["bounds"]["cycles"]
    return [
        Bar(name, UNITS[name], [_bound(r, name) for r in columns.values()])
        for name in sorted(first, key=lambda name: -first[name])
    ]


def utilization(columns: Columns) -> list[Bar]:
    """Use of every unit, as a share of its peak; tensor memory's where somebody uses it."""
    used = [r["utilization"] for r in columns.values()]
    return [
        Bar(u, UNITS[u], [_share(shares[u]) for shares in used])
        for u in (*COMPUTE, *MEMORY)
        if u != "tmem" or any(shares[u] > 0 for shares in used)
    ]


def stalls(columns: Columns) -> list[Bar]:
    """Shares of the roles' time: work, then each reason to wait."""
    work = [_share(1.0 - sum(r["stalls"].values())) for r in columns.values()]
    waits = [
        Bar(name, said, [_share(r["stalls"][name]) for r in columns.values()])
        for name, said in STALLS.items()
    ]
    return [Bar(WORK, "working", work), *waits]


def limits(columns: Columns) -> list[Bar]:
    """CTAs an SM that each resource allows, as shares of the most blocks an SM can hold."""
    most = max(r["occupancy"]["limits"]["blocks"] for r in columns.values())
    known = [r["occupancy"]["limits"] for r in columns.values()]
    return [
        Bar(key, name, [_count(each.get(key), most) for each in known])
        for key, name in LIMITS.items()
        if any(key in each for each in known)
    ]


def traffic(columns: Columns, problem: Attention) -> list[Bar]:
    """Bytes by level, from Q, K, V and O once to what products read from shared memory."""
    sizes = {
        "HBM, read and written": ("hbm_read_bytes", "hbm_write_bytes"),
        "L2, read and written": ("l2_read_bytes", "l2_write_bytes"),
        "asked for by CTAs": ("global_read_bytes", "global_write_bytes"),
        "shared memory: filled by copies": ("smem_fill_bytes",),
        "shared memory: read by products": ("smem_operand_bytes",),
        "shared memory: exchanged by warps": ("smem_exchange_bytes",),
        "local memory: spilled and loaded": ("local_bytes",),
    }
    rows = {
        label: [float(sum(r["counts"][n] for n in names)) for r in columns.values()]
        for label, names in sizes.items()
    }
    least = [float(compulsory_bytes(problem))] * len(columns)
    rows = {"Q, K, V and O once": least, **rows}
    most = max(max(values) for values in rows.values())
    return [
        Bar(label.partition(",")[0].partition(":")[0], label, [_size(v, most) for v in values])
        for label, values in rows.items()
    ]


def _bound(record: Record, name: str) -> Cell:
    cycles = record["bounds"]["cycles"].get(name, 0.0)
    share = cycles / record["predicted"]["cycles"]
    return Cell(share, f"{percent(share)} % · {whole(cycles)} cycles")


def _share(value: float) -> Cell:
    return Cell(max(0.0, value), f"{percent(value)} %")


def _count(value: int | None, most: int) -> Cell:
    return Cell(0.0, "") if value is None else Cell(value / most, whole(value))


def _size(value: float, most: float) -> Cell:
    return Cell(value / most if most else 0.0, amount(value))
