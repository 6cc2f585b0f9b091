"""The backward pass against float64 gradients, in Triton's interpreter."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from simgpu.kernels import attention, reference  # noqa: E402

pytestmark = pytest.mark.kernels

# (batch, heads_q, heads_kv, seq_q, seq_kv, head_dim)
SHAPES = {
    "even": (1, 2, 2, 64, 64, 64),
    "gqa": (2, 4, 2, 32, 64, 32),
    "ragged": (1, 2, 1, 77, 100, 80),
    "more-queries": (1, 2, 1, 100, 50, 96),
    "wide": (1, 1, 1, 40, 40, 256),
}
TILES = {"block_m": 32, "block_n": 32, "row_block_m": 32, "row_block_n": 16}


def inputs(shape, dtype):
    """N(0, 1) leaves q, k, v, and dout."""
    batch, heads_q, heads_kv, seq_q, seq_kv, dim = shape
    make = torch.Generator().manual_seed(1)
    sizes = [(heads_q, seq_q), (heads_kv, seq_kv), (heads_kv, seq_kv), (heads_q, seq_q)]
    made = [torch.randn(batch, h, n, dim, generator=make).to(dtype) for h, n in sizes]
    return [x.requires_grad_() for x in made[:3]], made[3]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=["fp16", "fp32"])
@pytest.mark.parametrize("causal", [False, True], ids=["none", "causal"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("dq_by", ["rows", "atomics"])
def test_gradients_match_float64(dq_by, shape, causal, dtype):
    leaves, dout = inputs(shape, dtype)
    want = reference.gradients(*leaves, dout, causal=causal)
    out = attention(
        *leaves, causal=causal, block_m=32, block_n=32, backward={"dq_by": dq_by, **TILES}
    )
    out.backward(dout)
    for leaf, gradient in zip(leaves, (want.q, want.k, want.v), strict=True):
        error = reference.relative_error(leaf.grad, gradient)
        assert error <= (2e-2 if dtype == torch.float16 else 2e-5)


@pytest.mark.parametrize("impl", ["fa1", "standard"])
def test_every_implementation_is_differentiable(impl):
    leaves, dout = inputs((1, 2, 1, 48, 64, 64), torch.float32)
    want = reference.gradients(*leaves, dout, causal=True)
    attention(*leaves, causal=True, impl=impl, block_m=32, block_n=32, backward=TILES).backward(
        dout
    )
    assert reference.relative_error(leaves[0].grad, want.q) <= 2e-5


def test_reference_gradients_are_those_of_autograd():
    leaves, dout = inputs((1, 2, 1, 24, 40, 16), torch.float32)
    doubles = [x.detach().double().requires_grad_() for x in leaves]
    out = torch.nn.functional.scaled_dot_product_attention(*doubles, enable_gqa=True)
    out.backward(dout.double())
    want = reference.gradients(*leaves, dout)
    for leaf, gradient in zip(doubles, (want.q, want.k, want.v), strict=True):
        assert reference.relative_error(leaf.grad, gradient) <= 1e-12
