"""Rows as a pandas DataFrame, where pandas is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return a DataFrame with a row for each mapping; MissingExtraError without pandas."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "report") from None
    return pandas.DataFrame(list(rows))


def flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of nested mappings; names inside are joined by dots."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
