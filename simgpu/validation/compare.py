"""Prediction beside measurement: signed errors of every metric, by regime, worst first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simgpu.cost.registers import estimated_registers
from simgpu.errors import SimgpuError
from simgpu.front import activity, run
from simgpu.hardware.load import load_profile
from simgpu.parallel import each
from simgpu.program.record import record
from simgpu.read.bound import longest
from simgpu.schedules import make_schedule
from simgpu.timing.clock import board_clock
from simgpu.units import cycles_to_us
from simgpu.validation.replay import COUNTERS, LOOP, SPILLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from simgpu.hardware.profile import Profile
    from simgpu.result.run import Run
    from simgpu.validation.replay import Measured


@dataclass(frozen=True, slots=True)
class Compared:
    """One measured run and what was predicted for it, by metric; or why it was not."""

    measured: Measured
    predicted: dict[str, float]
    refused: str | None = None

    def error(self, metric: str) -> float | None:
        """Return predicted / measured - 1, or None where either lacks the metric."""
        was, is_ = self.measured.counters.get(metric), self.predicted.get(metric)
        return None if not was or is_ is None else is_ / was - 1.0


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Errors of one metric over some runs: mean absolute, bias, worst and where."""

    metric: str
    regime: str
    runs: int
    mean: float
    bias: float
    worst: float
    worst_run: str


@dataclass(frozen=True, slots=True)
class TileChoice:
    """How well predictions rank the tiles of one problem.

    ``regret`` is how much slower the tile predicted best is than the one measured best.
    """

    problem: str
    tiles: int
    spearman: float
    regret: float


def compare(
    measured: Iterable[Measured],
    gpu: str | Profile | None = None,
    progress: Callable[[int], None] | None = None,
    workers: int | None = 1,
) -> list[Compared]:
    """Predict every run, given what its compiler found and the clock it ran at.

    ``workers`` processes share them (`simgpu.parallel.each`).
    """
    compared = []
    for found in each(partial(_compared, gpu=gpu), list(measured), workers):
        compared.append(found)
        if progress:
            progress(len(compared))
    return compared


def _compared(m: Measured, gpu: str | Profile | None) -> Compared:
    try:
        result = _predicted(m, gpu or m.gpu, m.counter_clock_mhz)
        found = {**metrics(result), **_registers(m, gpu or m.gpu), **_loop(m, result, gpu)}
        if len(set(m.clocks_mhz)) > 1:
            found["cycles"] = _cycles_by_launch(m, gpu or m.gpu)
    except SimgpuError as error:
        return Compared(m, {}, str(error))
    return Compared(m, found)


def _predicted(m: Measured, gpu: str | Profile, clock_mhz: float | None) -> Run:
    return run(
        m.schedule,
        m.problem,
        gpu,
        params=m.params,
        resources=m.resources or None,
        clock_mhz=clock_mhz,
    )


def _cycles_by_launch(m: Measured, gpu: str | Profile) -> float:
    """Return the cycles of several launches, each at the clock at which it was measured.

    A launch that waits for HBM takes fewer cycles at a lower clock, and power lowers it for some.
    """
    runs = (_predicted(m, gpu, clock) for clock in m.clocks_mhz)
    return sum(run.launches[number].cycles for number, run in enumerate(runs))


def metrics(result: Run) -> dict[str, float]:
    """Return what a run predicts, by the names of the measured counters."""
    data = result.to_dict()
    counts, instructions = data["counts"], data["counts"]["instructions"]
    named: dict[str, Any] = {
        **{k: counts[k] for k in COUNTERS if k in counts and k != "instructions"},
        **{k: instructions[k] for k in ("mufu", "fma", "alu", "lsu", "tensor")},
        "instructions": instructions["total"],
        "cycles": result.cycles,
        "ctas_per_sm": result.longest.occupancy.ctas_per_sm,
    }
    return {k: float(v) for k, v in named.items()}


def _registers(m: Measured, gpu: str | Profile) -> dict[str, float]:
    """Return the registers that are estimated where the compiler is not asked."""
    profile = load_profile(gpu) if isinstance(gpu, str) else gpu
    launches = record(make_schedule(m.schedule, m.params), m.problem).launches
    program = launches[0].classes[longest(launches[0])].program
    return {"registers": float(estimated_registers(program, profile))}


def _loop(m: Measured, result: Run, gpu: str | Profile | None) -> dict[str, float]:
    """Return what is predicted of the warm loop where it was measured and the clock can be.

    The clock is the one that follows from the cycles that were measured, so that its error is its
    own; the time is all our own.
    """
    source = gpu or m.gpu
    profile = load_profile(source) if isinstance(source, str) else source
    cycles = m.counters.get("loop_cycles")
    if cycles is None or profile.energy is None:
        return {}
    own = board_clock(profile, activity(result))
    given = board_clock(profile, activity(result, cycles))
    return {"clock_mhz": given, "time_us": cycles_to_us(result.cycles, own)}


def regime(c: Compared) -> str:
    """Return the kind of run that a comparison belongs to."""
    m = c.measured
    if m.kernel is not None:
        return m.kernel
    if m.spills > SPILLS:
        return f"{m.schedule}, spills"
    return m.schedule


def table(compared: Sequence[Compared], by: Callable[[Compared], str] = regime) -> list[ErrorRow]:
    """Return one row a metric and regime, metrics in the order of ``COUNTERS``, then the loop."""
    rows = []
    for metric in (*COUNTERS, *LOOP):
        groups: dict[str, list[tuple[float, str]]] = {}
        for c in compared:
            error = c.error(metric)
            if error is not None:
                groups.setdefault(by(c), []).append((error, c.measured.label))
        for name, errors in sorted(groups.items()):
            values = [e for e, _ in errors]
            worst, where = max(errors, key=lambda e: abs(e[0]))
            mean = fmean(map(abs, values))
            rows.append(ErrorRow(metric, name, len(values), mean, fmean(values), worst, where))
    return rows


def tile_choice(compared: Sequence[Compared]) -> list[TileChoice]:
    """Return how tiles are ranked for each problem that has four of them; none that spill."""
    groups: dict[tuple[Any, str], list[Compared]] = {}
    for c in compared:
        if c.predicted and c.measured.spills <= SPILLS and c.measured.kernel is None:
            groups.setdefault((c.measured.problem, c.measured.schedule), []).append(c)
    choices = []
    for runs in groups.values():
        if len(runs) < 4:
            continue
        predicted = [c.predicted["cycles"] for c in runs]
        was = [c.measured.counters["cycles"] for c in runs]
        chosen = was[predicted.index(min(predicted))]
        label = " ".join(runs[0].measured.label.split()[:4])
        choices.append(
            TileChoice(label, len(runs), _spearman(predicted, was), chosen / min(was) - 1.0)
        )
    return choices


def _spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the rank correlation (no ties to speak of among cycle counts)."""
    ranks = [_ranks(a), _ranks(b)]
    n = len(a)
    squares: float = sum((x - y) ** 2 for x, y in zip(*ranks, strict=True))
    return 1.0 - 6.0 * squares / (n * (n * n - 1))


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0] * len(values)
    for rank, i in enumerate(order):
        ranks[i] = rank
    return ranks
