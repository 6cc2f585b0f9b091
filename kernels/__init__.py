"""Real attention kernels in Triton, one beside each schedule, behind one front door.

Importing this package needs neither torch nor Triton: both are looked for when a kernel is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from simgpu.errors import MissingExtraError, UnknownNameError

if TYPE_CHECKING:
    import torch

__all__ = ["IMPLEMENTATIONS", "attention"]

IMPLEMENTATIONS = ("fa2", "fa1", "fa3", "standard")


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    impl: str = "fa2",
    return_lse: bool = False,
    **params: Any,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Exact attention, differentiable through autograd.

    ``q`` is (batch, heads_q, seq_q, head_dim); ``k`` and ``v`` are (batch, heads_kv, seq_kv,
    head_dim), with ``heads_q`` a multiple of ``heads_kv`` (query head h reads head
    ``h // (heads_q // heads_kv)``). The causal mask is aligned bottom right: query row r sees keys
    up to ``r + seq_kv - seq_q``; a row that sees none gives 0 and a log-sum-exp of −inf.
    ``scale`` multiplies the scores and defaults to ``head_dim ** -0.5``. ``impl`` is one of
    `IMPLEMENTATIONS`; ``params`` are that kernel's own (``block_m``, ``block_n``, ``warps``,
    ``stages`` ...), with ``backward={...}`` for those of the backward pass.

    Returns the output in the dtype and shape of ``q``, and with ``return_lse`` also the natural
    log-sum-exp of the scaled scores, float32, (batch, heads_q, seq_q), which carries no gradient.

    Raises `MissingExtraError` without torch or Triton, `ProblemError` for shapes and dtypes that do
    not fit, `ScheduleError` for parameters that the kernel does not take, and `UnknownNameError`.
    """
    if impl not in IMPLEMENTATIONS:
        raise UnknownNameError("kernel", impl, IMPLEMENTATIONS)
    for name in ("torch", "triton"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise MissingExtraError(name, "kernels") from error
    autograd = importlib.import_module("simgpu.kernels.autograd")
    out, lse = autograd.apply(q, k, v, causal=causal, scale=scale, impl=impl, params=params)
    return (out, lse) if return_lse else out
