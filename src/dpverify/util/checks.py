"""Checks of arguments, with three forms of messages: `X must be ..., not ...`, `use A or B, not both` and
`name: found X; expected Y; do Z`.

Each check raises InputError with a message of one line. Checks that convert a value return it; the others return
nothing.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError

Runs = float | Sequence[float] | np.ndarray  # a number of runs per dataset: one number for both, or one for each

MAX_SHOWN_CHARACTERS = 60  # of a value in a message
MIN_NAME_SIMILARITY = 0.55  # a less similar name is not suggested
BELOW_ONE = math.nextafter(1.0, 0.0)
LEAST_PROBABILITY = 1e-300  # shares of it, such as alpha over a number of cells, are still above 0


def shorten(value: object) -> str:
    """Return the representation of a value in one line of limited length, for a message.

    Examples
    --------
    >>> shorten("three")
    "'three'"
    """
    return " ".join(repr(value).split())[:MAX_SHOWN_CHARACTERS]


def is_real_number(value: object) -> TypeGuard[float]:
    """Return whether a value is one finite real number; truth values and text are not.

    Examples
    --------
    >>> is_real_number(0.5), is_real_number(True), is_real_number("0.5"), is_real_number([0.5])
    (True, False, False, False)
    """
    if isinstance(value, bool):
        return False
    try:
        if not isinstance(value, numbers.Real):  # a NumPy or JAX array without axes is one number, too
            array = np.asarray(value)
            if array.ndim or array.dtype.kind not in "fiu":
                return False
        return math.isfinite(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False


def check_probability(name: str, value: object) -> None:
    """Raise InputError unless the value is a number above 0 and below 1, and no rounding error of 0.

    Examples
    --------
    >>> check_probability("alpha", 0.05)
    >>> check_probability("alpha", 1.5)
    Traceback (most recent call last):
    dpverify.errors.InputError: alpha must be a number between 0 and 1, not 1.5
    """
    if not (is_real_number(value) and LEAST_PROBABILITY <= value < 1):
        raise InputError(f"{name} must be a number between 0 and 1, not {shorten(value)}")


def check_epsilon(epsilon: object, name: str = "epsilon") -> float:
    """Return epsilon; raise InputError unless it is a finite number of at least 0.

    Examples
    --------
    >>> check_epsilon(-1)
    Traceback (most recent call last):
    dpverify.errors.InputError: epsilon must be 0 or more and finite, not -1
    """
    if not (is_real_number(epsilon) and epsilon >= 0):
        raise InputError(f"{name} must be 0 or more and finite, not {shorten(epsilon)}")
    return float(epsilon)


def check_delta(delta: object, name: str = "delta") -> None:
    """Raise InputError unless delta is a number of at least 0 and below 1.

    Examples
    --------
    >>> check_delta(1)
    Traceback (most recent call last):
    dpverify.errors.InputError: delta must be 0 or more and below 1, not 1
    """
    if not (is_real_number(delta) and 0 <= delta < 1):
        raise InputError(f"{name} must be 0 or more and below 1, not {shorten(delta)}")


def check_whole_number(name: str, value: object, least: int = 0) -> int:
    """Return the value as an int; raise InputError unless it is a whole number of at least `least`.

    Examples
    --------
    >>> check_whole_number("steps", 3.0, 1)
    3
    >>> check_whole_number("steps", 0, 1)
    Traceback (most recent call last):
    dpverify.errors.InputError: steps must be a whole number of at least 1, not 0
    """
    if not (is_real_number(value) and int(value) == value and value >= least):
        raise InputError(f"{name} must be a whole number of at least {least}, not {shorten(value)}")
    return int(value)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise InputError unless the value is one of the choices; the message names the nearest one.

    Examples
    --------
    >>> check_choice("test", "exakt", ("exact", "thinned"))
    Traceback (most recent call last):
    dpverify.errors.InputError: test must be one of 'exact', 'thinned', not 'exakt'; did you mean 'exact'?
    """
    if isinstance(value, str) and value in choices:
        return
    near = nearest_name(value, choices) if isinstance(value, str) else None
    advice = f"; did you mean {near!r}?" if near else ""
    raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {shorten(value)}{advice}")


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of the names, or None where none is similar.

    Examples
    --------
    >>> nearest_name("test_run", ["select_runs", "test_runs"])
    'test_runs'
    """
    return next(iter(difflib.get_close_matches(name, names, 1, MIN_NAME_SIMILARITY)), None)


def runs_per_side(runs: Runs, most: int | None = None) -> tuple[int, int]:
    """Return the number of runs for each of the two datasets.

    Parameters
    ----------
    runs : number, or sequence of two numbers
        The runs per dataset, or the runs of the first and of the second dataset.
    most : int, optional
        The largest number that is accepted.

    Raises
    ------
    InputError
        If a number is not whole, below 1 or above `most`, or if there are not one or two of them.

    Examples
    --------
    >>> runs_per_side(100)
    (100, 100)
    >>> runs_per_side((100, 200))
    (100, 200)
    """
    values: list[object] = [runs, runs]
    if isinstance(runs, (tuple, list)) or (isinstance(runs, np.ndarray) and runs.ndim):
        values = list(runs)
    limit = math.inf if most is None else most
    numbers_of_runs = [int(m) for m in values if is_real_number(m) and 1 <= m <= limit and int(m) == m]
    if len(values) != 2 or len(numbers_of_runs) != 2:
        extent = "from 1 up" if most is None else f"from 1 to {most}"
        raise InputError(
            f"runs must be a whole number {extent}, or two of them, one for each dataset, not {shorten(runs)}"
        )
    return numbers_of_runs[0], numbers_of_runs[1]


def check_array(
    name: str, values: ArrayLike, lowest: float, highest: float, expected: str, whole: bool = False
) -> np.ndarray:
    """Return the values as an array; raise InputError unless all are real numbers from `lowest` to `highest`.

    Examples
    --------
    >>> check_array("delta", [0.0, 0.1], 0.0, 0.5, "numbers from 0 to 0.5")
    array([0. , 0.1])
    >>> check_array("delta", [0.0, 0.9], 0.0, 0.5, "numbers from 0 to 0.5")
    Traceback (most recent call last):
    dpverify.errors.InputError: delta must be numbers from 0 to 0.5, not [0.0, 0.9]
    """
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.array(None)
    if (
        array.dtype.kind not in "fiu"
        or not np.all((array >= lowest) & (array <= highest))
        or (whole and not np.all(array == np.floor(array)))
    ):
        raise InputError(f"{name} must be {expected}, not {shorten(values)}")
    return array


def check_counts(name: str, counts: ArrayLike, runs: int) -> np.ndarray:
    """Return the counts as an array; raise InputError unless all are whole numbers from 0 to the number of runs.

    Examples
    --------
    >>> check_counts("c1", 11, 10)
    Traceback (most recent call last):
    dpverify.errors.InputError: c1 must be whole numbers from 0 to 10, the number of runs, not 11
    """
    return check_array(name, counts, 0, runs, f"whole numbers from 0 to {runs}, the number of runs", whole=True)


def check_count_columns(counts1: ArrayLike, counts2: ArrayLike, runs: Runs) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of all cells, one array for each dataset, as floating-point numbers.

    Raises
    ------
    InputError
        If the arrays are not one-dimensional and of equal length, if a count is negative, or if the counts of a data
        set add up to more than its runs. The bounds would be NaN for such a sum.

    Examples
    --------
    >>> check_count_columns([6, 5], [1, 1], 10)
    Traceback (most recent call last):
    dpverify.errors.InputError: counts: found a sum of 11 for 10 runs; expected counts from 0 up, at most one per run
    """
    columns = np.asarray(counts1, float), np.asarray(counts2, float)
    shapes = columns[0].shape, columns[1].shape
    if shapes[0] != shapes[1] or len(shapes[0]) != 1:
        raise InputError(
            f"counts: found shapes {shapes[0]} and {shapes[1]}; expected one number per cell, for both datasets alike"
        )
    for counts, number in zip(columns, runs_per_side(runs), strict=True):
        if not ((counts >= 0).all() and counts.sum() <= number):
            raise InputError(
                f"counts: found a sum of {counts.sum():g} for {number} runs; "
                "expected counts from 0 up, at most one per run"
            )
    return columns
