"""Law 1: whatever the interleaving, executing a schedule gives attention."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from simgpu.problem import Attention
from simgpu.program.record import record
from simgpu.read.numeric import run_numeric
from simgpu.read.reference import random_inputs, reference, standard_rounded
from simgpu.tensor import numpy_dtype
from tests.laws.cases import ORDERS, SMALL, problems, schedules, verify_all

orders, seeds = st.sampled_from(ORDERS), st.integers(0, 1000)


def head_errors(out, ref):
    """‖out − ref‖ / ‖ref‖ of each head; a head that sees nothing must be 0."""
    difference = np.linalg.norm(out.astype(np.float64) - ref, axis=(-1, -2))
    norm = np.linalg.norm(ref, axis=(-1, -2))
    return difference / np.where(norm > 0, norm, 1)


def lse_error(out, ref):
    """The greatest |out − ref|, where −inf must meet −inf."""
    assert np.array_equal(np.isneginf(out), np.isneginf(ref))
    seen = np.isfinite(ref)
    return np.abs(out[seen].astype(np.float64) - ref[seen]).max(initial=0)


def execute(schedule, problem, order, seed):
    recording = record(schedule, problem)
    verify_all(recording)
    inputs = random_inputs(problem, seed)
    return inputs, run_numeric(recording, inputs, order=order, seed=seed)


def scores_dtype(schedule, problem):
    """The dtype in which a schedule stores its scores; None if it does not."""
    return problem.dtype if getattr(schedule, "scores", None) == "problem" else None


@pytest.mark.parametrize("name", schedules)
@given(data=st.data(), problem=problems(), order=orders, seed=seeds)
def test_exact_in_fp64(name, data, problem, order, seed):
    inputs, out = execute(data.draw(schedules[name]), problem, order, seed)
    ref = reference(problem, inputs)
    assert head_errors(out["O"], ref["O"]).max() <= 1e-13
    assert lse_error(out["LSE"], ref["LSE"]) <= 1e-12


@pytest.mark.parametrize("name", schedules)
@given(data=st.data(), problem=problems(("fp16", "bf16"), 16), order=orders, seed=seeds)
def test_rounds_as_standard_attention_does(name, data, problem, order, seed):
    # Fewer than 16 rows leave the ratio of two roundings to chance. Where every row sees one key or
    # none the yardstick is exact, and so must the schedule be.
    schedule = data.draw(schedules[name])
    inputs, out = execute(schedule, problem, order, seed)
    ref = reference(problem, inputs)
    yardstick = standard_rounded(
        problem, inputs, scores=scores_dtype(schedule, problem), divide_first=name == "standard"
    )
    error, allowed = head_errors(out["O"], ref["O"]), head_errors(yardstick["O"], ref["O"])
    note(f"errors {error}, yardstick {allowed}")
    assert (error <= 2 * allowed).all()
    # An fp32 sum in another order may tip a score over a rounding boundary, if scores are rounded.
    stored = scores_dtype(schedule, problem)
    tolerance = float(ml_dtypes.finfo(numpy_dtype(stored)).eps) if stored else 1e-5
    assert lse_error(out["LSE"], yardstick["LSE"]) <= tolerance


@pytest.mark.parametrize("name", schedules)
@given(data=st.data(), problem=problems(("fp32",)), order=orders, seed=seeds)
def test_fp32_accumulates_in_fp32(name, data, problem, order, seed):
    inputs, out = execute(data.draw(schedules[name]), problem, order, seed)
    ref = reference(problem, inputs)
    assert head_errors(out["O"], ref["O"]).max() <= 1e-6
    assert lse_error(out["LSE"], ref["LSE"]) <= 1e-5


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16"])
@pytest.mark.parametrize("schedule", SMALL.values(), ids=SMALL)
def test_rows_without_visible_keys_are_zero_and_minus_infinity(schedule, dtype):
    p = Attention(batch=1, heads_q=2, seq_q=90, seq_kv=20, head_dim=16, dtype=dtype, causal=True)
    _, out = execute(schedule, p, "random", seed=0)
    assert (out["O"][:, :, :70] == 0).all()
    assert np.isneginf(out["LSE"][:, :, :70]).all()
    assert np.isfinite(out["LSE"][:, :, 70:]).all()
    assert not np.isnan(out["O"].astype(np.float64)).any()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("schedule", SMALL.values(), ids=SMALL)
def test_the_order_of_execution_changes_no_bit(schedule, order):
    p = Attention(batch=1, heads_q=1, seq_q=90, seq_kv=100, head_dim=16, dtype="fp16", causal=True)
    _, expected = execute(schedule, p, "program", seed=0)
    recording = record(schedule, p)
    out = run_numeric(recording, random_inputs(p, 0), order=order, seed=5)
    assert {n: a.tobytes() for n, a in out.items()} == {n: a.tobytes() for n, a in expected.items()}
