"""The statistical test of the paper (section IV, Algorithms 4 and 5), and the quantities lambda and eta of the paper.

The test thins one count at random by e^-epsilon, which turns the claim into the equality of two proportions, and
applies Fisher's exact test. The algorithm as printed thins once for each epsilon. The authors' figures show means over
many thinnings, which are computed exactly here (docs/paper.md). Everywhere `runs` is the number of runs per dataset,
or a pair of numbers.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.stats.binomial import clopper_pearson_upper
from dpverify.stats.exact import epsilon_lower_bound
from dpverify.util.checks import Runs, check_counts, check_epsilon, check_probability, runs_per_side

# Eight of the paper's fourteen critical values lie on this grid to every printed digit.
PAPER_EPSILON_SWEEP = np.linspace(0.001, 1.5, 80)
SWEEP_CHUNK = 40  # points of the sweep that are computed at once


def p_values(
    c1: ArrayLike, c2: ArrayLike, runs: Runs, epsilon: float, rng: np.random.Generator | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the two p-values of the paper's randomised test (PVALUE in its Algorithm 5), for any number of events.

    One count is thinned: each of its runs is kept with probability e^-epsilon. Fisher's exact test then compares it
    with the other count. Without a generator the results are the exact means over all thinnings. A mean of p-values is
    no p-value, but twice the mean is one.

    Parameters
    ----------
    c1, c2 : array_like of int
        How many runs of the first and of the second dataset were in each event.
    runs : number, or pair of numbers
        The runs per dataset, or those of the first and of the second dataset.
    epsilon : float
        The claim, at least 0.
    rng : numpy.random.Generator or None
        The source of randomness for the thinning; None for the means over all thinnings.

    Returns
    -------
    tuple of numpy.ndarray
        The p-values of `p1 <= e^epsilon p2` and of `p2 <= e^epsilon p1`; NumPy floats where the counts are numbers.

    Raises
    ------
    InputError
        If an argument is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> forward, backward = p_values(30, 10, 1000, 0.0, np.random.default_rng(0))
    >>> round(float(forward), 4), round(float(backward), 4)
    (0.001, 0.9997)
    >>> round(float(p_values(35, 12, 3000, 1.5, None)[0]), 3)
    0.847
    """
    check_epsilon(epsilon)
    m1, m2 = runs_per_side(runs)
    check_counts("c1", c1, m1)
    check_counts("c2", c2, m2)
    keep = math.exp(-epsilon)
    if rng is None:
        counts = np.stack(np.broadcast_arrays(c1, c2), axis=-1)
        pairs, index = np.unique(counts.reshape(-1, 2), axis=0, return_inverse=True)  # many cells have equal counts
        means = np.array([(_mean_p_values(a, b, m1, m2, keep), _mean_p_values(b, a, m2, m1, keep)) for a, b in pairs])
        forward, backward = means.reshape(-1, 2)[index.ravel()].T.reshape(2, *counts.shape[:-1])
        return forward[()], backward[()]
    thinned1, thinned2 = rng.binomial(c1, keep), rng.binomial(c2, keep)  # type: ignore[arg-type]  # whole numbers
    return _fisher_p_values(thinned1, thinned2, c1, c2, m1, m2)


