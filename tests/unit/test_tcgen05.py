"""Products whose accumulators lie in tensor memory: what is moved, what it costs, what fits."""

from __future__ import annotations

import pytest

from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.cost import tcgen05
from simgpu.cost.job import MissRates
from simgpu.cost.jobs import jobs
from simgpu.errors import ProfileError, ScheduleError, UnsupportedError
from simgpu.front import run
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import ALU, ISSUE, SMEM, TENSOR, TMEM, Machine
from simgpu.hardware.occupancy import occupancy
from simgpu.problem import Attention
from simgpu.program.ops import Apply, Copy, Mma
from simgpu.program.program import operations
from simgpu.program.record import record

B200 = load_profile("b200")
MACHINE = Machine.from_profile(B200)
PROBLEM = Attention(batch=1, heads_q=1, seq_q=1024, head_dim=128)

# (block_m, block_n): columns that Triton 3.6 allocates for its tutorial's attention at head dim
# 128, compiled for sm_100 (`tmem_size` of its metadata)
TRITON_COLUMNS = {
    (128, 128): 512,
    (128, 64): 256,
    (128, 32): 256,
    (64, 128): 256,
    (64, 64): 256,
    (64, 32): 256,
}


def role_of(**params):
    schedule = FlashAttention2(**params)
    return record(schedule, PROBLEM).launches[0].classes[0].program


def ops_of(program, kind):
    return [op for op in operations(program.roles[0].body) if isinstance(op, kind)]


def traffic(program, profile=B200):
    """What each tile function moves, by name: (loaded, stored)."""
    role = program.roles[0]
    found = {}
    for op in ops_of(program, Apply):
        loaded, stored = tcgen05.moved(op, role, profile)
        names = {x.buffer.name for x in loaded}, {x.buffer.name for x in stored}
        assert found.setdefault(op.fn.name, names) == names
    return found


def made(op, program, machine=MACHINE):
    return jobs(op, program.roles[0], {}, machine, "fp16", MissRates())


def test_what_moves_between_tensor_memory_and_registers():
    assert traffic(role_of(order="qk_ahead")) == {
        "init": (set(), {"o"}),
        "row_max": ({"s"}, set()),
        "exponentials": (set(), set()),
        "rescale": ({"o"}, {"p", "o"}),
        "normalize": ({"o"}, set()),
    }
    assert traffic(role_of())["exp_and_rescale"] == ({"o"}, {"p", "o"})


def test_nothing_moves_without_tensor_memory():
    program = role_of()
    assert set(map(str, traffic(program, load_profile("h200")).values())) == {"(set(), set())"}
    assert tcgen05.columns(program, load_profile("h200")) == 0


def test_a_tile_that_is_copied_straight_out_of_an_accumulator_is_loaded_first():
    from simgpu.algorithms.standard import StandardAttention

    program = record(StandardAttention(), PROBLEM).launches[0].classes[0].program
    role = program.roles[0]
    touched = [tcgen05.moved(op, role, B200).loaded for op in ops_of(program, (Apply, Copy))]
    assert [[x.buffer.name for x in views] for views in touched].count(["s"]) >= 1


@pytest.mark.parametrize(("tile", "allocated"), TRITON_COLUMNS.items())
def test_columns_are_those_that_triton_allocates(tile, allocated):
    program = role_of(block_m=tile[0], block_n=tile[1])
    fit = occupancy(
        B200,
        registers_per_thread=64,
        shared_bytes=0,
        warps=4,
        tmem_columns=tcgen05.columns(program, B200),
    )
    assert fit.limits.tensor_memory == 512 // allocated


def test_loads_and_stores_take_their_bytes_over_the_port():
    program = role_of(block_n=64, order="qk_ahead")
    rescale = next(op for op in ops_of(program, Apply) if op.fn.name == "rescale")
    load, itself, *stores = made(rescale, program).held
    tile, probabilities = 128 * 128 * 4, 128 * 64 * 2
    assert load.demand[TMEM] == load.solo == pytest.approx(tile / B200.rates.tmem_read_bytes)
    assert load.latency == B200.memory.tmem_latency_cycles
    assert itself.demand[TMEM] == 0
    cycles = sum(job.demand[TMEM] for job in stores)
    assert cycles == pytest.approx((tile + probabilities) / B200.rates.tmem_write_bytes)


