"""Affine indices: evaluation commutes with the algebra and with binding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.index import Index, as_index

NAMES = ("i", "j", "m")
numbers = st.integers(-50, 50)
envs = st.fixed_dictionaries(dict.fromkeys(NAMES, numbers))
indices = st.builds(
    lambda base, terms: sum(
        (Index(terms=((n, 1),)) * c for n, c in terms.items()), start=Index(base)
    ),
    numbers,
    st.dictionaries(st.sampled_from(NAMES), numbers),
)


@given(a=indices, b=indices, factor=numbers, env=envs)
def test_the_algebra_is_that_of_the_values(a, b, factor, env):
    x, y = a.at(env), b.at(env)
    assert (a + b).at(env) == x + y
    assert (a - b).at(env) == x - y
    assert (a * factor).at(env) == (factor * a).at(env) == x * factor
    assert (a + factor).at(env) == (factor + a).at(env) == x + factor
    assert (factor - a).at(env) == factor - x


@given(a=indices, b=indices)
def test_equal_values_are_equal_indices(a, b):
    """Terms are kept sorted and without zeros, so that equal programs compare equal."""
    assert a + b == b + a
    assert a - a == Index()
    assert a * 0 == Index()
    assert a + a == a * 2


@given(a=indices, b=indices, env=envs)
def test_binding_replaces_a_variable_by_its_value(a, b, env):
    assert a.bind({"i": b}).at(env) == a.at(env | {"i": b.at(env)})


@given(a=indices, b=indices)
def test_binding_what_does_not_occur_changes_nothing(a, b):
    assert a.bind({"elsewhere": b}) == a


def test_variables_bound_to_each_other_are_replaced_at_once():
    i, j = (Index(terms=((n, 1),)) for n in "ij")
    assert (i * 2 + j).bind({"i": j, "j": i}) == j * 2 + i


def test_an_unbound_variable_has_no_value():
    with pytest.raises(KeyError, match="i"):
        Index(terms=(("i", 1),)).at({})


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (Index(), "0"),
        (Index(-3), "-3"),
        (Index(2, (("i", 1), ("m", 4))), "i+4·m+2"),
        (Index(-1, (("i", -2),)), "-2·i-1"),
    ],
)
def test_reads_like_an_expression(index, text):
    assert str(index) == text


def test_numbers_become_constants():
    assert as_index(5) == Index(5)
    assert as_index(Index(5)) == Index(5)
