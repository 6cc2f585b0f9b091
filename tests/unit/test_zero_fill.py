"""Copies by cp.async that are switched off: they write zeros, and nothing else feels them."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.cost.instructions import wavefronts
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import Machine
from simgpu.problem import Attention
from simgpu.program.mix import Mix
from simgpu.program.ops import Copy
from simgpu.program.program import walk
from simgpu.program.record import record
from simgpu.read.count import count
from simgpu.validation.compare import metrics
from simgpu.validation.replay import SPILLS, committed

H200 = Machine.from_profile(load_profile("h200"))


def copies(problem, **params):
    """Return, for each kind of CTA, the role and its copies that are switched off."""
    found = []
    for cta_class in record(FlashAttention2(**params), problem).launches[0].classes:
        (role,) = cta_class.program.roles
        ops = walk(role.body, dict(cta_class.env))
        found.append((role, [op for op in ops if isinstance(op, Copy) and op.fills_zeros]))
    return found


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_each_loop_issues_as_many_copies_of_nothing_as_it_loads_ahead(causal, stages):
    p = Attention(batch=1, heads_q=1, seq_q=512, head_dim=64, causal=causal)
    for _, off in copies(p, block_m=64, block_n=128, stages=stages):
        loops = 1 + causal
        assert len(off) == loops * (stages - 1) * 2  # K and V
        assert all(op.src.valid_bytes({}) == 0 for op in off)


def test_tma_and_one_stage_have_none():
    p = Attention(batch=1, heads_q=1, seq_q=512, head_dim=64, causal=True)
    assert not any(off for _, off in copies(p, loads="tma"))
    assert not any(off for _, off in copies(p, stages=1))


def test_zeros_take_the_wavefronts_of_a_store():
    p = Attention(batch=1, heads_q=1, seq_q=512, head_dim=64)
    role, off = copies(p, block_m=64, block_n=128)[0]
    assert wavefronts(off[0], role, H200, {}) == 128 * 64 * 2 / 128 + 2 * role.warps


def test_ends_of_padded_rows_take_wavefronts_of_their_own():
    def loaded(head_dim):
        p = Attention(batch=1, heads_q=1, seq_q=512, head_dim=head_dim)
        (role,) = record(FlashAttention2(block_n=64), p).launches[0].classes[0].program.roles
        ops = walk(role.body, env := {"m": 0})
        return next(
            wavefronts(op, role, H200, env)
            for op in ops
            if isinstance(op, Copy) and op.path == "cp_async" and not op.fills_zeros
        )

    assert loaded(96) - loaded(128) == 64  # a wavefront for each key


def test_nothing_else_feels_them(monkeypatch):
    p = Attention(batch=2, heads_q=4, seq_q=512, head_dim=64, causal=True)
    params = {"block_m": 64, "block_n": 128, "stages": 3}
    run = simgpu.run("fa2", p, "h200", params=params)
    work = count(record(FlashAttention2(**params), p))
    monkeypatch.setattr(simgpu.program.role.RoleBuilder, "zero_fill", lambda *args, **more: None)
    without = simgpu.run("fa2", p, "h200", params=params)
    assert run.cycles == without.cycles
    assert run.launches[0].mix == without.launches[0].mix != Mix()
    before, after = metrics(without), metrics(run)
    differ = {name for name in before if before[name] != after[name]}
    assert differ == {"smem_wavefronts"}
    assert count(record(FlashAttention2(**params), p)).global_read_bytes == work.global_read_bytes


def test_short_causal_runs_on_an_h200_have_the_wavefronts_that_were_counted():
    runs = [
        m
        for m in committed()
        if m.set == "runs"
        and m.schedule == "fa2"
        and m.spills <= SPILLS
        and m.kernel is None
        and m.problem.seq_q == 512
        and m.problem.causal
        and m.params["stages"] > 1
    ]
    assert len(runs) > 10
    for m in runs[::3]:
        args = {"params": m.params, "resources": m.resources}
        found = metrics(simgpu.run(m.schedule, m.problem, m.gpu, **args))["smem_wavefronts"]
        assert found == pytest.approx(m.counters["smem_wavefronts"], rel=0.10)
