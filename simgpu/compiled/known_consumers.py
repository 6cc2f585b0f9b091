"""Loops of FlashAttention-3's consumers that came compiled with the package.

``known/fa3_sm_90.tsv.gz`` has a line for each kernel: what it was specialised on, tab, its loops.
Ours are compiled with Triton; those of the public package are read out of its library.
``python -m simgpu.compiled.known_consumers LIBRARY`` makes the file anew (Triton needed, minutes);
LIBRARY is ``fa3_fwd/_C.abi3.so`` of fa3-fwd 0.0.3.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.compiled.aot import compile_jobs
from simgpu.compiled.consumers import consumer_loops
from simgpu.compiled.fa3_library import LibraryKernel, kernels_of
from simgpu.compiled.job import own_job
from simgpu.compiled.known_lines import loops_text, write_lines
from simgpu.errors import CompileError
from simgpu.problem import Attention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.timing.issued import Issued

#: Which of our kernels come with the package.
_TILES, _STAGES = ((64, 64), (64, 128), (128, 64), (128, 128), (256, 64)), (2, 3)


def specialisation(params: Mapping[str, Any], problem: Attention) -> str | None:
    """Return what a kernel of FlashAttention-3 is specialised on, as text; None for another.

    Our Gluon kernel passes O through a buffer of its own, the package's over V.
    """
    plain = params["overlap"] and params["specialized"] and not params["block_scales"]
    if problem.window is not None or not plain:
        return None
    names = ["block_m", "block_n", "stages", "p_in", "pingpong"]
    ours = params["o_in"] == "own"
    found = {
        **{name: params[name] for name in names + ["persistent"] * ours},
        "kernel": "ours" if ours else "package",
        "head_dim": problem.head_dim,
        "causal": problem.causal,
        "fp8": problem.dtype == "fp8",
    }
    if ours:
        found["ragged"] = problem.seq_kv % params["block_n"] != 0
    return json.dumps(found, sort_keys=True)


def _ours(arch: int) -> dict[str, str]:
    """Return the lines of our Gluon kernels; those that Triton cannot compile are left out."""
    jobs = {}
    choices = itertools.product(
        _TILES, _STAGES, (False, True), (False, True), (False, True), (0, 1)
    )
    for (d, bn), stages, pingpong, persistent, causal, ragged in choices:
        problem = Attention(batch=1, heads_q=4, seq_q=4096 - ragged, head_dim=d, causal=causal)
        own = {"block_n": bn, "stages": stages, "pingpong": pingpong, "persistent": persistent}
        rest = {"block_m": 128, "p_in": "registers", "o_in": "own"}
        as_written = {"overlap": True, "specialized": True, "block_scales": False}
        key = specialisation({**own, **rest, **as_written}, problem)
        if key is not None and not (d > 128 and persistent):
            jobs[key] = own_job("fa3", own, problem, arch, line_info=False)
    lines = {}
    for key, found in zip(jobs, compile_jobs(list(jobs.values())), strict=True):
        if not isinstance(found, CompileError):
            (kernel,) = found
            source = f"Triton {kernel.triton_version}, {kernel.target}"
            lines[key] = loops_text(source, consumer_loops(kernel.listing))
    return lines


def _packages(library: Path) -> dict[str, str]:
    """Return the lines of the public package's kernels; of two loops the second has no mask."""
    lines = {}
    for kernel in kernels_of(library):
        loops = consumer_loops(kernel.listing)
        if loops:
            lines[_key(kernel, loops[-1])] = loops_text("fa3-fwd 0.0.3, sm_90a", loops[-1:])
    return lines


def _key(kernel: LibraryKernel, loop: tuple[Issued, ...]) -> str:
    found = {
        **kernel.tile,
        "stages": 2,
        "pingpong": any(x.kind == "take_turn" for x in loop),
        "kernel": "package",
    }
    return json.dumps(found, sort_keys=True)


def main() -> None:
    """Write the file."""
    lines = {**_ours(arch=90), **_packages(Path(sys.argv[1]))}
    write_lines("fa3", lines)


if __name__ == "__main__":
    main()
