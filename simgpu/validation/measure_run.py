"""Measure a grid of runs: compile, check and time, time again, count; resumable at any point.

Each stage is a child process (`measure_child`) that reports run by run; this side needs neither
torch nor a GPU and keeps the file of records.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.errors import MeasureError, MissingExtraError
from simgpu.validation import measure_ncu, records
from simgpu.validation.measure_process import Child, failed_record
from simgpu.validation.records import Again, Launch, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from simgpu.validation.measure_grid import Point

    Progress = Callable[[str, int, int, str], None]

COMPILE_TOGETHER = 4


@dataclass(slots=True)
class Summary:
    """What came of a grid: counts, the runs that failed with their reasons, and other remarks."""

    measured: int = 0
    counted: int = 0
    resumed: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Session:
    """A file of records and the stages that fill it."""

    out: Path
    points: list[Point]
    child: Child
    progress: Progress
    seconds: float
    stop_at: float | None
    found: dict[str, Measurement] = field(default_factory=dict)
    summary: Summary = field(default_factory=Summary)
    compiled: set[str] = field(default_factory=set)

    def keep(self, record: Measurement) -> None:
        """Add or replace a run, on disk at once."""
        self.found[record.key] = record
        records.append(self.out, record)

    def good(self, points: Iterable[Point]) -> list[tuple[Point, Measurement]]:
        """The points that have a good record, with it."""
        pairs = ((p, self.found.get(p.key)) for p in points)
        return [(p, r) for p, r in pairs if r is not None and r.status == "ok"]

    def drive(self, mode: str, points: list[Point], on: Callable[[Point, Any], None]) -> None:
        """Run a stage; ``on`` gets each point with what the child said about it."""
        done = 0

        def event(point: Point, answer: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            on(point, answer)
            text = f"{point}: {answer['reason']}" if answer.get("reason") else str(point)
            self.progress(mode, done, len(points), text)

        self.child.run(mode, points, event, seconds=self.seconds, stop_at=self.stop_at)

    def compile(self, points: list[Point]) -> None:
        """Fill Triton's cache, several kernels at a time: a stage would compile them one by one."""
        todo = [p for p in points if p.key not in self.compiled]
        self.compiled.update(p.key for p in todo)
        if len(todo) >= COMPILE_TOGETHER:
            self.progress("compile", 0, len(todo), "")
            self.child.compile(todo, stop_at=self.stop_at)
            self.progress("compile", len(todo), len(todo), "")

    def time(self) -> None:
        """Check and time every run that has no good record yet."""
        todo = [p for p in self.points if p.key not in {q.key for q, _ in self.good(self.points)}]
        self.summary.resumed = len(self.points) - len(todo)
        self.compile(todo)

        def on(point: Point, answer: dict[str, Any]) -> None:
            if "record" in answer:
                record = Measurement.model_validate_json(answer["record"])
            else:
                record = failed_record(point, answer["reason"])
            self.keep(record)
            if record.status == "ok":
                self.summary.measured += 1
            else:
                self.summary.failures.append((str(point), record.reason or ""))

        self.drive("time", todo, on)

    def again(self) -> None:
        """Time a second time the runs that ask for it."""
        good = self.good(p for p in self.points if p.again)
        todo = [p for p, r in good if r.again is None or r.again.time is None]

        def on(point: Point, answer: dict[str, Any]) -> None:
            record = self.found[point.key]
            if "again" in answer:
                old = record.again.model_dump(exclude_none=True) if record.again else {}
                both = Again.model_validate(old | answer["again"])
                self.keep(record.model_copy(update={"again": both}))

        self.compile(todo)
        self.drive("again", todo, on)

    def count(self) -> None:
        """Gather counters for the runs that ask for them, in one Nsight Compute session."""
        good = self.good(p for p in self.points if p.counters)
        todo = [p for p, r in good if not r.counted]
        # Twice means a whole second sweep, so that the two are far apart in time.
        second = [
            p for p, r in good if p.counters > 1 and (r.again is None or r.again.counters is None)
        ]
        points = todo + second
        if not points:
            return
        ncu = shutil.which("ncu")
        if ncu is None:
            self.summary.notes.append("ncu (Nsight Compute) is not on the PATH: no counters")
            return
        self.compile(points)
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "ncu.csv"
            self.child.prefix = measure_ncu.command(ncu, str(log))
            try:
                self.drive("count", points, lambda point, answer: None)
                runs = measure_ncu.parse(log.read_text(encoding="utf-8") if log.exists() else "")
            except MeasureError as error:
                self.summary.notes.append(str(error))
                return
            finally:
                self.child.prefix = []
        for point, run in zip(points, runs, strict=False):
            if run.launches:
                self._counted(point, run)
        self.summary.counted = sum(self.found[p.key].counted for p in todo)
        if self.summary.counted < len(todo):
            missing = len(todo) - self.summary.counted
            self.summary.notes.append(f"no counters for {missing} of {len(todo)} runs")

    def _counted(self, point: Point, run: measure_ncu.Counted) -> None:
        record = self.found[point.key]
        if record.kernel.cubin_sha256:
            run = run.ours()
        if record.counted:
            if record.counters is not None:
                few = {k: v for k, v in run.launches[0][1].items() if k in measure_ncu.REPEATED}
                old = record.again or Again()
                again = old.model_copy(update={"counters": few})
                self.keep(record.model_copy(update={"again": again}))
            return
        if len(run.launches) == 1:
            self.keep(record.model_copy(update={"counters": run.launches[0][1]}))
            return
        known = record.launches if len(record.launches) == len(run.launches) else ()
        launches = [
            (known[n] if known else Launch(name=name)).model_copy(update={"counters": counters})
            for n, (name, counters) in enumerate(run.launches)
        ]
        self.keep(record.model_copy(update={"launches": tuple(launches)}))


def measure(
    points: list[Point],
    out: str | Path,
    *,
    counters: bool = False,
    again: bool = False,
    seconds: float = 0.25,
    minutes: float | None = None,
    progress: Progress | None = None,
    child: Child | None = None,
) -> Summary:
    """Measure every point into the JSON-lines file ``out``, one line a run.

    Runs that ``out`` already holds are kept, failed ones are tried again. ``seconds`` is the length
    of each timed loop; no run is started after ``minutes``. ``progress`` gets (stage, done, total,
    text) after each run. A run that cannot be made gets a record with ``status`` "failed" and its
    reason, and the rest is done all the same.

    Raises `MissingExtraError` without torch or Triton, `MeasureError` without a GPU and for an
    ``out`` that cannot be read.
    """
    for name in ("torch", "triton"):
        if child is None and importlib.util.find_spec(name) is None:
            raise MissingExtraError(name, "kernels")
    session = Session(
        out=Path(out),
        points=points,
        child=child or Child(),
        progress=progress or (lambda stage, done, total, text: None),
        seconds=seconds,
        stop_at=time.time() + 60 * minutes if minutes else None,
    )
    if session.out.exists():
        session.found = {record.key: record for record in records.read(session.out)}
        # Also mends a last line that was cut short, so that the next one starts on its own.
        records.rewrite(session.out, list(session.found.values()))
    session.out.parent.mkdir(parents=True, exist_ok=True)
    session.time()
    if counters:
        session.count()
    if again:
        session.again()
    records.rewrite(session.out, list(session.found.values()))
    return session.summary
