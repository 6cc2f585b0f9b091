"""Published measurements as tests: what papers report, beside what is predicted for it.

A file of ``validation/published`` has one source's forward runs on one GPU. Errors are of speed:
+10 % means predicted a tenth faster than published. Nothing is fitted to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from simgpu.errors import MeasureError, ScheduleError, SimgpuError, UnknownNameError, VerifyError
from simgpu.front import run
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention
from simgpu.units import cycles_to_us, tflops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from simgpu.result.run import Run

Params = dict[str, bool | int | str]
#: Predictions in the order of the table: ours, then two rooflines.
MODELS = ("simgpu", "roofline", "roofline_exp")
ROOFLINES = {"roofline": ("tensor", "hbm"), "roofline_exp": ("tensor", "hbm", "mufu")}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Kernel(_Part):
    """The schedule that describes a kernel, and its tiles by head dim, or for "any".

    Several tiles stand for an autotuner: the one predicted fastest counts. None: the defaults.
    ``shared_bytes`` of a CTA by head dim, where the kernel's source says it, decide occupancy.
    """

    schedule: str
    shared_bytes: dict[int, int] = {}
    tiles: dict[int | Literal["any"], tuple[Params, ...]] = {}

    def choices(self, head_dim: int) -> tuple[Params, ...]:
        """Return the parameters to try at a head dim."""
        return self.tiles.get(head_dim) or self.tiles.get("any") or ({},)

    def resources(self, head_dim: int) -> dict[str, int] | None:
        """Return what is known of the compiled kernel, as ``simgpu.run`` takes it."""
        known = self.shared_bytes.get(head_dim)
        return None if known is None else {"shared_bytes": known}


class Row(_Part):
    """One published run: a shape, and its speed in TFLOP/s (halved work when causal) or its ms."""

    kernel: str
    batch: int = Field(gt=0)
    heads: int = Field(gt=0)
    kv_heads: int | None = Field(default=None, gt=0)
    seqlen: int = Field(gt=0)
    kv_seqlen: int | None = Field(default=None, gt=0)
    head_dim: int = Field(gt=0)
    causal: bool
    params: Params = {}
    tflops: float | None = Field(default=None, gt=0)
    ms: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_measurement(self) -> Row:
        if (self.tflops is None) == (self.ms is None):
            raise ValueError("give either tflops or ms")
        return self

    def problem(self, dtype: str) -> Attention:
        """Return the attention problem of the row."""
        return Attention(
            batch=self.batch,
            heads_q=self.heads,
            heads_kv=self.kv_heads or self.heads,
            seq_q=self.seqlen,
            seq_kv=self.kv_seqlen or self.seqlen,
            head_dim=self.head_dim,
            dtype=dtype,
            causal=self.causal,
        )

    @property
    def label(self) -> str:
        """The shape, short."""
        heads = f"{self.heads}/{self.kv_heads}" if self.kv_heads else f"{self.heads}"
        seq = f"{self.seqlen}:{self.kv_seqlen}" if self.kv_seqlen else f"{self.seqlen}"
        mask = "causal" if self.causal else "none"
        return f"{self.batch}x{heads}x{seq} d{self.head_dim} {mask}"


class NotPredicted(_Part):
    """Published runs of the same source that are left out, how many, and why."""

    what: str
    rows: int = Field(gt=0)
    why: str


class Publication(_Part):
    """One file: a source's rows on one GPU; without a clock the profile's sustained one is used."""

    schema_: Literal["simgpu.published/1"] = Field(alias="schema")
    paper: str
    source: str
    gpu: str
    clock_mhz: float | None = Field(default=None, gt=0)
    dtype: Literal["fp16", "bf16", "fp8"]
    kernels: dict[str, Kernel]
    not_predicted: tuple[NotPredicted, ...] = ()
    rows: tuple[Row, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A row and its speeds in TFLOP/s by model; or why it could not be predicted."""

    paper: str
    kernel: str
    gpu: str
    label: str
    unit: str
    published: float
    published_tflops: float
    predicted_tflops: dict[str, float]
    params: Params
    refused: str | None = None

    def error(self, model: str = "simgpu") -> float:
        """Return predicted / published speed - 1."""
        return self.predicted_tflops[model] / self.published_tflops - 1.0

    def in_unit(self, model: str = "simgpu") -> float:
        """Return a prediction in the unit of the publication."""
        speed = self.predicted_tflops[model]
        return speed if self.unit == "TFLOP/s" else self.published * self.published_tflops / speed


@dataclass(frozen=True, slots=True)
class PublishedError:
    """Errors of speed over some rows: ``mean`` absolute, by model; bias and worst are ours."""

    paper: str
    gpu: str
    kernel: str
    rows: int
    mean: dict[str, float]
    bias: float
    worst: float
    worst_run: str


def publications(gpu: str | None = None, folder: Path | None = None) -> list[Publication]:
    """Return the committed publications, those of one GPU when its profile or alias is given.

    MeasureError where a file is malformed (file, line, field), or where a GPU has no rows.
    """
    folder = folder or Path(str(files("simgpu") / "validation" / "published"))
    found = [read_publication(path) for path in sorted(folder.glob("*.yaml"))]
    if gpu is None:
        return found
    name = load_profile(gpu).name
    kept = [p for p in found if p.gpu == name]
    if not kept:
        known = ", ".join(sorted({p.gpu for p in found}))
        raise MeasureError(f"no published rows of {name}, only of {known}")
    return kept


