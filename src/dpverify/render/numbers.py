"""What the page reads off a report, as plain numbers: a ruler for epsilon, p-values and bounds on delta along it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpverify.report.evaluate import thinned_p_values
from dpverify.report.report import Report
from dpverify.stats.profile import P_VALUE_FLOOR, small_p_value

STEPS = 150  # of the slider, about


class Readings(NamedTuple):
    """Along a ruler of epsilons: both orders' p-values, and the bounds on delta that hold as whole curves."""

    epsilon: np.ndarray
    first: np.ndarray  # p-value of P1 <= e^eps P2 + delta
    second: np.ndarray  # p-value of P2 <= e^eps P1 + delta
    lower: np.ndarray
    upper: np.ndarray
    floor: float  # a p-value of at most this says "at most" (`statements.small_p_value`); 0 where none does


def round_step(x: float) -> float:
    """The nearest of 1, 2, 5 times a power of ten, upwards."""
    power = 10.0 ** math.floor(math.log10(x))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= x * (1 - 1e-9))


def ruler(report: Report, upper: float) -> np.ndarray:
    """Epsilons from 0 to somewhat beyond all that is marked, in round steps; `upper` is the bound on the partition."""
    marks = (report.epsilon_lower, report.epsilon_critical, report.epsilon or 0.0, upper)
    top = max(1.3 * max(mark for mark in marks if mark < math.inf), 0.2)
    step = round_step(top / STEPS)
    return np.round(np.arange(math.ceil(top / step) + 1) * step, 12)


def monotone(function: Callable[[float], float], at: np.ndarray) -> np.ndarray:
    """A rising function on a ruler; where both ends agree there is no need to look between them."""
    values = np.full(at.size, np.nan)
    spans = [(0, at.size - 1)]
    values[0], values[-1] = function(float(at[0])), function(float(at[-1]))
    while spans:
        low, high = spans.pop()
        if high - low < 2:
            continue
        if math.isclose(values[low], values[high], rel_tol=1e-6):
            values[low + 1 : high] = values[high]
            continue
        middle = (low + high) // 2
        values[middle] = function(float(at[middle]))
        spans += [(low, middle), (middle, high)]
    return values


def read(report: Report, upper: float) -> Readings:
    """A slider may stop anywhere: what it reads must hold everywhere at once.

    The p-values are those of one frozen event, so all epsilons below `epsilon_lower` are refuted together. The bounds
    on delta are the whole curves of `report.profile`; between its nodes the upper one runs on chords in e^epsilon.
    """
    witness, alpha, delta = report.witness, report.alpha, report.delta
    epsilons = ruler(report, upper)
    c1, c2 = witness.counts
    if report.settings.test == "thinned":
        pairs = [thinned_p_values(witness, report.settings, float(e)) for e in epsilons]
        first, second, floor = np.array([p for p, _ in pairs]), np.array([p for _, p in pairs]), 0.0
    else:
        first, second = (
            monotone(lambda e, a=a, b=b: small_p_value(a, b, witness.runs, e, delta, alpha), epsilons)
            for a, b in ((c1, c2), (c2, c1))
        )
        floor = P_VALUE_FLOOR * alpha
    bounds = between_nodes(report.profile["eps"], report.profile["delta_upper"], epsilons)
    return Readings(epsilons, first, second, witness.delta_lower_curve(epsilons), bounds, floor)


def between_nodes(nodes: np.ndarray, bounds: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    """Bounds on a partition's delta, which is convex in e^epsilon and falls: chords there, level beyond the last."""
    return np.interp(np.exp(np.minimum(epsilons, nodes[-1])), np.exp(nodes), bounds)


def outwards(values: np.ndarray, up: bool) -> list[float]:
    """Four digits for the page, rounded so that what is shown holds too; a small lower bound may become 0."""
    unit = 10.0 ** (np.floor(np.log10(np.maximum(np.abs(values), 1e-12))) - 3)
    whole = np.ceil(values / unit * (1 - 1e-12)) if up else np.floor(values / unit * (1 + 1e-12))
    return [float(f"{x:.4g}") for x in whole * unit]


def embedded(report: Report, readings: Readings) -> dict[str, Any]:
    """The columns that the slider reads off: numbers only."""
    start = report.epsilon if report.epsilon is not None else report.epsilon_lower
    return {
        "epsilon": readings.epsilon.tolist(),
        "first": outwards(readings.first, up=True),
        "second": outwards(readings.second, up=True),
        "lower": outwards(readings.lower, up=False),
        "upper": np.minimum(outwards(readings.upper, up=True), 1.0).tolist(),
        "floor": readings.floor,
        "alpha": report.alpha,
        "start": int(np.argmin(np.abs(readings.epsilon - start))),
        "direction": 0 if report.settings.test == "thinned" else report.witness.direction[0],  # 0: both are tested
    }
