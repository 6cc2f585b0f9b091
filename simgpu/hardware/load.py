"""Finds a hardware profile by name, alias or path, merges its parent in, and checks it."""

from __future__ import annotations

import copy
from functools import lru_cache
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from simgpu.errors import ProfileError, did_you_mean
from simgpu.hardware.complaint import first_complaint
from simgpu.hardware.document import Document, head_list, read_document
from simgpu.hardware.profile import Profile
from simgpu.hardware.sections import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

ENTRY_POINT_GROUP = "simgpu.profiles"
_NOT_INHERITED = frozenset({"name", "aliases", "title", "extends", "measurements"})


def load_profile(name_or_path: str | Path) -> Profile:
    """Return the checked profile of a name, an alias, or a path that ends in ``.yaml``.

    Our own profiles are looked at first, then those that installed packages add through the
    entry point group ``simgpu.profiles``. Raises ProfileError, which names file, line and field.
    """
    name = str(name_or_path)
    if name.endswith((".yaml", ".yml")):
        return _load(name)
    return _installed(name, tuple(map(str, _directories())))


@lru_cache(maxsize=32)
def _installed(name: str, directories: tuple[str, ...]) -> Profile:
    """Load by name; installed files do not change, the ``directories`` to look in may."""
    return _load(name)


def _load(name: str) -> Profile:
    document = read_document(_find(name))
    if "extends" in document.content:
        document = _extended(document)
    try:
        return Profile.model_validate(document.content)
    except ValidationError as error:
        found = first_complaint(error, Profile, document.line_of)
        raise document.error(found.path, found.text) from None


def profile_names() -> list[str]:
    """Return the names of all profiles that can be loaded by name, sorted, without aliases."""
    return sorted({_stem(file) for file in _files()})


def _find(name: str) -> Traversable:
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    wanted = name.casefold()
    aliases = []
    for directory in _directories():
        files = _yaml_files(directory)
        for file in files:
            if _stem(file) == wanted:
                return file
        for file in files:
            known = head_list(file, "aliases")
            if wanted in known:
                return file
            aliases += known
    known = [*profile_names(), *aliases]
    hint = did_you_mean(wanted, known)
    raise ProfileError(f"unknown hardware profile {name!r}{hint} (or the path of a .yaml file)")


def _extended(child: Document, heirs: tuple[str, ...] = ()) -> Document:
    """Return ``child`` laid over its parent, number by number, and that over its own."""
    parent_name = child.content["extends"]
    if not isinstance(parent_name, str):
        raise child.error(("extends",), f"is {parent_name!r}; name one profile")
    if parent_name.endswith((".yaml", ".yml")):
        parent_name = str(Path(child.file).parent / parent_name)
    try:
        parent = read_document(_find(parent_name))
    except ProfileError as error:
        raise child.error(("extends",), str(error)) from None
    if parent.file in (child.file, *heirs):
        raise child.error(("extends",), f"{parent_name!r} extends this profile; break the circle")
    if "extends" in parent.content:
        parent = _extended(parent, (child.file, *heirs))
    merged = {k: copy.deepcopy(v) for k, v in parent.content.items() if k not in _NOT_INHERITED}
    for key, value in child.content.items():
        _lay_over(merged, key, value)
    return Document(child.file, merged, _places(parent, child))


def _lay_over(merged: dict[str, Any], key: str, value: Any) -> None:
    below = merged.get(key)
    if key in SECTIONS and isinstance(below, dict) and isinstance(value, dict):
        below.update(value)
    else:
        merged[key] = value


def _places(parent: Document, child: Document) -> dict[tuple[str, ...], tuple[str, int]]:
    """Lines of the child where it has the field, else of the parent that it came from."""
    kept = {p: place for p, place in parent.places.items() if p[:2] not in child.places}
    return {**{p: at for p, at in kept.items() if p[0] not in _NOT_INHERITED}, **child.places}


def _files() -> Iterator[Traversable]:
    for directory in _directories():
        yield from _yaml_files(directory)


def _directories() -> Iterator[Traversable]:
    yield resources.files("simgpu") / "hw_profiles"
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            target = point.load()
            yield Path(target) if isinstance(target, (str, Path)) else resources.files(target)
        except Exception as error:  # another package's code: anything may go wrong in it
            text = f"profiles of entry point {point.name!r} ({point.value}) cannot be loaded"
            raise ProfileError(f"{text}: {error}; repair or remove that package") from error


def _yaml_files(directory: Traversable) -> list[Traversable]:
    try:
        files = [file for file in directory.iterdir() if file.name.endswith(".yaml")]
    except OSError as error:
        why = error.strerror or error
        raise ProfileError(f"{directory}: cannot be read: {why}; reinstall that package") from None
    return sorted(files, key=lambda file: file.name)


def _stem(file: Traversable) -> str:
    return file.name.removesuffix(".yaml")
