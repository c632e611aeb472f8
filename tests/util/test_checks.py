"""Checks of arguments: what is accepted and refused, and the grammar of the messages."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpverify.errors import InputError
from dpverify.util.checks import (
    check_array,
    check_choice,
    check_counts,
    check_delta,
    check_epsilon,
    check_probability,
    check_whole_number,
    is_real_number,
    nearest_name,
    runs_per_side,
)

NOT_NUMBERS = [None, True, "0.5", b"1", [0.5], [1, [2]], 1j, math.nan, math.inf, Decimal(1), object(), 10**400]


@pytest.mark.parametrize("value", [0, 0.5, -3, 10**30, np.float32(0.5), np.int8(3), np.array(0.5), Fraction(1, 3)])
def test_real_numbers_are_recognised(value):
    assert is_real_number(value)


@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_other_values_are_refused_with_one_line(value):
    assert not is_real_number(value)
    checks = [
        lambda: check_probability("alpha", value),
        lambda: check_epsilon(value),
        lambda: check_delta(value),
        lambda: check_whole_number("steps", value),
        lambda: runs_per_side(value),
        lambda: check_choice("test", value, ("exact", "thinned")),
    ]
    for check in checks:
        with pytest.raises(InputError, match=r" must be .+, not |: found .+; expected ") as caught:
            check()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200


def test_whole_numbers_are_converted():
    assert check_whole_number("steps", 3.0, 1) == 3
    assert type(check_whole_number("steps", np.int64(3))) is int
    for value in (2.5, 0, -1):
        with pytest.raises(InputError, match=r"steps must be a whole number of at least 1, not "):
            check_whole_number("steps", value, 1)


def test_runs_may_have_a_largest_number():
    assert runs_per_side([5, 10], 10) == (5, 10)
    with pytest.raises(InputError, match="runs must be a whole number from 1 to 10, or two of them"):
        runs_per_side(11, 10)


def test_the_nearest_choice_is_named():
    check_choice("test", "exact", ("exact", "thinned"))
    with pytest.raises(
        InputError, match=r"test must be one of 'exact', 'thinned', not 'exat'; did you mean 'exact'\?$"
    ):
        check_choice("test", "exat", ("exact", "thinned"))
    with pytest.raises(InputError, match=r"test must be one of 'exact', 'thinned', not 'qqq'$"):
        check_choice("test", "qqq", ("exact", "thinned"))
    assert nearest_name("qqq", ["exact"]) is None


def test_arrays_are_checked_elementwise():
    assert check_counts("c1", [0, 10], 10).tolist() == [0, 10]
    for values in ([11], [-1], [0.5], ["x"], [[1], [1, 2]], [math.nan], [True], None):
        with pytest.raises(InputError, match=r"c1 must be whole numbers from 0 to 10, the number of runs, not "):
            check_counts("c1", values, 10)
    assert check_array("delta", [0.5], 0.0, 1.0, "numbers").tolist() == [0.5]
