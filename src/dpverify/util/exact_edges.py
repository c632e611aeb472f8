"""Edges of computed conditions: the last number before a condition changes, exact despite rounded arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Distances between a guess and the edge, in neighbouring numbers. The first is enough unless the arithmetic cancels.
DISTANCES = 4, 1 << 16, (1 << 62) - 1
MAX_RANK = int(np.array(np.finfo(np.float64).max).view(np.int64))
MAGNITUDE_BITS = np.int64((1 << 63) - 1)
# Relative changes of the coefficients of a quadratic that explain all rounding errors of its values and of its roots.
COEFFICIENT_ERROR = 2.0**-48
MAX_NUMBERS_NEAR_ROOT = 1 << 12  # more numbers whose values may be on either side of an edge are not examined
COEFFICIENT_RANGE = 1e-50, 1e50  # products of coefficients in this range neither overflow nor underflow


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


def quadratic_edges(weight: float, matrix: float, edges: np.ndarray) -> np.ndarray | None:
    """Return numbers between which the computed quadratic `(z * matrix + weight) * z` lies between the same edges.

    The computed value is that of a quadratic with slightly different coefficients. The roots of all such quadratics
    form a short interval around each root, because a root is a monotone function of either coefficient. The numbers in
    these intervals are examined one by one, since rounded values need not be monotone there. None is returned if there
    are too many of them, as at the vertex.

    Examples
    --------
    >>> quadratic_edges(1.0, 1.0, np.array([2.0])).tolist()
    [-2.0000000000000004, 1.0]
    """
    smallest, largest = COEFFICIENT_RANGE
    size = np.abs(np.append(edges, [weight, matrix]))
    if not ((smallest < size) & (size < largest)).all():
        return None
    changes = 1 + COEFFICIENT_ERROR * np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
    w, m = (changes * [weight, matrix]).T[:, :, None]
    discriminant = w * w + 4 * m * edges
    has_roots = (discriminant > 0).any(0)
    if not (discriminant[:, has_roots] > 0).all():
        return None
    levels = edges[has_roots]
    if not levels.size:
        return levels
    q = -(w + np.sign(w) * np.sqrt(discriminant[:, has_roots])) / 2
    ranks = _rank(np.concatenate([q / m, -levels / q], axis=1))
    low, high = ranks.min(0) - 1, ranks.max(0) + 1
    numbers = int((high - low).max()) + 1
    if numbers > MAX_NUMBERS_NEAR_ROOT:
        return None
    near = _number(low[:, None] + np.arange(numbers))
    is_above = (near * matrix + weight) * near > np.tile(levels, 2)[:, None]
    return np.unique(near[:, :-1][is_above[:, 1:] != is_above[:, :-1]])


def _rank(x: np.ndarray) -> np.ndarray:
    """Return integers in the order of the numbers, consecutive for neighbouring numbers."""
    bits = x.view(np.int64)
    return np.where(bits < 0, bits ^ MAGNITUDE_BITS, bits)


def _number(rank: np.ndarray) -> np.ndarray:
    """Return the numbers with these ranks."""
    return np.where(rank < 0, rank ^ MAGNITUDE_BITS, rank).view(np.float64)
