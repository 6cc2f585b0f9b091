"""Published measurements beside predictions, and beside two rooflines.

Errors are of speed: +10 % means predicted a tenth faster than published.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from simgpu.errors import ScheduleError, VerifyError
from simgpu.front import run
from simgpu.hardware.load import load_profile
from simgpu.parallel import each
from simgpu.units import cycles_to_us, tflops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from simgpu.problem import Attention
    from simgpu.result.run import Run
    from simgpu.validation.published import Kernel, Params, Publication, Row

#: Predictions in the order of the table: ours, then two rooflines.
MODELS = ("simgpu", "roofline", "roofline_exp")
ROOFLINES = {"roofline": ("tensor", "hbm"), "roofline_exp": ("tensor", "hbm", "mufu")}


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A row and its speeds in TFLOP/s by model; or why it could not be predicted."""

    paper: str
    kernel: str
    gpu: str
    label: str
    unit: str
    published: float
    published_tflops: float
    predicted_tflops: dict[str, float]
    params: Params
    refused: str | None = None

    def error(self, model: str = "simgpu") -> float:
        """Return predicted / published speed - 1."""
        return self.predicted_tflops[model] / self.published_tflops - 1.0

    def in_unit(self, model: str = "simgpu") -> float:
        """Return a prediction in the unit of the publication."""
        speed = self.predicted_tflops[model]
        return speed if self.unit == "TFLOP/s" else self.published * self.published_tflops / speed


@dataclass(frozen=True, slots=True)
class PublishedError:
    """Errors of speed over some rows: ``mean`` absolute, by model; bias and worst are ours."""

    paper: str
    gpu: str
    kernel: str
    rows: int
    mean: dict[str, float]
    bias: float
    worst: float
    worst_run: str


def predict(
    found: Iterable[Publication],
    every: int = 1,
    progress: Callable[[int], None] | None = None,
    workers: int | None = 1,
) -> list[PublishedRun]:
    """Predict each ``every``-th row, by simgpu and by the rooflines.

    ``workers`` processes share them (`simgpu.parallel.each`).
    """
    pairs = [(p, row) for p in found for row in p.rows][:: max(1, every)]
    runs = []
    for made in each(_predict, pairs, workers):
        runs.append(made)
        if progress:
            progress(len(runs))
    return runs


def _predict(pair: tuple[Publication, Row]) -> PublishedRun:
    p, row = pair
    problem = row.problem(p.dtype)
    published = row.tflops or tflops(problem.useful_flops, (row.ms or 0.0) * 1e3)
    unit, value = ("ms", row.ms) if row.ms else ("TFLOP/s", published)
    best, refused = _fastest(p, row, problem)
    return PublishedRun(
        paper=p.paper,
        kernel=row.kernel,
        gpu=p.gpu,
        label=row.label,
        unit=unit,
        published=value or published,
        published_tflops=published,
        predicted_tflops=_speeds(best) if best else {},
        params=best.params if best else {},
        refused=None if best else refused,
    )


def _fastest(p: Publication, row: Row, problem: Attention) -> tuple[Run | None, str]:
    """Return the fastest of a kernel's tiles, and why others, if any, do not fit."""
    kernel = p.kernels[row.kernel]
    best, refused = None, ""
    for tile in kernel.choices(row.head_dim):
        params = {**tile, **row.params}
        try:
            tried = _at_clock(p, kernel, problem, params, kernel.resources(row.head_dim))
        except (ScheduleError, VerifyError) as error:
            refused = str(error)
            continue
        if best is None or tried.cycles < best.cycles:
            best = tried
    return best, refused


def _at_clock(
    p: Publication,
    kernel: Kernel,
    problem: Attention,
    params: Params,
    resources: dict[str, int] | None,
) -> Run:
    """Predict at the clock that the source states, or a lower one that the board's power allows."""
    args = (kernel.schedule, problem, p.gpu)
    if p.clock_mhz is None:
        return run(*args, params=params, resources=resources, clock="sustained")
    if load_profile(p.gpu).energy is not None:
        at_board = run(*args, params=params, resources=resources)
        if at_board.clock_mhz < p.clock_mhz:
            return at_board
    return run(*args, params=params, resources=resources, clock_mhz=p.clock_mhz)


def _speeds(result: Run) -> dict[str, float]:
    """Return TFLOP/s by model; a roofline is each launch's greatest bound, added up."""
    speeds = {"simgpu": result.tflops}
    for model, units in ROOFLINES.items():
        cycles = sum(max(launch.bounds[u] for u in units) for launch in result.launches)
        us = cycles_to_us(cycles, result.clock_mhz)
        speeds[model] = tflops(result.problem.useful_flops, us)
    return speeds


def published_table(runs: Sequence[PublishedRun]) -> list[PublishedError]:
    """Return one line a paper, GPU and kernel, and the last for all rows."""
    groups: dict[tuple[str, str, str], list[PublishedRun]] = {}
    known = [r for r in runs if r.refused is None]
    for r in known:
        groups.setdefault((r.paper, r.gpu, r.kernel), []).append(r)
    lines = [_summary(*key, group) for key, group in groups.items()]
    return [*lines, _summary("all", "", "", known)] if known else []


def _summary(paper: str, gpu: str, kernel: str, runs: Sequence[PublishedRun]) -> PublishedError:
    worst = max(runs, key=lambda r: abs(r.error()))
    return PublishedError(
        paper,
        gpu,
        kernel,
        len(runs),
        {model: fmean(abs(r.error(model)) for r in runs) for model in MODELS},
        fmean(r.error() for r in runs),
        worst.error(),
        worst.label,
    )
