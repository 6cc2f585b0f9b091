"""Compiling for GPUs that are not here: our kernels, a user's file, and what lint finds in both."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest

from simgpu.compiled.aot import compile_job, compile_jobs
from simgpu.compiled.job import file_job, own_job
from simgpu.compiled.mix import compiled_mix
from simgpu.compiled.reading import read_kernel
from simgpu.compiled.report import compile_report
from simgpu.errors import CompileError
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention

pytestmark = pytest.mark.kernels

FILE = Path(__file__).with_name("kernel_file.py")
PROBLEM = Attention(batch=1, heads_q=8, seq_q=2048, head_dim=128)
TILE = {"block_m": 128, "block_n": 64, "warps": 8, "stages": 3}
POINTERS = [
    "Q=*fp16",
    "K=*fp16",
    "V=*fp16",
    "OUT=*fp16",
    "L=*fp32",
    "sm_scale=fp32",
    "N=4096",
    "H=8",
    "CAUSAL=False",
]
ROLES = ["Q=desc:fp16[128,64]", "K=desc:fp16[64,64]", "V=desc:fp16[64,64]", "OUT=desc:fp16[128,64]"]
ROLES += ["sm_scale=fp32", "N=4096", "D=64", "BM=128", "BN=64", "num_warps=4"]


@pytest.fixture
def report(cache_dir):
    return partial(compile_report, with_lint=True, cache_dir=cache_dir)


def codes(found):
    return {f.code for f in found.findings}


@pytest.mark.parametrize("gpu", ["a100", "rtx_3090", "rtx_4090", "h100", "h200", "b200"])
def test_a_pass_has_the_flops_of_attention_everywhere(gpu, report):
    found = report("fa2", [gpu], settings=[f"{k}={v}" for k, v in TILE.items()], problem=PROBLEM)
    (reading,) = found.readings
    assert reading.main is not None
    assert reading.main.flops == 4 * 128 * 64 * 128
    assert reading.kernel.constants["BM"] == 128
    assert codes(found) == set()


def test_every_launch_of_our_kernels_is_read(cache_dir):
    params = {"fa1": {}, "standard": {}, "fa2_backward": {"dq_by": "atomics"}}
    jobs = [own_job(name, given, PROBLEM, 90) for name, given in params.items()]
    found = compile_jobs(jobs, cache_dir=cache_dir)
    assert [[k.name for k in kernels] for kernels in found] == [
        ["fa1_forward"],
        ["standard_scores", "standard_softmax", "standard_output"],
        ["fa2_backward_delta", "fa2_backward_kv", "fa2_backward_cast"],
    ]


def test_tma_is_a_parameter_like_any_other(cache_dir):
    job = own_job("fa2", {**TILE, "loads": "tma"}, PROBLEM, 90)
    (kernel,) = compile_job(job, cache_dir=cache_dir)
    main = read_kernel(kernel, load_profile("h100")).main
    assert main is not None
    assert main.stats.tma == 2
    assert main.stats.async_copies == 0
    assert kernel.loads_by_descriptor


def test_a_schedules_parameters_give_its_mix(cache_dir):
    params = {**TILE, "warp_partition": "split-q", "loads": "cp_async"}
    mix = compiled_mix("fa2", params, PROBLEM, load_profile("h200"), cache_dir=cache_dir)
    scores, rows = 128 * 64 // 256, 2
    assert mix.warps == 8
    assert mix.full.xu == 8 * (scores + rows)
    assert mix.full.tensor == 8 * (128 // 16 + 64 // 16)
    assert mix.shared_bytes == 2 * 128 * (128 + 6 * 64)


def test_a_users_kernel_is_specialised_as_a_launch_would(cache_dir):
    tile = ["D=64", "BM=64", "BN=64"]
    single = ["N=1" if s.startswith("N=") else s for s in POINTERS]
    jobs = [file_job(f"{FILE}:forward", [*s, *tile], 80) for s in (POINTERS, single)]
    many, one = (compile_job(job, cache_dir=cache_dir)[0] for job in jobs)
    main = read_kernel(many, load_profile("a100")).main
    assert main is not None
    assert main.stats.async_copies > 0  # which needs to know that the pointers are aligned
    assert 10 < main.stats.lines[0] < main.stats.lines[1] < 60
    assert one.listing != many.listing


def test_a_gluon_kernel_is_read_too(report):
    found = report(f"{FILE}:copy", ["h100"], settings=["X=*fp32", "Y=*fp32", "N=1024"])
    assert found.readings[0].kernel.name == "copy"
    assert found.readings[0].main is None


def test_roles_where_the_compiler_makes_them_and_where_not(report):
    made = report(f"{FILE}:with_roles", ["b200"], settings=[*ROLES, "WS=True"])
    assert made.readings[0].specialised
    assert {x.role for x in made.readings[0].loops} >= {"mma", "softmax", "load"}
    assert "no-roles" not in codes(made)
    not_made = report(f"{FILE}:with_roles", ["a100"], settings=[*ROLES, "WS=True"])
    assert {"no-roles", "descriptors-without-tma"} <= codes(not_made)


def test_duplicated_work_and_serialised_products_on_hopper(report):
    settings = ["block_m=64", "block_n=64", "warps=8", "stages=2"]
    assert "duplicated-work" in codes(report("fa2", ["h100"], settings=settings))
    settings = ["block_m=128", "block_n=128", "warps=4", "stages=2"]
    found = codes(report("fa2", ["h100"], settings=settings))
    assert {"serialised-products", "spills-in-loop"} <= found


def test_the_collapse_on_sm_80_and_its_cure(report):
    found = report("fa2", ["a100"], settings=["block_m=128", "block_n=128", "warps=4", "stages=2"])
    (finding,) = [f for f in found.findings if f.code == "register-collapse"]
    assert finding.evidence.startswith("32 registers, ")
    assert "maxnreg=255 cures it" in finding.text


@pytest.mark.parametrize(
    ("kernel", "settings", "text"),
    [
        ("NOT_A_KERNEL", [], "is no @triton.jit function in kernel_file.py; there are forward,"),
        ("missing", [], "'missing' is not there in kernel_file.py"),
        ("copy", ["X=*fp32"], "copy has no value for Y, N: give each"),
        ("copy", ["Z=1", "X=*fp32", "Y=*fp32", "N=64"], "no argument Z; copy takes X, Y, N"),
        ("copy", ["X=*fp99", "Y=*fp32", "N=64"], "no element type 'fp99'; known: fp16, bf16"),
        ("forward", [*POINTERS, "D=100", "BM=64", "BN=64"], "must be a power of 2"),
    ],
)
def test_what_a_user_can_get_wrong_is_one_clear_line(kernel, settings, text, cache_dir):
    with pytest.raises(CompileError) as error:
        compile_report(f"{FILE}:{kernel}", ["h100"], settings=settings, cache_dir=cache_dir)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_parameters_that_our_kernels_refuse(cache_dir):
    with pytest.raises(CompileError, match="block_m=100: needs a power of two"):
        compile_job(own_job("fa2", {"block_m": 100}, PROBLEM, 90), cache_dir=cache_dir)


def test_an_interpreting_process_still_compiles(monkeypatch, cache_dir):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (kernel,) = compile_job(own_job("fa2", {**TILE, "stages": 2}, PROBLEM, 90), cache_dir=cache_dir)
    assert kernel.registers > 100


def test_without_line_info_the_binary_does_not_know_where_its_source_is(cache_dir):
    kernels = [
        compile_job(own_job("fa2", TILE, PROBLEM, 90, line_info=known), cache_dir=cache_dir)[0]
        for known in (True, False)
    ]
    assert max(x.line for x in kernels[0].listing.instructions) > 0
    assert max(x.line for x in kernels[1].listing.instructions) == 0
    assert kernels[0].cubin_sha256 != kernels[1].cubin_sha256


@pytest.mark.perf
def test_a_kernel_takes_a_second_and_a_half_and_milliseconds_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    jobs = [
        own_job("fa2", {**TILE, "stages": s}, PROBLEM, a) for s in (2, 3) for a in (80, 90, 100)
    ]
    start = time.perf_counter()
    compile_jobs(jobs, cache_dir=tmp_path)
    assert (time.perf_counter() - start) / len(jobs) < 1.5 * max(1, os.getloadavg()[0])
    start = time.perf_counter()
    for job in jobs:
        read_kernel(compile_job(job, cache_dir=tmp_path)[0], load_profile("h100"))
    assert (time.perf_counter() - start) / len(jobs) < 0.05
