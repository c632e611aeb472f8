"""How events are described in words: names of coordinates, and intervals of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from dpverify.util.formatting import format_number
from dpverify.util.intervals import merge_intervals

MAX_LISTED_PIECES = 4  # a longer list is shortened

Interval = tuple[float, float]


class OutputLabels(NamedTuple):
    """What a mechanism says about its outputs.

    Attributes
    ----------
    names, units : tuple of str or None
        The names and units of the coordinates of one step.
    times : tuple of float or None
        The times of the steps.
    """

    names: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    times: tuple[float, ...] | None = None


NO_LABELS = OutputLabels()
_labels: ContextVar[OutputLabels] = ContextVar("labels", default=NO_LABELS)


@contextlib.contextmanager
def labelled_outputs(labels: OutputLabels) -> Iterator[None]:
    """Use these labels in all descriptions within the block."""
    token = _labels.set(labels)
    try:
        yield
    finally:
        _labels.reset(token)


def current_labels() -> OutputLabels:
    """Return the labels of the block."""
    return _labels.get()


def coordinate_names(steps: int, dimension: int) -> list[str]:
    """Return the names of the coordinates of an output; steps and dimensions count from 0.

    Within `labelled_outputs`, names and times of the mechanism are used.

    Examples
    --------
    >>> coordinate_names(1, 1), coordinate_names(1, 2), coordinate_names(2, 1)
    (['output'], ['x[0]', 'x[1]'], ['step 0', 'step 1'])
    >>> with labelled_outputs(OutputLabels(("position", "speed"), None, (0.0, 0.5))):
    ...     coordinate_names(2, 2)
    ['position at time 0', 'speed at time 0', 'position at time 0.5', 'speed at time 0.5']
    """
    labels = _labels.get()
    if steps * dimension == 1:
        return [labels.names[0] if labels.names else "output"]
    names = list(labels.names or (f"x[{j}]" for j in range(dimension)))
    if steps == 1:
        return names
    if labels.times is not None:
        places = [f"at time {format_number(time)}" for time in labels.times]
        shown = names if labels.names or dimension > 1 else ["output"]
        return [f"{name} {place}" for place in places for name in shown]
    if dimension == 1 and not labels.names:
        return [f"step {k}" for k in range(steps)]
    return [f"step {k} {name}" for k in range(steps) for name in names]


def describe_interval(name: str, low: float, high: float) -> str:
    """Describe `low < name <= high`; equal or adjacent limits stand for a single value.

    Examples
    --------
    >>> describe_interval("output", 0.5, math.inf)
    'output > 0.5'
    """
    if low == high or np.nextafter(low, math.inf) == high:  # adjacent numbers enclose an atom
        return f"{name} = {format_number(high)}"
    if low == -math.inf:
        return f"{name} <= {format_number(high)}"
    if high == math.inf:
        return f"{name} > {format_number(low)}"
    return f"{format_number(low)} < {name} <= {format_number(high)}"


def describe_intervals(intervals: list[Interval], name: str, others: list[str] | None = None) -> str:
    """Describe a union of intervals of one coordinate, followed by other descriptions."""
    pieces = [describe_interval(name, low, high) for low, high in merge_intervals(intervals)] + (others or [])
    if len(pieces) > MAX_LISTED_PIECES:
        pieces = [*pieces[:MAX_LISTED_PIECES], f"{len(pieces) - MAX_LISTED_PIECES} more pieces"]
    return " or ".join(pieces)
