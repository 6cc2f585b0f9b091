"""What to measure: a grid of kernels × problems × parameters, from YAML or from flags."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simgpu.errors import MeasureError, UnknownNameError
from simgpu.validation.records import Problem, Value, run_key

OURS = ("fa2", "fa1", "fa3", "standard", "fa2_backward")
PEERS = (
    "peer_fa2",
    "peer_cudnn",
    "peer_fa3",
    "peer_fa2_backward",
    "peer_cudnn_backward",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run to make: ``counters`` times under Nsight Compute, timed twice with ``again``."""

    problem: Problem
    kernel: str
    params: dict[str, Value] = field(default_factory=dict)
    counters: int = 0
    again: bool = False

    @property
    def key(self) -> str:
        """The same string as the key of the run's record."""
        return run_key(self.problem, self.kernel, self.params)

    def __str__(self) -> str:
        p = self.problem
        heads = f"{p.heads_q}" if p.heads_q == p.heads_kv else f"{p.heads_q}/{p.heads_kv}"
        length = f"{p.seq_q}" if p.seq_q == p.seq_kv else f"{p.seq_q}x{p.seq_kv}"
        params = " ".join(f"{name}={value}" for name, value in self.params.items())
        shape = f"{p.batch}x{heads}x{length}x{p.head_dim}"
        return f"{self.kernel} {shape} {p.dtype} {p.mask} {params}".rstrip()


class _Shape(BaseModel):
    """Problems as a grid writes them; ``heads`` and ``seqlen`` stand for both sides."""

    model_config = ConfigDict(extra="forbid")

    batch: int
    heads: int
    heads_kv: int | None = None
    seqlen: int
    seqlen_kv: int | None = None
    head_dim: int
    dtype: list[Literal["fp16", "bf16", "fp8"]] = ["fp16"]
    mask: list[Literal["none", "causal"]] = ["none"]

    def problems(self) -> list[Problem]:
        return [
            Problem(
                batch=self.batch,
                heads_q=self.heads,
                heads_kv=self.heads_kv or self.heads,
                seq_q=self.seqlen,
                seq_kv=self.seqlen_kv or self.seqlen,
                head_dim=self.head_dim,
                dtype=dtype,
                mask=mask,
            )
            for dtype, mask in itertools.product(self.dtype, self.mask)
        ]


class _Group(BaseModel):
    """Every kernel × problem × combination of parameter values."""

    model_config = ConfigDict(extra="forbid")

    kernels: list[str]
    problems: list[_Shape]
    params: dict[str, list[Value]] = {}
    counters: int = Field(default=0, ge=0, le=2)
    again: bool = False

    def points(self) -> list[Point]:
        combos = [
            dict(zip(self.params, values, strict=True))
            for values in itertools.product(*self.params.values())
        ]
        problems = [p for shape in self.problems for p in shape.problems()]
        return [
            Point(problem=p, kernel=k, params=c, counters=self.counters, again=self.again)
            for p in problems
            for k in self.kernels
            for c in combos
        ]


class _Grid(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_: Literal["simgpu.grid/1"] = Field(alias="schema")
    groups: dict[str, _Group]


def load_grid(path: str | Path) -> list[Point]:
    """The points of a grid file; a point that stands in several groups keeps the most it asks for.

    Raises `MeasureError` with file and field for what cannot be read, and `UnknownNameError` for a
    kernel that is neither ours nor a peer.
    """
    try:
        raw = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        grid = _Grid.model_validate(raw)
    except OSError as error:
        raise MeasureError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise MeasureError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise MeasureError(f"{path}: {where}: {first['msg']}") from error
    return merge(point for group in grid.groups.values() for point in group.points())


def merge(points: Any) -> list[Point]:
    """One point for each run, in order, sorted so that runs of one problem follow each other."""
    found: dict[str, Point] = {}
    for point in points:
        if point.kernel not in OURS + PEERS:
            raise UnknownNameError("kernel", point.kernel, OURS + PEERS)
        old = found.get(point.key)
        found[point.key] = (
            point
            if old is None
            else Point(
                problem=point.problem,
                kernel=point.kernel,
                params=point.params,
                counters=max(point.counters, old.counters),
                again=point.again or old.again,
            )
        )
    order = {p: n for n, p in enumerate(dict.fromkeys(x.problem for x in found.values()))}
    return sorted(found.values(), key=lambda x: order[x.problem])


def parse_params(pairs: list[str]) -> dict[str, list[Value]]:
    """``["block_m=64,128", "loads=tma"]`` as lists of values; `MeasureError` without an ``=``."""
    found: dict[str, list[Value]] = {}
    for pair in pairs:
        name, equals, values = pair.partition("=")
        if not equals or not name or not values:
            raise MeasureError(f"parameter {pair!r}: write name=value or name=value,value")
        found[name] = [yaml.safe_load(value) for value in values.split(",")]
    return found


def flags_grid(
    kernels: list[str],
    *,
    shape: dict[str, Any],
    params: dict[str, list[Value]],
    counters: int = 0,
    again: bool = False,
) -> list[Point]:
    """The points that command-line flags describe: one shape, all combinations of parameters."""
    try:
        group = _Group(
            kernels=kernels, problems=[_Shape(**shape)], params=params, counters=counters,
            again=again,
        )  # fmt: skip
        return merge(group.points())
    except ValidationError as error:
        first = error.errors()[0]
        raise MeasureError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
