"""Hardware counters: one Nsight Compute session for a whole grid, and how its table is read.

The child launches a marker kernel before each run, so the k-th marker in the table is the k-th run
and what follows it up to the next marker are that run's launches, in order.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field

from simgpu.errors import MeasureError

MARKER = "clock_stamp"

METRICS = (
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.max",
    "sm__cycles_active.avg",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sector_op_read_hit_rate.pct",
    "lts__t_sectors_op_read_lookup_miss.sum",
    "lts__t_sectors_op_red.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_ltcfabric_op_read.sum",
    "lts__t_sectors_srcunit_ltcfabric_op_write.sum",
    "l1tex__m_xbar2l1tex_read_sectors.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_misc.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__inst_executed.sum",
    "smsp__inst_executed_pipe_xu.sum",
    "smsp__inst_executed_pipe_fma.sum",
    "smsp__inst_executed_pipe_alu.sum",
    "smsp__inst_executed_pipe_lsu.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    "launch__occupancy_limit_blocks",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_allocated",
    "launch__grid_size",
    "launch__block_size",
)

# What a second session keeps, to say how well counters repeat.
REPEATED = (
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.max",
    "sm__cycles_active.avg",
    "dram__bytes_read.sum",
    "lts__t_sectors_op_read.sum",
)

_SCALE = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
}


@dataclass(slots=True)
class Counted:
    """The counters of one run: (kernel name, metric → value) of each launch, in order."""

    launches: list[tuple[str, dict[str, float]]] = field(default_factory=list)

    def ours(self) -> Counted:
        """Without torch's launches, such as the one that clears a kernel's tile counter."""
        return Counted([x for x in self.launches if "at::" not in x[0]])


def command(ncu: str, log: str) -> list[str]:
    """The Nsight Compute command line that goes before the child's own."""
    return [
        ncu,
        "--clock-control",
        "none",
        "--replay-mode",
        "kernel",
        "--profile-from-start",
        "off",
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--log-file",
        log,
        "--metrics",
        ",".join(METRICS),
    ]


def parse(text: str) -> list[Counted]:
    """The runs of a session, by marker; times in seconds, sizes in bytes.

    Raises `MeasureError` with Nsight Compute's own words where there is no table.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    table = [line for line in lines if not line.startswith("==")]
    if not table or not table[0].startswith('"ID"'):
        words = [line for line in lines if line.startswith("==ERROR==")] or lines or ["no output"]
        raise MeasureError(
            f"Nsight Compute gathered nothing: {words[0].removeprefix('==ERROR==').strip()[:200]}"
        )
    rows = csv.DictReader(io.StringIO("\n".join(table)))
    runs: list[Counted] = []
    units: dict[str, str] = {}
    for row in rows:
        if not row["ID"]:
            units = row
        elif row["Kernel Name"].startswith(MARKER):
            runs.append(Counted())
        elif runs:
            runs[-1].launches.append((row["Kernel Name"], _values(row, units)))
    return runs


def _values(row: dict[str, str], units: dict[str, str]) -> dict[str, float]:
    return {
        name: float(f"{number * _factor(units.get(name, '')):.12g}")
        for name in METRICS
        if (number := _number(row.get(name))) is not None
    }


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def _factor(unit: str) -> float:
    """What a unit such as ``nsecond``, ``usecond`` or ``Kbyte`` is in seconds or bytes."""
    base = unit.split("/")[0]
    for name in ("second", "byte"):
        if base.endswith(name) and base.removesuffix(name) in _SCALE:
            return _SCALE[base.removesuffix(name)]
    return 1e-9 if base == "ns" else 1.0
