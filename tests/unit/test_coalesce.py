"""L2 reads: what coalescers join, what crosses between partitions."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.hardware.load import load_profile
from simgpu.read.coalesce import March, joined_share

H200 = load_profile("h200")
MEMORY = H200.memory
IN_STEP = March(ctas=16, passes=64.0, hidden=False, waves=4.0, unequal=False, residents=1)


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
    "change", [{"hidden": True}, {"unequal": True}, {"residents": 2}], ids=lambda c: next(iter(c))
)
def test_what_pulls_ctas_apart_lowers_what_is_joined(change):
    assert 0 < joined_share(MEMORY, IN_STEP._replace(**change)) < joined_share(MEMORY, IN_STEP)


def test_more_passes_of_hidden_loads_and_more_waves_of_unequal_ctas_join_less():
    hidden, unequal = IN_STEP._replace(hidden=True), IN_STEP._replace(unequal=True)
    assert joined_share(MEMORY, hidden._replace(passes=256.0)) < joined_share(MEMORY, hidden)
    assert joined_share(MEMORY, unequal._replace(waves=16.0)) < joined_share(MEMORY, unequal)


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
