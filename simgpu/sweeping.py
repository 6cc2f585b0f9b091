"""``simgpu.sweep``: many runs, a row each."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from simgpu.errors import SimgpuError
from simgpu.frame import flat, frame
from simgpu.front import run
from simgpu.hardware.load import load_profile
from simgpu.hardware.profile import Profile
from simgpu.parallel import each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from simgpu.problem import Attention
    from simgpu.program.program import Schedule

SCHEMA = "simgpu.sweep/1"


class Point(NamedTuple):
    """One run of a sweep."""

    schedule: Schedule | str
    params: dict[str, Any]
    problem: Attention
    gpu: str | Path | Profile
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A row for each point, in order; ``complete`` is False when the sweep was interrupted.

    A row has what `Run.to_dict` says of all launches together, named by path with dots, and
    ``error``, which is None or says why there is no prediction.
    """

    rows: list[dict[str, Any]]
    complete: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as plain data, schema ``simgpu.sweep/1``."""
        return {"schema": SCHEMA, "complete": self.complete, "rows": self.rows}

    def to_pandas(self) -> Any:
        """Return the rows as a DataFrame; MissingExtraError without pandas."""
        return frame(self.rows)


def sweep(
    schedules: Schedule | str | Sequence[Schedule | str],
    problems: Attention | Sequence[Attention],
    gpus: str | Path | Profile | Sequence[str | Path | Profile] = "h200",
    params: Mapping[str, Sequence[Any]] | None = None,
    *,
    workers: int | None = None,
    progress: Callable[[], None] = lambda: None,
    **options: Any,
) -> Sweep:
    """Predict every combination of schedules, problems, GPUs and values of ``params``.

    ``options`` are those of `simgpu.run` (clock_mhz, exact, mix). A combination that cannot be is
    a row with its error, and so is one at which a schedule's own code fails. With joblib the points
    are shared by ``workers`` processes (left out: one a core, if there are enough points), else
    they run one after the other. ``progress`` is called after each. Ctrl-C ends the sweep; what was
    predicted until then is returned.
    """
    points = list(_points(_many(schedules), _many(problems), _many(gpus), params or {}, options))
    rows: list[dict[str, Any]] = []
    try:
        for row in each(predict, points, workers):
            rows.append(row)
            progress()
    except KeyboardInterrupt:
        return Sweep(rows, complete=False)
    return Sweep(rows)


def _many(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _points(
    schedules: Iterable[Schedule | str],
    problems: Iterable[Attention],
    gpus: Iterable[str | Path | Profile],
    params: Mapping[str, Sequence[Any]],
    options: dict[str, Any],
) -> Iterator[Point]:
    grid = [dict(zip(params, values, strict=True)) for values in product(*params.values())]
    for schedule, problem, gpu, chosen in product(schedules, problems, gpus, grid):
        yield Point(schedule, chosen, problem, gpu, options)


def predict(point: Point) -> dict[str, Any]:
    """Return the row of a point."""
    name = point.schedule if isinstance(point.schedule, str) else point.schedule.schedule_name
    problem = {**dataclasses.asdict(point.problem), "mask": point.problem.mask}
    del problem["causal"]
    asked: dict[str, Any] = {
        "schedule": {"name": name, "params": point.params},
        "problem": problem,
        "gpu": {"name": str(point.gpu)},
    }
    try:
        gpu = point.gpu if isinstance(point.gpu, Profile) else load_profile(point.gpu)
        asked["gpu"] = {"name": gpu.name}
        found = run(point.schedule, point.problem, gpu, params=point.params, **point.options)
    except SimgpuError as error:
        return {**dict(flat(asked)), "error": str(error)}
    except Exception as error:  # of a schedule's own code: the other points go on
        return {**dict(flat(asked)), "error": f"{type(error).__name__}: {error}"}
    data = found.to_dict()
    kept = {k: v for k, v in data.items() if k not in ("schema", "version", "launches")}
    del kept["provenance"]
    return {**dict(flat(kept)), "error": None}
