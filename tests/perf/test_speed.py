"""How long predictions take; printed, never a gate."""

from __future__ import annotations

import subprocess
import sys

import pytest

import simgpu
from simgpu.problem import Attention

pytestmark = pytest.mark.perf

FULL = Attention(batch=4, heads_q=32, seq_q=4096, head_dim=128)
CAUSAL = Attention(batch=4, heads_q=32, seq_q=4096, head_dim=128, causal=True)


@pytest.mark.parametrize(("problem", "target_ms"), [(FULL, 150), (CAUSAL, 400)])
def test_predict(benchmark, problem, target_ms):
    profile = simgpu.load_profile("h200")
    benchmark.extra_info["target_ms"] = target_ms
    run = benchmark(simgpu.run, "fa2", problem, profile)
    assert run.cycles > 0


def test_shell(benchmark):
    command = [sys.executable, "-c", "from simgpu.cli import main; main()", "run", "fa2"]
    benchmark.extra_info["target_ms"] = 1500
    done = benchmark.pedantic(
        subprocess.run, (command,), {"capture_output": True, "check": True}, rounds=5
    )
    assert done.stdout
