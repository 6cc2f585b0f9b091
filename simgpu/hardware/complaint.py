"""Turns what pydantic found wrong in a profile into one plain line that says what to do."""

from __future__ import annotations

import re
from inspect import isclass
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from pydantic import BaseModel

from simgpu.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_UNIT_WORDS = frozenset(
    {"hz", "khz", "mhz", "ghz", "bytes", "kb", "mb", "gb", "tb", "kib", "mib", "gib"}
    | {"ns", "us", "ms", "s", "seconds", "cycles", "clock", "clocks", "percent", "watts", "kw"}
)
_YAML_BOOL = "YAML 1.1 reads on, off, yes and no as true and false"
_LEAF = "{{value: {}, kind: ..., source: ...}}"


class Complaint(NamedTuple):
    """What is wrong, and the path of the field it is about."""

    path: tuple[str, ...]
    text: str


def first_complaint(
    error: ValidationError, model: type[BaseModel], line_of: Callable[[tuple[str, ...]], int]
) -> Complaint:
    """Return the complaint to show: a mistyped key before what it leaves missing, then by line."""

    def rank(detail: ErrorDetails) -> tuple[bool, int]:
        return detail["type"] != "extra_forbidden", line_of(_path(detail))

    detail = min(error.errors(include_url=False), key=rank)
    return Complaint(_path(detail), _text(detail, model))


def _path(detail: ErrorDetails) -> tuple[str, ...]:
    steps = tuple(step for step in detail["loc"] if isinstance(step, str))  # no list indices
    if steps[:1] == ("origins",):
        return (*steps[1].split("."), *steps[2:])
    return steps


def _text(detail: ErrorDetails, model: type[BaseModel]) -> str:
    what, given, ctx = detail["type"], detail["input"], detail.get("ctx", {})
    match what:
        case "extra_forbidden":
            return _unknown_key(str(detail["loc"][-1]), _known(model, detail["loc"][:-1]))
        case "missing":
            return _missing(detail)
        case "fitted_on_missing":
            return detail["msg"]
        case "tuple_type" | "frozen_set_type":
            return f"is {given!r:.40}; it must be a list: [...]"
        case "literal_error":
            known = re.findall(r"'([^']+)'", str(ctx["expected"]))
            return f"unknown value {given!r}{did_you_mean(str(given), known)}"
        case "greater_than" | "greater_than_equal" | "less_than_equal":
            words = {"gt": "more than", "ge": "at least", "le": "at most"}
            bound = " and ".join(f"{words[k]} {v:g}" for k, v in ctx.items())
            return f"is {given!r}; it must be {bound} (check its unit)"
        case "model_type" | "model_attributes_type" if detail["loc"][0] == "origins":
            shown = f"{given!r:.40}"
            return f"is a bare {shown}; write {_LEAF.format(shown)}, so that it has a source"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"is {given!r:.40}; it must be a mapping of names to numbers"
        case _:
            return _wrong_type(given, detail["msg"], what)


def _unknown_key(key: str, known: list[str]) -> str:
    same = [name for name in known if _without_units(name) == _without_units(key)]
    if same:
        return f"wrong unit; this number is {same[0]!r}: convert it and rename the key"
    return f"unknown key{did_you_mean(key, known)}"


def _without_units(key: str) -> tuple[str, ...]:
    return tuple(word for word in key.split("_") if word not in _UNIT_WORDS)


def _missing(detail: ErrorDetails) -> str:
    if detail["loc"][0] == "origins":
        meaning = {
            "source": "name the document and its table, or the runs",
            "kind": "one of vendor, measured, derived, fitted, assumed",
        }
        return f"missing; {meaning.get(str(detail['loc'][-1]), 'add it')}"
    if len(detail["loc"]) == 2:
        return f"missing; add {detail['loc'][-1]}: {_LEAF.format('...')}"
    return "missing; add it"


def _wrong_type(given: Any, message: str, what: str) -> str:
    text_wanted = what.startswith("string")
    if isinstance(given, bool):
        cure = "quote it" if text_wanted else "write a number"
        return f"is {str(given).lower()}; {_YAML_BOOL}: {cure}"
    if isinstance(given, (int, float)) and text_wanted:
        return f'is the number {given!r}; quote it: "{given!r}"'
    if isinstance(given, str) and not text_wanted:
        try:
            value = float(given.replace("_", ""))
        except ValueError:
            return f"is the text {given!r}; write a number"
        mantissa, _, exponent = f"{value:.6e}".partition("e")
        plain = f"{float(mantissa)!r}e{int(exponent):+d}"
        return f"is the text {given!r}: YAML 1.1 reads it as text; write {plain} or {value:.12g}"
    if isinstance(given, float) and what.startswith("int"):
        return f"is {given!r}; it must be a whole number"
    return f"is {given!r:.60}; {message[:1].lower()}{message[1:]}"


def _known(model: type[BaseModel], steps: Iterable[int | str]) -> list[str]:
    """Return the field names of the model that ``steps`` lead to."""
    for step in steps:
        field = model.model_fields.get(str(step))
        if field is not None:
            types = (field.annotation, *get_args(field.annotation))
            inner = (t for t in types if isclass(t) and issubclass(t, BaseModel))
            model = next(inner, model)
    return [field.alias or name for name, field in model.model_fields.items()]
