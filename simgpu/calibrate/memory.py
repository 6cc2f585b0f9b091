"""HBM, L2 and shared memory: bandwidths, latencies, and asynchronous copies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simgpu.calibrate.case import Benchmark
from simgpu.calibrate.gpu import REPEATS, slope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from simgpu.calibrate.gpu import Gpu
    from simgpu.hardware.profile import Capability

MIB = 1 << 20
LARGE = 2 << 30  # many times any L2
L2_SETS_MIB = (4, 8, 16, 24, 32, 40, 48, 64, 96)
CHASE_STEPS = 2000
THREADS, CTAS_PER_SM = 512, 4
STEPS = (64, 320)
#: 16-byte words of a region that one CTA streams through asynchronous copies.
PER, COPY_THREADS = 8, 128
TMA_BYTES = 16384


def benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of memory."""
    yield Benchmark("hbm_read_gb_per_s", "GB/s", "all SMs read 2 GiB", _hbm_read)
    yield Benchmark("hbm_write_gb_per_s", "GB/s", "all SMs write 1 GiB", _hbm_write)
    yield Benchmark(
        "hbm_copy_gb_per_s", "GB/s", "all SMs copy 1 GiB; bytes read and written", _hbm_copy
    )
    for mib in L2_SETS_MIB:
        yield Benchmark(
            f"l2_read_{mib}_mib_bytes_per_cycle",
            "byte/cycle",
            f"all SMs read {mib} MiB again and again, each from another place on",
            partial(_l2_read, mib * MIB),
        )
    yield Benchmark(
        "l2_read_one_sm_bytes_per_cycle",
        "byte/cycle",
        "one SM reads 256 KiB again and again from L2",
        _l2_read_one_sm,
    )
    for name, size in (("l2", 2 * MIB), ("hbm", 256 * MIB)):
        yield Benchmark(
            f"{name}_latency_cycles",
            "cycle",
            f"one thread follows a random ring through {size // MIB} MiB",
            partial(_chase, size),
        )
    yield Benchmark(
        "shared_latency_cycles", "cycle", "one warp follows a ring of words", _shared_latency
    )
    for what in ("read", "write"):
        yield Benchmark(
            f"shared_{what}_bytes_per_cycle",
            "byte/cycle/SM",
            "16 warps, 16 bytes a thread without conflicts",
            partial(_shared, f"shared_{what}"),
        )
    yield from _copies()


def _copies() -> Iterator[Benchmark]:
    size = PER * COPY_THREADS * 16
    text = f"one CTA of {COPY_THREADS} threads, {size // 1024} KiB from L2"
    need: tuple[Capability, ...] = ("cp_async",)
    issue = f"{text}: cycles of a warp that issues {PER} copies"
    yield Benchmark("cp_async_latency_cycles", "cycle", text, partial(_cp_async, 0), need)
    yield Benchmark("cp_async_issue_cycles", "cycle", issue, partial(_cp_async, 1), need)
    yield Benchmark(
        "cp_async_bytes_per_cycle", "byte/cycle/SM", f"{text}, 3 in flight", _cp_stream, need
    )
    yield Benchmark(
        "tma_latency_cycles",
        "cycle",
        "one bulk copy of 1 KiB from L2, waited for at its mbarrier",
        lambda gpu: _tma(gpu, 1024, 1),
        ("tma",),
    )
    yield Benchmark(
        "tma_bytes_per_cycle",
        "byte/cycle/SM",
        f"one thread keeps 6 bulk copies of {TMA_BYTES // 1024} KiB in flight",
        lambda gpu: [TMA_BYTES / x for x in _tma(gpu, TMA_BYTES, 6)],
        ("tma",),
    )


def _bandwidth(gpu: Gpu, run: Callable[[], object], size: float) -> list[float]:
    return [size / us * 1e-3 for us in gpu.microseconds(run)]


def _all(gpu: Gpu, name: str, args: Sequence[object]) -> Callable[[], None]:
    kernel, ctas = gpu.kernel("memory.cu", name), gpu.sms * CTAS_PER_SM
    out = gpu.ints(ctas)
    return lambda: gpu.launch(kernel, [out, *args], ctas=ctas, threads=THREADS)


