"""The committed H200 set: what it must hold, and the table in docs that is made from it.

Run as a script, this file writes the table anew.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path

import pytest

from simgpu.validation import records
from simgpu.validation.measure_grid import load_grid

ROOT = Path(__file__).parents[2]
SET = ROOT / "simgpu/validation/measured/h200_sxm"
PAGE = ROOT / "docs/reference/kernels.md"
BEGIN, END = "<!-- table: from runs.jsonl -->\n", "<!-- end of table -->\n"

RUNS = records.read(SET / "runs.jsonl")
GOOD = [r for r in RUNS if r.status == "ok"]


def fastest():
    """The fastest run of each kernel on each problem, for problems that a peer ran too."""
    best = defaultdict(dict)
    for r in GOOD:
        old = best[r.problem].get(r.kernel.name)
        if old is None or r.time.median_us < old.time.median_us:
            best[r.problem][r.kernel.name] = r
    return {p: x for p, x in best.items() if any(name.startswith("peer_") for name in x)}


def contests(kernel):
    """(problem, our fastest run, PyTorch FA2's) where both ran."""
    peer = "peer_fa2_backward" if kernel.endswith("backward") else "peer_fa2"
    return [(p, x[kernel], x[peer]) for p, x in fastest().items() if kernel in x and peer in x]


def table() -> str:
    """Useful TFLOP/s of our fastest tile beside the peers'."""
    lines = []
    for suffix in ("", "_backward"):
        ours = "fa2" + suffix
        lines += [
            f"| {'backward' if suffix else 'forward'} | dtype | mask | ours | tile "
            "| PyTorch FA2 | cuDNN | FA3 | ours / PyTorch FA2 |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for p, x in fastest().items():
            if "peer_fa2" + suffix not in x and "peer_fa3" + suffix not in x:
                continue
            heads = p.heads_q if p.heads_q == p.heads_kv else f"{p.heads_q}/{p.heads_kv}"
            peers = [x.get(f"peer_{name}{suffix}") for name in ("fa2", "cudnn", "fa3")]
            rates = " | ".join(f"{r.tflops:.0f}" if r else "" for r in peers)
            run, base = x.get(ours), peers[0]
            ratio = f"{base.time.median_us / run.time.median_us:.2f}" if run and base else ""
            tile = "/".join(str(v) for v in run.kernel.params.values()) if run else ""
            lines.append(
                f"| {p.batch}×{heads}×{p.seq_q}×{p.head_dim} | {p.dtype} | {p.mask} "
                f"| {f'{run.tflops:.0f}' if run else ''} | {tile} | {rates} | {ratio} |"
            )
        lines.append("")
    return "\n".join(lines)


def test_the_set_is_the_grid():
    assert {r.key for r in RUNS} == {p.key for p in load_grid(SET / "grid.yaml")}


def test_the_set_is_large_and_wide():
    fa2 = [r for r in GOOD if r.kernel.name == "fa2"]
    assert len(GOOD) >= 400
    assert sum(r.counted for r in GOOD) >= 200
    assert len({r.problem for r in fa2}) >= 8
    assert {r.problem.head_dim for r in fa2} >= {64, 80, 96, 128, 256}
    assert {r.kernel.name for r in GOOD} >= {
        "fa1", "standard", "fa2_backward", "peer_fa2", "peer_cudnn", "peer_fa3",
    }  # fmt: skip


def test_every_failed_run_says_why():
    failed = [r for r in RUNS if r.status == "failed"]
    assert all(r.reason.startswith("does not fit: out of resource") for r in failed)


def test_every_run_states_error_clock_power_and_method():
    for r in GOOD:
        assert r.error.relative <= r.error.limit
        assert r.clock_mhz
        assert r.watts
        assert r.sm_clocks
        assert r.time.cycles
        assert {"torch", "triton", "cuda"} <= set(r.method.versions)
        if not r.kernel.name.startswith("peer_"):
            hashes = [r.kernel.cubin_sha256] if not r.launches else []
            hashes += [x.cubin_sha256 for x in r.launches]
            assert all(hashes)


def test_the_set_of_fa3_is_its_grid_and_right_everywhere():
    runs = records.read(SET / "fa3_runs.jsonl")
    assert {r.key for r in runs} == {p.key for p in load_grid(SET / "grid_fa3.yaml")}
    assert all(r.status == "ok" and r.error.relative <= r.error.limit for r in runs)
    ours = [r for r in runs if r.kernel.name == "fa3"]
    assert all(r.kernel.spills == 0 and r.kernel.registers == 168 for r in ours)
    assert sum(r.counted for r in ours) >= 20
    assert {r.problem.head_dim for r in ours} == {64, 128, 256}


def test_the_set_of_persistent_fa3_is_its_grid_and_right_everywhere():
    runs = records.read(SET / "fa3_persistent_runs.jsonl")
    points = {p.key: p for p in load_grid(SET / "grid_fa3_persistent.yaml")}
    assert {r.key for r in runs} == set(points)
    assert all(r.status == "ok" and r.error.relative <= r.error.limit for r in runs)
    assert all(r.counted == bool(points[r.key].counters) and not r.launches for r in runs)
    assert all(r.time or r.method.notes for r in runs)


def test_fa3_beside_the_package_and_cudnn_in_one_run():
    runs = json.loads((SET / "fa3_beside.json").read_text(encoding="utf-8"))["runs"]
    found = defaultdict(dict)
    for r in runs:
        found[r["run"], r["head_dim"], r["mask"]][r["kernel"]] = r["median_us"]
    assert {(1, 128, "none"), (1, 128, "causal"), (2, 128, "none"), (2, 128, "causal")} <= set(
        found
    )
    for (_, head_dim, _), times in found.items():
        if head_dim == 128:
            assert times["fa3-fwd 0.0.3"] / times["fa3"] >= 0.95
            assert times["cuDNN 9.19"] / times["fa3"] >= 1.0


@pytest.mark.parametrize("name", ["pingpong", "no_turns"])
def test_timelines_have_every_pass_and_no_overlap(name):
    path = SET / f"fa3_timeline_{name}.json"
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    passes = 2 * (4096 // 128 - 1)  # of two tiles
    for consumer in ("consumer 0", "consumer 1"):
        own = sorted((e["ts"], e["dur"], e["name"]) for e in events if e["tid"] == consumer)
        assert [n for _, _, n in own] == ["turn", "issue", "scores", "softmax", "pv"] * passes
        assert all(a[0] + a[1] <= b[0] for a, b in itertools.pairwise(own))


def test_cycles_repeat_within_two_percent():
    spread = [r.spread()["cycles"] for r in GOOD]
    assert sum(s <= 0.02 for s in spread) / len(spread) >= 0.95


@pytest.mark.parametrize(("kernel", "least"), [("fa2", 1.3), ("fa2_backward", 0.9)])
def test_speed_beside_pytorch(kernel, least):
    found = [
        base.time.median_us / run.time.median_us
        for p, run, base in contests(kernel)
        if p.head_dim in (64, 128) and p.seq_q >= 2048
    ]
    assert len(found) >= 4
    assert min(found) >= least


def test_counted_cycles_agree_with_nsight_compute():
    long = [r for r in GOOD if r.counters and r.kernel.name == "fa2" and r.time.median_us > 300]
    ratios = sorted(r.time.cycles / r.counters["sm__cycles_elapsed.max"] for r in long)
    assert ratios[len(ratios) // 2] == pytest.approx(1, abs=0.01)


def test_the_table_in_docs_is_of_this_set():
    text = PAGE.read_text(encoding="utf-8")
    assert text.split(BEGIN)[1].split(END)[0] == table() + "\n"


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + "\n" + END + rest.split(END)[1], encoding="utf-8")
