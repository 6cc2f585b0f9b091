"""The text of a run: its sections, and sentences that its own numbers bear out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import simgpu
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention
from simgpu.report.tables import WIDTH, table
from simgpu.report.words import amount, whole

TITLES = [
    "GPU Speed Of Light Throughput",
    "Compute Workload Analysis",
    "Memory Workload Analysis",
    "Occupancy",
    "Warp State Statistics",
    "Launch Statistics",
]
LONG = Attention(batch=2, heads_q=32, seq_q=2048, head_dim=128)
TINY = Attention(batch=1, heads_q=2, seq_q=128, head_dim=64)


@pytest.fixture(scope="module")
def long_run():
    return simgpu.run("fa2", LONG, "h200")


def sections(text):
    """The sections of a report: its rows by metric, and the sentence at its end."""
    found = {}
    for title in TITLES:
        block = text.split(f"\n{title}\n")[1].split("\n\n")[0].splitlines()
        rule = next(i for i, line in enumerate(block) if "─" in line)
        inside = [line for line in block[rule + 1 :] if line.startswith(" ")]
        said = " ".join(line for line in block[rule + 1 :] if not line.startswith(" "))
        rows = {line[1:29].strip(): line[29:].split() for line in inside}
        found[title] = rows, said
    return found


@pytest.mark.parametrize("name", ["fa2", "fa1", "standard"])
@pytest.mark.parametrize("gpu", ["h200", "a100", "b200"])
def test_every_section_ends_with_one_paragraph_and_no_line_is_too_long(name, gpu):
    text = str(simgpu.run(name, TINY, gpu))
    assert [line for line in text.splitlines() if line in TITLES] == TITLES
    assert all(said.endswith(".") for _, said in sections(text).values())
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "\x1b" not in text
    assert "nan" not in text.lower().split()


def test_the_tables_show_the_runs_own_numbers(long_run):
    found = sections(str(long_run))
    rows = found["GPU Speed Of Light Throughput"][0]
    launch = long_run.launches[0]
    assert rows["Elapsed Cycles"][-1] == whole(long_run.cycles)
    assert rows["Duration"][-1] == f"{long_run.time_us:,.1f}"
    greatest = max(launch.bounds, key=launch.bounds.get)
    assert whole(launch.bounds[greatest]) in rows[f"Bound: {greatest}"]
    assert found["Memory Workload Analysis"][0]["HBM Read"] == (
        amount(round(launch.hbm_read_bytes)).split()
    )
    assert found["Occupancy"][0]["Blocks Per SM"][-1] == str(launch.occupancy.ctas_per_sm)
    assert found["Launch Statistics"][0]["Grid Size"][-1] == "1,024"


def test_estimates_assumptions_and_the_clock_are_named(long_run):
    estimated = simgpu.run("fa2", TINY, "h200", mix="analytic")
    text = str(estimated)
    registers = estimated.launches[0].registers
    assert f"{registers} estimated" in text
    assert f"registers estimated: {registers} (fa2)" in text.replace("\n", " ")
    text = str(long_run)
    profile = load_profile("h200")
    rows = profile.sources()
    assumed = sum(row.kind == "assumed" for row in rows)
    assert f"{assumed} of {len(rows)} profile numbers are assumed" in text.replace("\n", " ")
    assert f"Clock {long_run.clock_mhz:,.0f} MHz (board)" in text
    given = str(simgpu.run("fa2", TINY, "h200", clock_mhz=1234, resources={"registers": 100}))
    assert "Clock 1,234 MHz (given)" in given
    assert "estimated" not in given


def test_a_near_bound_is_what_limits(long_run):
    launch = long_run.launches[0]
    bounds = dict.fromkeys(launch.bounds, 1.0)
    for unit in ("tensor", "mufu", "fma", "issue", "smem", "l2", "hbm", "lsu", "critical_path"):
        near = replace(launch, bounds={**bounds, unit: 0.9 * launch.cycles})
        said = sections(str(replace(long_run, launches=(near,))))[TITLES[0]][1]
        assert said.startswith("The bound of ")
        assert "is 90.0 % of this time: " in said


def test_a_run_that_no_unit_limits_is_limited_by_its_greatest_stall(long_run):
    launch = long_run.launches[0]
    idle = dict.fromkeys(launch.utilization, 0.2)
    low = dict.fromkeys(launch.bounds, 1.0)
    words = {
        "wait_copy": "one more stage",
        "wait_mma": "softmax runs meanwhile",
        "wait_barrier": "even out the roles",
        "idle": "more CTAs",
        "dispatch": "persistent CTAs",
        "contended": "most wanted",
    }
    for stall, advice in words.items():
        stalls = {name: 0.5 if name == stall else 0.05 for name in launch.stalls}
        changed = replace(launch, utilization=idle, bounds=low, stalls=stalls)
        found = sections(str(replace(long_run, launches=(changed,))))
        said = found["GPU Speed Of Light Throughput"][1]
        assert said.startswith("Latency limits: no unit is used more than 20.0 %")
        assert advice in said
        assert "50.0 %" in found["Warp State Statistics"][1]


def test_a_short_grid_is_told_how_many_sms_are_idle():
    profile = load_profile("h200")
    found = sections(str(simgpu.run("fa2", TINY, profile)))
    idle = profile.device.sm_count - 2
    expected = f"{idle} of {profile.device.sm_count} SMs never get a CTA"
    assert found["Launch Statistics"][1].startswith(expected)
    assert "the grid is short for this GPU" in found["Occupancy"][1]


def test_several_launches_have_a_column_each_and_the_longest_is_explained():
    run = simgpu.run("standard", LONG, "h200")
    found = sections(str(run))
    header = str(run).split(f"{TITLES[0]}\n")[1].splitlines()[0].split()
    assert header == ["Metric", "Unit", "qk", "softmax", "pv", "all"]
    share = 100 * run.longest.cycles / run.cycles
    name = run.longest.name
    for title in TITLES:
        assert found[title][1].startswith(f"{name.capitalize()} ({share:.1f} % of the cycles): ")
    cells = found[TITLES[0]][0]["Elapsed Cycles"][1:]
    assert cells == [*(whole(x.cycles) for x in run.launches), whole(run.cycles)]


def test_hbm_bytes_are_compared_with_those_of_q_k_v_o():
    run = simgpu.run("standard", LONG, "h200")
    moved = sum(x.hbm_read_bytes + x.hbm_write_bytes for x in [run.longest])
    least = 4 * LONG.batch * LONG.heads_q * LONG.seq_q * LONG.head_dim * 2
    said = sections(str(run))["Memory Workload Analysis"][1]
    (ratio,) = re.findall(r"HBM moves (\S+) × the bytes", said)
    assert float(ratio) == pytest.approx(moved / least, abs=0.006)


def test_tables_keep_brackets_and_break_long_cells():
    text = table(("name", "text"), [("[red]x[/red]", "word " * 60)], firm=("name",))
    assert "[red]x[/red]" in text
    assert max(map(len, text.splitlines())) <= WIDTH
    assert len(text.splitlines()) > 4


def test_amounts_have_units():
    assert [amount(x) for x in (0, 999, 1500, 2.5e6, 3e9, 4e12)] == [
        *("0 B", "999 B", "1.50 KB", "2.50 MB", "3.00 GB", "4.00 TB"),
    ]
