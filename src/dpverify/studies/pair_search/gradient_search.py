"""Maximisation of a noisy function over a box of many dimensions, along estimated gradients.

From each of a few starting points, a step goes to the corner of the box to which the gradient points, or a short way
along the gradient. A mechanism that is nearly linear in the data has its largest privacy loss at a corner. A step to a
corner is a step of the Frank-Wolfe method for a convex function: it never leads downwards if the gradient is exact.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpverify.errors import InputError
from dpverify.studies.pair_search.simplex_search import (
    MIN_RUNS_PER_POINT,
    Box,
    Point,
    latin_hypercube,
    separated_maxima,
)

MAX_SIMPLEX_DIMENSION = 4  # up to which the Nelder-Mead method, which needs no gradient, is used
STARTS = 8
CLIMBS = 3  # from the best starting points
STEPS = 3  # of one climb
STEPS_TRIED = 2  # along each gradient: to the corner that it points to, and a short one
SHORT_STEP = 0.25  # in widths of the box, along the coordinate with the largest derivative
GRADIENT_RUN_FACTOR = 2  # a gradient gets so many times the runs of an evaluation
FINALISTS = 3  # points that are evaluated again at the end
FINALIST_RUN_FACTOR = 4
FIRST_DISTANCE = 0.25  # of the points around which a gradient is estimated, in widths of the box
RUN_SHARES = STARTS + CLIMBS * STEPS * (STEPS_TRIED + GRADIENT_RUN_FACTOR) + FINALISTS * FINALIST_RUN_FACTOR

Value = Callable[[np.ndarray, int], float]
Gradient = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def climb_box(
    value: Value, gradient: Gradient, box: Box, runs: int, seed: int
) -> tuple[Point, list[tuple[Point, float]]]:
    """Return the point of the box with the largest value, and all evaluations as (point, value).

    Parameters
    ----------
    value : callable
        `value(point, runs)` estimates the value at a point from so many runs.
    gradient : callable
        `gradient(point, distances, runs)` estimates the derivatives from points at these distances along the axes.
    box : Box
        The box.
    runs : int
        The runs of all estimates together.
    seed : int
        The seed of the starting points.
    """
    dimension = len(box.low)
    runs_per_point = runs // RUN_SHARES
    if runs_per_point < MIN_RUNS_PER_POINT * dimension:
        raise InputError(
            f"runs: found {runs}; expected at least {MIN_RUNS_PER_POINT * dimension * RUN_SHARES} for a box of "
            f"{dimension} dimensions"
        )
    values: dict[Point, float] = {}  # by position in the unit cube

    def evaluate(position: np.ndarray) -> Point:
        key = tuple(np.clip(position, 0, 1).tolist())
        if key not in values:
            values[key] = value(box.point(key), runs_per_point)
        return key

    for start in latin_hypercube(STARTS, dimension, seed):
        evaluate(start)
    for place in separated_maxima(values, CLIMBS, 0.0):
        best, distance = place, FIRST_DISTANCE
        for _ in range(STEPS):
            # The points around the best one lie in the box too.
            middle = np.clip(best, distance, 1 - distance)
            slope = gradient(box.point(tuple(middle)), distance * box.width, GRADIENT_RUN_FACTOR * runs_per_point)
            slope = slope * box.width
            largest = np.abs(slope).max()
            if not largest > 0:
                break
            corner = np.where(slope == 0, best, slope > 0)
            reached = [evaluate(corner), evaluate(np.array(best) + SHORT_STEP * slope / largest)]
            further = max(reached, key=values.__getitem__)
            if values[further] > values[best]:
                best = further
            else:
                distance /= 2
    finalists = {
        position: value(box.point(position), FINALIST_RUN_FACTOR * runs_per_point)
        for position in separated_maxima(values, FINALISTS, 0.0)
    }
    best = max(finalists, key=finalists.__getitem__)
    evaluations = [*values.items(), *finalists.items()]
    return box.coordinates(best), [(box.coordinates(position), value) for position, value in evaluations]
