"""Tensor cores: rate and latency of mma.sync and wgmma, by width and by where A comes from."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from simgpu.calibrate.case import Benchmark
from simgpu.calibrate.gpu import slope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.calibrate.gpu import Gpu

FILE = "tensor.cu"
MMA_FLOPS = 2 * 16 * 8 * 16
STEPS = (64, 320)
WIDTHS = (64, 128, 256)
PER = (8, 40)
BESIDE = 4  # FFMA behind each mma.sync
#: A (two warpgroups' 64 × 64) and B (256 × 64), of 2 bytes.
TILES_BYTES = 48 * 1024 + 1024


def product(n: int, a: str) -> str:
    """Return the statement ``d += A·B`` of 64×n×16: A in ``shared`` memory or in ``registers``."""
    sums = n // 2
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(sums))
    d = ",".join(f"%{i}" for i in range(sums))
    if a == "shared":
        operands, trans, inputs = f"%{sums}, %{sums + 1}", ", 0, 0", '"l"(a), "l"(b), "r"(1)'
    else:
        four = ",".join([f"%{sums}"] * 4)
        operands, trans, inputs = f"{{{four}}}, %{sums + 1}", ", 0", '"r"(r), "l"(b), "r"(1)'
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16"
    text = (
        f"{{.reg .pred p; setp.ne.b32 p, %{sums + 2}, 0; "
        f"{name} {{{d}}}, {operands}, p, 1, 1{trans};}}"
    )
    return f'asm volatile("{text}" : {outputs} : {inputs})'


def benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of the tensor cores."""
    yield Benchmark(
        "mma_sync_flops_per_cycle",
        "FLOP/cycle/SM",
        "16 warps, 8 independent m16n8k16 each, fp16 to fp32",
        lambda gpu: [x * MMA_FLOPS * 8 for x in _rate(gpu, threads=512, chains=8)],
        ("mma_sync",),
    )
    yield Benchmark(
        "mma_sync_latency_cycles",
        "cycle",
        "one warp, one chain of dependent m16n8k16",
        lambda gpu: slope(_mma(gpu, threads=32, chains=1)),
        ("mma_sync",),
    )
    yield Benchmark(
        "mma_sync_lone_warp_cycles",
        "cycle",
        "4 warps, 16 independent m16n8k16 each: cycles of one",
        lambda gpu: [x / 16 for x in slope(_mma(gpu, threads=128, chains=16))],
        ("mma_sync",),
    )
    yield Benchmark(
        "ffma_beside_mma_sync_cycles",
        "cycle",
        f"16 warps, {BESIDE} FFMA behind each m16n8k16: what one adds; 1 where none fits under it",
        _beside,
        ("mma_sync",),
    )
    for a in ("shared", "registers"):
        for n in WIDTHS:
            yield _wgmma_rate(n, a, 1)
            yield _wgmma_latency(n, a)
    yield _wgmma_rate(128, "shared", 2)
    yield _wgmma_rate(256, "registers", 2)


def _rate(gpu: Gpu, *, threads: int, chains: int) -> list[float]:
    """Return products of each chain, of all warps, a cycle."""
    return [threads / 32 / x for x in slope(_mma(gpu, threads=threads, chains=chains))]


def _beside(gpu: Gpu) -> list[float]:
    """Return the cycles that each FFMA adds to a scheduler's four warps of mma.sync."""
    plain = median(slope(_mma(gpu, threads=512, chains=8)))
    mixed = slope(_mma(gpu, threads=512, chains=8, beside=BESIDE))
    return [(x - plain) / (4 * 8 * BESIDE) for x in mixed]


def _mma(gpu: Gpu, *, threads: int, chains: int, beside: int = 0) -> dict[int, list[float]]:
    kernel = gpu.kernel(FILE, "mma_sync", CHAINS=chains, BESIDE=beside)
    return {n: gpu.cycles(kernel, [n], threads=threads) for n in STEPS}


def _wgmma(gpu: Gpu, n: int, a: str, groups: int, per: int) -> list[float]:
    """Return cycles of STEPS[1] commits of ``per`` products in each of ``groups`` warpgroups."""
    kernel = gpu.kernel(FILE, "wgmma", N=n, PER=per, PRODUCT=product(n, a), CHAINS=1, BESIDE=0)
    return gpu.cycles(kernel, [STEPS[1]], threads=128 * groups, shared=TILES_BYTES)


def _wgmma_rate(n: int, a: str, groups: int) -> Benchmark:
    flops = 2 * 64 * n * 16 * groups * STEPS[1]
    return Benchmark(
        f"wgmma_n{n}_a_{a}_{groups}_warpgroups_flops_per_cycle",
        "FLOP/cycle/SM",
        f"{groups} warpgroup, commits of {PER[1]} m64n{n}k16 against {PER[0]}, A in {a}",
        lambda gpu: [flops / x for x in slope({k: _wgmma(gpu, n, a, groups, k) for k in PER})],
        ("wgmma",),
    )


def _wgmma_latency(n: int, a: str) -> Benchmark:
    return Benchmark(
        f"wgmma_n{n}_a_{a}_latency_cycles",
        "cycle",
        f"one m64n{n}k16, commit, wait, again; A in {a}",
        lambda gpu: [x / STEPS[1] for x in _wgmma(gpu, n, a, 1, 1)],
        ("wgmma",),
    )
