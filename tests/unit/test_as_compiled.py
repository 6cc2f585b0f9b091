"""What a compiler spills and serialises: counted, timed, and estimated where nobody says."""

import pytest

import simgpu
from simgpu.cost.registers import estimated_spills, serial_products
from simgpu.errors import ScheduleError
from simgpu.hardware.load import load_profile
from simgpu.hardware.occupancy import occupancy
from simgpu.program.record import record
from simgpu.schedules import make_schedule

PROBLEM = simgpu.Attention(batch=1, heads_q=2, seq_q=1024, head_dim=128)
WIDE = {"block_m": 128, "block_n": 128, "warps": 4, "stages": 2}
FOUND = {"registers": 255, "shared_bytes": 163840, "spills": 0, "serial_products": 0}
PASSES = 8 * 8 * 2  # CTAs of a head, passes of a CTA, heads


def run(**found):
    return simgpu.run("fa2", PROBLEM, params=WIDE, resources={**FOUND, **found}).longest


def test_spilled_registers_are_stored_and_loaded_once_a_pass():
    without, with_spills = run(), run(spills=128)
    spilled = 128 * 4 * 128 * PASSES  # registers x bytes x threads
    assert with_spills.work.local_bytes == spilled
    assert with_spills.l2_write_bytes - without.l2_write_bytes == pytest.approx(1.5 * spilled)
    assert with_spills.mix.lsu - without.mix.lsu == 128 * 4 * PASSES
    assert with_spills.cycles > without.cycles


def test_what_l1_cannot_hold_comes_back_from_l2():
    # 229 KB of the 256 are shared memory: 28 KB are left
    few, many = run(spills=36), run(spills=128)
    none = run()
    assert few.l2_read_bytes == none.l2_read_bytes
    assert many.l2_read_bytes - none.l2_read_bytes == pytest.approx(many.work.local_bytes)


def test_a_few_spills_lie_outside_the_loop():
    assert run(spills=10).work.local_bytes == 0
    assert run(spills=10).cycles == run().cycles


def test_serial_products_take_longer_and_survive_shortening():
    extra = run(serial_products=32).cycles - run().cycles
    wait = load_profile("h200").costs.mma_serial_cycles
    # 32 instructions of 128x128x128 a pass, 8 passes of the one CTA of an SM
    assert extra > 0.5 * 32 * wait * 8


def of(head_dim, **tile):
    problem = simgpu.Attention(batch=1, heads_q=1, seq_q=512, head_dim=head_dim)
    return record(make_schedule("fa2", tile), problem).launches[0].classes[0].program


@pytest.mark.parametrize(
    ("head_dim", "block_m", "block_n", "warps", "serial"),
    [
        (128, 128, 128, 4, True),
        (64, 128, 128, 4, True),
        (256, 128, 32, 4, True),
        (128, 128, 64, 4, False),
        (128, 128, 128, 8, False),
        (256, 64, 64, 4, False),
    ],
)
def test_serial_where_the_compiled_kernels_are(head_dim, block_m, block_n, warps, serial):
    program = of(head_dim, block_m=block_m, block_n=block_n, warps=warps, stages=2)
    assert serial_products(program, load_profile("h200")) == serial
    assert serial_products(program, load_profile("a100")) is False  # its products are synchronous
    if not serial:
        assert estimated_spills(program, load_profile("h200")) == 0


def test_estimates_stand_in_for_what_is_not_given():
    given = {"registers": 255, "shared_bytes": 163840}
    estimated = simgpu.run("fa2", PROBLEM, params=WIDE, resources=given)
    assert estimated.longest.work.local_bytes > 0
    assert estimated.cycles > run().cycles


def test_a_negative_count_is_refused():
    with pytest.raises(ScheduleError, match="spills is -1: it must be at least 0"):
        run(spills=-1)


def test_shared_memory_leaves_the_rest_to_l1():
    full = occupancy(load_profile("h200"), registers_per_thread=128, shared_bytes=100_000, warps=4)
    none = occupancy(load_profile("h200"), registers_per_thread=128, shared_bytes=0, warps=4)
    assert full.l1_bytes == (256 - 228) * 1024
    assert none.l1_bytes > full.l1_bytes


def test_a_report_says_what_spills_and_whether_that_is_a_guess():
    guessed = " ".join(str(simgpu.run("fa2", PROBLEM, params=WIDE, mix="analytic")).split())
    assert "65 registers spill (estimated)" in guessed  # of 320, 255 are there
    assert "waits for each product before the next (estimated)" in guessed
    given = simgpu.run("fa2", PROBLEM, params=WIDE, resources={**FOUND, "spills": 36})
    told = " ".join(str(given).split())
    assert "36 registers spill;" in told
    assert "waits for each product" not in told
