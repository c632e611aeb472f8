"""The line that a calibration fits to the logarithm of epsilon as a function of the parameter."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.report.report import Report
from dpverify.stats.upper import smallest_epsilon

LINEAR_RANGE = 0.4  # log epsilon is taken as linear in the parameter over a range of this size


def estimate_epsilon(report: Report, delta: float) -> float:
    """Estimate epsilon at this delta over the cells, with shares of runs in place of probabilities."""
    part = report.cell_counts
    if delta == 0:  # a single cell attains the maximum; the root search below needs a delta that is crossed
        with np.errstate(divide="ignore"):
            return float(np.abs(np.log(part.c1) - np.log(part.c2)).max())
    first_shares, second_shares = part.c1 / part.runs, part.c2 / part.runs

    def excess(epsilon: float) -> float:
        factor = math.exp(epsilon)
        directions = ((first_shares, second_shares), (second_shares, first_shares))
        return max(float(part.number @ np.maximum(p - factor * q, 0.0)) for p, q in directions)

    return smallest_epsilon(excess, delta)


def check_bounds(bounds: object) -> tuple[float, float]:
    """Return (low, high) as floats; raise InputError if they are not an interval."""
    try:
        low, high = map(float, bounds)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(high - low) and low < high):
        raise InputError(f"bounds: found {bounds!r}; expected (low, high), two finite numbers, low below high")
    return low, high


class Axis(NamedTuple):
    """The scale on which the line is fitted: logarithmic if all parameters are positive, else linear."""

    low: float
    high: float

    def position(self, parameter: float) -> float:
        """Return the position of a parameter on the axis."""
        return math.log(parameter) if self.low > 0 else float(parameter)

    def parameter(self, position: float) -> float:
        """Return the parameter at a position, limited to the bounds."""
        value = math.exp(position) if self.low > 0 else float(position)
        return min(max(value, self.low), self.high)


class Point(NamedTuple):
    """A measured point of the curve: a position on the axis, and the logarithm of the estimated epsilon there."""

    position: float
    log_epsilon: float


class Line(NamedTuple):
    """A linear model of log epsilon along the axis."""

    slope: float
    offset: float

    def position(self, log_epsilon: float) -> float:
        """Return the position at which the line reaches this value."""
        return (log_epsilon - self.offset) / self.slope


def fit_line(points: list[Point], ends: list[Point], target: float) -> Line:
    """Fit a line to the points near the target.

    If the noise of the points gives a slope of the wrong sign, the slope between the two ends is used.
    """
    near = [point for point in points if abs(point.log_epsilon - target) <= LINEAR_RANGE]
    x, y = np.array(near).T
    slope = (ends[1].log_epsilon - ends[0].log_epsilon) / (ends[1].position - ends[0].position)
    centred = x - x.mean()
    fitted = float(centred @ y / (centred @ centred))
    slope = fitted if fitted * slope > 0 else slope
    return Line(slope, float(y.mean() - slope * x.mean()))
