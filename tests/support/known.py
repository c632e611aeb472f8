"""Mechanisms with known privacy: closed forms over all events, and exact probabilities of the cells of a partition.

For one-dimensional and for discrete outputs the probabilities of the cells are exact, because the code of a cell is
constant between the edges of the partition. Cells of trajectories are compared with a large reference sample. The data
sets are 0 and 1.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import laplace as laplace_distribution
from scipy.stats import norm

from dpverify.demo import PrivateTracker
from dpverify.events.partition import Bins
from dpverify.events.scores import Additive, CellScore, Levels, Linear, Quadratic

EPSILON = 0.5
REFERENCE = 400_000  # runs per dataset


def laplace(data, runs, rng, noise=1.0):
    return data + noise * rng.laplace(size=runs)


def gaussian(data, runs, rng, noise=1.0):
    return data + noise * rng.standard_normal(runs)


def geometric(data, runs, rng, noise=1.0):
    p = 1 - 0.5 ** (1 / noise)
    return data + rng.geometric(p, runs) - rng.geometric(p, runs)


def response(data, runs, rng, noise=1.0):
    error = 0.25 * noise
    return (rng.random(runs) < (1 - error if data else error)).astype(int)


def gaussian_steps(data, runs, rng, noise=1.0):
    return 0.4 * data + noise * rng.standard_normal((runs, 8, 1))


def laplace_steps(data, runs, rng, noise=1.0):
    return 0.2 * data + noise * rng.laplace(size=(runs, 8, 1))


TRACKER = PrivateTracker(0.25)
TRACK = np.sin(0.3 * np.arange(6)), np.sin(0.3 * np.arange(6)) + 0.1 * (np.arange(6) == 2)


def tracker(data, runs, rng, noise=1.0):
    return PrivateTracker(TRACKER.noise * noise)(TRACK[int(data)], runs, rng)


def deaf(data, runs, rng):
    """Ignore the data: both datasets have the same distribution."""
    return rng.laplace(size=runs)


def gaussian_delta(mu):
    return lambda e: ndtr(mu / 2 - e / mu) - math.exp(e) * ndtr(-mu / 2 - e / mu)


def discrete_delta(p, q):
    return lambda e: max(np.maximum(a - math.exp(e) * b, 0).sum() for a, b in ((p, q), (q, p)))


SUPPORT = np.arange(-60, 62)


def geometric_pmf(shift):
    return 0.5 ** np.abs(SUPPORT - shift) / 3


def laplace_sum_delta(e):
    """Return delta of eight Laplace steps: the distribution of the log-ratio of one step, convolved on a fine grid."""
    grid = np.linspace(-0.2, 0.2, 401)  # values of the log-ratio |x - .2| - |x| of one step
    cdf = 1 - laplace_distribution.cdf((0.2 - grid) / 2)  # the log-ratio exceeds g where x < (.2 - g) / 2
    mass = np.diff(np.concatenate([[0.0], cdf[1:], [1.0]]))  # the log-ratio is constant beyond the two centres
    pmf = mass
    for _ in range(7):
        pmf = np.convolve(pmf, mass)
    ratio = np.linspace(-1.6, 1.6, pmf.size)
    return float((pmf * np.maximum(1 - np.exp(e - ratio), 0)).sum())


class Known(NamedTuple):
    """A mechanism with its exact privacy: delta over all events, epsilon at delta 0, and a Lipschitz constant."""

    mechanism: Callable
    delta: Callable[[float], float]  # over all events, as a function of epsilon
    epsilon: float  # at delta 0
    lipschitz: float | None = None  # of the log-density

    @property
    def claim(self):
        """The smallest true claim: at delta 0 where epsilon is finite there."""
        return (self.epsilon, 0.0) if self.epsilon < math.inf else (EPSILON, self.delta(EPSILON))

    @property
    def half_noise(self):
        """The mechanism with half of its noise, which violates the claim."""
        return partial(self.mechanism, noise=0.5)


CASES = {
    "laplace": Known(laplace, lambda e: 1 - math.exp(min(0.0, (e - 1) / 2)), 1.0, 1.0),
    "gaussian": Known(gaussian, gaussian_delta(1.0), math.inf),
    "geometric": Known(geometric, discrete_delta(geometric_pmf(0), geometric_pmf(1)), math.log(2)),
    "response": Known(response, discrete_delta(np.array([0.75, 0.25]), np.array([0.25, 0.75])), math.log(3)),
    "gaussian steps": Known(gaussian_steps, gaussian_delta(0.4 * math.sqrt(8)), math.inf),
    "laplace steps": Known(laplace_steps, cache(laplace_sum_delta), 1.6),
    "tracker": Known(tracker, lambda e: TRACKER.delta(e, *TRACK), math.inf),
}
DEAF = Known(deaf, lambda e: 0.0, 0.0, 1.0)
KNOWN = {**CASES, "deaf": DEAF}
CUMULATIVE = {  # distribution functions of the output, or of each of its steps
    "laplace": lambda side, x: laplace_distribution.cdf(x - side),
    "gaussian": lambda side, x: norm.cdf(x - side),
    "deaf": lambda side, x: laplace_distribution.cdf(x),
    "gaussian steps": lambda side, x: norm.cdf(x - 0.4 * side),
    "laplace steps": lambda side, x: laplace_distribution.cdf(x - 0.2 * side),
}
DISCRETE = {
    "geometric": (SUPPORT.astype(float), geometric_pmf(0), geometric_pmf(1)),
    "response": (np.array([0.0, 1.0]), np.array([0.75, 0.25]), np.array([0.25, 0.75])),
}
EXACT_CELLS = {"laplace", "gaussian", "deaf", *DISCRETE}


def breaks(partition):
    """Return all points of the line where the code of the cell can change."""
    score = getattr(partition, "score", None)
    if isinstance(score, Linear):
        return partition.edges / score.weights[0]
    if isinstance(score, Additive):
        return score.edges.ravel()
    if isinstance(score, Quadratic):
        a, b, features = score.matrix.item(), score.weights.item(), score.features
        root = np.sqrt(np.maximum(b * b + 4 * a * partition.edges, 0))
        return np.concatenate([(root - b) / (2 * a), (-root - b) / (2 * a)]) / features.whiten.item() + features.mean
    if isinstance(score, CellScore):
        partition = score.partition
    elif isinstance(partition, Levels):
        raise TypeError(f"the edges of {type(score).__name__} are not known")
    region, cells = partition.region, partition.cells
    inner = cells.low + np.arange(1, cells.top.item() + 1) / cells.scale if isinstance(cells, Bins) else cells.edges
    return np.concatenate([np.ravel(region.centre - region.half), np.ravel(region.centre + region.half), inner.ravel()])


def cell_probabilities(name, partition, runs=REFERENCE):
    """Return the probabilities of all cells for both datasets; for trajectories, shares of so many runs."""
    if name not in EXACT_CELLS:
        return [
            np.bincount(partition.codes(reference(name, side)[:runs]), minlength=partition.size) / runs
            for side in (0, 1)
        ]
    if name in DISCRETE:
        points, *pmfs = DISCRETE[name]
    else:
        cuts = np.unique(breaks(partition))
        cuts = cuts[np.isfinite(cuts)]
        points = np.concatenate([[cuts[0] - 1], (cuts[1:] + cuts[:-1]) / 2, [cuts[-1] + 1]])
        pmfs = [np.diff(np.concatenate([[0.0], CUMULATIVE[name](side, cuts), [1.0]])) for side in (0, 1)]
    codes = partition.codes(points.reshape(-1, 1, 1))
    return [np.bincount(codes, pmf, partition.size) for pmf in pmfs]


def region_masses(name, region, runs=REFERENCE):
    """Return the probabilities of the region for both datasets."""
    if name in DISCRETE:
        points, *pmfs = DISCRETE[name]
        inside = region.contains(points.reshape(-1, 1, 1))
        return [pmf[inside].sum() for pmf in pmfs]
    if name not in CUMULATIVE:
        return [region.contains(reference(name, side)[:runs]).mean() for side in (0, 1)]
    low, high = region.centre - region.half, region.centre + region.half  # one interval per step
    return [np.prod(CUMULATIVE[name](side, high) - CUMULATIVE[name](side, low)) for side in (0, 1)]


@cache
def reference(name, side):
    """Return a large sample of a mechanism."""
    return KNOWN[name].mechanism(side, REFERENCE, np.random.default_rng(99 + side))


def partition_truth(p1, p2, epsilon):
    """Return delta at this epsilon, and epsilon at delta 0, over unions of cells with these probabilities."""
    delta = max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p1, p2), (p2, p1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return delta, np.nanmax(np.abs(np.log(p1 / p2)))
