"""Every forward kernel against the float64 reference, in Triton's interpreter."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from simgpu.kernels import attention, reference  # noqa: E402

pytestmark = pytest.mark.kernels

LIMIT = {torch.float16: 2e-3, torch.float32: 2e-6}
KERNELS = {
    "fa2": {"impl": "fa2"},
    "fa2-tma": {"impl": "fa2", "loads": "tma"},
    "fa1": {"impl": "fa1"},
    "standard": {"impl": "standard"},
}
# (batch, heads_q, heads_kv, seq_q, seq_kv, head_dim)
SHAPES = {
    "even": (1, 2, 2, 64, 128, 64),
    "batch": (2, 2, 1, 64, 64, 16),
    "gqa": (1, 4, 2, 32, 64, 64),
    "ragged": (1, 1, 1, 77, 100, 80),
    "more-queries": (1, 2, 1, 100, 50, 96),
    "one-query": (1, 2, 1, 1, 130, 128),
    "one-key": (1, 1, 1, 40, 1, 64),
    "wide": (1, 1, 1, 33, 70, 256),
}


def inputs(shape, dtype, seed=0):
    """N(0, 1) tensors q, k, v, and dout."""
    batch, heads_q, heads_kv, seq_q, seq_kv, dim = shape
    make = torch.Generator().manual_seed(seed)
    sizes = [(heads_q, seq_q), (heads_kv, seq_kv), (heads_kv, seq_kv), (heads_q, seq_q)]
    return [torch.randn(batch, h, n, dim, generator=make).to(dtype) for h, n in sizes]


@pytest.mark.parametrize("causal", [False, True], ids=["none", "causal"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", LIMIT, ids=["fp16", "fp32"])
def test_forward_matches_float64(kernel, shape, causal, dtype):
    if dtype == torch.float32 and kernel == "fa2-tma" and shape[3] == 1:
        pytest.skip("covered by fp16")
    q, k, v, _ = inputs(shape, dtype)
    want, want_lse = reference.attention(q, k, v, causal=causal)
    got, lse = attention(
        q, k, v, causal=causal, block_m=32, block_n=32, return_lse=True, **KERNELS[kernel]
    )
    assert got.dtype == dtype
    assert reference.relative_error(got, want) <= LIMIT[dtype]
    loose = 2e-3 if kernel == "standard" else 1e-5
    torch.testing.assert_close(lse.double(), want_lse, atol=loose, rtol=loose)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("block_m", "block_n"), [(16, 64), (64, 16), (128, 128)])
def test_block_sizes_do_not_change_the_answer(kernel, block_m, block_n):
    q, k, v, _ = inputs((1, 2, 1, 100, 150, 64), torch.float16)
    want, _ = reference.attention(q, k, v, causal=True)
    got = attention(q, k, v, causal=True, block_m=block_m, block_n=block_n, **KERNELS[kernel])
    assert reference.relative_error(got, want) <= 2e-3


@pytest.mark.parametrize("kernel", KERNELS)
def test_scale_and_large_scores(kernel):
    q, k, v, _ = inputs((1, 1, 1, 48, 80, 64), torch.float32, seed=3)
    want, want_lse = reference.attention(q * 20, k, v, scale=0.3)
    got, lse = attention(
        q * 20, k, v, scale=0.3, block_m=32, block_n=32, return_lse=True, **KERNELS[kernel]
    )
    assert reference.relative_error(got, want) <= 1e-5
    torch.testing.assert_close(lse.double(), want_lse, atol=1e-3, rtol=1e-5)


def test_non_contiguous_inputs_give_the_same():
    q, k, v, _ = inputs((1, 2, 2, 64, 64, 64), torch.float16)
    strided = q.transpose(1, 2).contiguous().transpose(1, 2)
    params = {"block_m": 32, "block_n": 32}
    assert torch.equal(attention(strided, k, v, **params), attention(q, k, v, **params))
