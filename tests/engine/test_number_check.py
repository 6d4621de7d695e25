"""A number outside the range of its option is refused with the key, the range and the number."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.number_check import check_number, check_numbers, is_integer, is_number

_BOUND = st.floats(-10, 10)


@given(st.floats(allow_nan=True, allow_infinity=True), _BOUND, _BOUND)
def test_exactly_the_numbers_of_the_range_pass(value, low, high):
    for bounds, holds in (
        ({"at_least": low, "at_most": high}, low <= value <= high),
        ({"above": low, "below": high}, low < value < high),
        ({}, math.isfinite(value)),
    ):
        if holds:
            check_number("a.b", value, **bounds)
            continue
        with pytest.raises(ValueError, match=r"^a\.b must be .*, got ") as error:
            check_number("a.b", value, **bounds)
        assert str(error.value).endswith(str(value))


def test_null_passes_and_the_message_has_the_range():
    check_number("a", None, at_least=1)
    with pytest.raises(ValueError, match=r"^a\.c must be at least 0 and less than 1, got 1$"):
        check_numbers("a.", {"b": 0.5, "c": 1, "d": None}, at_least=0, below=1)


@pytest.mark.parametrize(
    ("value", "number", "integer"),
    [(3, True, True), (-0.5, True, False), (math.nan, True, False), (True, False, False), ("3", False, False)],
)
def test_a_bool_is_no_number(value, number, integer):
    assert (is_number(value), is_integer(value)) == (number, integer)
