"""L2 at tile grain, on launches small enough to follow by hand."""

from __future__ import annotations

import pytest

from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.algorithms.standard import StandardAttention
from simgpu.problem import Attention
from simgpu.program.record import record
from simgpu.timing.cache import L2, Reuse, tensor_bytes

ROW = 64 * 2  # bytes of a row of Q, K, V or O


def follow(problem, capacity, wave, schedule=None):
    schedule = schedule or FlashAttention2(block_m=64, block_n=64, stages=2)
    l2 = L2(capacity)
    return [l2.follow(launch, problem, wave) for launch in record(schedule, problem).launches]


def attention(**changes):
    return Attention(**{"batch": 1, "heads_q": 1, "seq_q": 256, "head_dim": 64, **changes})


def test_ctas_of_a_wave_that_march_together_share_their_reads():
    (found,) = follow(attention(), 1e9, wave=4)
    k = found["read"]["K"]
    assert (k.asked, k.shared, k.again) == (4 * 256 * ROW, 256 * ROW, 0)
    q = found["read"]["Q"]
    assert (q.asked, q.shared) == (256 * ROW, 256 * ROW)


def test_the_next_wave_finds_what_fits():
    (found,) = follow(attention(), 1e9, wave=2)
    k = found["read"]["K"]
    assert (k.shared, k.again, k.missed) == (2 * 256 * ROW, 256 * ROW, 0)


def test_in_step_one_miss_is_everybodys():
    (found,) = follow(attention(), 1e9, wave=2)
    k = found["read"]["K"]
    assert (k.late_share(first=True), k.late_share(first=False)) == (1.0, 0.0)
    (found,) = follow(attention(heads_q=3), 1e9, wave=4)  # a head a wave: its K is new each time
    k = found["read"]["K"]
    assert (k.late_share(first=True), k.late_share(first=False)) == (1.0, 1.0)


def test_the_next_wave_misses_what_was_pushed_out():
    # Between two touches of a K tile lie 512 rows of K and V, and more of Q and O.
    (found,) = follow(attention(), 300 * ROW, wave=2)
    k = found["read"]["K"]
    assert (k.again, k.missed) == (256 * ROW, 256 * ROW)


def test_without_a_cache_nothing_is_shared():
    (found,) = follow(attention(), 0, wave=4)
    k = found["read"]["K"]
    assert k.shared == k.asked
    assert k.missed == k.again == k.asked - 256 * ROW


def test_query_heads_of_a_group_share_keys():
    (found,) = follow(attention(heads_q=4, heads_kv=1), 1e9, wave=16)
    k = found["read"]["K"]
    assert k.shared - k.again == 256 * ROW


def test_tiles_are_shared_along_the_grid_axes_that_do_not_place_them():
    # QKᵀ by 4 × 4 tiles, two columns a wave: Q[m] is read for every n, K[n] by every m of one wave.
    schedule = StandardAttention(block_m=64, block_n=64)
    found, *_ = follow(attention(), 1e9, wave=8, schedule=schedule)
    q, k = found["read"]["Q"], found["read"]["K"]
    assert (q.asked, q.shared, q.again) == (4 * 256 * ROW, 2 * 256 * ROW, 256 * ROW)
    assert (k.asked, k.shared, k.again) == (4 * 256 * ROW, 256 * ROW, 0)


def test_a_later_launch_finds_what_an_earlier_one_wrote_if_it_fits():
    problem = attention()
    schedule = StandardAttention(block_m=64, block_n=64)
    for capacity, fresh in ((1e9, False), (1000, True)):
        _, softmax, _ = follow(problem, capacity, wave=100, schedule=schedule)
        assert softmax["read"]["S"].fresh is fresh


def test_what_goes_beyond():
    reuse = Reuse(asked=100.0, shared=50.0, again=20.0, missed=5.0)
    # half of 400 passes; 40 are new; a quarter of the other 160 misses
    assert reuse.beyond(400, 40) == pytest.approx(40 + 0.25 * 160)
    reuse.fresh = False
    assert reuse.beyond(400, 40) == pytest.approx(0.25 * 200)
    assert Reuse().beyond(400, 40) == 0.0


def test_bytes_of_a_tensor():
    problem = attention(batch=2, heads_q=6, heads_kv=3, seq_q=10, seq_kv=20)
    assert tensor_bytes(problem.q, problem) == 2 * 6 * 10 * ROW
    assert tensor_bytes(problem.k, problem) == 2 * 3 * 20 * ROW
    assert tensor_bytes(problem.lse, problem) == 2 * 6 * 10 * 4