def _fisher_p_values(
    thinned1: ArrayLike, thinned2: ArrayLike, c1: ArrayLike, c2: ArrayLike, m1: int, m2: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the p-values of Fisher's exact test of each thinned count against the other count."""
    forward = scipy.stats.hypergeom.sf(np.subtract(thinned1, 1), m1 + m2, m1, np.add(thinned1, c2))
    backward = scipy.stats.hypergeom.sf(np.subtract(thinned2, 1), m1 + m2, m2, np.add(thinned2, c1))
    # The tail from 0 on has probability 1; SciPy's result may differ from it in the last digit.
    return np.where(np.equal(thinned1, 0), 1.0, forward)[()], np.where(np.equal(thinned2, 0), 1.0, backward)[()]


def _mean_p_values(thinned: int, other: int, m1: int, m2: int, keep: ArrayLike) -> np.ndarray:
    """Return the mean of Fisher's p-value over all thinnings of the first count, for each probability in `keep`."""
    kept = np.arange(int(thinned) + 1)
    p = _fisher_p_values(kept, 0, 0, other, m1, m2)[0]
    return np.minimum(scipy.stats.binom.pmf(kept, int(thinned), np.asarray(keep)[..., None]) @ p, 1.0)


def critical_epsilon(
    c1: ArrayLike,
    c2: ArrayLike,
    runs: Runs,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
    *,
    averaged: bool = False,
) -> float | np.ndarray:
    """Return the smallest epsilon at which the test rejects neither `p1 <= e^epsilon p2` nor `p2 <= e^epsilon p1`.

    Without `rng` the result is deterministic: the larger of the two exact lower bounds. With `rng` it is the sweep of
    the paper: epsilon increases along PAPER_EPSILON_SWEEP, and beyond its end by the same step, until both p-values
    exceed alpha. The counts are thinned anew at every epsilon, so that the result is random. With `averaged` it is the
    same sweep of the means over all thinnings, as in the figures of the paper's authors.

    Parameters
    ----------
    c1, c2 : array_like of int
        How many runs of the first and of the second dataset were in the event.
    runs : number, or pair of numbers
        The runs per dataset, or those of the first and of the second dataset.
    alpha : float
        The level of each of the two tests.
    rng : numpy.random.Generator, optional
        The source of randomness for the paper's sweep.
    averaged : bool
        Whether the sweep compares the means over all thinnings with alpha; it needs no `rng`.

    Returns
    -------
    float or numpy.ndarray
        The critical epsilon, one for each pair of counts.

    Raises
    ------
    InputError
        If an argument is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> round(float(critical_epsilon(12, 27, 1000)), 3)
    0.243
    >>> round(critical_epsilon(12, 27, 1000, rng=np.random.default_rng(0)), 3)
    0.21
    >>> round(critical_epsilon(35, 12, 3000, averaged=True), 5)
    0.39947
    """
    check_probability("alpha", alpha)
    if rng is None and not averaged:
        m1, m2 = runs_per_side(runs)
        forward = epsilon_lower_bound(c1, c2, (m1, m2), 0.0, alpha)
        return np.maximum(forward, epsilon_lower_bound(c2, c1, (m2, m1), 0.0, alpha))
    if np.ndim(c1) or np.ndim(c2):
        one = np.vectorize(lambda a, b: critical_epsilon(a, b, runs, alpha, rng, averaged=averaged), otypes=[float])
        return one(c1, c2)
    m1, m2 = runs_per_side(runs)
    check_counts("c1", c1, m1)
    check_counts("c2", c2, m2)
    counts = np.array([c1, c2], int)
    for start in itertools.count(0, SWEEP_CHUNK):  # at epsilon 1900 a thinned count is 0, and its p-value is 1
        epsilons = _sweep_points(np.arange(start, start + SWEEP_CHUNK))
        keep = np.exp(-epsilons)
        if averaged or rng is None:
            pair = _mean_p_values(*counts, m1, m2, keep), _mean_p_values(*counts[::-1], m2, m1, keep)
        else:
            # The thinned counts do not depend on the p-values, so that many points can be computed at once.
            thinned = rng.binomial(counts, keep[:, None])
            pair = _fisher_p_values(thinned[:, 0], thinned[:, 1], counts[0], counts[1], m1, m2)
        passes = np.minimum(*pair) > alpha
        if passes.any():
            return float(epsilons[np.argmax(passes)])
    raise AssertionError("the loop ends by a return")


def _sweep_points(index: np.ndarray) -> np.ndarray:
    """Return the points of the paper's sweep, continued with the same step beyond its end."""
    sweep = PAPER_EPSILON_SWEEP
    beyond = sweep[0] + index * (sweep[1] - sweep[0])
    return np.where(index < sweep.size, sweep[np.minimum(index, sweep.size - 1)], beyond)


def paper_lambda(beta: float, eta: float, epsilon: float) -> float:
    """Return lambda of the paper, `beta + 2 eta e^epsilon`.

    It is not a guarantee: see docs/method.md, section 4.2.

    Parameters
    ----------
    beta : float
        The probability outside the high-likely set.
    eta : float
        The largest probability of a cell.
    epsilon : float
        The critical epsilon.

    Returns
    -------
    float

    Examples
    --------
    >>> round(paper_lambda(0.05, 0.013, 0.39947), 4)
    0.0888
    """
    return beta + 2 * eta * math.exp(epsilon)


def eta_upper_bound(counts: ArrayLike, runs: int, alpha: float = 0.05) -> float:
    """Return an upper confidence bound on the largest probability of a cell, at confidence 1 - alpha.

    The most likely cell is fixed, so the limit for a single cell needs no correction for the number of cells.

    Examples
    --------
    >>> round(eta_upper_bound([3, 20, 5], 100), 4)
    0.2772
    """
    return float(clopper_pearson_upper(np.max(counts, initial=0), runs, alpha))  # type: ignore[arg-type]