def test_a_warp_alone_reaches_a_quarter_of_tensor_memory():
    times = {}
    for warps in (1, 2, 4, 8):
        program = role_of(warps=warps)
        row_max = next(op for op in ops_of(program, Apply) if op.fn.name == "row_max")
        times[warps] = made(row_max, program).held[0].solo
    assert times[1] == 2 * times[2] == 4 * times[4]
    assert times[8] == times[4]


def test_a_product_is_issued_by_one_thread_and_runs_behind_it():
    program = role_of(block_n=128)
    multiply = ops_of(program, Mma)[0]
    found = made(multiply, program)
    assert found.behind.demand[TENSOR] == 2 * 128**3 / 8192
    assert found.behind.demand[SMEM] == 2 * 128 * 128 * 2  # A and B once
    assert found.behind.demand[ISSUE] < 100
    assert [job.demand[ISSUE] for job in found.held] == [0]


def test_sixty_four_rows_take_the_time_of_a_hundred_and_twenty_eight():
    cycles = []
    for rows in (64, 128):
        program = role_of(block_m=rows, block_n=128)
        cycles.append(made(ops_of(program, Mma)[0], program).behind.demand[TENSOR])
    assert cycles[0] == cycles[1]


def test_narrow_tiles_wait_for_their_operands():
    program = role_of(block_n=64)
    scores = made(ops_of(program, Mma)[0], program).behind
    assert scores.demand[TENSOR] == (128 + 64) * 128 * 2 / B200.rates.smem_bytes
    assert scores.demand[TENSOR] > 2 * 128 * 64 * 128 / 8192


def test_one_instruction_takes_the_maximum_of_three():
    program = role_of(block_n=64)
    row_max = next(op for op in ops_of(program, Apply) if op.fn.name == "row_max")
    with_it = made(row_max, program).held[1].demand[ALU]
    caps = B200.capabilities - {"max3"}
    without = Machine.from_profile(B200.model_copy(update={"capabilities": caps}))
    assert made(row_max, program, without).held[1].demand[ALU] - with_it == 128 * 64 / 2 / 32


def test_tensor_memory_limits_the_ctas_of_an_sm():
    found = run("fa2", PROBLEM, "b200", params={"block_m": 64, "block_n": 64, "warps": 4})
    fit = found.to_dict()["occupancy"]
    assert fit["ctas_per_sm"] == fit["limits"]["tensor_memory"] == 2
    assert "tensor memory" in str(found)


def test_too_many_columns_are_refused():
    text = r"fa2 does not fit on b200_sxm: a CTA wants 640 columns of tensor memory; an SM has 512"
    with pytest.raises(ScheduleError, match=text):
        run("fa2", PROBLEM, "b200", params={"block_m": 256, "block_n": 128, "warps": 8})


def test_tensor_memory_is_a_unit_only_where_there_is_one():
    known = {gpu: run("fa2", PROBLEM, gpu).to_dict() for gpu in ("b200", "h200")}
    assert known["b200"]["bounds"]["cycles"]["tmem"] > 0
    assert known["b200"]["utilization"]["tmem"] > 0
    assert "tmem" not in known["h200"]["bounds"]["cycles"]
    assert "tensor_memory" not in known["h200"]["occupancy"]["limits"]


def test_a_profile_with_tensor_memory_says_how_large_it_is():
    with pytest.raises(ProfileError, match=r"lists tensor_memory; give occupancy\.tmem_columns"):
        B200.with_changes({"occupancy.tmem_columns": None})


def test_a_qk_ahead_takes_two_stages():
    with pytest.raises(ScheduleError, match="stages is 1: order qk_ahead needs 2 or more"):
        run("fa2", PROBLEM, "b200", params={"stages": 1, "order": "qk_ahead"})


def test_fa3_is_refused_for_want_of_wgmma():
    with pytest.raises(UnsupportedError, match="fa3 needs tma and wgmma; b200_sxm has no wgmma"):
        run("fa3", PROBLEM, "b200")
