"""Attention in float64, the yardstick for every kernel: forward, log-sum-exp and gradients.

Written head by head, so that a long sequence needs one seq_q × seq_kv matrix and not all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Gradients in float64, in the shapes of q, k and v."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def probabilities(
    q: torch.Tensor, k: torch.Tensor, *, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax of the scaled scores of one head, and its natural log-sum-exp.

    ``q`` is (seq_q, d), ``k`` (seq_kv, d); the causal mask is aligned bottom right. A row that sees
    no key gets probabilities 0 and log-sum-exp −inf.
    """
    scores = q.double() @ k.double().T * scale
    if causal:
        rows = torch.arange(q.shape[0], device=q.device)[:, None] + k.shape[0] - q.shape[0]
        hidden = torch.arange(k.shape[0], device=q.device)[None, :] > rows
        scores.masked_fill_(hidden, float("-inf"))
    lse = torch.logsumexp(scores, dim=1)
    seen = torch.isfinite(lse)
    probs = torch.exp(scores - torch.where(seen, lse, 0.0)[:, None])
    return probs, lse


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float64 attention and log-sum-exp for (batch, heads, length, head_dim) inputs, with GQA."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    group = q.shape[1] // k.shape[1]
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float64, device=q.device)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            probs, lse[b, h] = probabilities(q[b, h], k[b, h // group], causal=causal, scale=scale)
            out[b, h] = probs @ v[b, h // group].double()
    return out, lse


def gradients(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Gradients:
    """Float64 gradients of ``(attention * dout).sum()``; K and V gather their whole group's.

    dS = P ∘ (dP − rowsum(O ∘ dO)), as in arXiv 2307.08691, section 2.3.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    group = q.shape[1] // k.shape[1]
    dq, dk, dv = (torch.zeros(x.shape, dtype=torch.float64, device=x.device) for x in (q, k, v))
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            kv = h // group
            probs, _ = probabilities(q[b, h], k[b, kv], causal=causal, scale=scale)
            do = dout[b, h].double()
            dp = do @ v[b, kv].double().T
            ds = probs * (dp - (probs * dp).sum(1, keepdim=True)) * scale
            dv[b, kv] += probs.T @ do
            dq[b, h] = ds @ k[b, kv].double()
            dk[b, kv] += ds.T @ q[b, h].double()
    return Gradients(q=dq, k=dk, v=dv)


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """‖got − want‖ / ‖want‖ of the worst head of (batch, heads, ...); NaN counts as infinite."""
    got, want = (
        got.detach().double().flatten(2).flatten(0, 1),
        want.detach().double().flatten(2).flatten(0, 1),
    )
    size = want.norm(dim=1)
    off = (got - want).norm(dim=1)
    worst = torch.where(size > 0, off / size, off).nan_to_num(nan=float("inf")).max()
    return float(worst)
