"""Edges of computed conditions: the last number before a condition changes, exact despite rounded arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Distances between a guess and the edge, in neighbouring numbers. The first is enough unless the arithmetic cancels.
DISTANCES = 4, 1 << 16, (1 << 62) - 1
MAX_RANK = int(np.array(np.finfo(np.float64).max).view(np.int64))
MAGNITUDE_BITS = np.int64((1 << 63) - 1)


def exact_edges(is_right: Callable[[np.ndarray], np.ndarray], guess: np.ndarray) -> np.ndarray | None:
    """Return the largest number that is not right of each edge, or None if an edge is far from its guess.

    Parameters
    ----------
    is_right : callable
        Whether each of as many numbers as there are edges is right of its edge. It must be a nondecreasing function of
        every number, such as a comparison of a computed number that cannot decrease.
    guess : ndarray
        Numbers near the edges.

    Examples
    --------
    >>> guess = np.array([1 / 3])
    >>> edge = exact_edges(lambda x: 3 * x > 1, guess)
    >>> [bool(3 * x > 1) for x in (edge[0], np.nextafter(edge[0], 1))]
    [False, True]
    """
    if not np.isfinite(guess).all():
        return None
    rank = _rank(guess.astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        for distance in DISTANCES:
            low = np.maximum(rank, distance - MAX_RANK) - distance
            high = np.minimum(rank, MAX_RANK - distance) + distance
            if is_right(_number(low)).any() or not is_right(_number(high)).all():
                continue
            while (high - low > 1).any():
                middle = low + (high - low) // 2
                right = is_right(_number(middle))
                low, high = np.where(right, low, middle), np.where(right, middle, high)
            return _number(low)
    return None


def _rank(x: np.ndarray) -> np.ndarray:
    """Return integers in the order of the numbers, consecutive for neighbouring numbers."""
    bits = x.view(np.int64)
    return np.where(bits < 0, bits ^ MAGNITUDE_BITS, bits)


def _number(rank: np.ndarray) -> np.ndarray:
    """Return the numbers with these ranks."""
    return np.where(rank < 0, rank ^ MAGNITUDE_BITS, rank).view(np.float64)
