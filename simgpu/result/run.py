"""The result of a run: immutable, the same bytes for the same inputs, and all that reports read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu.frame import flat, frame
from simgpu.units import cycles_to_us, tflops

if TYPE_CHECKING:
    import os

    from simgpu.cost.work import Work
    from simgpu.hardware.occupancy import Occupancy
    from simgpu.problem import Attention
    from simgpu.program.mix import Mix
    from simgpu.program.program import Persistence

SCHEMA = "simgpu.run/1"

STALLS = ("wait_copy", "wait_mma", "wait_barrier", "contended", "idle", "dispatch")


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """One kernel: predicted cycles, bounds, counts over the grid, occupancy, and stalls.

    ``grid`` is that of its tiles; ``ctas`` how many CTAs are launched for them, fewer where they
    are ``persistent`` and take tile after tile. ``resident`` is the number of CTAs on the device
    from each moment (cycles) on; the exact mode does not tell it.
    """

    name: str
    grid: dict[str, int]
    ctas: int
    persistent: Persistence | None
    cycles: float
    bounds: dict[str, float]
    work: Work
    mix: Mix
    wavefronts: float
    l2_read_bytes: float
    l2_write_bytes: float
    hbm_read_bytes: float
    hbm_write_bytes: float
    occupancy: Occupancy
    achieved_warps_per_sm: float
    utilization: dict[str, float]
    stalls: dict[str, float]
    registers: int
    registers_estimated: bool
    shared_bytes: int
    spills: int
    serial_products: bool
    warps: int
    resident: tuple[tuple[float, int], ...] = ()

    @property
    def limiter(self) -> str:
        """The bound that the kernel comes near, else what it uses or awaits most."""
        bound = max(self.bounds, key=lambda name: self.bounds[name])
        if self.bounds[bound] >= NEAR * self.cycles:
            return "l1" if bound == "lsu" else bound
        unit = max(self.utilization, key=lambda u: self.utilization[u])
        if self.utilization[unit] >= BUSY:
            return unit
        return max(self.stalls, key=lambda s: self.stalls[s])

    def counts(self) -> dict[str, Any]:
        """Return the counters of the kernel, named as in the run's JSON."""
        w = self.work
        names = ("mufu", "fma", "alu", "lsu", "tensor")
        instructions = {n: round(getattr(self.mix, n)) for n in names}
        return {
            "flops_tensor": w.flops_tensor,
            "exps": w.exps,
            "instructions": {**instructions, "total": round(self.mix.total)},
            "global_read_bytes": w.global_read_bytes,
            "global_write_bytes": w.global_write_bytes,
            "l2_read_bytes": round(self.l2_read_bytes),
            "l2_write_bytes": round(self.l2_write_bytes),
            "hbm_read_bytes": round(self.hbm_read_bytes),
            "hbm_write_bytes": round(self.hbm_write_bytes),
            "smem_wavefronts": round(self.wavefronts),
            "smem_fill_bytes": w.smem_fill_bytes,
            "smem_operand_bytes": w.smem_operand_bytes,
            "smem_exchange_bytes": w.smem_exchange_bytes,
            "local_bytes": w.local_bytes,
            "barriers": w.barriers,
            "atomics": w.atomics,
        }


#: A bound this close to the prediction is what limits.
NEAR = 0.85
#: Above this a unit limits a kernel; below it latency does, and the stalls say which.
BUSY = 0.6


