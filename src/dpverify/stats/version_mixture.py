"""Evidence over the versions of one mechanism: e-values that are combined over the version where a fault began.

Each version gives an e-value against the same claim: a nonnegative number whose mean, given all earlier versions, is at
most 1 if the claim is true. Their product goes blind: while the claim holds, it falls by a factor with every version,
and later evidence cannot lift it again. The mixture keeps one product for every version in which a fault may have
begun (docs/method.md, section 5.11).

Some bets carry over: cells that an earlier version made are counted in every later version. From all earlier counts,
the union of cells is chosen that would show a fault best, and its probabilities under faults of several sizes are
predicted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpverify.stats.anytime import Boundary, log_factors

EXPECTED_FAULT = 0.05  # growth of the larger probability p, relative to p (1 - p), by which events are compared
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
    terms = np.logaddexp.reduce(products + np.log(weights), axis=1) - np.log(starts * (starts + 1.0))
    value = np.logaddexp.reduce(np.append(terms, -math.log(number + 1)))
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
    >>> from dpverify.stats.boundaries import line_boundary
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


class CarriedBet(NamedTuple):
    """What earlier versions predict about a union of cells.

    Attributes
    ----------
    cells : tuple of int
        The numbers of the cells.
    direction : int
        0 if the first data set is expected to exceed the claim, 1 if the second is.
    predictions : tuple of (float, float)
        The probabilities under the exceeding data set and under the other one, for faults of several sizes.
    """

    cells: tuple[int, ...]
    direction: int
    predictions: tuple[tuple[float, float], ...]


def carry_bet(cells: np.ndarray, runs: int, planned_runs: int, boundary: Boundary) -> CarriedBet | None:
    """Return the bet that earlier counts suggest; None if no union of cells has runs of both data sets.

    The cells are sorted by the ratio of their counts. The unions of the first cells in this order are compared by how
    many standard errors a fault of `EXPECTED_FAULT` would lie above the claim.

    Parameters
    ----------
    cells : ndarray of shape (2, cells)
        The earlier counts of both data sets in every cell.
    runs : int
        The number of earlier runs per data set.
    planned_runs : int
        The runs per data set of a version.
    boundary : callable
        The boundary of the claim.

    Examples
    --------
    >>> from dpverify.stats.boundaries import line_boundary
    >>> bet = carry_bet(np.array([[500, 300, 200], [185, 115, 700]]), 1000, 20_000, line_boundary(1.0))
    >>> bet.cells, bet.direction
    ((2,), 1)
    """
    best: tuple[float, int, np.ndarray, tuple[int, int]] | None = None
    for direction in (0, 1):
        exceeding, other = cells[direction], cells[1 - direction]
        order = np.argsort(-(exceeding + 0.5) / (other + 0.5), kind="stable")
        c1, c2 = np.cumsum(exceeding[order])[:-1], np.cumsum(other[order])[:-1]
        p1, p2 = (c1 + 0.5) / (runs + 1), (c2 + 0.5) / (runs + 1)
        allowed = boundary(p2)
        slope = (allowed - boundary(np.zeros(1))) / p2
        errors = np.sqrt((p1 * (1 - p1) + slope**2 * p2 * (1 - p2)) / planned_runs)
        promise = np.where((c1 > 0) & (c2 > 0), (p1 + EXPECTED_FAULT * p1 * (1 - p1) - allowed) / errors, -np.inf)
        number = int(np.argmax(promise)) if promise.size else 0
        if promise.size and np.isfinite(promise[number]) and (best is None or promise[number] > best[0]):
            best = float(promise[number]), direction, order[: number + 1], (int(c1[number]), int(c2[number]))
    if best is None:
        return None
    _, direction, chosen, (c1, c2) = best
    predictions = predict_faults(c1, c2, runs, planned_runs, boundary)
    return CarriedBet(tuple(sorted(chosen.tolist())), direction, tuple(predictions))


def carried_log_e_values(cells: np.ndarray, runs: int, bet: CarriedBet, boundary: Boundary) -> list[float]:
    """Return the logarithm of the e-value of each prediction of a bet, from the counts of a version in every cell.

    Examples
    --------
    >>> from dpverify.stats.boundaries import line_boundary
    >>> bet = CarriedBet((1,), 0, ((0.6, 0.15), (0.5, 0.4)))
    >>> [round(x, 1) for x in carried_log_e_values(np.array([[200, 300], [420, 80]]), 500, bet, line_boundary(1.0))]
    [4.7, 0.0]
    """
    inside = cells[:, list(bet.cells)].sum(axis=1)
    a, b = np.array(bet.predictions).T
    return log_factors(inside[bet.direction], inside[1 - bet.direction], runs, a, b, boundary).tolist()
