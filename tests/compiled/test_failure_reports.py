"""Failures that people reported, foreseen without their GPU: see docs/reference/compiled.md.

Every case is a kernel of ours with the tile and the resource situation of a report; ``way_out`` is
the change that the thread found to help.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

from simgpu.compiled.aot import compile_job, compile_jobs
from simgpu.compiled.job import architecture, own_job
from simgpu.compiled.lint import lint
from simgpu.compiled.reading import read_kernel
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention

pytestmark = pytest.mark.kernels


@dataclass(frozen=True)
class Case:
    report: str
    gpu: str
    kernel: str
    head_dim: int
    tile: dict[str, int]
    way_out: dict[str, int]
    dtype: str = "fp16"
    shared: int = 0  # bytes; 0: the report is of spills
    out_head_dim: int = 0
    out_dtype: str = ""
    slow: bool = False  # a backward pass: two launches more, and none of them small


def tile(m, n, warps, stages):
    return {"block_m": m, "block_n": n, "warps": warps, "stages": stages}


BIG = tile(128, 128, 8, 3)
CASES = [
    Case("attention-gym 14", "rtx_4090", "fa2", 128, tile(128, 64, 4, 4), tile(64, 64, 4, 2),
         shared=131072),
    Case("triton 384", "rtx_3090", "fa2", 64, tile(128, 128, 8, 4), tile(64, 64, 4, 4),
         shared=114688),
    Case("PainlessInferenceAcceleration 35", "rtx_3090", "fa2", 128, BIG, {**BIG, "stages": 2},
         shared=163840),
    Case("flashT5 6", "rtx_3090", "fa2", 128, tile(128, 64, 8, 5), tile(128, 64, 8, 3),
         shared=163840),
    Case("native-sparse-attention-pytorch 26", "rtx_3090", "fa2_backward", 128,
         tile(64, 128, 8, 2), tile(64, 128, 8, 2), shared=115200, out_head_dim=64),
    Case("sglang 17908", "rtx_5090", "fa2", 256, tile(128, 64, 8, 1), tile(64, 64, 4, 1),
         shared=114688),
    Case("sglang 27962", "rtx_5090", "fa2", 128, BIG, tile(64, 64, 4, 3), shared=163840),
    Case("pytorch 198224", "rtx_5090", "fa2_backward", 256, tile(64, 64, 4, 1),
         tile(32, 32, 4, 2), dtype="bf16", shared=147456, slow=True),
    Case("Qwen3-Coder 461", "h200", "fa2", 128, tile(128, 128, 8, 4), tile(128, 128, 8, 3),
         shared=294912),
    Case("tokamax 1122", "a100", "fa2_backward", 256, tile(64, 64, 8, 2), tile(64, 64, 8, 2),
         dtype="fp32", shared=410112, out_dtype="bf16", slow=True),
    Case("triton 6305 and flash-attention 1556", "a100", "fa2", 128, tile(128, 64, 4, 3),
         tile(128, 64, 4, 3), out_head_dim=64),
    Case("triton 1661", "a100", "fa2_backward", 256, tile(64, 64, 8, 1), tile(64, 64, 8, 1),
         out_head_dim=128, slow=True),
]  # fmt: skip


def jobs_of(case):
    arch = architecture(load_profile(case.gpu))
    extra = {"dq_by": "atomics"} if case.kernel == "fa2_backward" else {}
    out = [
        (case.tile, case.head_dim, case.dtype),
        (case.way_out, case.out_head_dim or case.head_dim, case.out_dtype or case.dtype),
    ]
    jobs = []
    for params, head_dim, dtype in out:
        problem = Attention(batch=1, heads_q=8, seq_q=2048, head_dim=head_dim, dtype=dtype)
        jobs.append(own_job(case.kernel, {**params, **extra}, problem, arch))
    return jobs


@pytest.fixture(scope="module")
def answers(cache_dir):
    """A case's kernels as reported and with its way out; those of one pace compile together."""
    batches = {}

    def of(case):
        if case.slow not in batches:
            chosen = [c for c in CASES if c.slow == case.slow]
            found = compile_jobs([j for c in chosen for j in jobs_of(c)], cache_dir=cache_dir)
            pairs = zip(found[::2], found[1::2], strict=True)
            batches[case.slow] = dict(zip((c.report for c in chosen), pairs, strict=True))
        return batches[case.slow][case.report]

    return of


def cases(shared):
    """Cases that do not fit, or those that spill."""
    return [
        pytest.param(case, id=case.report, marks=[pytest.mark.slow] if case.slow else [])
        for case in CASES
        if bool(case.shared) == shared
    ]


def main_reading(kernels, gpu):
    """The launch with the most shared memory: dK/dV of the backward pass."""
    kernel = max(kernels, key=lambda k: (k.shared_bytes, k.stack_bytes))
    return read_kernel(kernel, load_profile(gpu))


@pytest.mark.parametrize("case", cases(shared=True))
def test_does_not_fit_and_the_way_out_does(case, answers, cache_dir):
    before, after = (main_reading(kernels, case.gpu) for kernels in answers(case))
    assert before.kernel.shared_bytes == case.shared
    assert before.occupancy.ctas_per_sm == 0
    assert after.occupancy.ctas_per_sm > 0
    limit = load_profile(case.gpu).occupancy.smem_per_cta_max_bytes
    assert f"{case.shared} bytes of shared memory; it may have {limit}" in before.occupancy.reason


@pytest.mark.parametrize("case", cases(shared=False))
def test_spills_and_the_way_out_does_not(case, answers, cache_dir):
    before, after = (main_reading(kernels, case.gpu) for kernels in answers(case))
    assert before.kernel.spills > 0
    assert before.kernel.registers == 255
    assert after.kernel.spills == 0
    compile_ = partial(compile_job, cache_dir=cache_dir)
    found = lint(before, jobs_of(case)[0], load_profile(case.gpu), compile_)
    (spills,) = [f for f in found if f.code.startswith("spills")]
    assert f"{before.kernel.stack_bytes:,} bytes of stack" in spills.evidence


def test_the_finding_names_the_largest_tile_that_fits(answers, cache_dir):
    case = next(c for c in CASES if c.report.startswith("Painless"))
    reading = main_reading(answers(case)[0], case.gpu)
    compile_ = partial(compile_job, cache_dir=cache_dir)
    found = lint(reading, jobs_of(case)[0], load_profile(case.gpu), compile_)
    (fit,) = [f for f in found if f.code == "does-not-fit"]
    assert "block_m=128, block_n=128, stages=2, 98,304 bytes" in fit.text
    assert "163840" in fit.evidence