def _hbm_read(gpu: Gpu) -> list[float]:
    return _bandwidth(gpu, _all(gpu, "read_all", [gpu.pool(LARGE), LARGE // 16, 1]), LARGE)


def _hbm_write(gpu: Gpu) -> list[float]:
    half = LARGE // 2
    return _bandwidth(gpu, _all(gpu, "write_all", [gpu.pool(LARGE), half // 16]), half)


def _hbm_copy(gpu: Gpu) -> list[float]:
    half = LARGE // 2
    pool = gpu.pool(LARGE)
    args = [pool, pool[half // 4 :], half // 16]
    return _bandwidth(gpu, _all(gpu, "copy_all", args), LARGE)


def _l2_read(size: int, gpu: Gpu) -> list[float]:
    kernel, pool = gpu.kernel("memory.cu", "read_all"), gpu.pool(LARGE)
    args = {rounds: [pool, size // 16, rounds] for rounds in (2, 10)}
    grid = {"ctas": gpu.sms * CTAS_PER_SM, "threads": THREADS}
    found = slope({r: gpu.cycles(kernel, a, **grid) for r, a in args.items()})
    return [size / x for x in found]


def _l2_read_one_sm(gpu: Gpu) -> list[float]:
    kernel, pool, size = gpu.kernel("memory.cu", "read_own"), gpu.pool(LARGE), 1 << 18
    found = slope(
        {r: gpu.cycles(kernel, [pool, size // 16, r], threads=1024) for r in (2, 18)},
    )
    return [size / x for x in found]


def _chase(size: int, gpu: Gpu) -> list[float]:
    """Return cycles a load; a ring that fits in L2 is walked before, a larger one never twice."""
    lines = size // 128
    order = gpu.torch.randperm(lines, device="cuda", dtype=gpu.torch.int32)
    ring = gpu.ints(lines * 32)
    ring[(order * 32).long()] = order.roll(-1) * 32
    kernel = gpu.kernel("memory.cu", "chase")
    if size <= gpu.l2_bytes // 2:
        gpu.cycles(kernel, [ring, 0, lines], threads=1, repeats=1, warm=0)
    found = []
    for number in range(REPEATS):
        start = int(order[number * CHASE_STEPS * 4 % lines].item()) * 32
        args = [ring, start, CHASE_STEPS]
        found += gpu.cycles(kernel, args, threads=1, repeats=1, warm=0)
    return [x / CHASE_STEPS for x in found]


def _shared_latency(gpu: Gpu) -> list[float]:
    kernel = gpu.kernel("memory.cu", "shared_chase")
    return slope({n: gpu.cycles(kernel, [n], threads=32) for n in STEPS})


def _shared(name: str, gpu: Gpu) -> list[float]:
    kernel = gpu.kernel("memory.cu", name)
    found = slope({n: gpu.cycles(kernel, [n], threads=512) for n in STEPS})
    return [512 * 16 / x for x in found]


def _cp_async(issue: int, gpu: Gpu) -> list[float]:
    kernel, pool = gpu.kernel("copies.cu", "cp_async", PER=PER, FLIGHT=1), gpu.pool(LARGE)
    size = {"threads": COPY_THREADS, "shared": PER * COPY_THREADS * 16}
    return slope({n: gpu.cycles(kernel, [pool, n, issue], **size) for n in STEPS})


def _cp_stream(gpu: Gpu) -> list[float]:
    kernel, pool = gpu.kernel("copies.cu", "cp_async_stream", PER=PER, FLIGHT=1), gpu.pool(LARGE)
    tile = PER * COPY_THREADS * 16
    size = {"threads": COPY_THREADS, "shared": 3 * tile}
    found = slope({n: gpu.cycles(kernel, [pool, n], **size) for n in STEPS})
    return [tile / x for x in found]


def _tma(gpu: Gpu, size: int, flight: int) -> list[float]:
    """Return cycles a bulk copy of ``size`` bytes with ``flight`` of them at a time."""
    kernel, pool = gpu.kernel("copies.cu", "tma", PER=1, FLIGHT=flight), gpu.pool(LARGE)
    shared = size * flight
    return slope({n: gpu.cycles(kernel, [pool, n, size], shared=shared) for n in STEPS})
