"""The kernels compiled and run on a GPU: set SIMGPU_TEST_GPU=1 and run this file alone."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from simgpu.kernels import attention, autograd, fa2_backward, reference  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.kernels]

LIMIT = {torch.float16: 2e-3, torch.bfloat16: 1e-2}
KERNELS = {
    "fa2": {"impl": "fa2"},
    "fa2-tma": {"impl": "fa2", "loads": "tma"},
    "fa1": {"impl": "fa1"},
    "standard": {"impl": "standard"},
}
# (batch, heads_q, heads_kv, seq_q, seq_kv)
SHAPES = {
    "even": (2, 4, 4, 512, 512),
    "gqa-ragged": (1, 8, 2, 500, 777),
    "more-queries": (1, 2, 2, 300, 130),
    "one-query": (2, 4, 1, 1, 1000),
}


def inputs(shape, dim, dtype, seed):
    """N(0, 1) tensors q, k, v and dout."""
    batch, heads_q, heads_kv, seq_q, seq_kv = shape
    make = torch.Generator("cuda").manual_seed(seed)
    sizes = [(heads_q, seq_q), (heads_kv, seq_kv), (heads_kv, seq_kv), (heads_q, seq_q)]
    return [
        torch.randn(batch, h, n, dim, generator=make, device="cuda").to(dtype) for h, n in sizes
    ]


@pytest.mark.parametrize("dtype", LIMIT, ids=["fp16", "bf16"])
@pytest.mark.parametrize("causal", [False, True], ids=["none", "causal"])
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("kernel", KERNELS)
def test_forward(kernel, shape, dim, causal, dtype):
    q, k, v, _ = inputs(shape, dim, dtype, seed=dim)
    want, want_lse = reference.attention(q, k, v, causal=causal)
    params = dict(KERNELS[kernel])
    forward = autograd.FORWARD[params.pop("impl")]
    out = torch.full_like(q, float("nan"))
    lse = torch.full(q.shape[:3], float("nan"), device="cuda")
    tile = {"block_m": 64, "block_n": 64, "warps": 4, "stages": 1 if kernel == "fa1" else 2}
    forward(q, k, v, out, lse, causal=causal, scale=dim**-0.5, **tile, **params)
    assert reference.relative_error(out, want) <= LIMIT[dtype]
    torch.testing.assert_close(lse.double(), want_lse, atol=2e-2, rtol=2e-2)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0),
    reason="fa3 is written for Hopper",
)
@pytest.mark.parametrize("causal", [False, True], ids=["none", "causal"])
@pytest.mark.parametrize("dim", [64, 80, 128, 256])
@pytest.mark.parametrize("shape", [*SHAPES.values(), (4, 16, 4, 500, 640)], ids=[*SHAPES, "tiles"])
@pytest.mark.parametrize(
    ("params", "dtype"),
    [
        ({}, torch.bfloat16),
        ({"persistent": False}, torch.float16),
        ({"pingpong": False, "order": "first_to_last"}, torch.float16),
    ],
    ids=["default", "one-tile", "no-turns"],
)
def test_fa3(params, shape, dim, causal, dtype):
    q, k, v, _ = inputs(shape, dim, dtype, seed=dim)
    want, want_lse = reference.attention(q, k, v, causal=causal)
    out = torch.full_like(q, float("nan"))
    lse = torch.full(q.shape[:3], float("nan"), device="cuda")
    forward = autograd.FORWARD["fa3"]
    forward(q, k, v, out, lse, causal=causal, scale=dim**-0.5, **params)
    assert reference.relative_error(out, want) <= LIMIT[dtype]
    torch.testing.assert_close(lse.double(), want_lse, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", LIMIT, ids=["fp16", "bf16"])
@pytest.mark.parametrize("causal", [False, True], ids=["none", "causal"])
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("shape", [SHAPES["even"], SHAPES["gqa-ragged"], SHAPES["more-queries"]])
@pytest.mark.parametrize("dq_by", ["rows", "atomics"])
def test_backward(dq_by, shape, dim, causal, dtype):
    q, k, v, dout = inputs(shape, dim, dtype, seed=dim + 1)
    want = reference.gradients(q, k, v, dout, causal=causal)
    tile = {"block_m": 64, "block_n": 64, "warps": 4 if dim <= 128 else 8}
    out, lse = attention(q, k, v, causal=causal, return_lse=True, stages=1, **tile)
    poisoned = [torch.full_like(x, float("nan")) for x in (q, k, v)]
    fa2_backward.backward(
        q, k, v, out, lse, dout, *poisoned, causal=causal, scale=dim**-0.5, dq_by=dq_by, stages=1,
        row_block_m=64, row_block_n=64, row_stages=1, **tile,
    )  # fmt: skip
    for got, gradient in zip(poisoned, (want.q, want.k, want.v), strict=True):
        assert reference.relative_error(got, gradient) <= 2e-2


def test_autograd_with_the_default_tiles():
    q, k, v, dout = inputs((1, 4, 2, 1000, 1000), 128, torch.bfloat16, seed=5)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    want = reference.gradients(*(x.detach() for x in leaves), dout, causal=True)
    attention(*leaves, causal=True).backward(dout)
    for leaf, gradient in zip(leaves, (want.q, want.k, want.v), strict=True):
        assert reference.relative_error(leaf.grad, gradient) <= 2e-2
