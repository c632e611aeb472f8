"""Where a mechanism leaks: a lower bound on epsilon for every number of the output alone, from the first test runs.

The levels of each number are quantiles of the pilot runs, so they are fixed before the test runs. An event of one
number is a tail, both tails together, what lies between them, or one level. Every event of every number is tested at
an equal part of alpha, so all bounds hold together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpverify.events.wording import coordinate_names
from dpverify.sampling.count import Block
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.exact import epsilon_lower_bound

# The levels are close in the tails, where an event says most: 0.25% of the pilot runs lie beyond the last one.
LEVELS = 1 / (1 + np.exp(-np.linspace(-6, 6, 33)))
MAX_COORDINATES = 512  # of an output; the page of a longer one would show a small part of them
MAX_NUMBERS = 1 << 20  # that are counted of each dataset: about 30 ms


class Attribution(NamedTuple):
    """What one number of the output leaks alone.

    Attributes
    ----------
    name : str
        The name of the number.
    step, coordinate : int
        Its place in an output of shape (steps, coordinates).
    epsilon_lower : float
        The lower bound on epsilon for an observer who sees only this number. All bounds of a report hold together.
    """

    name: str
    step: int
    coordinate: int
    epsilon_lower: float


class CoordinateCounter(NamedTuple):
    """The statistic that counts the first runs in the levels of each number of the output.

    Attributes
    ----------
    edges : ndarray of shape (coordinates, levels)
        The sorted edges of the levels of each number.
    """

    edges: np.ndarray

    @classmethod
    def of(cls, points: np.ndarray) -> CoordinateCounter | None:
        """Return the statistic with the quantiles of pilot runs; None if an output is one number or too long."""
        flat = points.reshape(len(points), -1)
        if not 1 < flat.shape[1] <= MAX_COORDINATES:
            return None
        return cls(np.quantile(flat, LEVELS, axis=0, method="lower").T.copy())

    def measure(self, block: Block) -> np.ndarray:
        """Return the counts of a block, (coordinates, levels + 1); zeros after the first blocks."""
        coordinates, size = self.edges.shape
        if block.number * len(block.samples) * coordinates > MAX_NUMBERS:
            return np.zeros((coordinates, size + 1), np.int64)
        columns = np.asarray(block.counted).reshape(-1, coordinates).T
        codes = [np.searchsorted(edges, column) for edges, column in zip(self.edges, columns, strict=True)]
        return np.array([np.bincount(code, minlength=size + 1) for code in codes])

    def merge(self, results: Sequence[np.ndarray]) -> np.ndarray:
        return np.sum(results, axis=0)


def store(pair: Sequence[np.ndarray], shape: tuple[int, int]) -> dict[str, Any]:
    """Return what a report stores of the counts of both datasets."""
    return {"names": coordinate_names(*shape), "shape": list(shape), "counts": np.array(pair)}


def attribute(stored: Mapping[str, Any], delta: float, alpha: float) -> tuple[Attribution, ...]:
    """Return the bound of every number, in the order of the output, from what `store` returned."""
    tables = np.asarray(stored["counts"]).swapaxes(0, 1)
    return tuple(
        Attribution(name, *place, bound_alone(table, delta, alpha / len(tables)))
        for name, place, table in zip(stored["names"], np.ndindex(*stored["shape"]), tables, strict=True)
    )


def bound_alone(levels: np.ndarray, delta: float, alpha: float) -> float:
    """Return a lower bound on epsilon from the counts (2, levels) of one number.

    The event is chosen by Clopper-Pearson limits and bounded by the exact test; both at the level of one of all events
    in both directions.
    """
    runs, below = int(levels[0].sum()), np.cumsum(levels, axis=1)[:, :-1]
    half = below.shape[1] // 2
    tails = below[:, :half] + (runs - below[:, : -half - 1 : -1])
    events = np.concatenate([below, runs - below, tails, runs - tails, levels], axis=1)
    each = alpha / (2 * events.shape[1])
    more, less = events.max(axis=0), events.min(axis=0)
    surplus = clopper_pearson_lower(more, runs, each) - delta
    best = int(np.argmax(surplus / clopper_pearson_upper(less, runs, each)))
    return float(epsilon_lower_bound(int(more[best]), int(less[best]), runs, delta, each))
