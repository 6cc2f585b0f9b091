"""The child process of a measurement, seen from the parent: start, listen, go on after a crash."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import simgpu
from simgpu.errors import MeasureError
from simgpu.validation.records import Kernel, Measurement, Method

if TYPE_CHECKING:
    from collections.abc import Callable

    from simgpu.validation.measure_grid import Point

    OnDone = Callable[[Point, dict[str, Any]], None]

COMPILERS_MAX = 14


@dataclass(slots=True)
class Child:
    """Starts `measure_child` on a list of points, again for what is left when it dies."""

    command: list[str] = field(
        default_factory=lambda: [sys.executable, "-m", "simgpu.validation.measure_child"]
    )
    prefix: list[str] = field(default_factory=list)

    def run(
        self,
        mode: str,
        points: list[Point],
        on_done: OnDone,
        *,
        seconds: float = 0.25,
        stop_at: float | None = None,
    ) -> None:
        """Make the runs in order; ``on_done`` gets each with the child's answer or its death.

        Raises `MeasureError` when the child cannot start at all.
        """
        first = 0
        while first < len(points):
            last, current, why = self._once(mode, points, first, on_done, seconds, stop_at)
            if why is None:
                return
            if current is None and last is None:
                raise MeasureError(why)
            if current is not None:
                on_done(points[current], {"reason": why})
            first = (current if current is not None else last or 0) + 1
            if self.prefix:
                # A profiler's session ends with its process: a second one would lose the table.
                return

    def _once(
        self,
        mode: str,
        points: list[Point],
        first: int,
        on_done: OnDone,
        seconds: float,
        stop_at: float | None,
    ) -> tuple[int | None, int | None, str | None]:
        """One process: the last run that it finished, the one it died in, and why it died."""
        finished: int | None = None
        current: int | None = None
        with tempfile.TemporaryDirectory() as folder:
            job = _job_file(folder, mode, points, first, seconds, stop_at)
            with (Path(folder) / "stderr").open("w+", encoding="utf-8") as stderr:
                process = self._start(job, stderr)
                assert process.stdout is not None
                for line in process.stdout:
                    event = _event(line)
                    if event.get("event") == "fatal":
                        process.wait()
                        raise MeasureError(event["reason"])
                    if event.get("event") == "start":
                        current = event["index"]
                    elif event.get("event") == "done":
                        finished, current = event["index"], None
                        on_done(points[event["index"]], event)
                code = process.wait()
                stderr.seek(0)
                return finished, current, None if code == 0 else _death(code, stderr.read())

    def compile(self, points: list[Point], *, stop_at: float | None = None) -> None:
        """Compile the runs' kernels into Triton's cache, in several processes; failures wait."""
        count = min(COMPILERS_MAX, os.cpu_count() or 1, len(points))
        with tempfile.TemporaryDirectory() as folder:
            running = []
            for n in range(count):
                own = Path(folder) / str(n)
                own.mkdir()
                job = _job_file(str(own), "compile", points[n::count], 0, 0.0, stop_at)
                running.append(self._start(job, subprocess.DEVNULL, stdout=subprocess.DEVNULL))
            for process in running:
                process.wait()

    def _start(self, job: Path, stderr: Any, stdout: Any = subprocess.PIPE) -> Any:
        root = str(Path(simgpu.__file__).parents[1])
        env = os.environ | {
            "TRITON_DISABLE_LINE_INFO": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        }
        env.pop("TRITON_INTERPRET", None)
        try:
            return subprocess.Popen(
                [*self.prefix, *self.command, str(job)],
                stdout=stdout,
                stderr=stderr,
                env=env,
                text=True,
            )
        except OSError as error:
            raise MeasureError(f"{(self.prefix or self.command)[0]}: {error.strerror}") from error


def _job_file(
    folder: str,
    mode: str,
    points: list[Point],
    first: int,
    seconds: float,
    stop_at: float | None,
) -> Path:
    job = {
        "mode": mode,
        "seconds": seconds,
        "stop_at": stop_at,
        "points": [
            {
                "index": n,
                "problem": p.problem.model_dump(),
                "kernel": p.kernel,
                "params": p.params,
            }
            for n, p in enumerate(points)
            if n >= first
        ],
    }
    path = Path(folder) / "job.json"
    path.write_text(json.dumps(job), encoding="utf-8")
    return path


def _event(line: str) -> dict[str, Any]:
    """An event of the child, or nothing: libraries and the profiler print between them."""
    try:
        event = json.loads(line) if line.startswith("{") else {}
    except json.JSONDecodeError:
        return {}
    return event if isinstance(event, dict) else {}


def _death(code: int, stderr: str) -> str:
    """One line on how a process ended: its signal, or the last thing it said."""
    if code < 0:
        return f"the process died: {signal.Signals(-code).name}"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f"the process ended with status {code}: {lines[-1][:200] if lines else 'no message'}"


def failed_record(point: Point, why: str) -> Measurement:
    """The record of a run whose process died before it could write one."""
    return Measurement(
        problem=point.problem,
        kernel=Kernel(name=point.kernel, params=point.params),
        status="failed",
        reason=why,
        method=Method(
            gpu="unknown",
            inputs="none",
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        ),
    )
