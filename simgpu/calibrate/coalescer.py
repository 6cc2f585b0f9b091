"""How many L2 reads the coalescer saves: SMs that read one tile in step, and out of step.

Without hardware counters it shows in time: joined requests are delivered to several SMs for one
read of L2, so SMs that read the same bytes in step get more of them than L2 can read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simgpu.calibrate.case import Benchmark
from simgpu.calibrate.gpu import slope
from simgpu.calibrate.memory import LARGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.calibrate.gpu import Gpu

#: How many of 16 equal parts of the data apart neighbouring SMs begin.
APART = {"in_step": 0, "out_of_step": 1}
SIZE = 2 << 20


def benchmarks() -> Iterator[Benchmark]:
    """Yield bytes that all SMs receive a cycle, reading the same data in step and not."""
    for name, apart in APART.items():
        yield Benchmark(
            f"l2_delivered_{name}_bytes_per_cycle",
            "byte/cycle",
            f"every SM reads the same 2 MiB; neighbours begin {apart}/16 of it apart",
            partial(_delivered, apart),
        )


def _delivered(apart: int, gpu: Gpu) -> list[float]:
    kernel, pool = gpu.kernel("memory.cu", "read_same"), gpu.pool(LARGE)
    grid = {"ctas": gpu.sms, "threads": 1024}
    words = SIZE // 16
    found = slope({r: gpu.cycles(kernel, [pool, words, r, apart], **grid) for r in (1, 3)})
    return [SIZE * gpu.sms / x for x in found]
