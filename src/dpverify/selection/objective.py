"""What the selection maximises: the lower bound of epsilon that the planned test runs are expected to prove."""

from __future__ import annotations

from functools import lru_cache
from types import NoneType
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.stats.claim_kinds import Approximate, Claim

BOUNDARY_TABLE_RANGE, BOUNDARY_TABLE_SIZE = (-9.0, 8.0), 1701  # in standard normal quantiles
MIN_APPROXIMATED_COUNT = 50
PENALTY_PER_DOUBLING = 0.15  # standard errors per doubling of the number of fitted parameters
PRIOR_COUNT = 0.5  # of the Gamma distribution that describes a probability before any run was counted
QUANTILES = (np.arange(8) + 0.5) / 8  # of the distribution of a probability, given its count
VARIANCE_STEPS = 3  # fixed-point steps of the variance of a frequent event


class SelectionObjective(NamedTuple):
    """What an event is judged by.

    Attributes
    ----------
    planned : int
        The planned test runs per data set.
    delta : float
        The claimed delta.
    alpha : float
        The level of the test.
    decision_penalty : float
        The penalty of the final comparison, in standard errors at the size of the selection. Without a penalty the
        largest of many noisy estimates would belong to a rare event that was overestimated by chance.
    claim : Claim or None
        The claim. Where it is a curve, events are judged by their expected distance from the curve.
    """

    planned: int
    delta: float
    alpha: float
    decision_penalty: float
    claim: Claim | None = None

    @property
    def is_curve(self) -> bool:
        """Whether the claim is a curve."""
        return not isinstance(self.claim, (Approximate, NoneType))

    @property
    def claimed_mu(self) -> float:
        """The mu of Gaussian differential privacy that a curve allows where both errors are equal; 0.0 for a line.

        A distance from the curve plus this number is about a bound on mu.
        """
        if not self.is_curve or self.claim is None:
            return 0.0
        quantiles, allowed = _boundary_table(self.claim)
        return 2 * float(np.interp(0.0, quantiles + allowed, allowed))


def cautious_lower_bound(
    c1: ArrayLike,
    c2: ArrayLike,
    runs: float,
    objective: SelectionObjective,
    penalties: ArrayLike,
    n_parameters: int = 0,
) -> np.ndarray:
    """Return the expected lower bound of epsilon in `p1 <= e^epsilon p2 + delta`, minus a penalty.

    Parameters
    ----------
    c1, c2 : array_like
        Counts of the event in selection runs: of the data set that is expected to exceed, and of the other one.
    runs : float
        The selection runs per data set behind these counts.
    objective : SelectionObjective
        The planned test.
    penalties : array_like
        One penalty or several, in standard errors at the size of the selection.
    n_parameters : int
        The number of fitted parameters. More parameters increase the penalty, so that of two events with about the
        same bound the simpler one is preferred.

    Returns
    -------
    ndarray
        The penalised bounds, of the shape of the penalties followed by the shape of the counts; minus infinity if no
        positive epsilon can be expected. The values are approximate. They affect which event is tested, not the
        validity of the test.
    """
    c1, c2 = np.asarray(c1, float), np.asarray(c2, float)
    p1, p2 = (c1 + 0.5) / (runs + 1), (c2 + 0.5) / (runs + 1)
    levels = scipy.special.ndtr(-np.asarray(penalties, float) - PENALTY_PER_DOUBLING * np.log2(1 + n_parameters))
    # Poisson limits: close to normal standard errors for large counts, and adequate for small counts.
    low = p1 - np.sqrt(1 - p1) * (p1 - _gamma_quantiles(np.maximum(c1, 0.5), levels) / (runs + 1))
    high = p2 + np.sqrt(1 - p2) * (_gamma_quantiles(c2 + 1, 1 - levels) / (runs + 1) - p2)
    if objective.is_curve and objective.claim is not None:
        z = -scipy.special.ndtri(objective.alpha)
        return _distance_from_curve(p1, p2, low, high, objective, objective.claim, z)
    excess = p1 - objective.delta
    with np.errstate(divide="ignore", invalid="ignore"):
        uncertainty = np.hypot(np.log(excess / (low - objective.delta)), np.log(high / p2))
        test_variance = (p1 * (1 - p1) / excess**2 + (1 - p2) / p2) / objective.planned
        test_error = -scipy.special.ndtri(objective.alpha) * np.sqrt(test_variance)
        bound = np.log(np.maximum(excess, 1e-300) / p2) - test_error - uncertainty
        return np.where(low > objective.delta, bound, -np.inf)


