"""The forward kernels as one differentiable torch function; all share the FA2 backward pass."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from simgpu.errors import ProblemError, ScheduleError, did_you_mean
from simgpu.kernels import fa1, fa2, fa2_backward, fa3, standard
from simgpu.kernels.common import shape_of

FORWARD: dict[str, Any] = {
    "fa2": fa2.forward,
    "fa1": fa1.forward,
    "fa3": fa3.forward,
    "standard": standard.forward,
}
_FIXED = {"q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv", "causal", "scale"}


# Any, so that type checking says the same with torch installed and without.
_Function: Any = torch.autograd.Function


class _Attention(_Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, q, k, v, causal, scale, impl, params, backward):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        FORWARD[impl](q, k, v, out, lse, causal=causal, scale=scale, **params)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal, ctx.scale, ctx.params = causal, scale, backward
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout, _dlse):
        q, k, v, out, lse = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        fa2_backward.backward(
            q, k, v, out, lse, dout.contiguous(), dq, dk, dv,
            causal=ctx.causal, scale=ctx.scale, **ctx.params,
        )  # fmt: skip
        return dq, dk, dv, None, None, None, None, None


def apply(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    scale: float | None,
    impl: str,
    params: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Check the inputs and run ``impl``; see `simgpu.kernels.attention`."""
    shape = shape_of(q, k, v)
    scale = shape.head_dim**-0.5 if scale is None else scale
    if scale <= 0:
        raise ProblemError(f"scale {scale}: the online softmax needs a positive one")
    params = dict(params)
    backward = params.pop("backward", {})
    check_params(impl, FORWARD[impl], params)
    check_params("fa2_backward", fa2_backward.backward, backward)
    out, lse = _Attention.apply(q, k, v, causal, scale, impl, params, backward)
    return out, lse


def check_params(name: str, function: Any, params: dict[str, Any]) -> None:
    """`ScheduleError` for a parameter that the kernel's function does not take."""
    known = sorted(set(inspect.signature(function).parameters) - _FIXED)
    for param in params:
        if param not in known:
            raise ScheduleError(
                f"kernel {name!r} takes no parameter {param!r}{did_you_mean(param, known)}"
            )
