"""Arrays that functions of the user may read and not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from dpverify.errors import InputError
from dpverify.util.formatting import one_line

T = TypeVar("T")
R = TypeVar("R")


def read_only(value: T) -> T:
    """Return a read-only view of an array, and any other object as it is.

    Examples
    --------
    >>> read_only(np.zeros(2)).flags.writeable
    False
    """
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def call_read_only(function: Callable[[T], R], samples: T, argument: str) -> R:
    """Return the value of a function of the user for samples, which it must not change: they are used again.

    Parameters
    ----------
    function : callable
        A function of samples.
    samples : Array
        The samples.
    argument : str
        The argument that the function came from, for the message of an InputError.
    """
    try:
        return function(read_only(samples))
    except ValueError as problem:
        if "read-only" not in str(problem):
            raise
        raise InputError(
            f"{argument}: found a function that changes its argument ({one_line(problem)}); expected a function that "
            "only reads the outputs, because they are used again; change a copy, x = x.copy()"
        ) from problem