@dataclass(frozen=True, slots=True)
class Run:
    """A schedule on a problem on a GPU: prediction, bounds, counts, and where they come from."""

    schedule: str
    params: dict[str, Any]
    problem: Attention
    gpu: str
    digest: str
    clock_mhz: float
    mix: str
    launches: tuple[LaunchResult, ...]
    provenance: dict[str, Any]

    @property
    def cycles(self) -> float:
        """Predicted SM cycles, as sm__cycles_elapsed.max counts them, over all launches."""
        return sum(launch.cycles for launch in self.launches)

    @property
    def time_us(self) -> float:
        """Predicted microseconds at ``clock_mhz``."""
        return cycles_to_us(self.cycles, self.clock_mhz)

    @property
    def tflops(self) -> float:
        """Useful TFLOP/s: 4·Nq·Nk·d·heads·batch (half when causal) over the time."""
        return tflops(self.problem.useful_flops, self.time_us)

    @property
    def longest(self) -> LaunchResult:
        """The launch that takes the most cycles."""
        return max(self.launches, key=lambda launch: launch.cycles)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain data, schema ``simgpu.run/1``."""
        from simgpu import __version__

        problem = dataclasses.asdict(self.problem)
        problem.pop("causal")
        return {
            "schema": SCHEMA,
            "version": __version__,
            "schedule": {"name": self.schedule, "params": dict(self.params)},
            "problem": {**problem, "mask": self.problem.mask},
            "gpu": {"name": self.gpu, "digest": self.digest},
            "mix": self.mix,
            **self._totals(),
            "launches": [self._launch(launch) for launch in self.launches],
            "provenance": dict(self.provenance),
        }

    def _predicted(self, cycles: float, limiter: str) -> dict[str, Any]:
        us = cycles_to_us(cycles, self.clock_mhz)
        return {"cycles": cycles, "time_us": us, "clock_mhz": self.clock_mhz, "limiter": limiter}

    def _totals(self) -> dict[str, Any]:
        shares = [launch.cycles / self.cycles for launch in self.launches]

        def mean(name: str) -> dict[str, float]:
            keys = getattr(self.launches[0], name)
            parts = list(zip(self.launches, shares, strict=True))
            return {k: sum(getattr(x, name)[k] * share for x, share in parts) for k in keys}

        bounds = {k: sum(x.bounds[k] for x in self.launches) for k in self.launches[0].bounds}
        predicted = self._predicted(self.cycles, self.longest.limiter)
        return {
            "predicted": {**predicted, "tflops": self.tflops},
            "bounds": {"cycles": bounds, "greatest": max(bounds, key=lambda k: bounds[k])},
            "counts": _sum([x.counts() for x in self.launches]),
            "occupancy": _occupancy(self.longest),
            "utilization": mean("utilization"),
            "stalls": mean("stalls"),
        }

    def _launch(self, launch: LaunchResult) -> dict[str, Any]:
        bounds = dict(launch.bounds)
        return {
            "name": launch.name,
            "grid": dict(launch.grid),
            "ctas": launch.ctas,
            "persistent": launch.persistent,
            "predicted": self._predicted(launch.cycles, launch.limiter),
            "bounds": {"cycles": bounds, "greatest": max(bounds, key=lambda k: bounds[k])},
            "counts": launch.counts(),
            "occupancy": _occupancy(launch),
            "utilization": dict(launch.utilization),
            "stalls": dict(launch.stalls),
            "registers": launch.registers,
            "registers_estimated": launch.registers_estimated,
            "shared_bytes": launch.shared_bytes,
            "spills": launch.spills,
            "serial_products": launch.serial_products,
            "warps": launch.warps,
        }

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a flat row for each launch: `to_dict`'s fields, named by their path with dots."""
        data = self.to_dict()
        shared = {key: data[key] for key in ("schedule", "problem", "gpu", "mix")}
        rows = [flat({**shared, "launch": launch}) for launch in data["launches"]]
        return [{name.removeprefix("launch."): value for name, value in row} for row in rows]

    def to_pandas(self) -> Any:
        """Return `to_rows` as a DataFrame; MissingExtraError without pandas."""
        return frame(self.to_rows())

    def to_html(self, path: str | os.PathLike[str], gpu: str | None = None) -> None:
        """Write the run's page, a self-contained file, without other schedules beside it.

        ``gpu`` is the file of a profile that is not among the named ones. Raises OutputError for a
        path that cannot be written, ProfileError for another GPU's profile, MissingExtraError
        without jinja2.
        """
        from simgpu.report.html import write_run

        write_run(self, path, gpu)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from simgpu.report.notebook import notebook

        return notebook(self)

    def __str__(self) -> str:
        from simgpu.report.text import render

        return render(self)


def _occupancy(launch: LaunchResult) -> dict[str, Any]:
    o = launch.occupancy
    return {
        "ctas_per_sm": o.ctas_per_sm,
        "limits": {k: n for k, n in o.limits._asdict().items() if n is not None},
        "shared_at_carveout": o.shared_at_carveout,
        "warps_per_sm": o.warps_per_sm,
        "achieved_warps_per_sm": launch.achieved_warps_per_sm,
    }


def _sum(counts: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for key, first in counts[0].items():
        values = [c[key] for c in counts]
        total[key] = _sum(values) if isinstance(first, dict) else sum(values)
    return total