def approximate_bound(
    p1: ArrayLike, p2: ArrayLike, objective: SelectionObjective, share: float | np.ndarray = 1.0, is_rare: bool = False
) -> np.ndarray:
    """Return about the lower bound that the planned test runs prove for an event with these probabilities.

    Parameters
    ----------
    p1, p2 : array_like
        The probabilities of the event under the data set that is expected to exceed, and under the other one.
    objective : SelectionObjective
        The planned test.
    share : float or ndarray
        The share of alpha that the event is tested with.
    is_rare : bool
        Whether both probabilities are small, so that counts are Poisson distributed.

    Returns
    -------
    ndarray
        For a claimed epsilon, or without a claim: the epsilon at which the score statistic of the expected counts is
        the normal quantile of the level. For a claim that is a curve: the distance from the curve on the probit scale,
        less the error of the test. Never below 0.
    """
    p1, p2 = np.asarray(p1, float), np.asarray(p2, float)
    z = -scipy.special.ndtri(objective.alpha * np.asarray(share))
    if objective.is_curve and objective.claim is not None:
        return np.maximum(_distance_from_curve(p1, p2, p1, p2, objective, objective.claim, z), 0.0)
    runs = objective.planned
    k2, rest = p2 * runs, objective.delta * runs
    excess = np.maximum(p1 * runs - rest, 0.0)
    ratio, factor = np.ones(np.broadcast_shapes(p1.shape, p2.shape, np.shape(z))), 1.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for _ in range(1 if is_rare else VARIANCE_STEPS):
            # The statistic (excess - R k2)^2 = z^2 (rest + R (excess + k2)) is a quadratic equation for R = e^epsilon.
            # Its variance is that of Poisson counts; the factor corrects it for probabilities that are not small.
            square = z * z * factor
            linear = 2 * excess * k2 + square * (excess + k2)
            constant = np.maximum(excess**2 - square * rest, 0.0)
            ratio = 2 * constant / (linear + np.sqrt(np.maximum(linear**2 - 4 * k2**2 * constant, 0.0)))
            q2 = np.minimum((excess + k2) / (1 + ratio) / runs, 1.0)
            q1 = np.minimum(ratio * q2 + objective.delta, 1.0)
            variance = q1 + ratio**2 * q2
            factor = np.where(variance > 0, 1 - (q1**2 + ratio**2 * q2**2) / np.maximum(variance, 1e-300), 1.0)
        bound = np.where(constant > 0, np.log(np.maximum(ratio, 1e-300)), 0.0)
    return np.maximum(np.nan_to_num(bound, nan=0.0), 0.0)


def posterior_quantiles(counts: ArrayLike, runs: int, prior: ArrayLike = PRIOR_COUNT, prior_runs: ArrayLike = 0.0):
    """Return quantiles of an unknown probability, given its count; the quantiles are the last axis.

    Parameters
    ----------
    counts : array_like
        Runs in the event.
    runs : int
        All runs.
    prior, prior_runs : array_like
        A count and a number of runs that express what is known without these runs.
    """
    shape = np.asarray(counts, float) + prior
    quantiles = np.moveaxis(_gamma_quantiles(shape, QUANTILES), 0, -1)
    return np.minimum(quantiles / (runs + np.asarray(prior_runs, float))[..., None], 1.0)


def _distance_from_curve(
    p1: np.ndarray,
    p2: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    objective: SelectionObjective,
    claim: Claim,
    z: float | np.ndarray,
) -> np.ndarray:
    """Return how far above the boundary of the claim an event is expected to be, on the probit scale, less penalties.

    `low` and `high` are the pessimistic values of p1 and p2 that the selection runs allow, and `z` is the normal
    quantile of the test.
    """
    tested1 = np.maximum(p1 - z * np.sqrt(p1 * (1 - p1) / objective.planned), 1e-300)
    tested2 = np.minimum(p2 + z * np.sqrt(p2 * (1 - p2) / objective.planned), 1.0)
    highest = 1 - 1e-16
    first, first_low, first_tested = (scipy.special.ndtri(np.clip(p, 1e-300, highest)) for p in (p1, low, tested1))
    table = _boundary_table(claim)
    allowed, allowed_high, allowed_tested = (
        np.interp(scipy.special.ndtri(np.clip(q, 1e-300, highest)), *table) for q in (p2, high, tested2)
    )
    uncertainty = np.hypot(first - first_low, allowed_high - allowed)
    test_error = np.hypot(first - first_tested, allowed_tested - allowed)
    return np.where(low > 0, first - allowed - uncertainty - test_error, -np.inf)


@lru_cache(maxsize=8)
def _boundary_table(claim: Claim) -> tuple[np.ndarray, np.ndarray]:
    """Return the boundary of a claim on the probit scale; some boundaries are too slow for thousands of events."""
    quantiles = np.linspace(*BOUNDARY_TABLE_RANGE, BOUNDARY_TABLE_SIZE)
    return quantiles, scipy.special.ndtri(np.clip(claim.boundary(scipy.special.ndtr(quantiles)), 1e-300, 1 - 1e-16))


def _gamma_quantiles(counts: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the gamma quantile of every count at every level; the levels are the first axis if there are several.

    Large counts use the approximation of Wilson and Hilferty.
    """
    flat, column = np.ravel(counts), np.reshape(levels, (-1, 1))
    root = 1 - 1 / (9 * flat) + scipy.special.ndtri(column) / (3 * np.sqrt(flat))
    quantiles = flat * root**3
    small = np.flatnonzero(flat < MIN_APPROXIMATED_COUNT)
    if small.size:
        distinct, index = np.unique(flat[small], return_inverse=True)  # each distinct count is computed once
        quantiles[:, small] = scipy.special.gammaincinv(distinct, column)[:, index]
    return quantiles.reshape(np.shape(levels) + np.shape(counts))
