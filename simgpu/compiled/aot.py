"""Compiles kernels for a GPU that is not here, in a process of its own, and remembers them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.compiled import cache
from simgpu.compiled.listing import Listing
from simgpu.errors import CompileError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simgpu.compiled.job import Job

OLDEST, TOO_NEW = (3, 6), (3, 10)
# They change what is compiled, or run kernels in place of compiling them.
_NOT_PASSED_ON = ("TRITON_INTERPRET", "TRITON_DISABLE_LINE_INFO")


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """One kernel as the compiler left it for one architecture.

    ``stack_bytes`` a thread is what its spilled registers take; ``warps`` a CTA has, partitions of
    a specialised kernel included, ``warps_asked`` is the launch's number. ``constants`` are the
    compile-time arguments, by name; ``loop_flops`` are the FLOPs of one pass of each innermost loop
    of the source; ``cubin_sha256`` is that of the binary that was read.
    """

    name: str
    arch: int
    registers: int
    stack_bytes: int
    shared_bytes: int
    warps: int
    warps_asked: int
    stages: int
    tensor_memory_columns: int
    wants_roles: bool
    loop_flops: Sequence[int]
    loads_by_descriptor: bool
    constants: Mapping[str, Any]
    cubin_sha256: str
    triton_version: str
    text: str

    @property
    def spills(self) -> int:
        """Registers on the stack, as Triton's ``n_spills`` counts them."""
        return self.stack_bytes // 4

    @property
    def target(self) -> str:
        """The architecture as Triton tells its assembler: from Hopper on with its own features."""
        return f"sm_{self.arch}{'a' if self.arch >= 90 else ''}"

    @cached_property
    def listing(self) -> Listing:
        """The instructions."""
        return Listing.from_text(self.text)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> CompiledKernel:
        """Read what the worker or the cache wrote."""
        values = dict(found)
        return cls(text=values.pop("listing"), **values)


def triton_version() -> str:
    """Return the version of the Triton that is installed.

    Raises MissingExtraError without one and CompileError for one that is too old or too new.
    """
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        raise MissingExtraError("triton", "kernels") from None
    if importlib.util.find_spec("triton") is None:
        raise MissingExtraError("triton", "kernels")
    found = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    oldest, newest = ".".join(map(str, OLDEST)), f"{TOO_NEW[0]}.{TOO_NEW[1] - 1}"
    if found < OLDEST:
        raise CompileError(f"Triton {version} is too old: simgpu reads {oldest} to {newest}")
    if found >= TOO_NEW:
        raise CompileError(f"Triton {version} is too new: simgpu reads {oldest} to {newest}")
    return version


def compile_job(job: Job, *, cache_dir: str | Path | None = None) -> tuple[CompiledKernel, ...]:
    """Return the kernels of one job, in launch order. Raises CompileError, MissingExtraError."""
    (found,) = compile_jobs([job], cache_dir=cache_dir)
    if isinstance(found, CompileError):
        raise found
    return found


#: Worker processes at most: each holds a compiler.
WORKERS = 8


def compile_jobs(
    jobs: Sequence[Job], *, cache_dir: str | Path | None = None
) -> list[tuple[CompiledKernel, ...] | CompileError]:
    """Return the kernels of each job, or why it could not be compiled.

    Those in the cache cost milliseconds; the others go to worker processes, as many as there are
    cores, and take about two seconds each.
    Raises MissingExtraError without Triton and CompileError for a Triton that cannot be used.
    """
    version = triton_version()
    folder = cache.cache_folder(cache_dir)
    known = {i: cache.load(folder, job, version) for i, job in enumerate(jobs)}
    answers: dict[int, dict[str, Any]] = {i: {"kernels": k} for i, k in known.items() if k}
    missing = [i for i in range(len(jobs)) if i not in answers]
    workers = max(1, min(len(missing), os.cpu_count() or 1, WORKERS))
    shares = [[jobs[i] for i in missing[w::workers]] for w in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(_run, shares))
    for w in range(workers):
        answers |= zip(missing[w::workers], found[w], strict=True)
    for i in missing:
        if "kernels" in answers[i]:
            cache.store(folder, jobs[i], version, answers[i])
    return [_result(jobs[i], answers[i]) for i in range(len(jobs))]


def _result(job: Job, answer: dict[str, Any]) -> tuple[CompiledKernel, ...] | CompileError:
    if "kernels" in answer:
        return tuple(map(CompiledKernel.from_json, answer["kernels"]))
    name = job.source if job.function in ("forward", "backward") else job.function
    return CompileError(f"{name} for sm_{job.arch}: {answer['error']}")


def _run(jobs: list[Job]) -> list[dict[str, Any]]:
    """Return the worker's answer to each job; a job that ends the process is given one alone."""
    answers: list[dict[str, Any]] = []
    batch = len(jobs)
    while len(answers) < len(jobs):
        now = jobs[len(answers) : len(answers) + batch]
        new, last_words = _ask(now)
        answers += new
        if len(new) < len(now) and batch == 1:
            answers.append({"error": f"the compiler process ended: {last_words}"})
        batch = 1 if len(new) < len(now) else len(jobs)
    return answers


def _ask(jobs: list[Job]) -> tuple[list[dict[str, Any]], str]:
    env = {k: v for k, v in os.environ.items() if k not in _NOT_PASSED_ON}
    root = str(Path(__file__).parents[2])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "simgpu.compiled.worker"],
        input="".join(json.dumps(job.to_json()) + "\n" for job in jobs),
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    lines = done.stderr.strip().splitlines()
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return answers, lines[-1] if lines else f"exit code {done.returncode}"
