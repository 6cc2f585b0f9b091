"""Files that reports are written to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simgpu.errors import OutputError

if TYPE_CHECKING:
    import os


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise OutputError when ``path`` cannot be written, before time is spent on what goes there.

    Leaves no file behind where there was none.
    """
    target = Path(path)
    there = target.exists()
    try:
        with target.open("ab"):
            pass
        if not there:
            target.unlink()
    except OSError as error:
        raise _cannot(target, error) from None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` as UTF-8; OutputError says why where it cannot be."""
    target = Path(path)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _cannot(target, error) from None


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data``; OutputError says why where it cannot be."""
    target = Path(path)
    try:
        target.write_bytes(data)
    except OSError as error:
        raise _cannot(target, error) from None


def _cannot(path: Path, error: OSError) -> OutputError:
    why = (error.strerror or str(error)).lower()
    return OutputError(f"cannot write {path}: {why}; give a file in a folder that you can write to")
