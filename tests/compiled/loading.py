"""What these tests share: fixtures (kernels as the compiler left them) and names of counters."""

from __future__ import annotations

import json
from pathlib import Path

from simgpu.compiled.aot import CompiledKernel

FOLDER = Path(__file__).parent / "fixtures"
# Nsight Compute's counters, by our names of the pipes.
COUNTERS = {
    "xu": "smsp__inst_executed_pipe_xu.sum",
    "fma": "smsp__inst_executed_pipe_fma.sum",
    "alu": "smsp__inst_executed_pipe_alu.sum",
    "lsu": "smsp__inst_executed_pipe_lsu.sum",
    "tensor": "sm__inst_executed_pipe_tensor.sum",
    "total": "smsp__inst_executed.sum",
}


def fixture_kernel(name: str) -> CompiledKernel:
    text = (FOLDER / f"{name}.sass.txt").read_text()
    facts = json.loads(text.splitlines()[0].removeprefix("# "))
    return CompiledKernel(text=text, **facts)
