"""Maximisation of a noisy function over a box, with a limited number of runs.

The search evaluates a Latin hypercube of starting points, runs the Nelder-Mead method from the best of them, and
evaluates the best points of all once more with more runs. All evaluations use the same random numbers, so that the
values of two points differ because of the points only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from dpverify.errors import InputError

STARTS_PER_DIMENSION = 8  # starting points, for each dimension and one more
STEPS_PER_DIMENSION = 3  # evaluations of one local search, for each dimension and one more
LOCAL_SEARCHES = 4
FINALISTS = 4  # points that are evaluated again at the end
FINALIST_RUN_FACTOR = 8  # a finalist gets so many times the runs of another evaluation
MIN_RUNS_PER_POINT = 4
STARTS_KEY = 103  # spawn key of the starting points; the keys of the sampling stages differ
SMALLEST_VALUE = -50.0  # replaces minus infinity, which the Nelder-Mead method cannot use
TOLERANCE = 1e-3  # of the local search, in units of the box and of the objective

Point = tuple[float, ...]


class Box(NamedTuple):
    """A box, given by its lower corner and its widths."""

    low: np.ndarray
    width: np.ndarray

    def point(self, position: Point) -> np.ndarray:
        """Return the point at a position of the unit cube."""
        return self.low + np.array(position) * self.width

    def coordinates(self, position: Point) -> Point:
        """Return the same point as a tuple."""
        return tuple(self.point(position).tolist())


def search_box(
    objective: Callable[[np.ndarray, int], float], box: Box, runs: int, seed: int
) -> tuple[Point, list[tuple[Point, float]]]:
    """Return the point of the box with the largest objective, and all evaluations as (point, value).

    `objective(point, runs)` returns a value that is estimated from so many runs. All evaluations together use at most
    `runs` runs.
    """
    dimension = len(box.low)
    n_starts = STARTS_PER_DIMENSION * (1 + dimension)
    n_steps = STEPS_PER_DIMENSION * (1 + dimension)
    shares = n_starts + LOCAL_SEARCHES * n_steps + FINALISTS * FINALIST_RUN_FACTOR
    runs_per_point = runs // shares
    if runs_per_point < MIN_RUNS_PER_POINT:
        raise InputError(
            f"runs: found {runs}; expected at least {MIN_RUNS_PER_POINT * shares} for a box of {dimension} dimensions"
        )
    values: dict[Point, float] = {}  # by position in the unit cube

    def cost(position: np.ndarray) -> float:
        key = tuple(np.clip(position, 0, 1).tolist())
        if key not in values:
            values[key] = objective(box.point(key), runs_per_point)
        return -max(values[key], SMALLEST_VALUE)

    for start in latin_hypercube(n_starts, dimension, seed):
        cost(start)
    for start in separated_maxima(values, LOCAL_SEARCHES, 1 / n_starts):
        inward_step = np.where(np.array(start) < 0.5, 1.0, -1.0) / n_starts  # about the distance between two starts
        options = {
            "maxfev": n_steps,
            "initial_simplex": np.vstack([start, start + np.diag(inward_step)]),
            "xatol": TOLERANCE,
            "fatol": TOLERANCE,
        }
        scipy.optimize.minimize(cost, start, method="Nelder-Mead", bounds=[(0, 1)] * dimension, options=options)
    finalists = {
        position: objective(box.point(position), FINALIST_RUN_FACTOR * runs_per_point)
        for position in separated_maxima(values, FINALISTS, 1 / (2 * n_starts))
    }
    best = max(finalists, key=lambda position: finalists[position])
    evaluations = [*values.items(), *finalists.items()]
    return box.coordinates(best), [(box.coordinates(position), value) for position, value in evaluations]


def latin_hypercube(number: int, dimension: int, seed: int) -> np.ndarray:
    """Return points of the unit cube: along each axis, every one of `number` equal intervals holds one point."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STARTS_KEY,)))
    intervals = np.tile(np.arange(number)[:, None], dimension)
    return (rng.permuted(intervals, axis=0) + rng.random(intervals.shape)) / number


def separated_maxima(values: dict[Point, float], number: int, gap: float) -> list[Point]:
    """Return the positions with the largest values, each further than the gap from every better one.

    The distance is the largest difference of two coordinates.
    """
    chosen: list[Point] = []
    for position in sorted(values, key=lambda position: -values[position]):
        if len(chosen) == number:
            break
        if all(np.abs(np.subtract(position, better)).max() > gap for better in chosen):
            chosen.append(position)
    return chosen


def check_box(bounds: object) -> Box:
    """Return the box with these bounds; raise InputError if they are not (low, high) for each dimension."""
    try:
        low, high = np.array(bounds, float).reshape(-1, 2).T
        valid = len(low) == len(bounds) > 0  # type: ignore[arg-type]
        valid = bool(valid and np.isfinite(high - low).all() and (low < high).all())
    except (TypeError, ValueError):
        low = high = np.zeros(0)
        valid = False
    if not valid:
        raise InputError(f"bounds: found {bounds!r}; expected (low, high) for each dimension, low below high")
    return Box(low, high - low)
