"""Recording: counters across loops, grid axes, launches and classes, and what is refused."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.algorithms.fa1 import FlashAttention1
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.algorithms.fa3 import FlashAttention3
from simgpu.algorithms.standard import StandardAttention
from simgpu.errors import ScheduleError
from simgpu.index import Index
from simgpu.problem import Attention, BlockRange
from simgpu.program.builder import Cta
from simgpu.program.listing import describe
from simgpu.program.program import Grid, op_count, walk
from simgpu.program.record import record

P = Attention(batch=1, heads_q=2, seq_q=100, head_dim=16)


def executed(steps):
    """Describe each operation with loop variables replaced by numbers."""
    env = {}
    return [
        describe(op.bind({name: Index(i) for name, i in env.items()})) for op in walk(steps, env)
    ]


def one_role(body, **axes):
    cta = Cta(axes)
    with cta.role("all", warps=4) as w:
        body(cta, w)
    return cta.finish()


# -- loops and counters


def test_a_ring_counts_on_across_nested_loops():
    def body(cta, w):
        ring = cta.ring("k", (16, 16), "fp16", stages=2)
        for i in w.repeat(2):
            w.load(P.k.tile(i * 4, 16), ring, path="tma")
            w.take(ring)
            w.release(ring)
            for j in w.repeat(3):
                w.load(P.k.tile(i * 4 + j + 1, 16), ring, path="tma")
                w.take(ring)
                w.release(ring)

    program = one_role(body)
    steps = executed(program.roles[0].body)
    assert steps[1::4] == [
        f"copy  k[({n})%2] <- K[{16 * n}:+16] by tma -> k.full#{n}" for n in range(8)
    ]
    assert steps[3::4] == [f"arrive k.empty#{n}" for n in range(8)]
    assert op_count(program.roles[0].body) == len(steps) == 32
    assert len(program.roles[0].body) == 1


@given(stages=st.integers(1, 4), lengths=st.lists(st.integers(0, 5), max_size=3))
def test_pipelined_loads_each_block_once_and_stages_less_one_ahead(stages, lengths):
    ahead = stages - 1
    runs = [BlockRange(10 * n, 10 * n + length, masked=False) for n, length in enumerate(lengths)]

    def body(cta, w):
        ring = cta.ring("k", (1, 16), "fp16", stages=stages)

        def load(j):
            w.load(P.k.tile(j, 1), ring, path="cp_async")

        for run in runs:
            for j in w.pipelined(run, load, ahead):
                if not ahead:
                    load(j)
                w.take(ring)
                w.release(ring)

    steps = executed(one_role(body).roles[0].body)
    loads = [int(s.split("K[")[1].split(":")[0]) for s in steps if s.startswith("copy")]
    assert loads == [j for run in runs for j in range(run.start, run.stop)]
    in_flight, seen = 0, []
    for step in steps:
        in_flight += step.startswith("copy")
        if step.startswith("wait  k.full"):
            seen.append(in_flight)
            in_flight -= 1
    assert seen == [min(max(ahead, 1), n) for run in runs for n in range(len(run), 0, -1)]


def test_a_loop_of_no_trips_records_nothing():
    program = one_role(lambda cta, w: [w.sync() for _ in w.repeat(0)])
    assert program.roles[0].body == ()


def test_waiting_for_products_counts_those_in_flight():
    def body(cta, w):
        a, b = (cta.regs(name, (16, 16), "fp16") for name in "ab")
        c = cta.regs("c", (16, 16), "fp32")
        w.mma(c, a, b)
        w.mma(c, a, b)
        w.wait_mma(pending=1)
        w.wait_mma()

    steps = executed(one_role(body).roles[0].body)
    assert steps[2:] == ["wait  all.mma#0", "wait  all.mma#1"]


def test_a_copy_may_signal_a_barrier():
    def body(cta, w):
        q, full = cta.smem("q", (16, 16), "fp16"), cta.mbarrier("q.full")
        for i in w.repeat(3):
            w.copy(P.q.tile(i, 16), q, path="tma", signal=full)
            w.wait(full)

    steps = executed(one_role(body).roles[0].body)
    assert [s.rpartition(" ")[2] for s in steps] == [f"q.full#{n}" for n in (0, 0, 1, 1, 2, 2)]


def test_phases_that_count_as_done_are_waited_for_in_vain():
    def body(cta, w):
        turn = cta.barrier("turn")
        for _ in w.repeat(2):
            w.wait(turn, ahead=1)

    assert executed(one_role(body).roles[0].body) == [
        "wait  turn#0 - 1 phase",
        "wait  turn#1 - 1 phase",
    ]


def test_a_role_that_never_synchronises_has_no_barrier_for_it():
    assert [b.name for b in one_role(lambda cta, w: None).barriers] == ["all.mma", "all.loads"]
    assert "all.sync" in [b.name for b in one_role(lambda cta, w: w.sync()).barriers]


# -- grid and classes


def test_launch_order_is_fastest_axis_first():
    points = list(Grid(m=2, head=2, batch=1).coordinates())
    assert points == [
        {"m": 0, "head": 0, "batch": 0},
        {"m": 1, "head": 0, "batch": 0},
        {"m": 0, "head": 1, "batch": 0},
        {"m": 1, "head": 1, "batch": 0},
    ]
    assert Grid(m=2, head=2).tiles == 4


def test_grids_are_equal_when_their_axes_and_order_are():
    assert Grid(m=2, n=3) == Grid(m=2, n=3)
    assert Grid(m=2, n=3) != Grid(n=3, m=2)
    assert len({Grid(m=2), Grid(m=2), Grid(m=3)}) == 2


def test_ctas_of_equal_work_share_a_program():
    p = Attention(batch=4, heads_q=32, seq_q=512, head_dim=64)
    launch = record(FlashAttention2(block_m=128), p).launches[0]
    assert len(launch.classes) == 1
    assert launch.weights() == [4 * 32 * 4]


def test_causal_rows_and_ragged_ends_are_work_of_their_own():
    p = Attention(batch=1, heads_q=1, seq_q=300, head_dim=64, causal=True)
    launch = record(FlashAttention2(block_m=64, block_n=64), p).launches[0]
    assert [c.points for c in launch.classes] == [((("m", m),),) for m in range(5)]
    whole = record(
        FlashAttention2(block_m=64, block_n=64),
        Attention(batch=1, heads_q=1, seq_q=300, head_dim=64),
    ).launches[0]
    assert [len(c.points) for c in whole.classes] == [4, 1]
    assert whole.class_of({"m": 4, "head": 0, "batch": 0}) == 1


def test_standard_attention_is_three_launches_that_skip_nothing():
    p = Attention(batch=1, heads_q=1, seq_q=256, head_dim=64, causal=True)
    launches = record(StandardAttention(block_m=64, block_n=64), p).launches
    assert [launch.name for launch in launches] == ["qk", "softmax", "pv"]
    assert [launch.grid.tiles for launch in launches] == [16, 8, 4]
    assert [len(launch.classes) for launch in launches] == [1, 1, 1]


def test_fa1_has_one_cta_a_head_and_exchanges_only_when_it_splits_keys():
    def exchanged(**params):
        launch = record(FlashAttention1(**params), P).launches[0]
        assert launch.grid.tiles == P.heads_q
        return {b.name for b in launch.classes[0].program.buffers if b.exchange}

    assert exchanged() == {"m_block.exchange", "l_block.exchange", "pv.exchange"}
    assert exchanged(warp_partition="split-q", block_m=64) == set()


def loads_by_pass(program):
    return [s for s in executed(program.roles[0].body) if s.startswith(("copy  q", "copy  O"))]


def test_fa1_asks_for_its_state_ahead_and_changes_its_layout_in_every_pass():
    p = Attention(batch=1, heads_q=1, seq_q=64, seq_kv=64, head_dim=16)
    tile = {"block_m": 64, "block_n": 32, "initial": "registers", "warp_partition": "split-q"}

    def steps(**params):
        program = record(FlashAttention1(**tile, **params), p).launches[0].classes[0].program
        return executed(program.roles[0].body)

    late, ahead = steps(), steps(ahead=True)
    product = next(i for i, s in enumerate(late) if s.startswith("mma   pv"))
    assert all(i > product for i, s in enumerate(late) if "<- ACC" in s)
    exps = [i for i, s in enumerate(ahead) if s.startswith("apply block_exp")]
    (asked,) = (i for i, s in enumerate(ahead) if "<- ACC" in s)
    assert exps[0] < asked < exps[1]
    rows = steps(ahead=True, state="coalesced")
    passes = sum(s.startswith("mma   s") for s in rows)
    assert passes == 2
    for move in ("o <- o.layout", "o.layout <- o", "out_rows <- out.layout"):
        assert sum(s == f"copy  {move}" for s in rows) == passes, move
    with pytest.raises(ScheduleError, match="state coalesced asks ahead"):
        steps(state="coalesced")


@pytest.mark.parametrize("causal", [False, True])
def test_fa1_visits_every_visible_pair_of_blocks_and_writes_each_row_once(causal):
    p = Attention(batch=1, heads_q=1, seq_q=90, seq_kv=70, head_dim=16, causal=causal)
    program = record(FlashAttention1(block_m=16, block_n=64), p).launches[0].classes[0].program
    steps = loads_by_pass(program)
    pairs = sum(len(r) for j in range(2) for r in p.q_ranges(j, 64, 16))
    assert sum(s.startswith("copy  q") for s in steps) == pairs
    written = [s.split("[")[1].split(":")[0] for s in steps if s.startswith("copy  O")]
    assert sorted(map(int, written)) == list(range(0, 96, 16))


def test_fa3_loads_what_fa2_loads_from_the_other_end():
    p = Attention(batch=1, heads_q=1, seq_q=256, seq_kv=500, head_dim=64, causal=True)

    def keys_loaded(schedule):
        for cta_class in record(schedule, p).launches[0].classes:
            steps = executed(cta_class.program.roles[0].body)
            yield [s.split("K[")[1].split("]")[0] for s in steps if "<- K[" in s]

    expected = list(keys_loaded(FlashAttention2(block_m=128, block_n=64, loads="tma")))
    for specialized in (True, False):
        fa3 = FlashAttention3(
            block_m=128, block_n=64, order="first_to_last", specialized=specialized
        )
        assert [keys[::-1] for keys in keys_loaded(fa3)] == expected


def test_too_few_rows_for_the_warps_force_split_d():
    def partition(**params):
        program = record(FlashAttention2(**params), P).launches[0].classes[0].program
        return program.roles[0].partition

    assert partition(block_m=64, warps=8) == "split-d"
    assert partition(block_m=128, warps=8) == "split-q"


def test_programs_are_immutable_values():
    one, other = (record(FlashAttention2(), P).launches[0].classes[0].program for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    with pytest.raises(FrozenInstanceError):
        one.roles = ()
