"""Barriers, fences, atomics; what a launch and a CTA cost that do nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simgpu.calibrate.case import Benchmark
from simgpu.calibrate.gpu import slope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.calibrate.gpu import Gpu

FILE = "sync.cu"
STEPS = (64, 320)
LAUNCHES = 200


def benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of synchronisation, atomics and launches."""
    for threads in (128, 256):
        yield Benchmark(
            f"bar_sync_{threads}_cycles",
            "cycle",
            f"bar.sync again and again, {threads} threads",
            partial(_cycles, "bar_sync", threads),
        )
    yield Benchmark(
        "mbarrier_round_cycles",
        "cycle",
        "128 threads arrive on an mbarrier and wait for its phase",
        partial(_cycles, "mbarrier_round", 128),
        ("tma",),
    )
    yield Benchmark(
        "fence_async_cycles",
        "cycle",
        "a store to shared memory and fence.proxy.async, 128 threads",
        partial(_cycles, "fence_async", 128),
        ("tma",),
    )
    yield Benchmark(
        "atomic_latency_cycles",
        "cycle",
        "one thread, dependent atomicAdd on one word in L2",
        lambda gpu: slope({n: _atomics(gpu, "atomic_return", n, 1, 1, 1) for n in STEPS}),
    )
    yield Benchmark(
        "reductions_per_cycle",
        "reduction/cycle",
        "all SMs, red.add.f32 of 32 neighbouring words a warp, each warp its own",
        _reductions,
    )
    yield Benchmark("launch_us", "us", f"an empty kernel among {LAUNCHES} of a CUDA graph", _launch)
    yield Benchmark(
        "cta_start_ns",
        "ns",
        "one more CTA of 128 threads that does nothing, on each SM of a full grid",
        _cta_start,
    )


def _cycles(name: str, threads: int, gpu: Gpu) -> list[float]:
    kernel = gpu.kernel(FILE, name)
    return slope({n: gpu.cycles(kernel, [n], threads=threads) for n in STEPS})


def _atomics(gpu: Gpu, name: str, steps: int, ctas: int, threads: int, spread: int) -> list[float]:
    words = gpu.ints(ctas * threads * spread)
    kernel = gpu.kernel(FILE, name)
    return gpu.cycles(kernel, [words, steps, spread], ctas=ctas, threads=threads)


def _reductions(gpu: Gpu) -> list[float]:
    threads = 512
    found = slope({n: _atomics(gpu, "atomic_reduce", n, gpu.sms, threads, 1) for n in STEPS})
    return [gpu.sms * threads / x for x in found]


def _nothing(gpu: Gpu, ctas: int, times: int) -> list[float]:
    """Return microseconds of ``times`` empty kernels of ``ctas`` CTAs."""
    kernel, out = gpu.kernel(FILE, "nothing"), gpu.ints(1)
    replay = gpu.graph(lambda: gpu.launch(kernel, [out], ctas=ctas, threads=128), times)
    return gpu.microseconds(replay)


def _launch(gpu: Gpu) -> list[float]:
    return [us / LAUNCHES for us in _nothing(gpu, 1, LAUNCHES)]


def _cta_start(gpu: Gpu) -> list[float]:
    times = 20
    found = slope({n: _nothing(gpu, n * gpu.sms, times) for n in (16, 272)})
    return [us * 1e3 / times for us in found]
