"""Reads a YAML file into plain mappings and remembers the line of each field."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from simgpu.errors import ProfileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

# libyaml reads a profile about six times faster; some builds of PyYAML lack it
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_NESTED = 4
_ITEM = "[]"  # the step of a path into a list
_YAML_INT_TRAP = re.compile(r"[-+]?0[0-9_]|.*:")

Path = tuple[str, ...]


@dataclass(slots=True)
class Document:
    """The content of one file, or of a file and its parent, with ``file:line`` for each path."""

    file: str
    content: dict[str, Any]
    places: dict[Path, tuple[str, int]] = field(default_factory=dict)

    def line_of(self, path: Path) -> int:
        """Return the line of ``path``, or of the nearest field around it."""
        return self._place(path)[1]

    def error(self, path: Path, text: str) -> ProfileError:
        """Return the error ``file:line: field path: text``."""
        file, line = self._place(path)
        name = ".".join(step for step in path if step != _ITEM)
        return ProfileError(f"{file}:{line}: {name}: {text}")

    def _place(self, path: Path) -> tuple[str, int]:
        for n in range(len(path), 0, -1):
            if path[:n] in self.places:
                return self.places[path[:n]]
        return self.file, 1


def read_document(source: Traversable) -> Document:
    """Read one YAML mapping.

    Raises ProfileError if the file cannot be read, is no YAML, or holds something YAML accepts
    and a profile must not: a duplicate key, a key that is not text, an octal number.
    """
    file, text = str(source), read_text(source)
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        document = Document(file, {})
        if node is None:
            raise ProfileError(f"{file}:1: the file is empty; copy a profile from hw_profiles")
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1
            raise ProfileError(f"{file}:{line}: not a mapping; a profile is `name: value` lines")
        document.content = _plain(node, (), loader, document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        what = error.problem or error.context
        raise ProfileError(f"{file}:{line}: not YAML: {what}; check this line") from None
    except yaml.YAMLError as error:  # such as a control character
        what = str(error).splitlines()[0]
        raise ProfileError(f"{file}:1: not YAML: {what}; save it as plain UTF-8") from None
    finally:
        loader.dispose()
    return document


def read_text(source: Traversable) -> str:
    """Return the text of ``source``; raises ProfileError if it cannot be read."""
    try:
        return source.read_text(encoding="utf-8")
    except OSError as error:
        why = error.strerror or error
        raise ProfileError(f"{source}: cannot be read: {why}; check the path") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{source}: cannot be read: not UTF-8 text; save it as UTF-8") from None


def head_list(source: Traversable, key: str) -> list[str]:
    """Return the texts of the list under a top-level ``key``, reading no further than that."""
    events: Iterator[Any] = yaml.parse(read_text(source), Loader=_Loader)
    depth, wanted, expect_key, found = 0, False, True, []
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            if wanted and depth == 1:
                break
            expect_key = expect_key or depth == 1
        elif isinstance(event, yaml.ScalarEvent) and depth == 1:
            wanted, expect_key = expect_key and event.value == key, not expect_key
        elif isinstance(event, yaml.ScalarEvent) and wanted:
            found.append(event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
    return found


def _plain(node: yaml.Node, path: Path, loader: Any, document: Document) -> Any:
    if len(path) > _MOST_NESTED:
        raise document.error(path, "nested too deeply; a profile is sections of numbers")
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, loader, document)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, _ITEM), loader, document) for item in node.value]
    value = loader.construct_object(node)
    if value is None:
        raise document.error(path, "is empty; write a value or delete the key")
    if node.tag == "tag:yaml.org,2002:int" and _YAML_INT_TRAP.match(node.value):
        text = f"YAML 1.1 reads {node.value} as {value}; write a plain decimal number"
        raise document.error(path, text)
    return value


def _mapping(node: yaml.MappingNode, path: Path, loader: Any, document: Document) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key, line = key_node.value, key_node.start_mark.line + 1
        here = (*path, str(key) if isinstance(key_node, yaml.ScalarNode) else "?")
        first = document.places.get(here)
        document.places[here] = document.file, line
        if key_node.tag != "tag:yaml.org,2002:str":
            kind = key_node.tag.rpartition(":")[2]
            raise document.error(here, f"YAML 1.1 reads this key as {kind}; quote it or rename it")
        if first is not None:
            text = f"duplicate key, first at line {first[1]}; delete one of the two"
            raise document.error(here, text)
        out[key] = _plain(value_node, here, loader, document)
    return out
