"""Intervals on the line, as pairs of ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def merge_intervals(intervals: Iterable[tuple[Number, Number]]) -> list[tuple[Number, Number]]:
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
    merged: list[tuple[Number, Number]] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged
