"""What a kernel's products are written with, and what that costs beside the best of the GPU."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.cost.instructions import instructions, wavefronts
from simgpu.cost.job import MissRates
from simgpu.cost.jobs import jobs
from simgpu.cost.registers import serial_products
from simgpu.errors import ScheduleError, UnsupportedError
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import ISSUE, TENSOR, Machine
from simgpu.problem import Attention
from simgpu.program.listing import listing
from simgpu.program.ops import Mma
from simgpu.program.program import operations
from simgpu.program.record import record
from simgpu.read.count import count

P = Attention(batch=1, heads_q=4, seq_q=1024, head_dim=128, dtype="bf16")
H200 = Machine.from_profile(load_profile("h200"))
#: The CUDA kernel at head dim 128.
CUDA = {"block_m": 128, "block_n": 64, "warps": 4, "stages": 1, "order": "cuda"}


def products(instruction, problem=P):
    """Return the role and its products QKᵀ and PV."""
    recording = record(FlashAttention2(**CUDA, instruction=instruction), problem)
    (role,) = recording.launches[0].classes[0].program.roles
    found = [op for op in operations(role.body) if isinstance(op, Mma)]
    return role, found[0], found[1]


def job(op, role, machine):
    made = jobs(op, role, {}, machine, "bf16", MissRates())
    return made.behind or made.held[0]


def test_an_instruction_follows_the_kernel_and_not_the_gpu():
    role, qk, pv = products("mma.sync")
    # 128 × 64 × 128 and 128 × 128 × 64 in m16n8k16; ldmatrix.x4 of Q and K, and of V
    for op, loads in ((qk, 4 * (16 + 32)), (pv, 4 * 32)):
        mix = instructions(op, role, H200)
        assert (mix.tensor, mix.lsu) == (512, loads)
        assert wavefronts(op, role, H200, {}) == 4 * loads
    role, qk, _ = products(None)
    assert instructions(qk, role, H200).tensor == 4 * 2 * 8  # wgmma: two rows of tiles, 16 deep


def test_mma_sync_holds_its_warps_and_the_issue_slots():
    role, qk, _ = products("mma.sync")
    made = jobs(qk, role, {}, H200, "bf16", MissRates())
    costs = H200.profile.costs
    assert made.behind is None
    (held,) = made.held
    assert held.demand[ISSUE] > costs.mma_sync_slots * 512
    assert held.solo == costs.mma_sync_cycles * 128
    assert held.demand[TENSOR] == 2 * 128 * 64 * 128 / 4096
    # two of them side by side are bound by issue: 60 % of wgmma's rate, as measured
    alone = held.demand[TENSOR] / (held.demand[ISSUE] / H200.capacity[ISSUE])
    assert 0.5 < alone < 0.61
    assert jobs(qk, *(role, {}), Machine.from_profile(load_profile("a100")), "bf16", MissRates())


def test_other_gpus_cost_the_same_with_and_without_the_word():
    for gpu in ("a100", "rtx_4090"):
        machine = Machine.from_profile(load_profile(gpu))
        (role, said, _), (_, best, _) = products("mma.sync"), products(None)
        assert job(said, role, machine) == job(best, role, machine)


def test_products_by_mma_sync_are_never_serialised():
    profile = load_profile("h200")
    wide = {"block_m": 128, "block_n": 128, "warps": 4, "stages": 1}
    found = {
        by: serial_products(
            record(FlashAttention2(**wide, instruction=by), P).launches[0].classes[0].program,
            profile,
        )
        for by in (None, "wgmma", "mma.sync")
    }
    assert found == {None: True, "wgmma": True, "mma.sync": False}


def test_the_cuda_kernel_loads_each_warp_its_own_operands():
    by = {i: count(record(FlashAttention2(**CUDA, instruction=i), P)) for i in (None, "mma.sync")}
    assert by[None].flops_tensor == by["mma.sync"].flops_tensor
    assert by[None].global_read_bytes == by["mma.sync"].global_read_bytes
    assert by[None].smem_operand_bytes < by["mma.sync"].smem_operand_bytes


def test_a_gpu_must_have_the_instruction():
    text = r"^fa2 needs wgmma; a100_sxm4_80gb has no wgmma$"
    with pytest.raises(UnsupportedError, match=text):
        simgpu.run("fa2", P, "a100", params={"instruction": "wgmma"})
    assert record(FlashAttention2(**CUDA, instruction="mma.sync"), P).needs == ("mma_sync",)
    assert record(FlashAttention2(), P).needs == ()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"order": "cuda"}, "^stages is 2: order 'cuda' keeps one tile each of K and V, set 1$"),
        ({"order": "cutlass"}, "one of triton, qk_ahead, cuda"),
        ({"instruction": "mma_sync"}, "one of mma.sync, wgmma"),
    ],
)
def test_what_cannot_be_says_so(params, said):
    with pytest.raises(ScheduleError, match=said):
        simgpu.run("fa2", P, "h200", params=params)


def test_there_is_no_triton_kernel_of_another_order():
    for params in (CUDA, {"instruction": "mma.sync"}, {"fast_math": False}):
        with pytest.raises(UnsupportedError, match=r"^no Triton kernel of fa2 with "):
            simgpu.run("fa2", P, "h200", params=params, mix="compiled")


def test_blocks_go_from_the_last_to_the_first_and_the_ragged_one_is_apart():
    problem = Attention(batch=1, heads_q=1, seq_q=128, seq_kv=300, head_dim=64)
    program = record(FlashAttention2(**CUDA, instruction="mma.sync"), problem).launches[0]
    text = listing(program.classes[0].program)
    assert text.index("K[256:+64]") < text.index("V[-64·i0+256:+64]") < text.index("V[-64·i1+192")
    assert "by mma.sync" in text
    assert text.count("masked") == 1


def test_without_fast_math_exponentials_take_more_instructions():
    runs = [
        simgpu.run("fa2", P, "h200", params={**CUDA, "fast_math": fast}) for fast in (True, False)
    ]
    fast, guarded = (r.launches[0].mix for r in runs)
    scores = 1024 * 1024 * 4 / 32
    # a multiplication apart and two predicated ones, and a comparison: for each score and row
    assert guarded.fma - fast.fma == pytest.approx(3 * scores, rel=0.1)
    assert guarded.alu - fast.alu == pytest.approx(scores, rel=0.15)
    assert guarded.mufu == fast.mufu


def test_hopper_runs_mma_sync_slower_than_wgmma():
    by = {
        i: simgpu.run("fa2", P, "h200", params={**CUDA, "instruction": i}).cycles
        for i in ("wgmma", "mma.sync")
    }
    assert by["mma.sync"] > 1.2 * by["wgmma"]


def test_advice_knows_who_holds_the_issue_slots():
    long = Attention(batch=4, heads_q=16, seq_q=4096, head_dim=128, dtype="bf16")
    run = simgpu.run("fa2", long, "h200", params={**CUDA, "instruction": "mma.sync"})
    assert "products by mma.sync hold 60" in str(run)
    assert "try wgmma, if the GPU has it" in " ".join(str(run).split())
