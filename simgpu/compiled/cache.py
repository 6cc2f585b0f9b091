"""What was compiled before, on disk: one JSON file a job, which also names the files behind it."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simgpu.compiled.job import Job

# Raise it when what the worker writes changes.
FORMAT = 3


def cache_folder(given: str | Path | None = None) -> Path:
    """Return ``given``, else ``$XDG_CACHE_HOME/simgpu``, else ``~/.cache/simgpu``."""
    if given is not None:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "simgpu"


def load(folder: Path, job: Job, triton: str) -> list[dict[str, Any]] | None:
    """Return the kernels of a job compiled before by this Triton, unless one of its files changed.

    A file that cannot be read counts as not there.
    """
    try:
        entry = json.loads(_file(folder, job, triton).read_text())
        sources: dict[str, str] = entry["sources"]
        if all(_digest(Path(name)) == digest for name, digest in sources.items()):
            kernels: list[dict[str, Any]] = entry["kernels"]
            return kernels
    except (OSError, ValueError, KeyError):
        pass
    return None


def store(folder: Path, job: Job, triton: str, answer: dict[str, Any]) -> None:
    """Keep a worker's answer; a folder that cannot be written to is no error."""
    file = _file(folder, job, triton)
    part = file.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(answer))
        part.replace(file)
        return
    with suppress(OSError):
        part.unlink()


def _file(folder: Path, job: Job, triton: str) -> Path:
    text = json.dumps([FORMAT, triton, job.to_json()], sort_keys=True)
    return folder / "compiled" / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
