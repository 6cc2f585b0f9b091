"""Loops of our FlashAttention-1 kernel that came compiled with the package.

Its loop over Q blocks lies in one over K and V blocks, so that it has no mix; the loop alone is
known. ``python -m simgpu.compiled.known_fa1`` makes ``known/fa1_sm_90.tsv.gz`` anew (Triton
needed).
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from simgpu.compiled.aot import compile_jobs
from simgpu.compiled.flow import mma_loops
from simgpu.compiled.job import own_job
from simgpu.compiled.known_lines import loops_text, write_lines
from simgpu.compiled.loopcode import loop_code
from simgpu.errors import CompileError
from simgpu.problem import Attention

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Which kernels come with the package.
_ROWS, _KEYS, _WARPS, _STAGES, _HEAD_DIMS = (64, 128), (32, 64, 128), (4, 8), (1, 2), (64, 128)
#: What the Triton kernel does that its parameters do not say.
_TRITONS = {"warp_partition": "split-q", "initial": "registers", "state": "coalesced"}


def specialisation(params: Mapping[str, Any], problem: Attention) -> str | None:
    """Return what the FlashAttention-1 kernel is specialised on, as text; None for another."""
    if problem.window is not None or problem.dtype not in ("fp16", "bf16"):
        return None
    if any(params[name] != value for name, value in _TRITONS.items()):
        return None
    found = {
        **{name: params[name] for name in ("block_m", "block_n", "warps", "stages")},
        "head_dim": problem.head_dim,
        "causal": problem.causal,
        "ragged": problem.seq_kv % params["block_n"] != 0,
    }
    return json.dumps(found, sort_keys=True)


def main() -> None:
    """Compile the kernels and write their loops; what Triton cannot compile is left out."""
    jobs = {}
    tiles = itertools.product(_ROWS, _KEYS, _WARPS, _STAGES)
    for tile, d, causal, ragged in itertools.product(tiles, _HEAD_DIMS, (False, True), (0, 1)):
        params = dict(zip(("block_m", "block_n", "warps", "stages"), tile, strict=True))
        problem = Attention(batch=1, heads_q=4, seq_q=2048 - ragged, head_dim=d, causal=causal)
        key = specialisation({**params, **_TRITONS}, problem)
        if key is not None:
            jobs[key] = own_job("fa1", params, problem, 90, line_info=False)
    lines = {}
    for key, found in zip(jobs, compile_jobs(list(jobs.values())), strict=True):
        if isinstance(found, CompileError):
            continue
        (kernel,) = found
        (loop, *_) = mma_loops(kernel.listing)
        code = loop_code(kernel.listing.instructions[loop.first : loop.last + 1])
        if code:
            lines[key] = loops_text(f"Triton {kernel.triton_version}, {kernel.target}", (code,))
    write_lines("fa1", lines)


if __name__ == "__main__":
    main()
