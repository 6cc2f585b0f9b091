"""What one GPU is: plain numbers with their units in their names, the sources kept beside them.

Timing code reads ``profile.rates.mufu_instructions`` as a float. Where a number comes from stands
in ``profile.origins`` under its path, and ``profile.sources()`` lists it all, guesses first.
The numbers themselves are declared in ``sections.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from simgpu.errors import ProfileError, did_you_mean
from simgpu.hardware.complaint import first_complaint
from simgpu.hardware.sections import (
    SECTIONS,
    Costs,
    Device,
    Energy,
    Issue,
    Memory,
    OccupancyLimits,
    Power,
    Rates,
    Strict,
)

Kind = Literal["assumed", "fitted", "derived", "measured", "vendor"]
KINDS: tuple[Kind, ...] = ("assumed", "fitted", "derived", "measured", "vendor")

Capability = Literal[
    "mma_sync",
    "cp_async",
    "mbarrier",
    "tma",
    "wgmma",
    "setmaxnreg",
    "clusters",
    "tcgen05",
    "tensor_memory",
    "two_cta_mma",
    "max3",
    "fp8",
    "fp4",
]


#: What a GPU with tensor memory has to say of it, by section.
TENSOR_MEMORY = {
    "occupancy": ("tmem_columns", "tmem_unit_columns"),
    "rates": ("tmem_read_bytes", "tmem_write_bytes"),
    "memory": ("tmem_latency_cycles",),
}


class Origin(Strict):
    """Where one number comes from."""

    kind: Kind = Field(description="how far to trust it")
    source: str = Field(min_length=3, description="document and table, or the runs")
    note: str | None = Field(None, description="what surprises")
    fitted_on: str | None = Field(None, description="the runs, if the kind is fitted")
    spread: float | None = Field(None, ge=0, description="range of the samples over their median")
    date: str | None = Field(
        None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="when it was measured"
    )

    @model_validator(mode="after")
    def _fit_names_its_runs(self) -> Self:
        if self.kind == "fitted" and not self.fitted_on:
            text = "is fitted but does not say on what; add fitted_on: the runs it was fitted on"
            raise PydanticCustomError("fitted_on_missing", text)
        return self


class Measurement(Strict):
    """One quantity of `simgpu calibrate`; kept beside the numbers, and read by no prediction."""

    value: float
    unit: str
    method: str
    spread: float = Field(ge=0, description="range of the samples over their median")
    repeats: int = Field(gt=0)


class SourceRow(NamedTuple):
    """One line of ``Profile.sources``."""

    path: str
    value: float | int | tuple[int, ...]
    kind: Kind
    source: str
    note: str | None
    fitted_on: str | None
    meaning: str


class Profile(Strict):
    """One GPU, resolved (its parent merged in), checked and frozen."""

    schema_: Literal["simgpu.profile/1"] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9_]+$")
    aliases: tuple[str, ...] = ()
    title: str
    extends: str | None = None
    compute_capability: str = Field(pattern=r"^\d+\.\d+$")
    capabilities: frozenset[Capability] = Field(strict=False)
    device: Device
    occupancy: OccupancyLimits
    rates: Rates
    memory: Memory
    costs: Costs
    power: Power | None = None
    energy: Energy | None = None
    issue: Issue | None = None
    measurements: dict[str, Measurement] = Field(default_factory=dict)
    origins: dict[str, Origin]

    @model_validator(mode="before")
    @classmethod
    def _set_sources_aside(cls, document: object) -> object:
        """Split each ``{value, kind, source}`` into the bare value and its origin."""
        if not isinstance(document, Mapping) or "origins" in document:
            return document
        out: dict[str, object] = {}
        origins: dict[str, object] = {}
        for key, value in document.items():
            if key in SECTIONS and isinstance(value, Mapping):
                out[key] = _bare(key, value, origins)
            else:
                out[key] = tuple(value) if isinstance(value, list) else value
        return {**out, "origins": origins}

    @model_validator(mode="after")
    def _tensor_memory_has_numbers(self) -> Self:
        if not self.has("tensor_memory"):
            return self
        for section, names in TENSOR_MEMORY.items():
            for name in names:
                if getattr(getattr(self, section), name) is None:
                    text = f"lists tensor_memory; give {section}.{name} too"
                    raise PydanticCustomError("tensor_memory_numbers", text)
        return self

    def gpu_names(self) -> tuple[str, ...]:
        """Return the names that load this profile: its own, then its aliases."""
        return (self.name, *self.aliases)

    def has(self, *capabilities: Capability) -> bool:
        """Return whether this GPU has all of ``capabilities``."""
        return self.capabilities.issuperset(capabilities)

    @property
    def digest(self) -> str:
        """Twelve hex digits over what a prediction can depend on: numbers, not their sources."""
        aside = {"aliases", "title", "extends", "origins", "measurements"}
        content = self.model_dump(mode="json", exclude=aside, exclude_none=True)
        content["capabilities"] = sorted(self.capabilities)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def sources(self) -> list[SourceRow]:
        """Return every number with its origin: assumed first, then fitted, derived, measured."""
        rows = []
        for section, model in SECTIONS.items():
            for name, field in model.model_fields.items():
                value = getattr(getattr(self, section), name, None)
                if value is not None:
                    path = f"{section}.{name}"
                    o = self.origins[path]
                    row = (path, value, o.kind, o.source, o.note, o.fitted_on)
                    rows.append(SourceRow(*row, meaning=field.description or ""))
        return sorted(rows, key=lambda row: KINDS.index(row.kind))

    def to_document(self) -> dict[str, Any]:
        """Return the resolved profile as it would stand in a YAML file."""
        top = self.model_dump(by_alias=True, exclude={*SECTIONS, "origins"}, exclude_none=True)
        top |= {"aliases": list(self.aliases), "capabilities": sorted(self.capabilities)}
        for row in self.sources():
            section, name = row.path.split(".")
            value = list(row.value) if isinstance(row.value, tuple) else row.value
            origin = self.origins[row.path].model_dump(exclude_none=True)
            top.setdefault(section, {})[name] = {"value": value, **origin}
        return top

    def with_changes(self, changes: Mapping[str, object]) -> Profile:
        """Return a checked copy with some numbers changed, each then marked as assumed.

        ``changes`` maps paths such as ``"memory.l2_capacity_bytes"`` to values; None removes a
        number that may be absent. Raises ProfileError for an unknown path or a bad value.
        """
        document = self.to_document()
        known = [f"{s}.{name}" for s, model in SECTIONS.items() for name in model.model_fields]
        for path, value in changes.items():
            if path not in known:
                raise ProfileError(
                    f"{self.name}: unknown number {path!r}{did_you_mean(path, known)}"
                )
            section, name = path.split(".")
            leaf = {"value": value, "kind": "assumed", "source": "changed by caller"}
            document.setdefault(section, {})[name] = leaf
            if value is None:
                del document[section][name]
        try:
            return Profile.model_validate(document)
        except ValidationError as error:
            found = first_complaint(error, Profile, lambda path: 0)
            raise ProfileError(f"{self.name}: {'.'.join(found.path)}: {found.text}") from None


def _bare(
    section: str, numbers: Mapping[str, object], origins: dict[str, object]
) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, leaf in numbers.items():
        path = f"{section}.{name}"
        if name not in SECTIONS[section].model_fields:
            values[name] = leaf  # an unknown key: its own complaint, not its source's
        elif isinstance(leaf, Mapping):
            origins[path] = {k: v for k, v in leaf.items() if k != "value"}
            if "value" in leaf:
                value = leaf["value"]
                values[name] = tuple(value) if isinstance(value, list) else value
        else:
            values[name] = origins[path] = leaf
    return values
