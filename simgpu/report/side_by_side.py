"""A comparison as text: one line a run, then why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.report.remedies import compulsory_bytes
from simgpu.report.tables import table, wrap
from simgpu.report.why import why
from simgpu.report.words import COMPUTE, MEMORY, STALLS, UNITS, percent

if TYPE_CHECKING:
    from simgpu.report.comparison import Comparison, Entry

COLUMNS = ("run", "time us", "× fastest", "TFLOP/s", "busiest unit", "greatest stall", "HBM ×")


def render_comparison(found: Comparison) -> str:
    """Return a comparison as text. *HBM ×* is HBM traffic over Q, K, V and O once."""
    rows = [cells(entry, found) for entry in found.entries]
    right = ("time us", "× fastest", "TFLOP/s", "HBM ×")
    parts = [table(COLUMNS, rows, right=right, firm=("run",))]
    for entry in found.entries:
        parts += ["", entry.label, *(wrap(said, "  ") for said in why(entry, found))]
    return "\n".join(parts)


def cells(entry: Entry, among: Comparison) -> tuple[str, ...]:
    """Return a run's line of a table, in the order of ``COLUMNS``; nothing where it was refused."""
    run, times = entry.run, among.times(entry)
    if run is None or times is None:
        return (entry.label, *[""] * (len(COLUMNS) - 1))
    record = run.to_dict()
    used, stalls, counts = record["utilization"], record["stalls"], record["counts"]
    unit = max((*COMPUTE, *MEMORY), key=lambda u: used[u])
    stall = max(stalls, key=lambda s: stalls[s])
    moved = counts["hbm_read_bytes"] + counts["hbm_write_bytes"]
    return (
        entry.label,
        f"{run.time_us:,.1f}",
        f"{times:.2f}",
        f"{run.tflops:,.1f}",
        f"{UNITS[unit]} {percent(used[unit])} %",
        f"{STALLS[stall]} {percent(stalls[stall])} %",
        f"{moved / compulsory_bytes(run.problem):.2f}",
    )
