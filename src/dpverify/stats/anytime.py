"""Tests that may look at the data at any time: wealth, its threshold, and the bounds that follow (docs/method.md, 5.8).

Runs come in batches. Before a batch, an event, a direction and predicted probabilities (a, b) of the event are fixed.
The wealth is multiplied by the likelihood ratio of (a, b) against the nearest probabilities that the claim allows.
If the claim is true, the wealth is a nonnegative supermartingale that starts at 1. Ville's inequality states that it
ever reaches 1/alpha with probability at most alpha, so a test may stop as soon as it does.

All functions take counts and a claim's boundary: `boundary(q)` is the largest probability of an event that the claim
allows if the other dataset has probability q. It is concave, nondecreasing, and at least q.

The versions of one mechanism give one e-value each against the same claim: a nonnegative number whose mean, given all
earlier versions, is at most 1 if the claim is true. Their product goes blind: while the claim holds, it falls by a
factor with every version, and later evidence cannot lift it again. The mixture of `combine_versions` keeps one product
for every version in which a fault may have begun (docs/method.md, section 5.11). Some bets carry over: cells that an
earlier version made are counted in every later version. From all earlier counts, the union of cells is chosen that
would show a fault best, and its probabilities under faults of several sizes are predicted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.stats.boundaries import Boundary

BISECTION_STEPS = 40  # the error of log q is at most this power of a half of log(a / b)
GROWTH_STEPS = 10  # enough to compare events
SMALLEST_WIDTH, LARGEST_WIDTH = 1e-14, 100.0  # relative distances at which the maximum is enclosed
SLOPE_ROUNDING = 1e-14  # relative; about fifty rounding errors
RESERVE_ROUNDING = 1e-9  # shares whose sum differs less from 1 leave no reserve
ROUNDING = 1e-14  # per run; several hundred rounding errors


class Bets(NamedTuple):
    """What was predicted and what was counted; one entry per bet, sorted by batch and slot.

    Attributes
    ----------
    batch : ndarray of int
        The batch, from 0 up.
    season, slot : ndarray of int
        The season and the family of events, from 0 up. A new season divides the wealth among the families again.
    share : ndarray of float
        The part of the wealth that the family receives at the start of the season. The rest is kept in reserve.
    weight : ndarray of float
        The part of its wealth that the family places on the bet. The weights of a family in one batch sum to 1.
    runs : ndarray of int
        The runs per dataset of the batch.
    c1, c2 : ndarray of int
        How many of them fell into the event: of the dataset that is expected to exceed, and of the other one.
    a, b : ndarray of float
        The probabilities that were predicted before the batch.
    """

    batch: np.ndarray
    season: np.ndarray
    slot: np.ndarray
    share: np.ndarray
    weight: np.ndarray
    runs: np.ndarray
    c1: np.ndarray
    c2: np.ndarray
    a: np.ndarray
    b: np.ndarray


class Projection(NamedTuple):
    """The pair of probabilities of the claim that is nearest to a prediction, in Kullback-Leibler divergence.

    Attributes
    ----------
    q1, q2 : ndarray
        The nearest pair; the prediction itself if the claim allows it.
    growth : ndarray
        The divergence: the expected growth of the log-wealth per run if the prediction is right.
    log_excess : ndarray
        An upper limit of the logarithm of the expected factor of the wealth, over all probabilities that the claim
        allows. It is 0 for the exact projection, and tiny for a numerical one.
    """

    q1: np.ndarray
    q2: np.ndarray
    growth: np.ndarray
    log_excess: np.ndarray


def divergence(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """Return the Kullback-Leibler divergence between two Bernoulli distributions."""
    p, q = np.asarray(p, float), np.asarray(q, float)
    with np.errstate(divide="ignore"):
        return scipy.special.xlogy(p, p / q) + scipy.special.xlogy(1 - p, (1 - p) / (1 - q))


def project(a: ArrayLike, b: ArrayLike, boundary: Boundary) -> Projection:
    """Return the projection of predictions onto what a claim allows.

    The divergence from (a, b) to (boundary(q), q) decreases and then increases with q between b and a, because the
    boundary is concave and nondecreasing. Bisection over log q finds the zero of its derivative. A numerical minimum
    is not exact, so `log_excess` encloses what the inexactness costs.

    Parameters
    ----------
    a, b : array_like
        Predicted probabilities, strictly between 0 and 1. They are broadcast with the shape that `boundary` returns.
    boundary : callable
        The boundary of the claim.

    Examples
    --------
    >>> from dpverify.stats.boundaries import line_boundary
    >>> nearest = project(0.5, 0.1, line_boundary(0.0))
    >>> round(float(nearest.q1), 6), round(float(nearest.q2), 6)
    (0.3, 0.3)
    """
    nearest = _nearest(a, b, boundary, BISECTION_STEPS)
    growth = nearest.growth
    log_excess = _log_excess(nearest, boundary) if growth.any() else np.zeros(growth.shape)
    return Projection(nearest.q1, nearest.q2, growth, np.where(growth > 0, log_excess, 0.0))


def expected_growth(a: ArrayLike, b: ArrayLike, boundary: Boundary) -> np.ndarray:
    """Return the expected growth of the log-wealth per run if predictions are right; 0 if the claim allows them.

    The value has about six correct digits. It is used to compare events.

    Examples
    --------
    >>> from dpverify.stats.boundaries import line_boundary
    >>> expected_growth([0.5, 0.2], 0.1, line_boundary(1.0)).round(3).tolist()
    [0.023, 0.0]
    """
    return _nearest(a, b, boundary, GROWTH_STEPS).growth


class _Nearest(NamedTuple):
    """Predictions, their projections (q1, q2), the divergence, and half the length of the bracket around ln q2."""

    a: np.ndarray
    b: np.ndarray
    q1: np.ndarray
    q2: np.ndarray
    growth: np.ndarray
    half_bracket: np.ndarray


def _nearest(a: ArrayLike, b: ArrayLike, boundary: Boundary, steps: int) -> _Nearest:
    """Return the projection of predictions; all columns have the same shape."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    allowed = boundary(b)
    a, b, allowed = np.broadcast_arrays(a, b, allowed)
    is_violation = a > allowed
    if not is_violation.any():
        return _Nearest(a, b, a, b, np.zeros(a.shape), np.zeros(a.shape))
    low, high = np.log(b), np.log(np.where(is_violation, a, b))
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(steps):
            middle = (low + high) / 2
            q = np.exp(middle)
            value = boundary(q)
            derivative = boundary.slope(q) * (value - a) / (value * (1 - value)) + (q - b) / (q * (1 - q))
            is_beyond = (derivative > 0) | (value >= a)
            low, high = np.where(is_beyond, low, middle), np.where(is_beyond, middle, high)
    q2 = np.where(is_violation, np.exp((low + high) / 2), b)
    q1 = np.where(is_violation, boundary(q2), a)
    # Where rounding moves the boundary above a prediction, the factor would no longer rise with p1.
    growth = np.where(is_violation & (q1 < a), divergence(a, q1) + divergence(b, q2), 0.0)
    return _Nearest(a, b, q1, q2, growth, (high - low) / 2)


