"""What one measured run is on disk: one JSON line, schema ``simgpu.measurement/1``.

The models are the schema: unknown fields and impossible values are refused when a line is read.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simgpu.errors import MeasureError

Counters = dict[str, float]
Value = bool | int | float | str


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Problem(_Record):
    """One attention problem: what was computed, not how."""

    batch: int = Field(gt=0)
    heads_q: int = Field(gt=0)
    heads_kv: int = Field(gt=0)
    seq_q: int = Field(gt=0)
    seq_kv: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    dtype: Literal["fp16", "bf16", "fp8"] = "fp16"
    mask: Literal["none", "causal"] = "none"

    def flops(self, *, backward: bool = False) -> float:
        """Useful FLOPs: 4·head_dim for each visible score, 2.5 times that for the backward pass."""
        scores = self.seq_q * self.seq_kv
        if self.mask == "causal":
            # Bottom right: the last row sees every key, each row before it one key fewer.
            rows = min(self.seq_q, self.seq_kv)
            scores = rows * self.seq_kv - rows * (rows - 1) // 2
        return 4.0 * self.batch * self.heads_q * self.head_dim * scores * (2.5 if backward else 1.0)


class Kernel(_Record):
    """Which kernel ran and what it compiled to; a run of several launches has them in `Launch`."""

    name: str
    params: dict[str, Value] = {}
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    cubin_sha256: str | None = None


class Launch(_Record):
    """One of several launches of a run, in launch order."""

    name: str
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    cubin_sha256: str | None = None
    counters: Counters | None = None


class Time(_Record):
    """Device time of one run (all its launches) in microseconds, over ``repeats`` samples.

    A sample is ``runs_per_sample`` runs back to back, timed by one pair of events (``events``) or
    as one replay of a CUDA graph (``graph``), and divided. ``cold`` empties L2 before each sample.
    ``cycles`` is the median times the highest of the SMs' clocks counted over the loop.
    """

    median_us: float = Field(gt=0)
    p10_us: float = Field(gt=0)
    p90_us: float = Field(gt=0)
    repeats: int = Field(gt=0)
    runs_per_sample: int = Field(gt=0)
    l2: Literal["cold", "warm"]
    method: Literal["events", "graph"]
    cycles: float | None = None


class SmClocks(_Record):
    """Mean clock over the warm loop by each SM's own cycle counter: over the SMs, in MHz."""

    low: float
    median: float
    high: float


class Error(_Record):
    """‖out − ref‖ / ‖ref‖ against float64, of the worst output and head that was checked."""

    relative: float
    limit: float
    heads_checked: int


class Again(_Record):
    """The same run measured a second time, later in the grid, and how far the two are apart."""

    time: Time | None = None
    sm_clocks: SmClocks | None = None
    counters: Counters | None = None


class Method(_Record):
    """How it was measured: enough to do it again."""

    gpu: str
    driver: str | None = None
    versions: dict[str, str] = {}
    inputs: str
    date: str
    notes: str | None = None


class Measurement(_Record):
    """One run of one kernel on one problem.

    ``clock_mhz`` and ``watts`` are NVML's median during the second half of the warm loop,
    ``sm_clocks`` what the SMs' own cycle counters say of the whole loop: the one to trust.
    ``counters`` are Nsight Compute's, times in seconds, of the only launch; a run of several
    launches has them in ``launches``.
    """

    schema_: Literal["simgpu.measurement/1"] = Field(default="simgpu.measurement/1", alias="schema")
    problem: Problem
    kernel: Kernel
    status: Literal["ok", "failed"]
    reason: str | None = None
    error: Error | None = None
    time: Time | None = None
    time_cold: Time | None = None
    clock_mhz: float | None = None
    sm_clocks: SmClocks | None = None
    watts: float | None = None
    counters: Counters | None = None
    launches: tuple[Launch, ...] = ()
    again: Again | None = None
    method: Method

    @property
    def key(self) -> str:
        """What was asked for, as one string: problem, kernel and parameters."""
        return run_key(self.problem, self.kernel.name, self.kernel.params)

    @property
    def counted(self) -> bool:
        """Whether hardware counters were gathered."""
        return self.counters is not None or any(x.counters for x in self.launches)

    @property
    def tflops(self) -> float | None:
        """Useful TFLOP/s of the warm loop, None where nothing was timed."""
        if self.time is None:
            return None
        backward = self.kernel.name.endswith("backward")
        return self.problem.flops(backward=backward) / self.time.median_us / 1e6

    def spread(self) -> dict[str, float]:
        """Relative difference of the two measurements, by quantity; empty without a second one."""
        again, found = self.again, {}
        if again and again.time and self.time:
            found["time"] = _apart(self.time.median_us, again.time.median_us)
            if self.time.cycles and again.time.cycles:
                found["cycles"] = _apart(self.time.cycles, again.time.cycles)
        if again and again.counters and self.counters:
            for name, value in again.counters.items():
                found[name] = _apart(self.counters[name], value)
        return found

    def line(self) -> str:
        """The record as one line of JSON, without what is not there."""
        return self.model_dump_json(by_alias=True, exclude_none=True, exclude_defaults=False)


def _apart(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b)) if a or b else 0.0


def run_key(problem: Problem, name: str, params: dict[str, Value]) -> str:
    """A stable string for one run, by which a grid is resumed."""
    return json.dumps([problem.model_dump(), name, dict(sorted(params.items()))])


def read(path: str | Path) -> list[Measurement]:
    """Every run of a JSON-lines file, the last line of each run; `MeasureError` names the line.

    A last line that breaks off (an interrupted write) is left out.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise MeasureError(f"{path}: {error.strerror}") from error
    lines = text.split("\n")
    found: dict[str, Measurement] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = Measurement.model_validate_json(line)
        except ValidationError as error:
            if number == len(lines):
                continue
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "line"
            text = f"{path}:{number}: {where}: {first['msg']}"
            raise MeasureError(f"{text}; a line is a run that `simgpu measure` wrote") from error
        found.pop(record.key, None)
        found[record.key] = record
    return list(found.values())


def append(path: str | Path, record: Measurement) -> None:
    """Add one line and make it last: an interruption loses at most the run in hand."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(record.line() + "\n")
        file.flush()
        os.fsync(file.fileno())


def rewrite(path: str | Path, records: list[Measurement]) -> None:
    """Replace a file by one line a run, in one step."""
    target = Path(path)
    draft = target.with_name(target.name + ".part")
    draft.write_text("".join(record.line() + "\n" for record in records), encoding="utf-8")
    draft.replace(target)
