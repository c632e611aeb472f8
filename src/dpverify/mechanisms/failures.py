"""The cause of a failure of a mechanism in words, with advice for frequent mistakes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dpverify.errors import InputError, describe_exception
from dpverify.mechanisms.protocol import Mechanism, accepts_arguments, mechanism_name, positional_names
from dpverify.mechanisms.validation import CallableOutput
from dpverify.util.checks import shorten
from dpverify.util.files import is_readable

PARAMETERS = ("data", "runs", "rng")  # of a mechanism, in this order
CALL_ORDER = "a mechanism is called as (data, runs, rng)"
DATA_SUFFIXES = (".csv", ".txt", ".npy", ".json")


def describe_failure(mechanism: Mechanism, data: object, problem: BaseException) -> str:
    """Return what a mechanism raised for a data set, or what is wrong with its output, and advice.

    Examples
    --------
    >>> print(describe_failure(lambda runs, data, rng: data, 0.0, TypeError("no")))
    TypeError: no; a mechanism is called as (data, runs, rng); compare the order of its parameters, (runs, data, rng)
    """
    # The messages of an InputError are complete.
    cause = str(problem) if isinstance(problem, InputError) else describe_exception(problem)
    if isinstance(problem, TypeError) and not accepts_arguments(mechanism, 3):
        cause += f"; {CALL_ORDER}; wrap a function of one run: dpverify.per_run(f)"
        cause += _call_first(mechanism)
    elif has_other_order(mechanism):
        names = ", ".join(positional_names(mechanism))
        cause += f"; {CALL_ORDER}; compare the order of its parameters, ({names})"
    elif isinstance(problem, AttributeError) and _is_another_argument(problem, data):
        cause += f"; {CALL_ORDER}; compare the order of its parameters"
    if isinstance(problem, CallableOutput):
        cause += _call_first(mechanism)
    if isinstance(problem, ValueError) and "read-only" in cause:
        cause += "; data sets are read-only, so that no run can change the data of the next; work on a copy"
    return cause + _read_first(data)


def has_other_order(mechanism: Mechanism) -> bool:
    """Return whether the name of a parameter shows another order than (data, runs, rng).

    Examples
    --------
    >>> has_other_order(lambda data, rng, runs: data), has_other_order(lambda readings, n, generator: readings)
    (True, False)
    """
    names = positional_names(mechanism)
    return any(name in PARAMETERS and PARAMETERS.index(name) != place for place, name in enumerate(names))


def _read_first(data: object) -> str:
    """Return the advice for the name of a file that was passed as a data set; empty for every other data set."""
    if not isinstance(data, (str, os.PathLike)):
        return ""
    name = os.fsdecode(data)
    if not name.endswith(DATA_SUFFIXES) and not is_readable(Path(name)):
        return ""
    return f"; the data set is the text {shorten(name)}; read the file first, for example with numpy.loadtxt"


def _is_another_argument(problem: AttributeError, data: object) -> bool:
    """Return whether the object without the attribute is probably the number of runs."""
    is_data = type(data) is int and not hasattr(np.random.Generator, problem.name or "")
    return type(problem.obj) is int and not is_data


def _call_first(mechanism: Mechanism) -> str:
    """Return the advice for a function that makes a mechanism and was passed as if it were one."""
    name = mechanism_name(mechanism)
    if not accepts_arguments(mechanism, 0):
        return (
            f"; if {name} makes a mechanism, call it first, for example mine = {name}(...); on the command line, write "
            "this in the file and use FILE.py:mine"
        )
    return f"; if {name} makes a mechanism, call it first: {name}(), or on the command line FILE.py:{name}()"
