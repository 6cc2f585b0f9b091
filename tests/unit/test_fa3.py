"""FlashAttention-3: its tiles, what it needs, and the paper's arithmetic."""

from __future__ import annotations

from itertools import pairwise

import pytest

import simgpu
from simgpu.algorithms.fa3 import FlashAttention3
from simgpu.cost.registers import estimated_registers
from simgpu.errors import ScheduleError, UnsupportedError
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention
from simgpu.program.ops import Apply, Copy, Mma
from simgpu.program.program import walk
from simgpu.program.record import record
from simgpu.schedules import make_schedule

P = Attention(batch=1, heads_q=2, seq_q=1000, head_dim=128)


def program(schedule, problem=P):
    return record(schedule, problem).launches[0].classes[0].program


@pytest.mark.parametrize(
    ("head_dim", "causal", "tile"),
    [
        (64, False, (192, 192, "smem")),
        (64, True, (192, 128, "registers")),
        (80, False, (192, 144, "smem")),
        (128, False, (128, 176, "registers")),
        (128, True, (128, 128, "registers")),
        (256, False, (128, 80, "registers")),
    ],
)
def test_the_tile_is_what_fa3_chooses(head_dim, causal, tile):
    p = Attention(batch=1, heads_q=1, seq_q=512, head_dim=head_dim, causal=causal)
    params = record(FlashAttention3(), p).params
    assert (params["block_m"], params["block_n"], params["p_in"]) == tile


@pytest.mark.parametrize("head_dim", [64, 96, 128, 192, 256])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_the_tiles_that_fa3_chooses_fit_one_cta_on_hopper(head_dim, causal, dtype):
    p = Attention(batch=1, heads_q=1, seq_q=512, head_dim=head_dim, dtype=dtype, causal=causal)
    assert simgpu.run("fa3", p, "h100").to_dict()["occupancy"]["ctas_per_sm"] == 1


@pytest.mark.parametrize(
    ("head_dim", "dtype", "pingpong", "rescale"),
    [
        (64, "fp16", True, "after_pv"),
        (128, "bf16", True, "after_pv"),
        (192, "bf16", False, "before_pv"),
        (64, "fp8", False, "after_pv"),
        (128, "fp8", True, "after_pv"),
        (256, "fp8", True, "after_pv"),
    ],
)
def test_turns_and_when_o_is_rescaled_are_what_fa3_chooses(head_dim, dtype, pingpong, rescale):
    p = Attention(batch=1, heads_q=1, seq_q=512, head_dim=head_dim, dtype=dtype)
    params = record(FlashAttention3(), p).params
    assert (params["pingpong"], params["rescale"]) == (pingpong, rescale)
    given = record(FlashAttention3(pingpong=not pingpong, rescale="after_pv"), p).params
    assert (given["pingpong"], given["rescale"]) == (not pingpong, "after_pv")


def test_what_is_given_is_kept_and_the_rest_is_chosen():
    schedule = make_schedule("fa3", {"block_n": "96", "pingpong": "false"})
    params = record(schedule, P).params
    assert (params["block_m"], params["block_n"], params["pingpong"]) == (128, 96, False)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"block_m": 64}, "block_m is 64: 128 or 192, 64 rows a consumer"),
        ({"block_m": 160}, "block_m is 160"),
        ({"block_n": 100}, "block_n is 100: it must be a positive multiple of 16"),
        ({"specialized": False, "stages": 1}, "without a producer tiles are loaded a pass ahead"),
        ({"specialized": False, "scores_ahead": True}, "scores_ahead is true without a producer"),
    ],
)
def test_impossible_tiles_are_refused(params, text):
    with pytest.raises(ScheduleError, match=text):
        record(FlashAttention3(**params), P)


@pytest.mark.parametrize("gpu", ["a100", "rtx_4090", "b200"])
def test_a_gpu_without_tma_or_wgmma_is_refused_in_one_line(gpu):
    with pytest.raises(UnsupportedError, match=r"^fa3 needs tma and wgmma; .* has no .*wgmma$"):
        simgpu.run("fa3", P, gpu)


