"""Persistent CTAs: their order of tiles, what one does with a list, and storage that is shared."""

from __future__ import annotations

from dataclasses import replace

import pytest

import simgpu
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.algorithms.fa3 import FlashAttention3
from simgpu.algorithms.tiles import heads_together
from simgpu.cost.job import MissRates
from simgpu.errors import ScheduleError, VerifyError
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import Machine
from simgpu.problem import Attention
from simgpu.program.builder import Cta
from simgpu.program.ops import Arrive, Copy, Mma, Wait
from simgpu.program.program import Grid, walk
from simgpu.program.record import record
from simgpu.program.tile import View
from simgpu.program.verify import verify
from simgpu.program.worklist import WorkTile, examples, executions, uses, worklist
from simgpu.tensor import Tile
from simgpu.timing.steady import SmTimes

P = Attention(batch=1, heads_q=2, seq_q=300, head_dim=64)
CAUSAL = replace(P, causal=True)
SCHEDULE = FlashAttention3(block_m=128, block_n=64)


def tiles_of(launch):
    return [WorkTile(c.program, c.env) for c in launch.classes]


def test_a_section_takes_the_first_tile_of_each_of_its_heads_then_the_second():
    grid = Grid(m=2, head=3, batch=1, persistent="dynamic", section=2)
    order = [(at["m"], at["head"]) for at in grid.coordinates()]
    assert order == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2)]
    assert [list(at) for at in grid.coordinates()] == [["m", "head", "batch"]] * 6


def test_sections_count_heads_over_all_batch_entries():
    grid = Grid(m=2, head=2, batch=2, section=3)
    order = [(at["m"], at["head"], at["batch"]) for at in grid.coordinates()]
    assert order[:3] == [(0, 0, 0), (0, 1, 0), (0, 0, 1)]
    assert sorted(order) == sorted(
        (at["m"], at["head"], at["batch"]) for at in Grid(m=2, head=2, batch=2).coordinates()
    )


def test_a_persistent_grid_launches_as_many_ctas_as_fit():
    grid = Grid(m=10, head=2, batch=1, persistent="static")
    assert (grid.tiles, grid.launched(12), grid.launched(50)) == (20, 12, 20)
    assert Grid(m=10, head=2, batch=1).launched(12) == 20
    assert grid != Grid(m=10, head=2, batch=1)
    assert grid.neighbours == 10
    assert Grid(m=10, head=2, batch=1, section=2).neighbours == 1


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ({"batch": 4, "heads_q": 16, "seq_q": 4096, "head_dim": 128}, 16),  # 2 MiB a head
        ({"batch": 4, "heads_q": 16, "heads_kv": 4, "seq_q": 4096, "head_dim": 128}, 64),
        ({"batch": 1, "heads_q": 4, "seq_q": 4096, "head_dim": 128}, 4),
        ({"batch": 1, "heads_q": 4, "seq_q": 300_000, "head_dim": 128}, 1),
        ({"batch": 4, "heads_q": 16, "seq_q": 5000, "head_dim": 128}, 8),
        ({"batch": 4, "heads_q": 16, "seq_q": 4096, "head_dim": 128, "dtype": "fp8"}, 32),
    ],
)
def test_heads_of_a_section_find_their_k_and_v_in_32_mib(sizes, together):
    assert heads_together(Attention(**sizes)) == together


def test_fa3_takes_causal_tiles_off_a_counter_and_others_by_number():
    def grid(problem, **params):
        return record(replace(SCHEDULE, **params), problem).launches[0].grid

    assert (grid(P).persistent, grid(P).section) == ("static", None)
    assert (grid(CAUSAL).persistent, grid(CAUSAL).section) == ("dynamic", 2)
    assert grid(CAUSAL, order="longest_first_by_head").section is None
    assert grid(CAUSAL, persistent=False).persistent is None


