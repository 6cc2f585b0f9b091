"""Other people's attention kernels, measured in the same run: PyTorch's back ends and FA3."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from simgpu.errors import MeasureError

if TYPE_CHECKING:
    from collections.abc import Callable

    from simgpu.validation.measure_grid import Point

BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def build(point: Point, tensors: dict[str, Any]) -> tuple[Callable[[], dict[str, Any]], bool]:
    """A function that runs the peer, and whether it may be captured into a CUDA graph.

    Raises `MeasureError` for a problem that the peer does not take and a package that is missing.
    """
    problem = point.problem
    if point.params:
        raise MeasureError(f"{point.kernel} takes no parameters")
    if problem.mask == "causal" and problem.seq_q != problem.seq_kv:
        raise MeasureError(f"{point.kernel}: its causal mask is aligned top left")
    if point.kernel == "peer_fa3":
        return _fa3(point, tensors), True
    if problem.dtype == "fp8":
        raise MeasureError(f"{point.kernel} takes fp16 and bf16, not fp8")
    backend = BACKENDS[point.kernel.removeprefix("peer_").removesuffix("_backward")]
    q, k, v, dout = tensors.values()
    settings: dict[str, Any] = {
        "is_causal": problem.mask == "causal",
        "enable_gqa": problem.heads_q != problem.heads_kv,
    }
    if not point.kernel.endswith("_backward"):

        def forward() -> dict[str, Any]:
            with sdpa_kernel(backend), torch.no_grad():
                return {"out": F.scaled_dot_product_attention(q, k, v, **settings)}

        return forward, True
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(*leaves, **settings)

    def backward() -> dict[str, Any]:
        found = torch.autograd.grad(out, leaves, dout, retain_graph=True)
        return dict(zip(("dq", "dk", "dv"), found, strict=True))

    return backward, False


def _fa3(point: Point, tensors: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    if point.problem.dtype == "fp16":
        raise MeasureError("peer_fa3 takes bf16 and fp8: its wheel leaves fp16 out")
    try:
        fa3 = importlib.import_module("fa3_fwd_interface")
    except ImportError as error:
        raise MeasureError(f"peer_fa3: fa3_fwd_interface cannot be imported: {error}") from error
    q, k, v = (tensors[name].transpose(1, 2).contiguous() for name in ("q", "k", "v"))
    causal = point.problem.mask == "causal"

    def forward() -> dict[str, Any]:
        out = fa3.flash_attn_func(q, k, v, causal=causal)
        out = out[0] if isinstance(out, tuple) else out
        return {"out": out.transpose(1, 2)}

    return forward
