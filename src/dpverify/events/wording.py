"""How events are described in words: names of coordinates, and intervals of them."""

from __future__ import annotations

import math

import numpy as np

from dpverify.util.formatting import format_number
from dpverify.util.intervals import merge_intervals

MAX_LISTED_PIECES = 4  # a longer list is shortened

Interval = tuple[float, float]


def coordinate_names(steps: int, dimension: int) -> list[str]:
    """Return the names of the coordinates of an output; steps and dimensions count from 0.

    Examples
    --------
    >>> coordinate_names(1, 1), coordinate_names(1, 2), coordinate_names(2, 1)
    (['output'], ['x[0]', 'x[1]'], ['step 0', 'step 1'])
    """
    if steps * dimension == 1:
        return ["output"]
    if steps == 1:
        return [f"x[{j}]" for j in range(dimension)]
    if dimension == 1:
        return [f"step {k}" for k in range(steps)]
    return [f"step {k} x[{j}]" for k in range(steps) for j in range(dimension)]


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
