"""Number formats: bounds are rounded to the safe side, and no share below 1 is written as 100%."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpverify.util.formatting import (
    format_cell_count,
    format_count,
    format_duration,
    format_lower,
    format_number,
    format_percent,
    format_upper,
    one_line,
    printable,
)

numbers = st.floats(-1e200, 1e200).filter(lambda x: x == 0 or abs(x) > 1e-200)


@given(numbers)
def test_bounds_are_rounded_to_the_safe_side_and_by_little(x):
    lower, upper = float(format_lower(x)), float(format_upper(x))
    assert lower <= x * (1 + math.copysign(1e-12, x))
    assert upper >= x * (1 - math.copysign(1e-12, x))
    assert upper - lower <= 2.1e-3 * abs(x)


def test_infinities_and_zero():
    for function in (format_number, format_lower, format_upper):
        assert function(math.inf) == "infinity"
        assert function(0.0) == "0"


@given(st.floats(0, 1))
def test_only_one_is_a_hundred_percent(x):
    text = format_percent(x)
    assert text.endswith("%")
    assert float(text[:-1]) == pytest.approx(100 * x, rel=6e-3, abs=1e-300)
    if x < 1 - 1e-14:
        assert text != "100%"


def test_counts_and_durations():
    assert format_count(1234567.4) == "1 234 567"
    assert format_cell_count(999_999_999) == "999 999 999"
    assert format_cell_count(10**9) == "1.0e+09"
    assert [format_duration(s) for s in (0.2, 89, 90, 5399, 5400)] == ["0 s", "89 s", "2 min", "90 min", "1.5 h"]


def test_text_from_outside_is_one_printable_line():
    assert printable("a\tb\x1b[0m") == "a?b?[0m"
    assert one_line("a\n\n b\x00") == "a b?"
    assert one_line("x" * 500) == "x" * 400 + "..."
