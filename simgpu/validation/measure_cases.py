"""One run made ready: inputs, a function that launches it, and a check against float64.

Needs torch and a GPU; only the measuring child process imports it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from simgpu.errors import MeasureError
from simgpu.kernels import fa1, fa2, fa2_backward, fa3, reference, standard
from simgpu.kernels.autograd import check_params
from simgpu.validation import measure_peers
from simgpu.validation.records import Error, Launch

if TYPE_CHECKING:
    from collections.abc import Callable

    from simgpu.validation.measure_grid import Point
    from simgpu.validation.records import Problem

Tensors = dict[str, Any]

INPUTS = "N(0,1) by torch.randn, seed 0"
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
LIMITS = {"fp16": 2e-3, "bf16": 1e-2, "fp8": 1e-1}
GRADIENT_LIMIT = 2e-2
FORWARD: dict[str, Any] = {
    "fa2": fa2.forward,
    "fa1": fa1.forward,
    "fa3": fa3.forward,
    "standard": standard.forward,
}


@dataclass(slots=True)
class Case:
    """A run that can be launched again and again into the same outputs.

    ``launch`` returns its results by name and the compiled kernels where they are ours; ``owned``
    are the outputs to poison before a check; ``graph`` says whether it may go into a CUDA graph.
    """

    launch: Callable[[], tuple[Tensors, tuple[Any, ...]]]
    owned: list[Any] = field(default_factory=list)
    graph: bool = True


@dataclass(slots=True)
class Bench:
    """Inputs and float64 results of the problem in hand, made once for all runs on it."""

    problem: Problem | None = None
    inputs: Tensors = field(default_factory=dict)
    wanted: dict[str, list[Tensors]] = field(default_factory=dict)

    def prepare(self, problem: Problem) -> Tensors:
        """q, k, v and dout of a problem; those of the problem before are dropped."""
        if problem == self.problem:
            return self.inputs
        self.problem, self.inputs, self.wanted = problem, {}, {}
        torch.cuda.empty_cache()
        make = torch.Generator("cuda").manual_seed(0)
        sizes = {"q": "q", "k": "kv", "v": "kv", "dout": "q"}
        for name, side in sizes.items():
            heads = problem.heads_q if side == "q" else problem.heads_kv
            length = problem.seq_q if side == "q" else problem.seq_kv
            shape = (problem.batch, heads, length, problem.head_dim)
            x = torch.randn(shape, generator=make, device="cuda", dtype=torch.float32)
            self.inputs[name] = x.to(DTYPES[problem.dtype])
        return self.inputs

    def corners(self) -> list[tuple[int, int]]:
        """The (batch, K/V head) pairs that are checked: the first and the last."""
        p = self.problem
        assert p is not None
        return list(dict.fromkeys([(0, 0), (p.batch - 1, p.heads_kv - 1)]))

    def want(self, kind: str) -> list[Tensors]:
        """Float64 results of each corner: ``out`` or the three gradients."""
        if kind not in self.wanted:
            self.wanted[kind] = [self._reference(kind, *corner) for corner in self.corners()]
        return self.wanted[kind]

    def _reference(self, kind: str, batch: int, head: int) -> Tensors:
        assert self.problem is not None
        causal = self.problem.mask == "causal"
        q, k, v, dout = (self.corner(x, batch, head) for x in self.inputs.values())
        if kind == "out":
            return {"out": reference.attention(q, k, v, causal=causal)[0]}
        found = reference.gradients(q, k, v, dout, causal=causal)
        return {"dq": found.q, "dk": found.k, "dv": found.v}

    def corner(self, x: Any, batch: int, head: int) -> Any:
        """The heads of a tensor that belong to one K/V head, as a batch of one."""
        assert self.problem is not None
        group = x.shape[1] // self.problem.heads_kv
        return x[batch : batch + 1, head * group : (head + 1) * group]


def build(point: Point, bench: Bench) -> Case:
    """Make a run ready; raises what the kernel or peer raises for inputs it does not take."""
    tensors = bench.prepare(point.problem)
    if point.kernel.startswith("peer_"):
        launch, graph = measure_peers.build(point, tensors)
        return Case(launch=lambda: (launch(), ()), graph=graph)
    if point.problem.dtype == "fp8":
        raise MeasureError(f"{point.kernel} takes fp16 and bf16, not fp8")
    causal, scale = point.problem.mask == "causal", point.problem.head_dim**-0.5
    q, k, v, dout = tensors.values()
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3], device="cuda", dtype=torch.float32)
    params: dict[str, Any] = dict(point.params)
    if point.kernel != "fa2_backward":
        forward = FORWARD[point.kernel]
        check_params(point.kernel, forward, params)

        def run_forward() -> tuple[Tensors, tuple[Any, ...]]:
            kernels = forward(q, k, v, out, lse, causal=causal, scale=scale, **params)
            return {"out": out}, kernels

        return Case(launch=run_forward, owned=[out, lse])
    check_params(point.kernel, fa2_backward.backward, params)
    fa2.forward(q, k, v, out, lse, causal=causal, scale=scale)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)

    def run_backward() -> tuple[Tensors, tuple[Any, ...]]:
        kernels = fa2_backward.backward(
            q, k, v, out, lse, dout, dq, dk, dv, causal=causal, scale=scale, **params
        )
        return {"dq": dq, "dk": dk, "dv": dv}, kernels

    return Case(launch=run_backward, owned=[dq, dk, dv])


def check(point: Point, case: Case, bench: Bench) -> tuple[Error, tuple[Any, ...]]:
    """Launch once into poisoned outputs and compare; also the compiled kernels of that launch."""
    for x in case.owned:
        x.fill_(float("nan"))
    results, kernels = case.launch()
    torch.cuda.synchronize()
    backward = point.kernel.endswith("backward")
    wanted = bench.want("grad" if backward else "out")
    worst = 0.0
    for (batch, head), want in zip(bench.corners(), wanted, strict=True):
        for name, value in want.items():
            got = bench.corner(results[name], batch, head)
            worst = max(worst, reference.relative_error(got, value))
    if any(bool(torch.isnan(x).any()) for x in (*case.owned, *results.values())):
        worst = float("inf")
    limit = GRADIENT_LIMIT if backward else LIMITS[point.problem.dtype]
    return Error(relative=worst, limit=limit, heads_checked=len(wanted)), kernels


def launch_facts(kernels: tuple[Any, ...]) -> list[Launch]:
    """Registers, spills, shared bytes and cubin hash of compiled Triton kernels."""
    return [
        Launch(
            name=kernel.metadata.name,
            registers=kernel.n_regs,
            spills=kernel.n_spills,
            shared_bytes=kernel.metadata.shared,
            cubin_sha256=hashlib.sha256(kernel.asm["cubin"]).hexdigest(),
        )
        for kernel in kernels
    ]
