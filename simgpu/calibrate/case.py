"""What a microbenchmark is, and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from simgpu.calibrate.gpu import Gpu
    from simgpu.hardware.profile import Capability


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One quantity: its unit, how it is measured, and the samples of it that ``run`` returns.

    ``needs`` are the capabilities of the GPU without which it cannot run.
    """

    name: str
    unit: str
    method: str
    run: Callable[[Gpu], Sequence[float]]
    needs: tuple[Capability, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The median of a benchmark's samples, and how far they lie apart.

    ``spread`` is the range of the samples over their median.
    """

    name: str
    unit: str
    method: str
    value: float
    spread: float
    repeats: int


def summary(benchmark: Benchmark, samples: Iterable[float]) -> Result:
    """Return the result that some samples make."""
    found = sorted(samples)
    middle = median(found)
    spread = (found[-1] - found[0]) / abs(middle) if middle else 0.0
    b = benchmark
    return Result(b.name, b.unit, b.method, middle, spread, len(found))
