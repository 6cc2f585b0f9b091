"""Our own kernels compiled here against the same kernels compiled and loaded on an H200."""

from __future__ import annotations

from importlib import metadata, resources
from pathlib import Path

import pytest

from simgpu.compiled.aot import compile_jobs
from simgpu.compiled.job import OWN_KERNELS, own_job
from simgpu.problem import Attention
from simgpu.validation.records import read

FOLDER = resources.files("simgpu") / "validation/measured/h200_sxm"
FILES = sorted(Path(str(FOLDER)).glob("*.jsonl"))
AT_LEAST, AT_MOST = 40, 60


def usable(record):
    whole = record.kernel.cubin_sha256 or all(x.cubin_sha256 for x in record.launches)
    same = record.method.versions.get("triton") == metadata.version("triton")
    known = record.kernel.name in OWN_KERNELS and (record.kernel.cubin_sha256 or record.launches)
    return record.status == "ok" and known and whole and same


def job_of(record):
    p = record.problem
    problem = Attention(
        batch=p.batch,
        heads_q=p.heads_q,
        heads_kv=p.heads_kv,
        seq_q=p.seq_q,
        seq_kv=p.seq_kv,
        head_dim=p.head_dim,
        dtype=p.dtype,
        causal=p.mask == "causal",
    )
    return own_job(record.kernel.name, record.kernel.params, problem, 90, line_info=False)


@pytest.mark.kernels
def test_own_kernels_compile_to_what_ran_on_the_h200(cache_dir):
    records = [r for file in FILES for r in read(file) if usable(r)]
    if len(records) < AT_LEAST:
        pytest.skip(f"{len(records)} measured runs carry a cubin hash of this Triton")
    records = records[:: max(1, len(records) // AT_MOST)][:AT_MOST]
    answers = compile_jobs([job_of(r) for r in records], cache_dir=cache_dir)
    for record, kernels in zip(records, answers, strict=True):
        told = record.launches or (record.kernel,)
        for launch, kernel in zip(told, kernels, strict=True):
            wanted = (launch.registers, launch.spills, launch.shared_bytes, launch.cubin_sha256)
            found = (kernel.registers, kernel.spills, kernel.shared_bytes, kernel.cubin_sha256)
            assert found == wanted, record.key
