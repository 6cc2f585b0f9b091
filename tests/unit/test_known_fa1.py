"""FlashAttention-1's loop that came compiled with the package: found, left alone, and followed."""

import pytest

import simgpu
from simgpu.compiled.known_loops import known_loops
from simgpu.hardware.load import load_profile
from simgpu.program.record import record
from simgpu.schedules import make_schedule
from simgpu.validation.ours import as_measured

TILE = {"block_m": 64, "block_n": 64, "warps": 8, "stages": 1}


def problem(**changes):
    shape = {"batch": 2, "heads_q": 20, "seq_q": 1024, "head_dim": 64}
    return simgpu.Attention(**(shape | changes))


def known(gpu="h200", params=None, **changes):
    asked = problem(**changes)
    resolved = record(make_schedule("fa1", params or as_measured("fa1", TILE)), asked).params
    return known_loops("fa1", resolved, asked, load_profile(gpu))


def test_each_warpgroup_has_the_loop_with_both_products_and_all_loads():
    found = known()
    assert len(found.loops) == 2
    assert found.loops[0] == found.loops[1]
    kinds = [x.kind for x in found.loops[0]]
    assert {"mma", "mma_registers", "load", "mufu"} <= set(kinds)
    assert found.source.startswith("Triton")


@pytest.mark.parametrize(
    "other",
    [
        {"gpu": "a100"},
        {"params": {"block_m": 16, "block_n": 256, "warps": 4}},
        {"params": as_measured("fa1", TILE) | {"state": "accumulator"}},
        {"dtype": "fp32"},
        {"head_dim": 80},
    ],
)
def test_other_kernels_are_not_known(other):
    assert known(**other) is None


def test_a_run_follows_the_loop_and_says_so():
    run, plain = (
        simgpu.run("fa1", problem(), "h200", params=as_measured("fa1", TILE), mix=mix)
        for mix in ("auto", "analytic")
    )
    assert "Triton" in run.provenance["loops_source"]
    assert run.cycles != plain.cycles
