"""Order statistics of many numbers, of which only a few ranks are needed."""

from __future__ import annotations

import numpy as np

BUCKETS = 4096


class OrderStatistics:
    """The numbers of an array by their ranks. They are equal to those of the sorted array.

    The numbers are put into buckets of equal width. Only the buckets that contain the wanted ranks are sorted. A bucket
    is a nondecreasing function of the number, rounding included.

    Examples
    --------
    >>> OrderStatistics(np.array([0.5, 0.25, 3.0, -1.0]))[np.array([0, 2])].tolist()
    [-1.0, 0.5]
    """

    def __init__(self, numbers: np.ndarray):
        self.size = numbers.size
        self._numbers = numbers
        low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 0.0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scale = np.divide(BUCKETS, np.subtract(high, low))
        if not (np.isfinite(scale) and scale > 0):  # equal numbers, or a range without usable buckets
            low, scale = 0.0, 0.0
        position = numbers - low
        position *= scale
        self._bucket = np.minimum(position, BUCKETS - 1, out=position).astype(np.intp)
        self._counts = np.bincount(self._bucket, minlength=BUCKETS)
        self._ends = np.cumsum(self._counts)

    def __getitem__(self, ranks: np.ndarray) -> np.ndarray:
        """Return the numbers with these ranks, from 0 for the smallest number."""
        bucket = self._ends.searchsorted(ranks, side="right")
        is_needed = np.zeros(BUCKETS, bool)
        is_needed[bucket] = True
        ordered = np.sort(self._numbers[is_needed.take(self._bucket)])
        left_out = np.cumsum(np.where(is_needed, 0, self._counts))
        return ordered[ranks - left_out[bucket]]
