"""Kernels that were compiled before and came with the package: what runs know without Triton.

``known/NAME_sm_ARCH.tsv.gz`` has a line for each kernel: what it was specialised on, tab, its mix.
``python -m simgpu.compiled.known`` compiles them anew (Triton needed, minutes).
"""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.compiled.aot import compile_jobs
from simgpu.compiled.job import architecture, own_job
from simgpu.compiled.loopcode import from_json, to_json
from simgpu.compiled.mix import TRITONS, CompiledMix, mix_of
from simgpu.compiled.sass import PipeCounts, Product, Stats
from simgpu.errors import CompileError
from simgpu.problem import Attention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.compiled.job import Job
    from simgpu.hardware.profile import Profile

_COUNTS = ("prologue", "full", "between", "masked", "epilogue")
_STATS = ("full_stats", "masked_stats")
#: Which kernels come with the package.
_HEAD_DIMS, _ROWS, _KEYS = (64, 80, 96, 128, 256), (64, 128), (32, 64, 128)
_PADDED = (80, 96)
_WARPS, _STAGES, _LOADS = (4, 8), (1, 2, 3, 4), ("cp_async", "tma")


def known_mixes(
    schedule: str, params: Mapping[str, Any], problem: Attention, profile: Profile
) -> tuple[CompiledMix, ...] | None:
    """Return the mix of each launch of a schedule's kernel if it is known for this GPU, else None.

    bf16 counts as fp16: their kernels differ in the names of a few instructions.
    """
    try:
        arch = architecture(profile)
    except CompileError:
        return None
    key = specialisation(params, problem)
    text = _lines(schedule, arch).get(key) if key else None
    return None if text is None else (read_mix(json.loads(text)),)


def specialisation(params: Mapping[str, Any], problem: Attention) -> str | None:
    """Return what the FlashAttention-2 kernel is specialised on, as text; None for another kernel.

    Heads in a group only change how a CTA finds its head, and a ragged last tile of queries only
    how it loads and stores its rows: neither is told apart.
    """
    tile = {k: params.get(k) for k in ("block_m", "block_n", "warps", "stages")}
    if any(params.get(name, values[0]) != values[0] for name, values in TRITONS.items()):
        return None
    if problem.window is not None or problem.dtype not in ("fp16", "bf16") or None in tile.values():
        return None
    blind = problem.causal and problem.seq_q > problem.seq_kv
    found = {
        **tile,
        "loads": params.get("loads", "cp_async"),
        "head_dim": problem.head_dim,
        "causal": problem.causal,
        "ragged": problem.seq_kv % params["block_n"] != 0,
    }
    return None if blind else json.dumps(found, sort_keys=True)


def write_mix(mix: CompiledMix) -> dict[str, Any]:
    """Return a mix as JSON values."""
    found = {f.name: getattr(mix, f.name) for f in fields(mix)}
    for name in _COUNTS:
        found[name] = [getattr(found[name], f.name) for f in fields(PipeCounts)]
    for name in _STATS:
        found[name] = _write_stats(found[name])
    return {**found, "full_code": to_json(mix.full_code)}


def read_mix(found: dict[str, Any]) -> CompiledMix:
    """Return the mix that `write_mix` wrote."""
    values = dict(found)
    for name in _COUNTS:
        values[name] = PipeCounts(*values[name])
    for name in _STATS:
        values[name] = _read_stats(values[name])
    return CompiledMix(**{**values, "full_code": from_json(values["full_code"])})


def _write_stats(stats: Stats | None) -> dict[str, Any] | None:
    if stats is None:
        return None
    found = {f.name: getattr(stats, f.name) for f in fields(stats)}
    found["pipes"] = [getattr(stats.pipes, f.name) for f in fields(PipeCounts)]
    found["products"] = [[p.opcode, p.count, list(p.shape), p.per] for p in stats.products]
    return found


def _read_stats(found: dict[str, Any] | None) -> Stats | None:
    if found is None:
        return None
    products = tuple(Product(op, n, tuple(shape), per) for op, n, shape, per in found["products"])
    values = {**found, "pipes": PipeCounts(*found["pipes"]), "products": products}
    return Stats(**{**values, "lines": tuple(found["lines"])})


@cache
def _lines(schedule: str, arch: int) -> dict[str, str]:
    """Return the lines of a file by what they were specialised on; none for a file not there."""
    path = files("simgpu") / "compiled" / "known" / f"{schedule}_sm_{arch}.tsv.gz"
    if not path.is_file():
        return {}
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return {key: mix for key, _, mix in (line.partition("\t") for line in lines)}


def _jobs(arch: int) -> dict[str, Job]:
    """Return the jobs of the kernels that come with the package, by their specialisation."""
    jobs = {}
    tiles = itertools.product(_ROWS, _KEYS, _WARPS, _STAGES, _LOADS)
    for (bm, bn, warps, stages, loads), d, causal, ragged in itertools.product(
        tiles, _HEAD_DIMS, (False, True), (0, 1)
    ):
        rare = loads == "tma" or d in _PADDED
        if (rare and (ragged or stages not in (2, 3))) or (d > 128 and stages > 2):
            continue
        problem = Attention(batch=1, heads_q=1, seq_q=4096 - ragged, head_dim=d, causal=causal)
        params = {"block_m": bm, "block_n": bn, "warps": warps, "stages": stages, "loads": loads}
        key = specialisation(params, problem)
        if key is not None:
            jobs[key] = own_job("fa2", params, problem, arch, line_info=False)
    return jobs


def main() -> None:
    """Compile the kernels and write them; those that Triton cannot compile are left out."""
    jobs = _jobs(arch=90)
    lines = []
    for key, found in zip(jobs, compile_jobs(list(jobs.values())), strict=True):
        if not isinstance(found, CompileError):
            mix = json.dumps(write_mix(mix_of(found[0])), separators=(",", ":"))
            lines.append(f"{key}\t{mix}\n")
    file = Path(__file__).with_name("known") / "fa2_sm_90.tsv.gz"
    file.write_bytes(gzip.compress("".join(sorted(lines)).encode(), mtime=0))


if __name__ == "__main__":
    main()
