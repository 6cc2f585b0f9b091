"""The compiler's numbers and the code's counts against 136 launches measured on an H200."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.compiled.adjust import total_mix, with_compiled_mix
from simgpu.compiled.aot import compile_jobs
from simgpu.compiled.flow import mma_loops
from simgpu.compiled.job import file_job
from simgpu.compiled.mix import mix_of
from simgpu.compiled.reading import executed_by_cta
from simgpu.compiled.sass import PipeCounts
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import Machine
from simgpu.problem import Attention
from simgpu.program.record import record
from tests.compiled.loading import COUNTERS

pytestmark = pytest.mark.kernels

MEASURED = resources.files("simgpu") / "validation/measured/h200_sxm/triton_fa2_counters.json"
RUNS = json.loads(MEASURED.read_text())["runs"]
OFTEN = RUNS[::9]  # 16 of them; stages come in fours, so all of those are among them
RARELY = [r for r in RUNS if r not in OFTEN]
# Warps that leave before the log-sum-exp is stored count as if they stayed.
TOLERANCE = {"xu": 0, "fma": 0, "alu": 0, "lsu": 0.005, "tensor": 0, "total": 0.001}


def job_of(run):
    p, k = run["problem"], run["kernel"]
    settings = {
        **dict.fromkeys(("Q", "K", "V", "OUT"), "*fp16"),
        "L": "*fp32",
        "sm_scale": "fp32",
        "N": p["seqlen"],
        "H": p["heads"],
        "D": p["head_dim"],
        "BM": k["block_m"],
        "BN": k["block_n"],
        "CAUSAL": p["causal"],
        "num_warps": k["num_warps"],
        "num_stages": k["num_stages"],
    }
    file = Path(__file__).with_name("kernel_file.py")
    return file_job(f"{file}:forward", [f"{n}={v}" for n, v in settings.items()], 90)


def passes_of(run):
    """(full, masked) passes of a CTA → how many CTAs of one head have them."""
    p, k = run["problem"], run["kernel"]
    n, bm, bn = p["seqlen"], k["block_m"], k["block_n"]
    if not p["causal"]:
        return Counter({(n // bn, 0): n // bm})
    full = (i * bm // bn for i in range(n // bm))
    return Counter((f, -(-((i + 1) * bm - f * bn) // bn)) for i, f in enumerate(full))


def off(count, run, pipe):
    heads = run["problem"]["batch"] * run["problem"]["heads"]
    return abs(count * heads / run["counters"][COUNTERS[pipe]] - 1)


@pytest.fixture(scope="module", params=["often", pytest.param("rarely", marks=pytest.mark.slow)])
def compiled(request, cache_dir):
    runs = OFTEN if request.param == "often" else RARELY
    return [
        (run, found[0])
        for run, found in zip(
            runs, compile_jobs([job_of(r) for r in runs], cache_dir=cache_dir), strict=True
        )
    ]


def test_registers_spills_and_shared_bytes_are_those_of_the_gpu(compiled):
    assert len(compiled) >= 16
    for run, kernel in compiled:
        k = run["kernel"]
        told = (k["registers"], k["spilled_registers"], k["shared_bytes"])
        assert (kernel.registers, kernel.spills, kernel.shared_bytes) == told, k


def test_executed_instructions_are_those_counted(compiled):
    for run, kernel in compiled:
        total = PipeCounts()
        loops = len(mma_loops(kernel.listing))
        for passes, ctas in passes_of(run).items():
            total += executed_by_cta(kernel, passes[:loops]) * ctas
        for pipe, most in TOLERANCE.items():
            assert off(getattr(total, pipe), run, pipe) <= most, (pipe, run["kernel"])


def test_the_mix_adds_up_to_what_was_counted(compiled):
    for run, kernel in compiled:
        mix, total = mix_of(kernel), PipeCounts()
        for passes, ctas in passes_of(run).items():
            total += mix.executed(*passes) * ctas
        for pipe in COUNTERS:
            assert off(getattr(total, pipe), run, pipe) <= 0.02, (pipe, run["kernel"])


def test_a_schedule_with_the_mix_laid_over_it_executes_what_was_counted(compiled):
    h200 = Machine.from_profile(load_profile("h200"))
    for run, kernel in compiled:
        p, k = run["problem"], run["kernel"]
        problem = Attention(
            batch=p["batch"],
            heads_q=p["heads"],
            seq_q=p["seqlen"],
            head_dim=p["head_dim"],
            causal=p["causal"],
        )
        schedule = FlashAttention2(
            block_m=k["block_m"], block_n=k["block_n"], stages=k["num_stages"], warps=k["num_warps"]
        )
        (launch,) = record(schedule, problem).launches
        total = total_mix(with_compiled_mix(launch, mix_of(kernel), h200), h200)
        executed = {**total._asdict(), "xu": total.mufu, "total": total.total}
        for pipe, counter in COUNTERS.items():
            found = executed[pipe] / run["counters"][counter] - 1
            assert abs(found) <= 0.02, (pipe, found, k)
