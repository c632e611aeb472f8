"""How events are described in words: names of coordinates, and intervals of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from dpverify.util.formatting import format_number

MAX_LISTED_PIECES = 4  # a longer list is shortened

MAX_DISAGREEMENT = 0.02  # of the runs inside or outside of an event, for a condition that is said to be nearly the same

Interval = tuple[float, float]


class OutputLabels(NamedTuple):
    """What a mechanism says about its outputs.

    Attributes
    ----------
    names, units : tuple of str or None
        The names and units of the coordinates of one step.
    times : tuple of float or None
        The times of the steps.
    columns : tuple of str or None
        The names of all numbers of an output, of any shape.
    phrases : dict
        For a column of codes, what 0, 1, ... stand for, for example "is absent".
    absent : dict
        For a column of numbers, the number that stands for an absent one.
    """

    names: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    times: tuple[float, ...] | None = None
    columns: tuple[str, ...] | None = None
    phrases: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 (never changed)
    absent: dict[str, float] = {}  # noqa: RUF012


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
    if labels.columns is not None and len(labels.columns) == steps * dimension:
        return list(labels.columns)
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
    known = _describe_known([(low, high)], name)
    if known is not None:
        return known
    if _is_value(low, high):  # adjacent numbers enclose an atom
        return f"{name} = {format_number(high)}"
    if low == -math.inf:
        return f"{name} <= {format_number(high)}"
    if high == math.inf:
        return f"{name} > {format_number(low)}"
    return f"{format_number(low)} < {name} <= {format_number(high)}"


def describe_intervals(intervals: list[Interval], name: str, others: list[str] | None = None) -> str:
    """Describe a union of intervals of one coordinate, followed by other descriptions.

    Where only one value lies between two intervals, the union says that the coordinate differs from it.

    Examples
    --------
    >>> before = math.nextafter(25.0, 0.0)  # the value 25 is the interval from the number before it
    >>> describe_intervals([(-math.inf, before), (25.0, math.inf)], "output")
    'output != 25'
    >>> describe_intervals([(20.0, before), (25.0, 30.0)], "output")
    '20 < output <= 30 and output != 25'
    """
    merged = merge_intervals(intervals)
    known = None if others else _describe_known(merged, name)
    if known is not None:
        return known
    groups = _join_around_values(merged)
    pieces = [_describe_joined(group, name) for group in groups] + (others or [])
    if len(pieces) > MAX_LISTED_PIECES:
        pieces = [*pieces[:MAX_LISTED_PIECES], f"{len(pieces) - MAX_LISTED_PIECES} more pieces"]
    return " or ".join(pieces)


def _describe_known(intervals: list[Interval], name: str) -> str | None:
    """Describe a union of intervals of a column of codes, or of numbers that can be absent; None for all others."""
    labels = _labels.get()
    if name in labels.phrases:
        return _describe_codes(intervals, name, labels.phrases[name])
    absent = labels.absent.get(name)
    if absent is None or len(intervals) != 1:
        return None
    [(low, high)] = intervals  # all numbers are above the one that stands for an absent one, by 1 or more
    if low < absent <= high < absent + 1:
        return f"{name} is absent"
    return f"{name} is present" if absent <= low < absent + 1 and high == math.inf else None


def _describe_codes(intervals: list[Interval], name: str, phrases: Sequence[str]) -> str:
    """Describe a union of intervals of a column of codes by the phrases that they stand for.

    Examples
    --------
    >>> _describe_codes([(-1.0, 0.5)], "['u3']", ("is absent", "is present"))
    "['u3'] is absent"
    """
    inside = [phrase for code, phrase in enumerate(phrases) if any(low < code <= high for low, high in intervals)]
    if len(inside) > max(len(phrases) // 2, 1):
        outside = [phrase for phrase in phrases if phrase not in inside]
        return f"not: {name} {' or '.join(outside[:MAX_LISTED_PIECES])}" if outside else f"{name} is anything"
    shown = inside[:MAX_LISTED_PIECES]
    if len(inside) > len(shown):
        shown.append(f"{len(inside) - len(shown)} more values")
    return f"{name} {' or '.join(shown)}"


def _join_around_values(intervals: list[Interval]) -> list[list[Interval]]:
    """Return the intervals in groups; between two of a group lies a single value."""
    groups: list[list[Interval]] = []
    for low, high in intervals:
        # The interval of a single value is written as that value, so it stays alone.
        if groups and _is_value(groups[-1][-1][1], low) and not _is_value(*groups[-1][-1]) and not _is_value(low, high):
            groups[-1].append((low, high))
        else:
            groups.append([(low, high)])
    return groups


def _is_value(low: float, high: float) -> bool:
    """Return whether `low < x <= high` holds for one number only."""
    return low == high or np.nextafter(low, math.inf) == high


def _describe_joined(group: list[Interval], name: str) -> str:
    """Describe intervals between which single values lie."""
    excluded = " and ".join(f"{name} != {format_number(low)}" for low, _ in group[1:])
    low, high = group[0][0], group[-1][1]
    if not excluded:
        return describe_interval(name, low, high)
    if low == -math.inf and high == math.inf:
        return excluded
    return f"{describe_interval(name, low, high)} and {excluded}"


def merge_intervals(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the union of intervals as sorted, disjoint intervals; intervals that overlap or touch are joined.

    Parameters
    ----------
    intervals : iterable of pairs
        Each pair holds the lower and the upper end.

    Returns
    -------
    list of pairs

    Examples
    --------
    >>> merge_intervals([(4, 5), (0, 2), (2, 3)])
    [(0, 3), (4, 5)]
    """
    merged: list[tuple[float, float]] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def describe_simply(samples: np.ndarray, inside: np.ndarray) -> str | None:
    """Return a condition on one coordinate that holds for the runs inside an event and nearly no others; None if none.

    Parameters
    ----------
    samples : ndarray of shape (runs, steps, dimensions)
        Runs.
    inside : ndarray of bool
        Which of them are in the event.

    Examples
    --------
    >>> describe_simply(np.array([[[0.0, 3.0]], [[1.0, 2.0]], [[0.0, 1.0]]]), np.array([False, True, False]))
    'x[0] > 0.5'
    """
    allowed = MAX_DISAGREEMENT * min(inside.sum(), (~inside).sum())
    if not inside.any() or inside.all():
        return None
    names = coordinate_names(*samples.shape[1:])
    for name, column in zip(names, samples.reshape(len(samples), -1).T, strict=True):
        middle = (np.median(column[inside]) + np.median(column[~inside])) / 2
        for threshold in (_labels.get().absent.get(name, middle), middle):
            above = column > threshold
            for low, high, condition in ((threshold, math.inf, above), (-math.inf, threshold, ~above)):
                if (condition != inside).sum() <= allowed:
                    return describe_intervals([(low, high)], name)
        value = np.median(column[inside])
        if ((column == value) != inside).sum() <= allowed:
            return describe_intervals([(np.nextafter(value, -math.inf), value)], name)
    return None
