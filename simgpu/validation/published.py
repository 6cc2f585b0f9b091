"""Published measurements as tests: what papers report, read from files.

A file of ``validation/published`` has one source's forward runs on one GPU. `published_errors`
predicts them. Nothing is fitted to them.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from simgpu.errors import MeasureError, SimgpuError, UnknownNameError
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Params = dict[str, bool | int | str]


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
    """One file: a source's rows on one GPU.

    Its clock is the one that was set: where the profile knows energies and the board's power allows
    less, less is used. Without one it is the profile's sustained clock.
    """

    schema_: Literal["simgpu.published/1"] = Field(alias="schema")
    paper: str
    source: str
    gpu: str
    clock_mhz: float | None = Field(default=None, gt=0)
    dtype: Literal["fp16", "bf16", "fp8"]
    kernels: dict[str, Kernel]
    not_predicted: tuple[NotPredicted, ...] = ()
    rows: tuple[Row, ...] = Field(min_length=1)


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
