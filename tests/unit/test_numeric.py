"""Execution by NumPy: each operation does what it says, and mistakes become NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from simgpu.errors import VerifyError
from simgpu.problem import Attention
from simgpu.program import fns
from simgpu.program.program import Grid, LaunchSpec
from simgpu.program.record import record, schedule
from simgpu.read.numeric import run_numeric
from simgpu.read.reference import random_inputs, reference, relative_error, standard_rounded

if TYPE_CHECKING:
    from collections.abc import Callable

P = Attention(batch=2, heads_q=4, heads_kv=2, seq_q=20, seq_kv=24, head_dim=16, dtype="fp64")
INPUTS = random_inputs(P, seed=3)


@schedule("given")
@dataclass(frozen=True, kw_only=True)
class Given:
    """One role that does what it is given, in each of ``tiles`` CTAs."""

    body: Callable[..., Any]
    tiles: int = 1

    def launches(self, p):
        def build(p, cta):
            with cta.role("all", warps=4) as w:
                self.body(cta, w)

        return [LaunchSpec("given", Grid(m=self.tiles, head=p.heads_q, batch=p.batch), build)]


def run(body, tiles=1, **options):
    return run_numeric(record(Given(body=body, tiles=tiles), P), INPUTS, **options)


def test_tiles_are_cut_at_the_ragged_end_and_read_zero_beyond():
    def body(cta, w):
        x = cta.regs("x", (16, 32), "fp64")
        w.copy(P.q.tile(cta.m, 16, cols=32), x)
        w.copy(x, P.scratch("COPY", 32, 32, "fp64").tile(cta.m, 16))

    copied = run(body, tiles=2)["COPY"]
    assert np.array_equal(copied[:, :, :20, :16], INPUTS["Q"])
    assert (copied[:, :, 20:] == 0).all()
    assert (copied[..., 16:] == 0).all()


def test_query_heads_read_the_keys_of_their_group():
    def body(cta, w):
        x = cta.regs("x", (24, 16), "fp64")
        w.copy(P.k.tile(0, 24), x)
        w.copy(x, P.scratch("COPY", 24, 16, "fp64").tile(0, 24))

    assert np.array_equal(run(body)["COPY"], np.repeat(INPUTS["K"], 2, axis=1))


def test_adding_to_a_shared_head_sums_its_group():
    total = P.scratch("SUM", 24, 16, "fp64", heads="kv")

    def body(cta, w):
        x = cta.regs("x", (24, 16), "fp64")
        w.apply(fns.zero, x)
        w.copy(x, total.tile(0, 24))
        w.copy(P.k.tile(0, 24), x)
        w.copy(x, total.tile(0, 24), reduce="add")

    assert np.allclose(run(body)["SUM"], 2 * INPUTS["K"], rtol=0, atol=0)


def test_parts_of_a_product_sum_to_the_whole():
    def body(cta, w):
        q, k = cta.smem("q", (20, 16), "fp64"), cta.smem("k", (24, 16), "fp64")
        s, v = cta.regs("s", (20, 24), "fp64"), cta.smem("v", (24, 16), "fp64")
        parts, whole = cta.regs("parts", (60, 16), "fp64"), cta.regs("whole", (20, 16), "fp64")
        for tensor, tile in ((P.q, q), (P.k, k), (P.v, v)):
            w.copy(tensor.tile(0, tile.shape[0]), tile)
        w.mma(s, q, k.T, accumulate=False)
        w.mma(parts, s, v, accumulate=False, parts=3)
        w.mma(whole, s, v, accumulate=False)
        w.wait_mma()
        w.copy(parts, P.scratch("PARTS", 60, 16, "fp64").tile(0, 60))
        w.copy(whole, P.scratch("WHOLE", 20, 16, "fp64").tile(0, 20))

    out = run(body)
    parts = out["PARTS"].reshape(2, 4, 3, 20, 16)
    assert np.allclose(parts.sum(axis=2), out["WHOLE"], rtol=0, atol=1e-13)
    assert not np.allclose(parts[:, :, 0], out["WHOLE"])


def test_storage_starts_as_nan():
    def body(cta, w):
        w.copy(cta.regs("x", (20, 16), "fp64"), P.o.tile(0, 20))

    assert np.isnan(run(body)["O"]).all()


def test_what_no_cta_writes_stays_nan():
    def body(cta, w):
        x = cta.regs("x", (8, 16), "fp64")
        w.copy(P.q.tile(0, 8), x)
        w.copy(x, P.o.tile(1, 8))

    out = run(body)["O"]
    assert np.isnan(out[:, :, :8]).all()
    assert np.isnan(out[:, :, 16:]).all()
    assert np.array_equal(out[:, :, 8:16], INPUTS["Q"][:, :, :8])


def test_a_released_slot_is_overwritten():
    def body(cta, w):
        k, x = cta.ring("k", (20, 16), "fp64", stages=2), cta.regs("x", (20, 16), "fp64")
        w.load(P.q.tile(0, 20), k, path="tma")
        slot = w.take(k)
        w.release(k)
        w.copy(slot, x)
        w.copy(x, P.o.tile(0, 20))

    assert np.isnan(run(body)["O"]).all()


def test_a_slot_is_kept_until_its_last_consumer_releases_it():
    def body(cta, w):
        k = cta.ring("k", (20, 16), "fp64", stages=1, consumers=2)
        w.load(P.q.tile(0, 20), k, path="tma")
        slot = w.take(k)
        w.release(k)
        w.copy(slot, P.o.tile(0, 20))

    assert np.array_equal(run(body)["O"], INPUTS["Q"])


def test_a_missing_wait_is_a_wrong_number_in_some_order():
    def body(cta, w):
        q, full = cta.smem("q", (20, 16), "fp64"), cta.mbarrier("full")
        w.copy(P.q.tile(0, 20), q, path="tma", signal=full)
        w.copy(q, P.o.tile(0, 20))

    assert np.array_equal(run(body)["O"], INPUTS["Q"])
    late = [run(body, order="random", seed=seed)["O"] for seed in range(8)]
    assert any(np.isnan(o).all() for o in late)


def test_a_deadlock_stops_execution_with_its_name():
    with pytest.raises(VerifyError, match="deadlock: role 'all' waits for phase 0 of barrier b"):
        run(lambda cta, w: w.wait(cta.barrier("b")))


def test_inputs_are_not_changed():
    before = {name: array.copy() for name, array in INPUTS.items()}

    def body(cta, w):
        x = cta.regs("x", (20, 16), "fp64")
        w.copy(P.k.tile(0, 20), x)
        w.copy(x, P.q.tile(0, 20))

    assert set(run(body)) == set()
    assert all(np.array_equal(before[name], INPUTS[name]) for name in before)


# -- the reference and its yardsticks


@pytest.mark.parametrize("window", [None, 5])
def test_the_reference_is_softmax_by_definition(window):
    p = Attention(
        batch=1, heads_q=2, heads_kv=1, seq_q=9, seq_kv=7, head_dim=4, dtype="fp64", window=window
    )
    x = random_inputs(p, seed=1)
    out = reference(p, x)
    for head in range(2):
        for row in range(9):
            first, last = p.visible_keys(row)
            keys, values = (x[name][0, 0, first:last] for name in ("K", "V"))
            weights = np.exp(keys @ x["Q"][0, head, row] / 2)
            if first == last:
                assert (out["O"][0, head, row] == 0).all()
                assert out["LSE"][0, head, row, 0] == -np.inf
            else:
                expected = weights @ values / weights.sum()
                assert np.allclose(out["O"][0, head, row], expected, rtol=1e-13, atol=1e-14)
                assert np.isclose(out["LSE"][0, head, row, 0], np.log(weights.sum()), rtol=1e-13)


def test_yardsticks_round_where_they_say():
    p = Attention(batch=1, heads_q=1, seq_q=64, head_dim=32, dtype="bf16")
    x = random_inputs(p)
    ref = reference(p, x)["O"]
    errors = [
        relative_error(standard_rounded(p, x, **options)["O"], ref)
        for options in ({}, {"divide_first": True}, {"divide_first": True, "scores": "bf16"})
    ]
    assert 0 < errors[0] < errors[1] < errors[2] < 0.02


def test_an_error_with_nan_is_infinite():
    assert relative_error(np.full((1, 1, 2, 2), np.nan), np.ones((1, 1, 2, 2))) == np.inf
