"""FlashAttention-3's kernel as compiled for Hopper: its products, its registers, no spills."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simgpu.compiled.aot import compile_jobs
from simgpu.compiled.job import own_job
from simgpu.errors import CompileError
from simgpu.problem import Attention
from simgpu.validation.records import read

pytestmark = pytest.mark.kernels

SET = Path(__file__).parents[2] / "simgpu" / "validation" / "measured" / "h200_sxm"
CONSUMERS = 2
#: Head dim, causal, dtype, rows, keys, parameters; with the default tile's keys.
CASES = {
    "d128": (128, False, "fp16", 4096, 4096, {"block_n": 128}),
    "d128_causal": (128, True, "bf16", 4096, 4096, {"block_n": 128}),
    "d64_no_turns": (64, False, "fp16", 4096, 4096, {"block_n": 128, "pingpong": False}),
    "d64_ragged": (64, False, "bf16", 1000, 777, {"block_n": 128, "stages": 3}),
    "d128_one_tile": (128, True, "fp16", 4096, 4096, {"block_n": 128, "persistent": False}),
    "d256_more_queries": (256, True, "fp16", 1000, 500, {"block_n": 64}),
}


def job(name, arch=90):
    head_dim, causal, dtype, rows, keys, params = CASES[name]
    problem = Attention(
        batch=2,
        heads_q=4,
        heads_kv=2,
        seq_q=rows,
        seq_kv=keys,
        head_dim=head_dim,
        dtype=dtype,
        causal=causal,
    )
    return own_job("fa3", params, problem, arch)


@pytest.fixture(scope="module")
def compiled(cache_dir):
    found = compile_jobs([job(name) for name in CASES], cache_dir=cache_dir)
    return {name: kernels[0] for name, kernels in zip(CASES, found, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_nothing_spills_and_products_are_as_many_as_the_algorithm_has(compiled, name):
    head_dim, _, _, _, _, params = CASES[name]
    kernel = compiled[name]
    assert kernel.stack_bytes == 0
    # the first scores, both products of the loop, the last PV, and behind it the next tile's scores
    persistent = kernel.constants["PERSISTENT"]
    assert persistent == (head_dim <= 128 and params.get("persistent", True))
    steps = (2 + persistent) * head_dim // 16 + 2 * params["block_n"] // 16
    assert len(re.findall(r"\bHGMMA\b", kernel.text)) == CONSUMERS * steps


@pytest.mark.parametrize("name", CASES)
def test_consumers_get_240_registers_and_the_producer_24(compiled, name):
    found = re.findall(r"USETMAXREG\.(\w+)\S*\s+(?:UP\d+, )?(0x[0-9a-f]+)", compiled[name].text)
    assert {(how, int(n, 16)) for how, n in found} >= {("TRY_ALLOC", 240), ("DEALLOC", 24)}
    assert compiled[name].registers == 168
    assert compiled[name].warps == 12


def test_the_measured_binary_is_this_one(cache_dir):
    runs = read(SET / "fa3_persistent_runs.jsonl")
    run = next(r for r in runs if r.problem.mask == "causal")
    p = run.problem
    problem = Attention(
        batch=p.batch,
        heads_q=p.heads_q,
        heads_kv=p.heads_kv,
        seq_q=p.seq_q,
        seq_kv=p.seq_kv,
        head_dim=p.head_dim,
        dtype=p.dtype,
        causal=True,
    )
    measured = own_job("fa3", run.kernel.params, problem, 90, line_info=False)
    (kernels,) = compile_jobs([measured], cache_dir=cache_dir)
    assert kernels[0].cubin_sha256 == run.kernel.cubin_sha256


def test_other_architectures_are_refused(cache_dir):
    (found,) = compile_jobs([job("d128", arch=80)], cache_dir=cache_dir)
    assert isinstance(found, CompileError)
    assert "fa3 is written for Hopper" in str(found)
