"""For how long CTAs march in step, and what follows from it."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.place import place, prepare

PARAMS = {"block_m": 128, "block_n": 64, "warps": 8, "stages": 2}


def placed(waves, *, causal=False, gpu="h200", **params):
    """Return FA2 on so many waves of CTAs that have an SM each, a head of 33 tiles at a time."""
    shape = {"seq_q": 33 * 128, "head_dim": 128, "causal": causal}
    problem = simgpu.Attention(batch=1, heads_q=4 * waves, **shape)
    one = {"registers": 255, "shared_bytes": 120_000}
    case = prepare("fa2", problem, gpu, {**PARAMS, **params}, one, None, "auto")
    return next(place(case))


def test_a_first_wave_is_in_step_and_waits_for_every_miss():
    served = placed(1).served
    assert served.in_step == pytest.approx(1.0)
    assert served.misses.late["K"] == pytest.approx(1.0)


def test_the_more_waves_the_fewer_are_in_step():
    shares = [placed(waves).served.in_step for waves in (1, 2, 5, 12)]
    assert shares == sorted(shares, reverse=True)
    assert placed(15).served.in_step == pytest.approx(0.5, abs=0.01)  # the profile's number


def test_each_wave_waits_for_the_keys_of_its_heads_if_it_is_in_step():
    served = placed(5).served
    assert served.misses.late["K"] == pytest.approx(served.in_step)
    assert served.misses.read["K"] < 0.1


def test_unequal_ctas_lose_their_step_sooner():
    assert placed(5, causal=True).served.in_step < placed(5).served.in_step


def test_waiting_together_takes_time():
    """One wave takes longer than each of many, as on the GPU."""
    one, many = (
        simgpu.run(
            "fa2",
            simgpu.Attention(batch=1, heads_q=4 * waves, seq_q=33 * 128, head_dim=128),
            "h200",
            params=PARAMS,
        )
        for waves in (1, 40)
    )
    assert many.cycles < 40 * one.cycles * 0.97
