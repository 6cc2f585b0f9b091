"""FA1 beside FA2 on one problem and GPU, and FA2 beside the counters of measured kernels."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import simgpu.validation
from simgpu.algorithms.fa1 import FlashAttention1
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import Machine
from simgpu.hardware.occupancy import Occupancy, occupancy
from simgpu.problem import Attention
from simgpu.program.record import record
from simgpu.read.traffic import Traffic, traffic
from simgpu.timing.cache import L2
from simgpu.timing.exact import Device

if TYPE_CHECKING:
    from simgpu.program.program import Schedule

PROBLEMS = {
    "full": Attention(batch=2, heads_q=8, seq_q=2048, head_dim=64),
    "causal": Attention(batch=2, heads_q=8, seq_q=2048, head_dim=128, causal=True),
}


def made(schedule: Schedule, problem: Attention, gpu: str, slots: int = 1) -> Traffic:
    machine = Machine.from_profile(load_profile(gpu))
    (launch,) = record(schedule, problem).launches
    l2 = L2(machine.profile.memory.l2_effective_bytes)
    return traffic(launch, problem, machine, slots, l2)


def ctas(schedule: Schedule, problem: Attention) -> int:
    return record(schedule, problem).launches[0].grid.tiles


@pytest.mark.parametrize("gpu", ["a100", "h200"])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_fa2_exchanges_less_computes_less_and_has_more_ctas(problem, gpu):
    fa1, fa2 = (made(s, problem, gpu) for s in (FlashAttention1(), FlashAttention2()))
    assert fa2.work.smem_exchange_bytes < fa1.work.smem_exchange_bytes
    assert fa2.mix.fma < fa1.mix.fma
    assert ctas(FlashAttention2(), problem) > ctas(FlashAttention1(), problem)


def test_one_cta_a_head_leaves_most_of_an_a100_without_work():
    problem = Attention(batch=1, heads_q=8, seq_q=8192, head_dim=64)
    machine = Machine.from_profile(load_profile("a100"))
    without = {}
    for schedule in (FlashAttention1(), FlashAttention2()):
        (launch,) = record(schedule, problem).launches
        misses = made(schedule, problem, "a100").misses
        device = Device(launch, problem.dtype, machine, 1, misses)
        without[schedule.schedule_name] = machine.sms - len(device.sms)
    assert without == {"fa1": 100, "fa2": 0}


class Measured(NamedTuple):
    """A measured kernel, and what is said of it."""

    counters: dict[str, float]
    spilled: int
    made: Traffic
    fit: Occupancy


@cache
def measured() -> tuple[Measured, ...]:
    """Every run of the committed counters, with its own registers and shared memory."""
    package = Path(simgpu.validation.__file__).parent
    path = package / "measured" / "h200_sxm" / "triton_fa2_counters.json"
    profile = load_profile("h200")
    return tuple(_described(run, profile) for run in json.loads(path.read_text())["runs"])


def _described(run: dict[str, Any], profile: Any) -> Measured:
    kernel, shape = run["kernel"], run["problem"]
    problem = Attention(
        batch=shape["batch"],
        heads_q=shape["heads"],
        seq_q=shape["seqlen"],
        head_dim=shape["head_dim"],
        causal=shape["causal"],
        dtype=shape["dtype"],
    )
    schedule = FlashAttention2(
        block_m=kernel["block_m"],
        block_n=kernel["block_n"],
        stages=kernel["num_stages"],
        warps=kernel["num_warps"],
    )
    fit = occupancy(
        profile,
        registers_per_thread=kernel["registers"],
        shared_bytes=kernel["shared_bytes"],
        warps=kernel["num_warps"],
    )
    return Measured(
        run["counters"],
        kernel["spilled_registers"],
        made(schedule, problem, "h200", fit.ctas_per_sm),
        fit,
    )


def errors(counter: str, of: Any, factor: float = 1.0) -> list[float]:
    """Relative errors over the runs that spill at most 10 registers."""
    runs = [run for run in measured() if run.spilled <= 10]
    assert len(runs) == 126
    return [of(run.made) / (factor * run.counters[counter]) - 1 for run in runs]


def test_mufu_instructions():
    found = errors("smsp__inst_executed_pipe_xu.sum", lambda made: made.mix.mufu)
    assert mean(map(abs, found)) <= 0.01


def test_fma_instructions():
    found = errors("smsp__inst_executed_pipe_fma.sum", lambda made: made.mix.fma)
    assert mean(map(abs, found)) <= 0.05


def test_shared_memory_wavefronts():
    counter = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
    found = errors(counter, lambda made: made.wavefronts)
    assert mean(map(abs, found)) <= 0.05


def test_hbm_bytes_read_in_every_run():
    found = errors("dram__bytes_read.sum", lambda made: made.hbm_read_bytes)
    assert max(map(abs, found)) <= 0.05


def test_hbm_bytes_read():
    found = errors("dram__bytes_read.sum", lambda made: made.hbm_read_bytes)
    assert mean(map(abs, found)) <= 0.01


def test_occupancy():
    for run in measured():
        limits = run.fit.limits
        assert limits.registers == run.counters["launch__occupancy_limit_registers"]
        assert limits.warps == run.counters["launch__occupancy_limit_warps"]
        assert limits.blocks == run.counters["launch__occupancy_limit_blocks"]
        assert run.fit.shared_at_carveout == run.counters["launch__occupancy_limit_shared_mem"]
