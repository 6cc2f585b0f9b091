"""Clock and power of the board: idle, and under a few kinds of work that last a second."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from simgpu.calibrate.case import Benchmark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simgpu.calibrate.gpu import Gpu

WARM_SECONDS, SECONDS, SIZE = 0.3, 0.7, 8192


def benchmarks() -> Iterator[Benchmark]:
    """Yield clock and watts when idle, and SM-counted clock and watts under each kind of work."""
    yield Benchmark("idle_watts", "W", "board power by NVML after a second of nothing", _idle)
    for name, (text, make) in WORK.items():
        method = f"{text}, for {SECONDS} s after {WARM_SECONDS} s"
        for number, (what, unit) in enumerate((("watts", "W"), ("sm_mhz", "MHz"))):
            yield Benchmark(
                f"{name}_{what}",
                unit,
                f"{method}; " + ("NVML" if number == 0 else "counted by the SMs"),
                partial(_loaded, make, number),
            )


def _idle(gpu: Gpu) -> list[float]:
    from simgpu.validation.measure_time import Sampler

    gpu.torch.cuda.synchronize()
    time.sleep(1.0)
    sampler = Sampler.open()
    with sampler.running():
        time.sleep(0.5)
    watts = sampler.settled()[1]
    return [] if watts is None else [watts]


def _loaded(make: Callable[[Any], Callable[[], object]], number: int, gpu: Gpu) -> list[float]:
    """Return the watts (``number`` 0; none where NVML does not answer) or MHz under some work."""
    from simgpu.kernels import stamp
    from simgpu.validation.measure_time import Sampler

    run, sampler = make(gpu.torch), Sampler.open()
    _spin(gpu, run, WARM_SECONDS)
    before = stamp.stamp()
    with sampler.running():
        _spin(gpu, run, SECONDS)
    after = stamp.stamp()
    found = (sampler.settled()[1], stamp.mean_clocks_mhz(before, after)[-1])[number]
    return [] if found is None else [found]


def _spin(gpu: Gpu, run: Callable[[], object], seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(8):
            run()
        gpu.torch.cuda.synchronize()


def _copy(torch: Any) -> Callable[[], object]:
    a = torch.empty(1 << 30, dtype=torch.int8, device="cuda").random_()
    b = torch.empty_like(a)
    return lambda: b.copy_(a)


def _matmul(torch: Any, dtype: str, values: str) -> Callable[[], object]:
    make = getattr(torch, values)
    a, b = (make(SIZE, SIZE, dtype=getattr(torch, dtype), device="cuda") for _ in range(2))
    return lambda: torch.matmul(a, b)


def _attention(torch: Any) -> Callable[[], object]:
    shape = (4, 16, 4096, 128)
    q, k, v = (torch.randn(*shape, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v)


#: Work by name: what it is, and how to make a function that does it once.
WORK: dict[str, tuple[str, Callable[[Any], Callable[[], object]]]] = {
    "copy": ("copies of 1 GiB", _copy),
    "fp32": ("products of 8192² random fp32", lambda t: _matmul(t, "float32", "randn")),
    "matmul_random": ("products of 8192² N(0, 1) bf16", lambda t: _matmul(t, "bfloat16", "randn")),
    "matmul_zeros": ("products of 8192² zeros, bf16", lambda t: _matmul(t, "bfloat16", "zeros")),
    "attention": ("PyTorch's flash attention, 4×16×4096×128 bf16", _attention),
}
