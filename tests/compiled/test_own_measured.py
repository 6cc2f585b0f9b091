"""Our own kernels compiled here against the same kernels compiled and run on an H200."""

from __future__ import annotations

from collections import Counter
from importlib import metadata, resources
from pathlib import Path

import pytest

import simgpu
from simgpu.compiled.aot import compile_jobs
from simgpu.compiled.job import OWN_KERNELS, own_job
from simgpu.compiled.mix import mix_of
from simgpu.compiled.sass import PipeCounts
from simgpu.problem import Attention
from simgpu.validation.records import read
from tests.compiled.loading import COUNTERS

pytestmark = pytest.mark.kernels

FOLDER = resources.files("simgpu") / "validation/measured/h200_sxm"
FILES = sorted(Path(str(FOLDER)).glob("*.jsonl"))
# Enough to be worth it; compiled often, and rarely; runs predicted.
AT_LEAST, FEW, MANY, RUNS = 40, 15, 60, 12


def usable(record):
    whole = record.kernel.cubin_sha256 or all(x.cubin_sha256 for x in record.launches)
    same = record.method.versions.get("triton") == metadata.version("triton")
    known = record.kernel.name in OWN_KERNELS and (record.kernel.cubin_sha256 or record.launches)
    return record.status == "ok" and known and whole and same


def problem_of(record):
    p = record.problem
    return Attention(
        batch=p.batch,
        heads_q=p.heads_q,
        heads_kv=p.heads_kv,
        seq_q=p.seq_q,
        seq_kv=p.seq_kv,
        head_dim=p.head_dim,
        dtype=p.dtype,
        causal=p.mask == "causal",
    )


def job_of(record):
    name, params = record.kernel.name, record.kernel.params
    return own_job(name, params, problem_of(record), 90, line_info=False)


def passes_of(problem, params):
    """(full, masked) passes of a CTA → how many CTAs of one head have them."""
    found: Counter[tuple[int, int]] = Counter()
    for i in range(problem.q_tiles(params["block_m"])):
        ranges = problem.kv_ranges(i, params["block_m"], params["block_n"])
        passes = [sum(len(r) for r in ranges if r.masked == masked) for masked in (False, True)]
        found[passes[0], passes[1]] += 1
    return found


@pytest.fixture(scope="module")
def records():
    found = [r for file in FILES for r in read(file) if usable(r)]
    if len(found) < AT_LEAST:
        pytest.skip(f"{len(found)} measured runs carry a cubin hash of this Triton")
    return found


@pytest.fixture(scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def compiled(request, records, cache_dir):
    records = records[:: max(1, len(records) // request.param)][: request.param]
    answers = compile_jobs([job_of(r) for r in records], cache_dir=cache_dir)
    return list(zip(records, answers, strict=True))


def test_own_kernels_compile_to_what_ran_on_the_h200(compiled):
    for record, kernels in compiled:
        told = record.launches or (record.kernel,)
        for launch, kernel in zip(told, kernels, strict=True):
            wanted = (launch.registers, launch.spills, launch.shared_bytes, launch.cubin_sha256)
            found = (kernel.registers, kernel.spills, kernel.shared_bytes, kernel.cubin_sha256)
            assert found == wanted, record.key


def test_the_mix_of_fa2_adds_up_to_what_was_counted(compiled):
    """Ragged and unequal lengths, GQA, bf16, head dims 80 to 256, TMA: whatever was measured."""
    checked = 0
    for record, kernels in compiled:
        if record.kernel.name != "fa2" or not record.counters:
            continue
        problem, mix, total = problem_of(record), mix_of(kernels[0]), PipeCounts()
        for passes, ctas in passes_of(problem, record.kernel.params).items():
            total += mix.executed(*passes) * ctas
        heads = problem.batch * problem.heads_q
        for pipe, counter in COUNTERS.items():
            off = getattr(total, pipe) * heads / record.counters[counter] - 1
            assert abs(off) <= 0.02, (pipe, record.key)
        checked += 1
    assert checked >= len(compiled) // 2


def test_a_run_with_the_compiled_mix_executes_what_was_counted(records, cache_dir, monkeypatch):
    counted = [r for r in records if r.kernel.name == "fa2" and r.counters]
    counted = counted[:: max(1, len(counted) // RUNS)][:RUNS]
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_dir))
    jobs = [own_job("fa2", r.kernel.params, problem_of(r), 90, line_info=False) for r in counted]
    compile_jobs(jobs)  # in one process
    assert {r.problem.mask for r in counted} == {"none", "causal"}
    for record in counted:
        tile = record.kernel.params
        split = "split-d" if 16 * tile["warps"] > tile["block_m"] else "split-q"
        params = {**tile, "warp_partition": split}
        run = simgpu.run("fa2", problem_of(record), "h200", params=params, mix="compiled")
        assert run.launches[0].registers == record.kernel.registers
        total = run.launches[0].mix
        executed = {**total._asdict(), "xu": total.mufu, "total": total.total}
        for pipe, counter in COUNTERS.items():
            off = executed[pipe] / record.counters[counter] - 1
            assert abs(off) <= 0.01, (pipe, off, record.key)
