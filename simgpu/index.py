"""Affine indices: where a tile or a ring slot lies, as a function of loop and grid variables.

A loop body is recorded once, so what it names (K tile j, slot j mod stages) must stay an
expression of the loop variable. Affine expressions are all that tiles, rings and phases need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Index:
    """``base + Σ coefficient × variable``; variables are loop or grid axis names."""

    base: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    def at(self, env: Mapping[str, int]) -> int:
        """Return the value with every variable taken from ``env``; KeyError if one is missing."""
        value = self.base
        for name, coefficient in self.terms:
            value += coefficient * env[name]
        return value

    def bind(self, symbols: Mapping[str, Index]) -> Index:
        """Return this index with some of its variables replaced by other indices."""
        if not any(name in symbols for name, _ in self.terms):
            return self
        base, terms = self.base, dict[str, int]()
        for name, coefficient in self.terms:
            by = symbols.get(name)
            if by is None:
                terms[name] = terms.get(name, 0) + coefficient
            else:
                base += coefficient * by.base
                for inner, factor in by.terms:
                    terms[inner] = terms.get(inner, 0) + coefficient * factor
        return Index(base, _sorted(terms))

    def __add__(self, other: int | Index) -> Index:
        if isinstance(other, int):
            return Index(self.base + other, self.terms)
        terms = dict(self.terms)
        for name, coefficient in other.terms:
            terms[name] = terms.get(name, 0) + coefficient
        return Index(self.base + other.base, _sorted(terms))

    def __mul__(self, factor: int) -> Index:
        kept = tuple((n, c * factor) for n, c in self.terms if factor)
        return Index(self.base * factor, kept)

    def __sub__(self, other: int | Index) -> Index:
        return self + (-other if isinstance(other, int) else other * -1)

    def __rsub__(self, other: int) -> Index:
        return self * -1 + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __str__(self) -> str:
        parts = [f"{'' if c == 1 else f'{c}·'}{n}" for n, c in self.terms]
        if self.base or not parts:
            parts.append(str(self.base))
        return "+".join(parts).replace("+-", "-")


def _sorted(terms: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, c) for name, c in terms.items() if c))


def as_index(value: int | Index) -> Index:
    """Return ``value`` as an Index."""
    return value if isinstance(value, Index) else Index(value)
