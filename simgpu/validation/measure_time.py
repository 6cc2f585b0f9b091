"""Time, clock and power of a launch: events or a CUDA graph, cold and warm L2, NVML beside it."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from simgpu.kernels import stamp
from simgpu.validation.records import SmClocks, Time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Below this a sample is a CUDA graph of several launches: Python launches too slowly to keep up.
GRAPH_BELOW_US = 1000.0
SAMPLE_US = 1000.0
WARM_UP_SECONDS = 0.1
COLD_REPEATS = 15
FLUSH_BYTES = 1 << 28

# Any, so that type checking says the same with torch installed and without.
_Event: Any = torch.cuda.Event


@dataclass(slots=True)
class Sampler:
    """Reads SM clock and board power through NVML in a thread while the GPU works."""

    handle: Any = None
    nvml: Any = None
    clocks: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    every_seconds: float = 0.005

    @classmethod
    def open(cls) -> Sampler:
        """A sampler for the current device; one that reads nothing where NVML is not there."""
        try:
            pynvml = importlib.import_module("pynvml")
            pynvml.nvmlInit()
            uuid = str(torch.cuda.get_device_properties(0).uuid)
            name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
            return cls(handle=pynvml.nvmlDeviceGetHandleByUUID(name), nvml=pynvml)
        except Exception:
            return cls()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Sample from entry to exit; earlier samples are dropped."""
        self.clocks, self.watts = [], []
        stop = threading.Event()
        thread = threading.Thread(target=self._loop, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _loop(self, stop: threading.Event) -> None:
        while self.nvml and not stop.wait(self.every_seconds):
            with contextlib.suppress(Exception):
                clock = self.nvml.nvmlDeviceGetClockInfo(self.handle, self.nvml.NVML_CLOCK_SM)
                self.clocks.append(float(clock))
                self.watts.append(self._power())

    def _power(self) -> float:
        instant = getattr(self.nvml, "NVML_FI_DEV_POWER_INSTANT", None)
        if instant is not None:
            value = self.nvml.nvmlDeviceGetFieldValues(self.handle, [instant])[0]
            if value.nvmlReturn == 0:
                return float(value.value.uiVal) / 1e3
        return float(self.nvml.nvmlDeviceGetPowerUsage(self.handle)) / 1e3

    def settled(self) -> tuple[float | None, float | None]:
        """Median clock in MHz and power in watts over the second half of the samples."""
        halves = (x[len(x) // 2 :] for x in (self.clocks, self.watts))
        clock, watts = (statistics.median(half) if half else None for half in halves)
        return clock, watts


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one measurement of a launch found."""

    warm: Time
    cold: Time | None
    clock_mhz: float | None
    sm_clocks: SmClocks | None
    watts: float | None


def measure(
    launch: Callable[[], Any], *, graph: bool, sampler: Sampler, seconds: float, cold: bool
) -> Timing:
    """Time a launch for about ``seconds`` with warm L2, then a few times with cold L2."""
    for _ in range(2):
        launch()
    estimate_us = _events(launch, 3)[-1]
    sample, runs = launch, 1
    method = "events"
    if graph and estimate_us < GRAPH_BELOW_US:
        runs = max(1, round(SAMPLE_US / estimate_us))
        captured = _capture(launch, runs)
        sample, runs = (captured.replay, runs) if captured else (launch, 1)
        method = "graph" if captured else "events"
    _spin(sample, WARM_UP_SECONDS)
    per_sample_us = _events(sample, 3)[-1]
    repeats = min(2000, max(5, int(seconds * 1e6 / per_sample_us)))
    before = stamp.stamp()
    with sampler.running():
        found = _events(sample, repeats)
    after = stamp.stamp()
    counted = _sm_clocks(stamp.mean_clocks_mhz(before, after))
    clock, watts = sampler.settled()
    return Timing(
        warm=_summary([t / runs for t in found], runs, "warm", method, counted),
        cold=_cold(launch) if cold else None,
        clock_mhz=clock,
        sm_clocks=counted,
        watts=watts,
    )


def _events(run: Callable[[], Any], repeats: int) -> list[float]:
    """Microseconds of each of ``repeats`` back-to-back runs."""
    marks = [_Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e3 for a, b in itertools.pairwise(marks)]


def _spin(run: Callable[[], Any], seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        run()
        torch.cuda.synchronize()


def _capture(launch: Callable[[], Any], runs: int) -> Any:
    """A CUDA graph of ``runs`` launches, or None where the launch cannot be captured."""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(runs):
                launch()
        graph.replay()
        torch.cuda.synchronize()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph


def _cold(launch: Callable[[], Any]) -> Time:
    """Each launch after a write of several times L2, which also hides the launch's host time."""
    trash = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    marks = []
    for _ in range(COLD_REPEATS):
        start, end = (_Event(enable_timing=True) for _ in range(2))
        trash.zero_()
        trash.zero_()
        start.record()
        launch()
        end.record()
        marks.append((start, end))
    torch.cuda.synchronize()
    found = [start.elapsed_time(end) * 1e3 for start, end in marks]
    return _summary(found, 1, "cold", "events", None)


def _sm_clocks(clocks: list[float]) -> SmClocks | None:
    if not clocks:
        return None
    return SmClocks(low=clocks[0], median=statistics.median(clocks), high=clocks[-1])


def _summary(found: list[float], runs: int, l2: Any, method: Any, counted: SmClocks | None) -> Time:
    ordered = sorted(found)
    median = statistics.median(ordered)
    return Time(
        median_us=median,
        p10_us=ordered[len(ordered) // 10],
        p90_us=ordered[len(ordered) * 9 // 10],
        repeats=len(ordered),
        runs_per_sample=runs,
        l2=l2,
        method=method,
        cycles=median * counted.high if counted else None,
    )