@pytest.mark.parametrize(("gpu", "dtype"), [("h100", "fp16"), ("h200", "bf16")])
def test_exponentials_take_half_the_cycles_of_the_products_at_head_dim_128(gpu, dtype):
    """Section 3.1 of the paper: 3.9 T exponentials/s against 989 TFLOP/s, 512 FLOP for each."""
    p = Attention(batch=4, heads_q=16, seq_q=4096, head_dim=128, dtype=dtype)
    run = simgpu.run("fa3", p, gpu)
    assert all(f"Bound: {unit}" in str(run) for unit in ("tensor", "mufu"))
    bounds = run.to_dict()["bounds"]["cycles"]
    assert 0.45 <= bounds["mufu"] / bounds["tensor"] <= 0.55


def test_roles_have_the_registers_of_fa3s_kernels():
    def registers(**params):
        return [(r.name, r.registers) for r in program(FlashAttention3(**params)).roles]

    assert registers() == [("producer", 24), ("consumer0", 240), ("consumer1", 240)]
    three = registers(block_m=192, block_n=64)
    assert three == [("producer", 32), *((f"consumer{i}", 160) for i in range(3))]
    assert [name for name, _ in registers(specialized=False)] == ["consumer0", "consumer1"]
    assert estimated_registers(program(FlashAttention3()), load_profile("h100")) <= 168


def test_p_passes_through_shared_memory_when_asked():
    def a_of_pv(p_in):
        steps = program(FlashAttention3(p_in=p_in)).roles[1].body
        return {op.a.buffer.space for op in walk(steps, {"m": 0}) if isinstance(op, Mma)}

    assert a_of_pv("registers") == {"smem", "regs"}
    assert a_of_pv("smem") == {"smem"}


def test_the_longest_causal_tiles_come_first():
    p = Attention(batch=1, heads_q=1, seq_q=1024, head_dim=128, causal=True)

    def loads(order):
        launch = record(FlashAttention3(order=order), p).launches[0]
        classes = [launch.classes[launch.class_of(at)] for at in launch.grid.coordinates()]
        return [
            sum(isinstance(op, Copy) for op in walk(c.program.roles[0].body, c.env))
            for c in classes
        ]

    assert loads("longest_first") == sorted(loads("longest_first"), reverse=True)
    assert loads("first_to_last") == loads("longest_first")[::-1]


def test_head_dim_is_padded_to_16_or_to_a_power_of_two():
    p = Attention(batch=1, heads_q=1, seq_q=256, head_dim=72)

    def width(padding):
        return next(b for b in program(FlashAttention3(padding=padding), p).buffers).shape[1]

    assert (width("multiple_of_16"), width("power_of_two")) == (80, 128)


@pytest.mark.parametrize(("overlap", "pair"), [(True, ("s", "o")), (False, ("o", "s"))])
def test_which_products_are_issued_together(overlap, pair):
    """Algorithm 2 has the next scores in front of PV; algorithm 1 a PV in front of them."""
    steps = walk(program(FlashAttention3(overlap=overlap)).roles[1].body, {"m": 0})
    ops = [s for s in steps if isinstance(s, Mma | Apply)]
    together = {
        (a.dst.buffer.name[-1], b.dst.buffer.name[-1])
        for a, b in pairwise(ops)
        if isinstance(a, Mma) and isinstance(b, Mma)
    }
    assert together == {pair}


def test_the_paper_s_ablation_has_its_order_and_its_ratios_within_ten_percent():
    """Table 2 of the paper, TFLOP/s on an H100: both ideas 661, no overlap 582, no producer 570.

    At the clock that its power allows: at one clock for all, the fastest would gain too much.
    """
    p = Attention(batch=4, heads_q=16, seq_q=8448, head_dim=128)

    def tflops(**params):
        run = simgpu.run(FlashAttention3(**params), p, "h100", clock="board")
        return run.to_dict()["predicted"]["tflops"]

    full, in_order, unspecialized = tflops(), tflops(overlap=False), tflops(specialized=False)
    assert full > in_order > unspecialized
    assert full / in_order == pytest.approx(661 / 582, rel=0.1)
    assert full / unspecialized == pytest.approx(661 / 570, rel=0.1)