def test_uses_continue_from_tile_to_tile():
    (launch,) = record(SCHEDULE, P).launches
    tile = tiles_of(launch)[0]
    one, three = uses(tile.program), worklist([tile] * 3)
    assert one["k.full"] == 5
    assert one["q.empty"] == one["o.stored"] == 1
    assert uses(three) == {name: 3 * number for name, number in one.items()}
    producer = three.roles[0].body
    filled = [
        op.dst.use.at(env)
        for env in [{}]
        for op in walk(producer, env)
        if isinstance(op, Copy) and isinstance(op.dst, View) and op.dst.buffer.name == "k"
    ]
    assert filled == list(range(15))


def test_the_next_tile_s_first_scores_come_in_front_of_the_last_one_s_store():
    """With ``scores_ahead``: mma s, mma o, mma s of the next tile, and only then the copy to O."""
    (launch,) = record(replace(SCHEDULE, o_in="own", scores_ahead=True), P).launches
    tile = tiles_of(launch)[0]
    role = worklist([tile] * 2).roles[1]
    steps = [
        op.dst.tensor.name if isinstance(op, Copy) else op.dst.buffer.name[-1]
        for op in walk(role.body, {"m": 0})
        if isinstance(op, Mma) or (isinstance(op, Copy) and isinstance(op.dst, Tile))
    ]
    passes = ["s", "o"] * 4  # of five blocks, less the first scores and the last PV
    assert steps == [*"s", *passes, *"os", "O", "LSE", *passes, "o", "O", "LSE"]
    assert (role.early, role.late) == (0, 0)


def test_a_worklist_has_its_coordinates_in_it():
    (launch,) = record(SCHEDULE, CAUSAL).launches
    (cta,) = executions(launch)
    stored = [
        op.dst.row.at({})
        for op in walk(cta.program.roles[1].body, {})
        if isinstance(op, Copy) and not isinstance(op.dst, View) and op.dst.tensor.name == "O"
    ]
    assert stored == [256, 128, 0]


def test_a_cta_a_tile_stays_what_it_is():
    (launch,) = record(FlashAttention2(), CAUSAL).launches
    assert [x.program for x in examples(launch)] == [c.program for c in launch.classes]
    assert len(list(executions(launch))) == launch.grid["m"]


def test_tiles_of_different_roles_are_refused():
    one, other = (record(s, P).launches[0] for s in (SCHEDULE, FlashAttention2()))
    with pytest.raises(ScheduleError, match="must have the same roles"):
        worklist([*tiles_of(one), *tiles_of(other)])


@pytest.mark.parametrize("problem", [P, CAUSAL])
@pytest.mark.parametrize("residents", [1, 2])
@pytest.mark.parametrize("ahead", [False, True])
def test_tiles_taken_one_by_one_take_the_time_of_their_worklist(problem, residents, ahead):
    machine = Machine.from_profile(load_profile("h100"))
    times = SmTimes(machine, "fp16", MissRates())
    schedule = replace(SCHEDULE, o_in="own", scores_ahead=True) if ahead else SCHEDULE
    taken = (tiles_of(record(schedule, problem).launches[0]) * 3)[:3]
    by_one = times.simulate(taken, residents)
    assert times.simulate([WorkTile(worklist(taken), {})], residents) == by_one
    assert by_one.cycles < sum(times.simulate([tile], residents).cycles for tile in taken)


def test_the_next_tile_s_loads_do_not_wait_for_the_last_one_s_store():
    problem = Attention(batch=1, heads_q=3 * 132, seq_q=128, seq_kv=600, head_dim=128)
    timeline = simgpu.timeline("fa3", problem, "h100")
    stored = [s.start for s in timeline.spans if s.op and "O[" in s.what and s.role == "consumer0"]
    loaded = [f.issued for f in timeline.flights if f.role == "producer" and "k[" in str(f.op.dst)]
    blocks = len(loaded) // 3
    assert len(stored) == 3
    assert loaded[blocks] < stored[0]


