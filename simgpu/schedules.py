"""Schedules by name, through the entry points that others use too, or from a user's file."""

from __future__ import annotations

import dataclasses
import importlib.util
import types
import typing
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from simgpu.errors import ScheduleError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.program.program import Schedule

ENTRY_POINT_GROUP = "simgpu.schedules"


def schedule_names() -> list[str]:
    """Return the names of all installed schedules."""
    return sorted({point.name for point in entry_points(group=ENTRY_POINT_GROUP)})


def schedule_class(name: str) -> type[Any]:
    """Return the schedule class called ``name``, or the one in a file ``name.py``.

    Raises UnknownNameError, or ScheduleError for a file without exactly one schedule.
    """
    if name.endswith(".py"):
        return _from_file(Path(name))
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            found: type[Any] = point.load()
            return found
    raise UnknownNameError("schedule", name, schedule_names())


def make_schedule(name: str, params: Mapping[str, Any] | None = None) -> Schedule:
    """Return the schedule with the given parameters; text values are converted to their types.

    Raises ScheduleError for an unknown parameter (with the nearest name) or a wrong value.
    """
    cls = schedule_class(name)
    hints = typing.get_type_hints(cls)
    known = {f.name: hints[f.name] for f in dataclasses.fields(cls)}
    values = {}
    for key, value in (params or {}).items():
        if key not in known:
            close = did_you_mean(key, known)
            raise ScheduleError(f"schedule {name!r} has no parameter {key!r}{close}")
        values[key] = _converted(name, key, value, known[key])
    made: Schedule = cls(**values)
    return made


def _converted(schedule: str, key: str, value: Any, kind: Any) -> Any:
    where = f"schedule {schedule!r}: {key}={value!r}"
    optional = [x for x in get_args(kind) if x is not type(None)]
    if get_origin(kind) in (types.UnionType, typing.Union) and len(optional) == 1:
        return None if value in (None, "none") else _converted(schedule, key, value, optional[0])
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            choices = ", ".join(map(str, get_args(kind)))
            raise ScheduleError(f"{where}: it must be one of {choices}")
        return value
    if kind is bool and isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise ScheduleError(f"{where}: it must be true or false")
        return value.lower() == "true"
    if kind in (int, float) and isinstance(value, str):
        try:
            return kind(value)
        except ValueError:
            raise ScheduleError(f"{where}: it must be a number") from None
    if kind in (int, float, bool, str) and not isinstance(value, kind):
        raise ScheduleError(f"{where}: it must be of type {kind.__name__}")
    return value


def _from_file(path: Path) -> type[Any]:
    if not path.is_file():
        raise ScheduleError(f"{path}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ScheduleError(f"{path}: cannot be read: {type(error).__name__}: {error}") from error
    found = [
        x
        for x in vars(module).values()
        if isinstance(x, type) and "schedule_name" in vars(x) and x.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ScheduleError(
            f"{path}: {len(found)} classes carry @schedule; a schedule file has exactly one"
        )
    return found[0]
