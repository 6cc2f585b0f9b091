"""Schedules and GPUs side by side: every pair predicted, the fastest found, refusals kept."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu.errors import SimgpuError, UnsupportedError
from simgpu.front import run as predict
from simgpu.hardware.load import load_profile
from simgpu.hardware.profile import Profile
from simgpu.program.record import record
from simgpu.schedules import make_schedule, schedule_class

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from simgpu.problem import Attention
    from simgpu.program.program import Recording
    from simgpu.result.run import Run

SCHEMA = "simgpu.comparison/1"


@dataclass(frozen=True, slots=True)
class Entry:
    """A schedule on a GPU: its run, or why there is none. ``label`` is unique in a comparison."""

    label: str
    profile: Profile
    recording: Recording
    run: Run | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Entries of one problem, in the order in which they were asked for."""

    problem: Attention
    entries: tuple[Entry, ...]

    @property
    def ran(self) -> list[Entry]:
        """The entries with a run, fastest first."""
        return sorted((e for e in self.entries if e.run), key=lambda e: e.run.time_us)  # type: ignore[union-attr]

    def times(self, entry: Entry) -> float | None:
        """Return an entry's time over the fastest one's; None where it has no run."""
        fastest = self.ran[0].run if self.ran else None
        return entry.run.time_us / fastest.time_us if entry.run and fastest else None

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, schema ``simgpu.comparison/1``."""
        from simgpu.report.why import why

        problem = dataclasses.asdict(self.problem)
        problem.pop("causal")
        rows = [
            {
                "schedule": e.recording.name,
                "gpu": e.profile.name,
                "refused": e.refused or None,
                "times_fastest": self.times(e),
                "why": why(e, self),
                "run": e.run.to_dict() if e.run else None,
            }
            for e in self.entries
        ]
        return {"schema": SCHEMA, "problem": {**problem, "mask": self.problem.mask}, "rows": rows}


def compare(
    schedules: Sequence[str],
    problem: Attention,
    gpus: Sequence[str | Path | Profile] = ("h200",),
    *,
    params: Mapping[str, Any] | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Comparison:
    """Predict every schedule on every GPU; ``params`` apply to the schedules that know them.

    A schedule that a GPU cannot run, or that does not fit there, is an entry with the reason.
    Raises SimgpuError for names that are not known and parameters that no schedule has.
    """
    profiles = [gpu if isinstance(gpu, Profile) else load_profile(gpu) for gpu in gpus]
    recordings = [
        (name, settings, record(make_schedule(name, settings), problem))
        for name, settings in _settings(schedules, params or {})
    ]
    entries = []
    for profile in profiles:
        for name, settings, recording in recordings:
            label = recording.name if len(profiles) == 1 else f"{recording.name} on {profile.name}"
            run, refused = None, ""
            try:
                run = predict(name, problem, profile, params=settings)
            except SimgpuError as error:
                refused = str(error)
            entries.append(Entry(label, profile, recording, run, refused))
            progress()
    return Comparison(problem, tuple(entries))


def _settings(
    schedules: Sequence[str], params: Mapping[str, Any]
) -> list[tuple[str, dict[str, Any]]]:
    """Return for each schedule the parameters that it has; the message names those nobody has."""
    known = {name: {f.name for f in dataclasses.fields(schedule_class(name))} for name in schedules}
    for key in params:
        if not any(key in fields for fields in known.values()):
            raise UnsupportedError(f"none of {', '.join(schedules)} has a parameter {key!r}")
    return [(n, {k: v for k, v in params.items() if k in known[n]}) for n in known]