def _log_excess(nearest: _Nearest, boundary: Boundary) -> np.ndarray:
    """Return an upper limit of ln E[factor] over the claim.

    Let f and g be the expected factors of the two datasets. f increases with p1, so the worst p1 is boundary(p2), and
    ln f + ln g is a concave function of p2 that is 0 at q2. Its maximum lies between a point at which it rises and a
    point at which it falls, and between them it is below its tangent at q2. Both points are moved away from q2 until
    rounding cannot change the sign of the slopes there.
    """
    a, b, q1, q2, growth, half_bracket = nearest
    slope1, slope2 = (a - q1) / (q1 * (1 - q1)), (b - q2) / (q2 * (1 - q2))

    def slope(p2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slope of ln f + ln g, and a limit of its rounding error."""
        term1 = slope1 * boundary.slope(p2) / (1 + slope1 * (boundary(p2) - q1))
        term2 = slope2 / (1 + slope2 * (p2 - q2))
        return term1 + term2, SLOPE_ROUNDING * (np.abs(term1) + np.abs(term2))

    width = np.maximum(half_bracket, SMALLEST_WIDTH)
    while True:
        below, above = q2 * np.exp(-width), np.minimum(q2 * np.exp(width), 1.0)
        (rise, rise_error), (fall, fall_error) = slope(below), slope(above)
        is_enclosed = (rise > rise_error) & ((fall < -fall_error) | (above == 1.0))
        is_done = is_enclosed | (growth == 0) | (width > LARGEST_WIDTH)
        if is_done.all():
            break
        width = np.where(is_done, width, 4 * width)
    below = np.where(is_enclosed, below, 0.0)
    above = np.where(is_enclosed, above, 1.0)
    tangent, error = slope(q2)
    return np.maximum(tangent + error, 0.0) * (above - q2) + np.maximum(error - tangent, 0.0) * (q2 - below) + ROUNDING


def log_factors(
    c1: ArrayLike, c2: ArrayLike, runs: ArrayLike, a: ArrayLike, b: ArrayLike, boundary: Boundary
) -> np.ndarray:
    """Return the logarithm of the factor by which each bet multiplies its wealth; 0 if the claim allows (a, b).

    Examples
    --------
    >>> from dpverify.stats.boundaries import line_boundary
    >>> round(float(log_factors(9, 1, 10, 0.8, 0.2, line_boundary(0.0))), 3)
    6.627
    """
    q1, q2, growth, log_excess = project(a, b, boundary)
    c1, c2, runs = np.asarray(c1, float), np.asarray(c2, float), np.asarray(runs, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = (
            scipy.special.xlogy(c1, a / q1)
            + scipy.special.xlogy(runs - c1, (1 - np.asarray(a)) / (1 - q1))
            + scipy.special.xlogy(c2, b / q2)
            + scipy.special.xlogy(runs - c2, (1 - np.asarray(b)) / (1 - q2))
        )
    return np.where(growth > 0, gain - runs * log_excess, 0.0)


def log_wealth(bets: Bets, boundary: Boundary) -> np.ndarray:
    """Return the logarithm of the wealth after every batch, from batch 0 up; the last axis is the batch.

    In one batch, the factor of a family is the weighted mean of the factors of its bets. At the start of a season the
    wealth is divided among the families and a reserve. Within the season each family keeps what it wins, and the
    reserve stays the same. Weights and shares are fixed before the batch, so the wealth is a supermartingale as every
    single bet is.

    Parameters
    ----------
    bets : Bets
        The bets.
    boundary : callable
        The boundary of the claim. It may add leading axes, for many claims at once.

    Examples
    --------
    >>> from dpverify.stats.boundaries import line_boundary
    >>> columns = [0, 1], [0, 0], [0, 0], [1.0, 1.0], [1.0, 1.0], [5, 5], [5, 1], [1, 3], [0.8, 0.8], [0.2, 0.2]
    >>> np.exp(log_wealth(Bets(*map(np.array, columns)), line_boundary(0.0))).round(2).tolist()
    [27.49, 0.18]
    """
    if not bets.batch.size:
        return np.zeros(0)
    factors = np.log(bets.weight) + log_factors(bets.c1, bets.c2, bets.runs, bets.a, bets.b, boundary)
    is_first = np.append(True, (np.diff(bets.batch) != 0) | (np.diff(bets.slot) != 0))
    starts = np.flatnonzero(is_first)
    steps = np.logaddexp.reduceat(factors, starts, axis=-1)  # of each family in each batch
    batch, season, slot, share = bets.batch[starts], bets.season[starts], bets.slot[starts], bets.share[starts]
    total = np.zeros((*steps.shape[:-1], int(batch[-1]) + 1))
    wealth = np.zeros(steps.shape[:-1])
    for current in np.unique(season):
        families, reserve = [], 1.0
        for family in np.unique(slot[season == current]):
            chosen = (season == current) & (slot == family)
            families.append(np.cumsum(steps[..., chosen], axis=-1) + np.log(share[chosen][0]))
            reserve -= share[chosen][0]
        if reserve > RESERVE_ROUNDING:
            families.append(np.full(families[0].shape, np.log(reserve)))
        first = batch[season == current][0]
        total[..., first : first + families[0].shape[-1]] = wealth[..., None] + scipy.special.logsumexp(
            families, axis=0
        )
        wealth = total[..., first + families[0].shape[-1] - 1]
    return total


def largest_rejected(log_wealth_by_parameter: np.ndarray, parameters: np.ndarray, alpha: float) -> np.ndarray:
    """Return the lower confidence sequence of a parameter: one bound per batch, which hold together at 1 - alpha.

    A parameter is rejected from the first batch on at which its wealth has reached 1/alpha. The bound is the largest
    parameter up to which all parameters of the grid have been rejected. Wealth is not monotone in the parameter, so the
    largest of all rejected parameters is not a valid bound.

    Parameters
    ----------
    log_wealth_by_parameter : ndarray of shape (parameters, batches)
        From `log_wealth`.
    parameters : ndarray
        The increasing grid. The bound is 0 as long as its first parameter is not rejected.
    alpha : float
        The level.

    Examples
    --------
    >>> wealth = np.log([[1.0, 30.0, 9.0], [2.0, 8.0, 40.0], [50.0, 3.0, 3.0]])
    >>> largest_rejected(wealth, np.array([0.1, 0.2, 0.3]), 0.05).tolist()
    [0.0, 0.1, 0.3]
    """
    rejected = np.maximum.accumulate(log_wealth_by_parameter, axis=-1) >= np.log(1 / alpha)
    number = np.cumprod(rejected, axis=0).sum(axis=0)
    return np.append(0.0, parameters)[number]


EXPECTED_FAULT = 0.05  # growth of the larger probability p, relative to p (1 - p), by which events are compared
SHIFTS = (0.5, 1.0, 2.0, 4.0)  # excess of a predicted fault, in standard errors of one version
STRATEGY_WEIGHTS = (0.5, *(0.5 / len(SHIFTS) for _ in SHIFTS))  # of the bets of the version itself, and of each shift
SLOPE_STEP = 1e-6  # relative; a difference over it has ten digits
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
        Earlier runs in the event: of the dataset that is expected to exceed, and of the other one.
    runs : int
        The number of earlier runs per dataset.
    planned_runs : int
        The runs per dataset of a version.
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
    for _ in range(60):
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
        0 if the first dataset is expected to exceed the claim, 1 if the second is.
    predictions : tuple of (float, float)
        The probabilities under the exceeding dataset and under the other one, for faults of several sizes.
    """

    cells: tuple[int, ...]
    direction: int
    predictions: tuple[tuple[float, float], ...]


def carry_bet(cells: np.ndarray, runs: int, planned_runs: int, boundary: Boundary) -> CarriedBet | None:
    """Return the bet that earlier counts suggest; None if no union of cells has runs of both datasets.

    The cells are sorted by the ratio of their counts. The unions of the first cells in this order are compared by how
    many standard errors a fault of `EXPECTED_FAULT` would lie above the claim.

    Parameters
    ----------
    cells : ndarray of shape (2, cells)
        The earlier counts of both datasets in every cell.
    runs : int
        The number of earlier runs per dataset.
    planned_runs : int
        The runs per dataset of a version.
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
