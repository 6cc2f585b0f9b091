"""Profiles, sources, schedules, programs and the laws' verdicts: as tables and as plain data."""

from __future__ import annotations

import dataclasses
import itertools
import textwrap
from typing import TYPE_CHECKING, Any

from simgpu.errors import ScheduleError
from simgpu.program.listing import listing
from simgpu.report.tables import table, wrap
from simgpu.report.words import TAKEN, whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simgpu.hardware.profile import Profile
    from simgpu.laws import Verdict
    from simgpu.program.program import Recording


def profiles(found: Sequence[Profile]) -> str:
    """Return one line for each profile."""
    rows = [
        (
            p.name,
            ", ".join(p.aliases),
            p.title,
            str(p.device.sm_count),
            whole(p.device.sustained_mhz),
            whole(p.memory.hbm_sustained_gb_per_s),
            f"{sum(row.kind == 'assumed' for row in p.sources())} of {len(p.sources())}",
        )
        for p in found
    ]
    right = ("SMs", "MHz", "HBM GB/s", "assumed")
    return table(("name", "alias", "GPU", *right), rows, right=right)


def profiles_data(found: Sequence[Profile]) -> list[dict[str, Any]]:
    """Return what ``profiles`` shows, as plain data."""
    return [
        {
            "name": p.name,
            "aliases": list(p.aliases),
            "title": p.title,
            "digest": p.digest,
            "sm_count": p.device.sm_count,
            "sustained_mhz": p.device.sustained_mhz,
            "hbm_sustained_gb_per_s": p.memory.hbm_sustained_gb_per_s,
            "assumed": sum(row.kind == "assumed" for row in p.sources()),
            "numbers": len(p.sources()),
        }
        for p in found
    ]


def profile(p: Profile, *, sources: bool) -> str:
    """Return a profile's numbers; with ``sources`` where each comes from, assumed ones first."""
    head = f"{p.title}: {p.name} ({p.digest}), compute capability {p.compute_capability}"
    rows = p.sources()
    if not sources:
        cells = [
            (row.path, "\n".join(textwrap.wrap(_value(row.value), 20)), row.kind, row.meaning)
            for row in rows
        ]
        body = table(
            ("number", "value", "kind", "meaning"),
            cells,
            right=("value",),
            firm=("number", "kind"),
        )
        return f"{head}\n\n{body}"
    kinds = {row.kind: sum(other.kind == row.kind for other in rows) for row in rows}
    counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    lines = [f"{head}", f"{len(rows)} numbers: {counts}"]
    for row in rows:
        lines += ["", f"{row.path} = {_value(row.value)} ({row.kind})"]
        notes = (row.source, row.fitted_on and f"fitted on {row.fitted_on}", row.note)
        lines += [wrap(note, "    ") for note in notes if note]
    return "\n".join(lines)


def profile_data(p: Profile) -> dict[str, Any]:
    """Return a profile as plain data, as it would stand in a YAML file with no parent."""
    return {**p.to_document(), "digest": p.digest}


def schedules(found: Mapping[str, type[Any]]) -> str:
    """Return one line for each schedule: its name, what it is, and its parameters."""
    rows = [
        (d["name"], d["summary"], ", ".join(f"{k}={v}" for k, v in d["params"].items()))
        for d in schedules_data(found)
    ]
    return table(("name", "schedule", "parameters"), rows, firm=("name",))


def schedules_data(found: Mapping[str, type[Any]]) -> list[dict[str, Any]]:
    """Return what ``schedules`` shows, as plain data."""
    return [
        {
            "name": name,
            "summary": (cls.__doc__ or "").strip().partition("\n")[0],
            "params": {f.name: _default(f) for f in dataclasses.fields(cls)},
        }
        for name, cls in found.items()
    ]


def program_of_cta(recording: Recording, number: int) -> str:
    """Return the listing of CTA ``number``, in launch order, of each launch that has so many.

    Of a persistent launch it is that of tile ``number``, as its CTA's first tile. Raises
    ScheduleError when none has.
    """
    parts = []
    for launch in recording.launches:
        at = next(itertools.islice(launch.grid.coordinates(), max(number, 0), None), None)
        if at is not None and number >= 0:
            program = launch.classes[launch.class_of(at)].program
            where = ", ".join(f"{axis} {i}" for axis, i in at.items())
            what = f"{'tile' if launch.grid.persistent else 'CTA'} {number} ({where})"
            taken = launch.grid.persistent and TAKEN[launch.grid.persistent]
            how = f"; persistent CTAs take the {taken}" if taken else ""
            parts.append(f"{launch.name}: {what}{how}\n{listing(program)}")
    if not parts:
        most = max(launch.grid.tiles for launch in recording.launches) - 1
        raise ScheduleError(f"there is no CTA {number}: they are numbered from 0 to {most}")
    return "\n\n".join(parts)


def verdicts(found: Sequence[Verdict]) -> str:
    """Return one line for each law and problem."""
    rows = [(v.status, v.law, v.problem, v.detail) for v in found]
    return table(("", "law", "problem", "what was found"), rows, firm=("", "law", "problem"))


def verdicts_data(found: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return what ``verdicts`` shows, as plain data."""
    return [dataclasses.asdict(v) for v in found]


def _default(field: dataclasses.Field[Any]) -> Any:
    return None if field.default is dataclasses.MISSING else field.default


def _value(value: float | int | tuple[int, ...]) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:,}"