def read_publication(path: Path) -> Publication:
    """Read one file; MeasureError says the file, the line, the field and what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        made = Publication.model_validate(yaml.safe_load(text))
    except (OSError, UnicodeDecodeError) as error:
        raise MeasureError(f"{path}: cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise MeasureError(f"{path}:{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise MeasureError(f"{path}: not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise _complaint(path, tree, first["loc"], first["msg"]) from error
    for number, row in enumerate(made.rows):
        if row.kernel not in made.kernels:
            known = ", ".join(made.kernels)
            text = f"{row.kernel!r} is not under kernels, which has {known}"
            raise _complaint(path, tree, ("rows", number, "kernel"), text)
    try:
        load_profile(made.gpu)
    except SimgpuError as error:
        raise _complaint(path, tree, ("gpu",), str(error)) from error
    return made


def _complaint(
    path: Path, tree: yaml.Node | None, where: Sequence[int | str], text: str
) -> MeasureError:
    field = ".".join(map(str, where)) or "file"
    return MeasureError(f"{path}:{_line(tree, where)}: {field}: {text}")


def _line(node: yaml.Node | None, where: Iterable[int | str]) -> int:
    """Return the line of a field, or of the nearest one around it."""
    line = node.start_mark.line if node else 0
    for step in where:
        below: Any = None
        if isinstance(node, yaml.MappingNode):
            below = next((v for k, v in node.value if k.value == str(step)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            below = node.value[step]
        if below is None:
            break
        node, line = below, below.start_mark.line
    return line + 1


def of_schedule(found: Sequence[Publication], schedule: str) -> list[Publication]:
    """Return the publications with the rows of one schedule; UnknownNameError for none."""
    kept = []
    for p in found:
        rows = tuple(row for row in p.rows if p.kernels[row.kernel].schedule == schedule)
        if rows:
            kept.append(p.model_copy(update={"rows": rows}))
    if not kept:
        known = {kernel.schedule for p in found for kernel in p.kernels.values()}
        raise UnknownNameError("published schedule", schedule, known)
    return kept


def predict(
    found: Iterable[Publication],
    every: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[PublishedRun]:
    """Predict each ``every``-th row, by simgpu and by the rooflines."""
    pairs = [(p, row) for p in found for row in p.rows][:: max(1, every)]
    runs = []
    for number, (p, row) in enumerate(pairs):
        runs.append(_predict(p, row))
        if progress:
            progress(number + 1)
    return runs


def _predict(p: Publication, row: Row) -> PublishedRun:
    problem = row.problem(p.dtype)
    published = row.tflops or tflops(problem.useful_flops, (row.ms or 0.0) * 1e3)
    unit, value = ("ms", row.ms) if row.ms else ("TFLOP/s", published)
    best, refused = _fastest(p, row, problem)
    return PublishedRun(
        paper=p.paper,
        kernel=row.kernel,
        gpu=p.gpu,
        label=row.label,
        unit=unit,
        published=value or published,
        published_tflops=published,
        predicted_tflops=_speeds(best) if best else {},
        params=best.params if best else {},
        refused=None if best else refused,
    )


def _fastest(p: Publication, row: Row, problem: Attention) -> tuple[Run | None, str]:
    """Return the fastest of a kernel's tiles, and why others, if any, do not fit."""
    kernel = p.kernels[row.kernel]
    best, refused = None, ""
    for tile in kernel.choices(row.head_dim):
        params = {**tile, **row.params}
        try:
            tried = run(
                kernel.schedule,
                problem,
                p.gpu,
                params=params,
                resources=kernel.resources(row.head_dim),
                clock_mhz=p.clock_mhz,
                clock="sustained",
            )
        except (ScheduleError, VerifyError) as error:
            refused = str(error)
            continue
        if best is None or tried.cycles < best.cycles:
            best = tried
    return best, refused


def _speeds(result: Run) -> dict[str, float]:
    """Return TFLOP/s by model; a roofline is each launch's greatest bound, added up."""
    speeds = {"simgpu": result.tflops}
    for model, units in ROOFLINES.items():
        cycles = sum(max(launch.bounds[u] for u in units) for launch in result.launches)
        us = cycles_to_us(cycles, result.clock_mhz)
        speeds[model] = tflops(result.problem.useful_flops, us)
    return speeds


def published_table(runs: Sequence[PublishedRun]) -> list[PublishedError]:
    """Return one line a paper, GPU and kernel, and the last for all rows."""
    groups: dict[tuple[str, str, str], list[PublishedRun]] = {}
    known = [r for r in runs if r.refused is None]
    for r in known:
        groups.setdefault((r.paper, r.gpu, r.kernel), []).append(r)
    lines = [_summary(*key, group) for key, group in groups.items()]
    return [*lines, _summary("all", "", "", known)] if known else []


def _summary(paper: str, gpu: str, kernel: str, runs: Sequence[PublishedRun]) -> PublishedError:
    worst = max(runs, key=lambda r: abs(r.error()))
    return PublishedError(
        paper,
        gpu,
        kernel,
        len(runs),
        {model: fmean(abs(r.error(model)) for r in runs) for model in MODELS},
        fmean(r.error() for r in runs),
        worst.error(),
        worst.label,
    )
