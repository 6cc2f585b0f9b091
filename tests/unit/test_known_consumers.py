"""Consumers' loops that came compiled with the package: found, left alone, and followed."""

import pytest

import simgpu
from simgpu.compiled.known_loops import known_loops
from simgpu.hardware.load import load_profile
from simgpu.program.record import record
from simgpu.schedules import make_schedule

H200 = load_profile("h200")
OURS = {"block_m": 128, "block_n": 128, "p_in": "registers", "o_in": "own", "pingpong": True}


def known(head_dim=128, gpu=H200, dtype="fp16", causal=False, **params):
    problem = simgpu.Attention(
        batch=2, heads_q=8, seq_q=2048, head_dim=head_dim, dtype=dtype, causal=causal
    )
    resolved = record(make_schedule("fa3", params), problem).params
    return known_loops("fa3", resolved, problem, gpu)


def products(loop):
    return [x.n for x in loop if x.kind.startswith("mma")]


def test_the_package_has_one_loop_for_all_its_consumers():
    found = known()
    assert found.source == "fa3-fwd 0.0.3, sm_90a"
    first, second = found.loops
    assert first == second
    # 64x176x16 eight deep for the scores, 64x128x16 eleven deep for the output
    assert products(first) == [176] * 8 + [128] * 11
    assert len(known(head_dim=64).loops) == 3
    assert [x.kind for x in first].count("take_turn") == 1


def test_at_head_dim_256_the_package_takes_no_turns():
    (first, _) = known(head_dim=256, pingpong=False).loops
    assert "take_turn" not in {x.kind for x in first}


def test_operands_of_eight_bits_are_twice_as_deep():
    (first, _) = known(dtype="fp8").loops
    assert products(first) == [224] * 4 + [128] * 7


@pytest.mark.parametrize("pingpong", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_our_kernel_has_a_loop_for_each_consumer(pingpong, causal):
    found = known(causal=causal, **{**OURS, "pingpong": pingpong})
    assert found.source.startswith("Triton 3.6.0")
    for loop in found.loops:
        assert products(loop) == [128] * 16
        kinds = [x.kind for x in loop]
        assert kinds.count("take_turn") == kinds.count("give_turn") == int(pingpong)
        # 64 rows of 128 scores by four warps, and the rows' factors; nothing of a mask
        assert kinds.count("mufu") == 66


@pytest.mark.parametrize(
    "params",
    [
        {"block_n": 96},
        {"overlap": False},
        {"specialized": False},
        {**OURS, "block_n": 96},
        {"gpu": load_profile("b200")},
        {"gpu": load_profile("a100")},
    ],
)
def test_others_are_not_known(params):
    assert known(**params) is None


def test_a_run_follows_them_and_says_so():
    problem = simgpu.Attention(batch=4, heads_q=16, seq_q=2048, head_dim=128)
    auto = simgpu.run("fa3", problem)
    analytic = simgpu.run("fa3", problem, mix="analytic")
    assert auto.mix == analytic.mix == "analytic"  # instructions are counted by formulas
    assert auto.provenance["loops_source"] == "fa3-fwd 0.0.3, sm_90a"
    assert "loops_source" not in analytic.provenance
    assert auto.cycles != analytic.cycles
    assert abs(auto.cycles / analytic.cycles - 1) < 0.15
