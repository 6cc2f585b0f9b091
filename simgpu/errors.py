"""Every error a user can cause. Each says what is wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class SimgpuError(Exception):
    """Base of all errors a user can cause; the command line prints its text alone and exits 2."""


class ProblemError(SimgpuError):
    """An attention problem that cannot exist: lengths, heads, mask or dtype."""


class ScheduleError(SimgpuError):
    """A schedule that cannot be recorded for this problem: tile, stages, warps or partition."""


class ProfileError(SimgpuError):
    """A hardware profile that cannot be read: names the file, the line and the field."""


class VerifyError(SimgpuError):
    """A recorded program that does not fit, can deadlock, or races."""


class UnsupportedError(SimgpuError):
    """A combination this machine has no numbers for, such as fp64 without a tensor rate."""


class UnknownNameError(SimgpuError):
    """A name that nothing carries; says which names are close."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(f"unknown {kind} {name!r}{did_you_mean(name, names)}")


class MissingExtraError(SimgpuError):
    """An optional dependency is not installed; the message says which extra brings it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} is not installed: pip install "simgpu[{extra}]"')


class OutputError(SimgpuError):
    """A file that cannot be written: no such folder, no permission, a folder in its place."""


class CompileError(SimgpuError):
    """A kernel that cannot be compiled or read: its file, name, arguments, or the compiler."""


class MeasureError(SimgpuError):
    """A measurement, or a file of measurements, that cannot be made or read."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean ...?"`` for the nearest known names, else the list of all."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    return f"; known: {', '.join(names)}" if names else ""