# -- storage that lies over a ring


def over_a_ring(order):
    """A ring that a producer fills twice, and a tile over it that a consumer writes between."""
    cta = Cta({})
    ring = cta.ring("v", (16, 16), "fp16", stages=2)
    over = cta.smem("o", (16, 16), "fp16", over=ring)
    acc = cta.regs("acc", (16, 16), "fp16")
    stored = cta.mbarrier("stored")
    source = P.v.tile(0, 16, cols=16)
    with cta.role("producer", warps=1) as w:
        w.load(source, ring, path="tma")
        w.load(source, ring, path="tma")
        if order:
            w.wait(stored)
        w.load(source, ring, path="tma")
    with cta.role("consumer", warps=4) as w:
        for _ in range(2):
            with w.consume(ring) as v:
                w.copy(v, acc)
        w.copy(acc, over)
        w.copy(over, P.o.tile(0, 16, cols=16))
        w.arrive(stored)
        w.take(ring)
    return cta.finish()


def test_a_write_over_a_ring_that_is_being_filled_is_a_race():
    verify(over_a_ring(order=True), {})
    with pytest.raises(VerifyError, match="race on the storage of v slot 0"):
        verify(over_a_ring(order=False), {})


def test_tiles_over_one_ring_lie_side_by_side_and_count_once():
    cta = Cta({})
    ring = cta.ring("v", (16, 16), "fp16", stages=2)  # 1,024 bytes
    first = cta.smem("0.o", (16, 16), "fp16", over=ring)
    second = cta.smem("1.o", (16, 32), "fp16", over=ring)
    assert (first.buffer.offset, second.buffer.offset) == (0, 512)
    with cta.role("all", warps=1) as w:
        w.sync()
    assert cta.finish().shared_bytes == 512 + 1024


def test_o_over_v_takes_no_memory_of_its_own():
    def shared(**params):
        schedule = FlashAttention3(block_m=128, block_n=128, **params)
        return record(schedule, P).launches[0].classes[0].program.shared_bytes

    assert shared() == shared(persistent=False)
    assert shared(o_in="own") == shared() + 128 * 64 * 2


def test_a_launch_tells_its_ctas_and_its_tiles():
    problem = Attention(batch=2, heads_q=16, seq_q=1024, head_dim=128, causal=True)
    run = simgpu.run("fa3", problem, "h100")
    (launch,) = run.to_dict()["launches"]
    assert (launch["ctas"], launch["persistent"]) == (132, "dynamic")
    assert launch["grid"] == {"m": 8, "head": 16, "batch": 2}
    assert "132 persistent CTAs take 256 tiles off a counter" in " ".join(str(run).split())
    alone = simgpu.run("fa3", problem, "h100", params={"persistent": False})
    (launch,) = alone.to_dict()["launches"]
    assert (launch["ctas"], launch["persistent"]) == (256, None)


def test_persistence_saves_the_starts_of_ctas():
    problem = Attention(batch=4, heads_q=32, seq_q=2048, head_dim=128)
    runs = [
        simgpu.run("fa3", problem, "h100", params={"persistent": on}, clock="sustained")
        for on in (True, False)
    ]
    fewer, more = (run.longest.stalls["dispatch"] for run in runs)
    assert fewer < more / 5


def test_a_barrier_whose_phase_depends_on_the_grid_is_refused():
    (launch,) = record(SCHEDULE, P).launches
    program = launch.classes[0].program
    role = program.roles[0]
    last = role.body[-1]
    assert isinstance(last, Copy | Wait | Arrive)
    odd = replace(last, signal=replace(last.signal, use=Cta({"m": 0}).m))
    broken = replace(program, roles=(replace(role, body=(*role.body, odd)), *program.roles[1:]))
    with pytest.raises(ScheduleError, match="which phase it belongs to depends on the grid"):
        uses(broken)
