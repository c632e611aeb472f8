"""Evidence over the versions of one mechanism: e-values that are combined over the version where a fault began.

Each version gives an e-value against the same claim: a nonnegative number whose mean, given all earlier versions, is at
most 1 if the claim is true. Their product goes blind: while the claim holds, it falls by a factor with every version,
and later evidence cannot lift it again. The mixture keeps one product for every version in which a fault may have
begun (docs/method.md, section 5.11).

Some bets carry over: an event that an earlier version selected is counted in every later version. Its probabilities
under a fault are predicted from the earlier counts, for several sizes of the fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from dpverify.stats.anytime import Boundary, log_factors

SHIFTS = (0.5, 1.0, 2.0, 4.0)  # excess of a predicted fault, in standard errors of one version
STRATEGY_WEIGHTS = (0.5, *(0.5 / len(SHIFTS) for _ in SHIFTS))  # of the bets of the version itself, and of each shift
BISECTION_STEPS = 60
SLOPE_STEP = 1e-6  # relative
MIN_PROBABILITY = 1e-9  # of a prediction


class Evidence(NamedTuple):
    """What all versions say together.

    Attributes
    ----------
    log_value : float
        The logarithm of the mixture. If the claim is true in all versions, the mixture ever reaches 1 / alpha with
        probability at most alpha.
    start : int
        The version with the largest term, from 0 up: if there is a fault, it most likely began there.
    """

    log_value: float
    start: int


def start_weight(number: int) -> float:
    """Return the weight of the start, or of the claim, with this number from 1 up; all weights sum to 1.

    Examples
    --------
    >>> start_weight(1), sum(start_weight(number) for number in range(1, 1000)) < 1
    (0.5, True)
    """
    return 1 / (number * (number + 1))


def combine_versions(log_e_values: ArrayLike, weights: Sequence[float] = STRATEGY_WEIGHTS) -> Evidence:
    """Return the evidence of all versions.

    The mixture is M = sum over s of w_s sum over k of v_k e_s^k ... e_t^k, where s is the version in which a fault
    began, k is a strategy, and w_s = 1 / (s (s + 1)). The weights of later starts are added, so M is 1 before the first
    version. If the claim is true, M is a nonnegative supermartingale, because every term is one.

    Parameters
    ----------
    log_e_values : array_like of shape (versions, strategies)
        The logarithms of the e-values. Strategies that a version lacks have 0.
    weights : sequence of float
        The weights v of the strategies. They sum to 1.

    Examples
    --------
    >>> healthy, faulty = [-2.0], [6.0]
    >>> evidence = combine_versions([healthy] * 50 + [faulty] * 3, [1.0])
    >>> round(evidence.log_value, 1), evidence.start
    (10.3, 50)
    """
    table = np.atleast_2d(np.asarray(log_e_values, float))
    if not table.size:
        return Evidence(0.0, 0)
    number = len(table)
    products = np.cumsum(table[::-1], axis=0)[::-1]  # row s: the product from version s on
    starts = np.arange(1, number + 1)
    terms = logsumexp(products + np.log(weights), axis=1) - np.log(starts * (starts + 1.0))
    value = logsumexp(np.append(terms, -math.log(number + 1)))
    return Evidence(float(value), int(np.argmax(terms)))


def predict_faults(
    c1: int, c2: int, runs: int, planned_runs: int, boundary: Boundary, shifts: Sequence[float] = SHIFTS
) -> list[tuple[float, float]]:
    """Return the probabilities of an event that faults of several sizes would cause, given counts without a fault.

    The counts give the nearest pair of probabilities on the boundary of the claim, with the same sum. From there, the
    probabilities move apart until the excess over the claim is a number of standard errors of a version.

    Parameters
    ----------
    c1, c2 : int
        Earlier runs in the event: of the data set that is expected to exceed, and of the other one.
    runs : int
        The number of earlier runs per data set.
    planned_runs : int
        The runs per data set of a version.
    boundary : callable
        The boundary of the claim.
    shifts : sequence of float
        The excesses, in standard errors.

    Examples
    --------
    >>> from dpverify.stats.anytime import line_boundary
    >>> [(round(a, 4), round(b, 4)) for a, b in predict_faults(500, 184, 1000, 20_000, line_boundary(1.0))]
    [(0.501, 0.1828), (0.5018, 0.1816), (0.5033, 0.1791), (0.5063, 0.1741)]
    """
    total = (c1 + c2 + 1) / (runs + 1)
    low, high = 0.0, total / 2
    for _ in range(BISECTION_STEPS):
        q2 = (low + high) / 2
        low, high = (q2, high) if float(boundary(np.array(q2))) < total - q2 else (low, q2)
    q2 = max(high, MIN_PROBABILITY)
    q1 = min(float(boundary(np.array(q2))), 1 - MIN_PROBABILITY)
    slope = (q1 - float(boundary(np.array(q2 * (1 - SLOPE_STEP))))) / (q2 * SLOPE_STEP)
    variance1, variance2 = q1 * (1 - q1), q2 * (1 - q2)
    variance = variance1 + slope**2 * variance2
    predictions = []
    for shift in shifts:
        excess = shift / math.sqrt(variance * planned_runs)
        pair = q1 + excess * variance1, q2 - excess * slope * variance2
        predictions.append(tuple(float(x) for x in np.clip(pair, MIN_PROBABILITY, 1 - MIN_PROBABILITY)))
    return predictions


def carried_log_e_values(
    c1: int, c2: int, runs: int, predictions: Sequence[tuple[float, float]], boundary: Boundary
) -> list[float]:
    """Return the logarithm of the e-value of each prediction, from the counts of a version.

    Examples
    --------
    >>> from dpverify.stats.anytime import line_boundary
    >>> [round(x, 1) for x in carried_log_e_values(300, 80, 500, [(0.6, 0.15), (0.5, 0.4)], line_boundary(1.0))]
    [4.7, 0.0]
    """
    a, b = np.array(predictions).T
    return log_factors(c1, c2, runs, a, b, boundary).tolist()
