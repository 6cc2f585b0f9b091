"""Static pictures, by matplotlib: predicted against measured, and rooflines."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simgpu.errors import MissingExtraError, OutputError, SimgpuError
from simgpu.report.output import check_writable
from simgpu.report.roofline import LEVELS
from simgpu.validation.compare import regime

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from simgpu.report.roofline import Roofline
    from simgpu.validation.compare import Compared

BAND = 0.1  # drawn on both sides of equality
DPI = 150
MARKERS = "osD^vP*X"


def check_plot(path: str | os.PathLike[str]) -> None:
    """Raise what would keep a picture from being written: MissingExtraError or OutputError."""
    formats = _axes()[0].canvas.get_supported_filetypes()
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in formats:
        raise OutputError(
            f"cannot write {path}: {f'no format .{suffix}' if suffix else 'no format'}; "
            f"give a name that ends in .png, .svg or .pdf"
        )
    check_writable(path)


def plot_errors(
    path: str | os.PathLike[str],
    compared: Sequence[Compared],
    metric: str = "cycles",
    by: Callable[[Compared], str] = regime,
) -> None:
    """Draw a point for each run, predicted over measured, in one colour a family.

    The line is equality, the band 10 % on both sides; the legend has each family's runs and mean
    absolute error. Raises SimgpuError when no run has the metric, and as `check_plot`.
    """
    check_plot(path)
    families: dict[str, list[tuple[float, float]]] = {}
    for c in compared:
        if c.error(metric) is not None:
            point = (c.measured.counters[metric], c.predicted[metric])
            families.setdefault(by(c), []).append(point)
    if not families:
        raise SimgpuError(f"nothing to draw: no run has {metric} both measured and predicted")
    figure, axes = _axes()
    every = [value for points in families.values() for point in points for value in point]
    ends = [min(every) * 0.8, max(every) * 1.25]
    axes.fill_between(
        ends, [e * (1 - BAND) for e in ends], [e * (1 + BAND) for e in ends], color="0.9"
    )
    axes.plot(ends, ends, color="0.4", linewidth=1)
    for number, (name, points) in enumerate(sorted(families.items())):
        error = fmean(abs(is_ / was - 1) for was, is_ in points)
        runs = f"{len(points)} run{'s' * (len(points) > 1)}"
        label = f"{name}: {runs}, {error:.1%} off"
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(*zip(*points, strict=True), marker, markersize=4, alpha=0.6, label=label, mew=0)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set(xlabel=f"measured {metric}", ylabel=f"predicted {metric}")
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=DPI)


def plot_roofline(path: str | os.PathLike[str], found: Roofline) -> None:
    """Draw each level's roof and the tensor peak, and each schedule under each level's roof.

    A schedule stands at its useful FLOP for each byte that the level serves. Raises as
    `check_plot`.
    """
    check_plot(path)
    figure, axes = _axes()
    intensities = [x for p in found.points for x in p.intensity.values() if x > 0]
    knees = [found.peak / roof for roof in found.roofs.values()]
    ends = [min([*intensities, *knees]) / 2, max([*intensities, *knees]) * 2]
    for number, (level, roof) in enumerate(found.roofs.items()):
        knee = found.peak / roof
        axes.plot([ends[0], knee], [roof * ends[0], found.peak], color=f"C{number}", linewidth=1)
        label = f"{LEVELS[level]}: {roof:.1f} TB/s"
        axes.plot([], [], color=f"C{number}", label=label)
        for which, point in enumerate(found.points):
            marker = MARKERS[which % len(MARKERS)]
            if point.intensity.get(level):
                axes.plot(point.intensity[level], point.tflops, marker, color=f"C{number}")
    axes.plot([min(knees), ends[1]], [found.peak] * 2, color="0.3", linewidth=1)
    for which, point in enumerate(found.points):
        marker = MARKERS[which % len(MARKERS)]
        axes.plot([], [], marker, color="0.3", label=f"{point.name}: {point.tflops:.0f} TFLOP/s")
    axes.set(xscale="log", yscale="log", xlim=ends)
    axes.set(xlabel="useful FLOP a byte", ylabel="useful TFLOP/s")
    axes.set_title(f"tensor peak {found.peak:.0f} TFLOP/s", fontsize="small")
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=DPI)


def _axes() -> tuple[Any, Any]:
    """Return a figure and its axes, without matplotlib's global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    return figure, figure.subplots()
