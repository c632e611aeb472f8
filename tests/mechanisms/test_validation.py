"""Validation of a mechanism's output."""

import numpy as np
import pytest

from dpverify.mechanisms.outputs import validate_output


@pytest.mark.parametrize(("shape", "expected"), [((5,), (5, 1, 1)), ((5, 3), (5, 1, 3)), ((5, 2, 3), (5, 2, 3))])
def test_outputs_become_runs_steps_and_dimensions(shape, expected):
    assert validate_output(np.zeros(shape), 5).shape == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.uint16, bool])
def test_all_real_data_types_are_accepted(dtype):
    samples = validate_output(np.ones((4, 2), dtype), 4)
    assert samples.dtype == np.float64
    assert (samples == 1).all()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (np.zeros(4), "found an array of shape 4: 4 runs; expected the 5"),
        (np.zeros((2, 3, 5)), "found an array of shape 2 x 3 x 5: 2 runs; expected the 5"),
        (np.zeros((5, 2, 2, 2)), "found shape"),
        (np.float64(3), "found shape"),
        (np.zeros((5, 0)), "at least one number"),
        (np.zeros(5, complex), "found dtype complex128"),
        (np.array([{}] * 5), "found an object of type dict"),
        (np.array(["a"] * 5), "found dtype"),
        ([[1], [1, 2], [1], [1], [1]], "rows of different lengths"),
        (None, "found an object of type NoneType"),
        (print, "found a builtin_function_or_method instead of outputs"),
        (np.array([1, 2, np.nan, np.inf, 0]), "NaN or infinity in 2 of 5 runs"),
        (np.ma.array(np.zeros(5), mask=[0, 0, 1, 0, 0]), "found masked numbers"),
    ],
)
def test_an_invalid_output_is_refused_in_one_line(output, message):
    with pytest.raises(ValueError, match=message) as problem:
        validate_output(output, 5)
    assert "\n" not in str(problem.value)


def test_an_output_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="expected 1 x 2 as before"):
        validate_output(np.zeros((5, 3)), 5, (1, 2))


def test_non_finite_runs_are_accepted_if_finite_values_are_not_required():
    assert np.isnan(validate_output(np.array([1.0, np.nan]), 2, require_finite=False)[1]).all()
