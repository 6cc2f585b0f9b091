"""L2 reads: what coalescers join, what crosses between partitions."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.errors import ScheduleError
from simgpu.hardware.load import load_profile
from simgpu.program.record import record
from simgpu.read.coalesce import March, joined_share
from simgpu.read.march import reads
from simgpu.schedules import make_schedule

H200 = load_profile("h200")
MEMORY = H200.memory
IN_STEP = March(ctas=16, passes=64.0, hidden=False, turns=4.0, unequal=False, residents=1)


def certain(ctas: int) -> float:
    """Return the share that is joined when nothing is out of step."""
    memory = MEMORY.model_copy(update={"coalescer_odds": 1e9})
    return joined_share(memory, IN_STEP._replace(ctas=ctas))


@pytest.mark.parametrize(
    ("ctas", "reads"), [(1, 1), (2, 1), (4, 1), (5, 2), (8, 2), (9, 3), (17, 5)]
)
def test_in_step_four_ctas_of_a_group_cost_one_read(ctas, reads):
    assert ctas * (1 - certain(ctas)) == pytest.approx(reads, rel=1e-6)


@pytest.mark.parametrize(
    "change",
    [{"hidden": True}, {"unequal": True}, {"turns": 8.0}, {"repeated": True}, {"adrift": True}],
    ids=lambda c: next(iter(c)),
)
def test_what_pulls_ctas_apart_lowers_what_is_joined(change):
    assert 0 < joined_share(MEMORY, IN_STEP._replace(**change)) < joined_share(MEMORY, IN_STEP)


def test_passes_and_residents_count_where_loads_are_hidden():
    hidden = IN_STEP._replace(hidden=True)
    assert joined_share(MEMORY, hidden._replace(passes=256.0)) < joined_share(MEMORY, hidden)
    assert joined_share(MEMORY, hidden._replace(residents=2)) < joined_share(MEMORY, hidden)
    same = IN_STEP._replace(passes=256.0, residents=2)
    assert joined_share(MEMORY, same) == joined_share(MEMORY, IN_STEP)


def read(name, causal=False, **params):
    problem = simgpu.Attention(batch=1, heads_q=2, seq_q=1024, head_dim=128, causal=causal)
    return reads(record(make_schedule(name, params), problem).launches[0])["K"]


CUDA = {"order": "cuda", "stages": 1, "instruction": "mma.sync"}


def test_loads_are_hidden_behind_stages_a_producer_or_other_work():
    assert not read("fa2", stages=1).hidden
    assert not read("fa2", stages=2).hidden
    assert read("fa2", stages=3).hidden
    assert read("fa2", **CUDA).hidden
    assert read("fa3").hidden


def test_causal_ctas_that_begin_at_their_last_block_are_never_at_the_same_tile():
    assert not read("fa2", causal=True).apart
    assert not read("fa3").apart
    assert read("fa2", causal=True, **CUDA).apart
    assert read("fa3", causal=True).apart
    problem = simgpu.Attention(batch=4, heads_q=8, seq_q=1024, head_dim=128, causal=True)
    launch = simgpu.run("fa2", problem, "h200", params=CUDA).launches[0]
    assert launch.l2_read_bytes > launch.work.global_read_bytes


def test_consumers_are_adrift_without_turns_and_warps_repeat_rows_of_short_tiles():
    assert read("fa3", pingpong=False).adrift
    assert not read("fa3", pingpong=True).adrift
    assert not read("fa2").adrift
    assert read("fa2", block_m=64, warps=8).repeated


@pytest.mark.parametrize(
    ("change", "ctas"),
    [
        ({}, 2),
        ({"seq_q": 1152}, 1),
        ({"head_dim": 64}, 1),
        ({"head_dim": 256}, 2),
        ({"causal": True}, 1),
        ({"dtype": "fp8"}, 1),
    ],
    ids=str,
)
def test_fa3_pairs_ctas_as_its_package_does(change, ctas):
    shape = {"batch": 1, "heads_q": 2, "seq_q": 1024, "head_dim": 128}
    problem = simgpu.Attention(**(shape | change))
    launch = record(make_schedule("fa3", {}), problem).launches[0]
    found = reads(launch)
    assert (found["K"].multicast, found["V"].multicast, found["Q"].multicast) == (ctas, ctas, 1)


def test_a_pair_reads_once_and_nothing_else_changes():
    problem = simgpu.Attention(batch=1, heads_q=2, seq_q=1024, head_dim=128)
    alone, pair = (
        simgpu.run("fa3", problem, "h200", params={"cluster": n}).launches[0] for n in (1, 2)
    )
    kv = pair.work.global_read_bytes - 2 * 1024 * 128 * 2
    crossing = 2 * 1024 * 128 * 2 * (0.5 + 2)
    assert pair.l2_read_bytes == pytest.approx(pair.work.global_read_bytes - kv / 2 + crossing)
    assert (pair.cycles, pair.work) == (alone.cycles, alone.work)


def test_a_cluster_divides_the_q_tiles():
    problem = simgpu.Attention(batch=1, heads_q=1, seq_q=384, head_dim=128)
    with pytest.raises(ScheduleError, match="cluster is 2: it must divide 3 Q tiles"):
        simgpu.run("fa3", problem, "h200", params={"cluster": 2})


def test_a_gpu_without_coalescers_reads_all_that_is_asked_for():
    assert joined_share(load_profile("a100").memory, IN_STEP) == 0.0


def test_l2_reads_lie_between_the_fewest_and_all_with_what_crosses():
    problem = simgpu.Attention(batch=1, heads_q=8, seq_q=2048, head_dim=64)
    launch = simgpu.run("fa2", problem, "h200").launches[0]
    asked, own = launch.work.global_read_bytes, 8 * 2048 * 64 * 2
    crossing = 0.5 * own + 2 * own  # Q is read by one CTA, K and V by all of a head
    assert own + (asked - own) / 4 + crossing < launch.l2_read_bytes < asked + crossing


def test_what_one_cta_alone_reads_is_never_joined():
    problem = simgpu.Attention(batch=4, heads_q=32, seq_q=64, seq_kv=8192, head_dim=128)
    launch = simgpu.run("fa2", problem, "h200", params={"block_m": 64}).launches[0]
    asked = launch.work.global_read_bytes
    assert launch.l2_read_bytes == pytest.approx(1.5 * asked)
