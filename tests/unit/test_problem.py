"""The problem: mask arithmetic against a definition by brute force, and its errors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.errors import ProblemError
from simgpu.index import Index
from simgpu.problem import Attention
from simgpu.tensor import DTYPE_BYTES, accumulator, dtype_bytes, numpy_dtype
from tests.laws.cases import problems

blocks = st.integers(1, 70)


def sees(p, row, key):
    """The definition: causal masks end at the bottom right corner, windows reach w keys back."""
    distance = row + p.seq_kv - p.seq_q - key
    if not p.causal:
        return True
    return distance >= 0 and (p.window is None or distance < p.window)


def whole_mask(p):
    return np.array([[sees(p, r, c) for c in range(p.seq_kv)] for r in range(p.seq_q)])


@given(p=problems(), row=st.integers(0, 160), col=st.integers(0, 160), rows=blocks, cols=blocks)
def test_visible_is_the_definition_and_false_outside(p, row, col, rows, cols):
    padded = np.zeros((400, 400), bool)
    padded[: p.seq_q, : p.seq_kv] = whole_mask(p)
    assert np.array_equal(
        p.visible(row, rows, col, cols), padded[row : row + rows, col : col + cols]
    )


def tiles_of(p, block_m, block_n):
    """What the mask does in each score tile: (seen anything, seen everything that is stored)."""
    mask = whole_mask(p)
    for m in range(p.q_tiles(block_m)):
        for n in range(p.kv_tiles(block_n)):
            tile = mask[m * block_m : (m + 1) * block_m, n * block_n : (n + 1) * block_n]
            whole = (n + 1) * block_n <= p.seq_kv
            yield m, n, tile.any(), tile.all() and whole


@given(p=problems(), block_m=blocks, block_n=blocks)
def test_kv_ranges_are_the_visible_tiles_masked_where_partial(p, block_m, block_n):
    found = {
        (m, n): ran.masked
        for m in range(p.q_tiles(block_m))
        for ran in p.kv_ranges(m, block_m, block_n)
        for n in range(ran.start, ran.stop)
    }
    assert found == {(m, n): not full for m, n, seen, full in tiles_of(p, block_m, block_n) if seen}


@given(p=problems(), block_m=blocks, block_n=blocks)
def test_kv_ranges_are_in_order_and_as_few_as_can_be(p, block_m, block_n):
    for m in range(p.q_tiles(block_m)):
        ranges = p.kv_ranges(m, block_m, block_n)
        assert len(ranges) <= 3
        assert all(len(ran) > 0 for ran in ranges)
        for one, after in pairwise(ranges):
            assert one.stop <= after.start
            assert (one.stop, one.masked) != (after.start, after.masked)


@given(p=problems(), block_m=blocks, block_n=blocks)
def test_q_ranges_are_the_transpose(p, block_m, block_n):
    by_row = {
        (m, n, ran.masked)
        for m in range(p.q_tiles(block_m))
        for ran in p.kv_ranges(m, block_m, block_n)
        for n in range(ran.start, ran.stop)
    }
    by_column = {
        (m, n, ran.masked)
        for n in range(p.kv_tiles(block_n))
        for ran in p.q_ranges(n, block_n, block_m)
        for m in range(ran.start, ran.stop)
    }
    assert by_row == by_column


def test_without_a_mask_the_tile_is_not_looked_at():
    class Untouchable:
        def __index__(self):
            raise AssertionError

    p = Attention(batch=1, heads_q=1, seq_q=100, seq_kv=70, head_dim=64)
    assert [(r.start, r.stop, r.masked) for r in p.kv_ranges(Untouchable(), 64, 32)] == [
        (0, 2, False),
        (2, 3, True),
    ]


def test_tile_masks_stay_symbolic():
    m = Index(terms=(("m", 1),))
    p = Attention(batch=1, heads_q=1, seq_q=100, head_dim=64, causal=True)
    mask = p.tile_mask(m, 64, 2, 32)
    assert (mask.row, mask.rows, mask.col, mask.cols) == (m * 64, 64, Index(64), 32)
    assert mask.bind({"m": Index(3)}).row == Index(192)


@given(p=problems())
def test_useful_flops_count_the_visible_scores_of_a_window_and_half_of_a_causal_square(p):
    full = 4 * p.seq_q * p.seq_kv * p.head_dim * p.heads_q * p.batch
    expected = {"none": full, "causal": full // 2}
    if p.mask == "window":
        expected["window"] = 4 * int(whole_mask(p).sum()) * p.head_dim * p.heads_q * p.batch
    assert p.useful_flops == expected[p.mask]


def test_defaults_are_self_attention():
    p = Attention(batch=2, heads_q=8, seq_q=100, head_dim=64)
    assert (p.heads_kv, p.seq_kv, p.group, p.mask, p.scale) == (8, 100, 1, "none", 0.125)


def test_a_window_is_causal():
    p = Attention(batch=1, heads_q=1, seq_q=8, head_dim=16, window=3)
    assert (p.mask, p.causal) == ("window", True)


def test_tensors_have_the_shapes_and_dtypes_of_the_problem():
    p = Attention(batch=1, heads_q=4, heads_kv=2, seq_q=5, seq_kv=7, head_dim=24, dtype="bf16")
    shapes = {t.name: (t.rows, t.cols, t.dtype, t.heads) for t in (p.q, p.k, p.v, p.o, p.lse)}
    assert shapes == {
        "Q": (5, 24, "bf16", "q"),
        "K": (7, 24, "bf16", "kv"),
        "V": (7, 24, "bf16", "kv"),
        "O": (5, 24, "bf16", "q"),
        "LSE": (5, 1, "fp32", "q"),
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads_kv": 3}, "heads_q 8 is not divisible by heads_kv 3"),
        ({"heads_kv": 16}, "heads_q 8 is not divisible by heads_kv 16"),
        ({"heads_kv": 0}, "heads_kv is 0: it must be a whole number of at least 1"),
        ({"seq_q": 0}, "seq_q is 0: it must be a whole number of at least 1"),
        ({"seq_kv": 0}, "seq_kv is 0: it must be a whole number of at least 1"),
        ({"batch": -1}, "batch is -1: it must be a whole number of at least 1"),
        ({"head_dim": 64.0}, "head_dim is 64.0: it must be a whole number of at least 1"),
        ({"batch": True}, "batch is True: it must be a whole number of at least 1"),
        ({"window": 0}, "window is 0: it must be a whole number of at least 1"),
        ({"window": -4}, "window is -4: it must be a whole number of at least 1"),
        ({"dtype": "fp61"}, "dtype 'fp61' is unknown; did you mean 'fp64' or 'fp16'?"),
        ({"dtype": "int4"}, "dtype 'int4' is unknown"),
    ],
)
def test_impossible_problems_are_refused(changes, message):
    with pytest.raises(ProblemError) as error:
        Attention(**{"batch": 1, "heads_q": 8, "seq_q": 64, "head_dim": 64} | changes)
    assert message in str(error.value)


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_dtypes_have_their_sizes_and_accumulators(dtype):
    assert numpy_dtype(dtype).itemsize == dtype_bytes(dtype)
    assert accumulator(dtype) == ("fp64" if dtype == "fp64" else "fp32")


@given(
    rows=st.integers(1, 100),
    cols=st.integers(1, 100),
    block=st.integers(1, 40),
    width=st.integers(1, 40),
)
def test_tiles_cover_a_tensor_once(rows, cols, block, width):
    p = Attention(batch=1, heads_q=1, seq_q=rows, head_dim=16)
    tensor = p.scratch("S", rows, cols, "fp32")
    covered = np.zeros((rows, cols), int)
    for i in range(-(-rows // block)):
        for j in range(-(-cols // width)):
            tile = tensor.tile(i, block, j, width)
            valid_rows, valid_cols = tile.valid({})
            row, col = tile.row.at({}), tile.col.at({})
            covered[row : row + valid_rows, col : col + valid_cols] += 1
    assert (covered == 1).all()


def test_a_tile_past_the_end_has_no_valid_elements():
    p = Attention(batch=1, heads_q=1, seq_q=10, head_dim=16)
    assert p.q.tile(3, 8, cols=32).valid({}) == (0, 16)
