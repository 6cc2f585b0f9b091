"""Rooflines: what each level of memory and the tensor cores allow, and where schedules stand.

A schedule's intensity at a level is its useful FLOPs over the bytes that the level has to serve, so
its height over the level's roof is the level's use, and over the peak the share of useful products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from simgpu.errors import SimgpuError
from simgpu.front import run as predict
from simgpu.hardware.machine import UNITS, Machine
from simgpu.units import tflops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from simgpu.hardware.profile import Profile
    from simgpu.result.run import Run

#: Levels with a roof, and their names in the picture.
LEVELS = {"hbm": "HBM", "l2": "L2", "smem": "shared memory"}
#: Schedules that stand beside a run's own.
OTHERS = ("standard", "fa1", "fa2", "fa3")


class Point(NamedTuple):
    """A schedule: useful TFLOP/s, and useful FLOP for each byte that each level has to serve."""

    name: str
    tflops: float
    intensity: dict[str, float]
    use: dict[str, float]


class Roofline(NamedTuple):
    """The roofs of one GPU at one clock: tensor peak in TFLOP/s, levels in TB/s; and points.

    ``missing`` says of each schedule that is not there why not.
    """

    peak: float
    roofs: dict[str, float]
    points: list[Point]
    missing: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the picture as plain data."""
        return {
            "peak_tflops": self.peak,
            "roofs_tb_per_s": self.roofs,
            "levels": LEVELS,
            "points": [p._asdict() for p in self.points],
            "missing": self.missing,
        }


def roofline(
    profile: Profile, clock_mhz: float, runs: Iterable[Run], missing: dict[str, str] | None = None
) -> Roofline:
    """Return the roofs of a GPU for the dtype of ``runs``, with the runs under them."""
    machine = Machine.from_profile(profile, clock_mhz)
    found = list(runs)
    peak = tflops(machine.tensor_flops(found[0].problem.dtype) * machine.sms, 1 / clock_mhz)
    roofs = {level: _bytes_a_cycle(machine, level) * clock_mhz / 1e6 for level in LEVELS}
    return Roofline(peak, roofs, [_point(run, machine) for run in found], missing or {})


def others(
    run: Run, profile: Profile, progress: Callable[[str], None] = lambda name: None
) -> tuple[list[Run], dict[str, str]]:
    """Predict the schedules beside a run, at their defaults; with them why some cannot be.

    ``progress`` is called with each name before its prediction.
    """
    found: list[Run] = []
    missing: dict[str, str] = {}
    for name in OTHERS:
        if name == run.schedule:
            continue
        progress(name)
        try:
            found.append(predict(name, run.problem, profile, clock_mhz=run.clock_mhz))
        except SimgpuError as error:
            missing[name] = str(error)
    return found, missing


def _point(run: Run, machine: Machine) -> Point:
    record = run.to_dict()
    bounds: dict[str, float] = record["bounds"]["cycles"]
    intensity = {}
    for level in LEVELS:
        served = bounds[level] * _bytes_a_cycle(machine, level)
        intensity[level] = run.problem.useful_flops / served
    use = {level: float(record["utilization"][level]) for level in (*LEVELS, "tensor")}
    return Point(run.schedule, run.tflops, intensity, use)


def _bytes_a_cycle(machine: Machine, level: str) -> float:
    return machine.capacity[UNITS.index(level)] * machine.sms
