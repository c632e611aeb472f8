"""Pairs of output distributions with an exact log-likelihood ratio, for the power benchmark.

A law draws outputs for dataset 0 or 1, and returns for each output the logarithm of the ratio of the two densities.
It is infinite where only dataset 0 is possible, and minus infinity where only dataset 1 is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from scipy.stats import t as student

FAR = 20.0  # where leaked outputs lie, in standard deviations of the others


class Law(NamedTuple):
    """Two output distributions.

    Attributes
    ----------
    name : str
        The name in the table.
    draw : callable
        `draw(side, runs, rng)` returns outputs of shape (runs, coordinates).
    log_ratio : callable
        Maps outputs of shape (runs, coordinates) to log(p0 / p1).
    settings : dict
        Settings and arguments of `verify`, for example delta.
    """

    name: str
    draw: Callable[[int, int, np.random.Generator], np.ndarray]
    log_ratio: Callable[[np.ndarray], np.ndarray]
    settings: dict = {}  # noqa: RUF012 (never changed)


def leak(name, p, coordinates=1, places=(FAR, -FAR)):
    """With probability p, the first coordinate lies far away, at a place that shows the dataset. None is no leak."""

    def draw(side, runs, rng):
        x = rng.standard_normal((runs, coordinates))
        if places[side] is not None:
            x[rng.random(runs) < p, 0] += places[side]
        return x

    def log_ratio(x):
        sums = []
        for place in places:
            far = -np.inf if place is None else np.log(p) + place * x[:, 0] - place**2 / 2
            sums.append(np.logaddexp(0.0 if place is None else np.log1p(-p), far))
        return sums[0] - sums[1]

    return Law(name, draw, log_ratio)


def mark(name, p, value):
    """With probability p and dataset 0 only, the output is marked by a value that does not occur otherwise."""

    def draw(side, runs, rng):
        x = np.stack([rng.standard_normal(runs), np.zeros(runs)], axis=1)
        if side == 0:
            x[rng.random(runs) < p, 1] = value
        return x

    def log_ratio(x):
        return np.where(x[:, 1] == 0, np.log1p(-p), np.inf)

    return Law(name, draw, log_ratio, {"nonfinite": "event"} if not np.isfinite(value) else {})


def atom(name, p):
    """One coordinate of three is exactly 0 with probability p and dataset 0 only."""

    def draw(side, runs, rng):
        x = rng.standard_normal((runs, 3))
        if side == 0:
            x[rng.random(runs) < p, 1] = 0.0
        return x

    return Law(name, draw, lambda x: np.where(x[:, 1] == 0, np.inf, np.log1p(-p)))


def parity(name, number, coordinates=8, share=0.75):
    """The sign of a product of several coordinates is positive with this share, and with one minus it."""

    def draw(side, runs, rng):
        x = rng.standard_normal((runs, coordinates))
        positive = rng.random(runs) < (share if side == 0 else 1 - share)
        wrong = (np.prod(x[:, :number], axis=1) > 0) != positive
        x[wrong, 0] *= -1
        return x

    odds = np.log(share / (1 - share))
    return Law(name, draw, lambda x: np.where(np.prod(x[:, :number], axis=1) > 0, odds, -odds))


def gaussians(name, covariances, means=None):
    """Two Gaussians with these covariances and means."""
    means = [np.zeros(len(c)) for c in covariances] if means is None else means
    factors = [np.linalg.cholesky(c) for c in covariances]
    inverses = [np.linalg.inv(f) for f in factors]

    def draw(side, runs, rng):
        return means[side] + rng.standard_normal((runs, len(factors[side]))) @ factors[side].T

    def log_density(x, side):
        z = (x - means[side]) @ inverses[side].T
        return -(z**2).sum(1) / 2 - np.log(np.diag(factors[side])).sum()

    return Law(name, draw, lambda x: log_density(x, 0) - log_density(x, 1))


def stationary(steps, coefficient):
    """Return the covariance of an autoregression of order 1 with unit innovations."""
    index = np.arange(steps)
    return coefficient ** np.abs(index[:, None] - index) / (1 - coefficient**2)


def hidden(name, patterns, coordinates):
    """Dataset 0 adds one of these patterns at random to standard Gaussian noise."""
    patterns = np.asarray(patterns, float)

    def draw(side, runs, rng):
        x = rng.standard_normal((runs, coordinates))
        return x + patterns[rng.integers(len(patterns), size=runs)] if side == 0 else x

    def log_ratio(x):
        return logsumexp(x @ patterns.T - (patterns**2).sum(1) / 2, axis=1) - np.log(len(patterns))

    return Law(name, draw, log_ratio)


def mixture(name, centres, weights, deviation=1.0, **settings):
    """Mixtures of Gaussians at the same or at different centres, with weights for each dataset."""
    centres = [np.asarray(c, float) for c in centres]
    weights = [np.asarray(w, float) for w in weights]

    def draw(side, runs, rng):
        which = rng.choice(len(weights[side]), size=runs, p=weights[side])
        return centres[side][which] + deviation * rng.standard_normal((runs, centres[side].shape[1]))

    def log_density(x, side):
        squares = ((x[:, None] - centres[side]) ** 2).sum(2)
        return logsumexp(-squares / (2 * deviation**2), b=weights[side], axis=1)

    return Law(name, draw, lambda x: log_density(x, 0) - log_density(x, 1), settings)


def ring(name, radii, deviation):
    """Points on a ring whose radius shows the dataset."""

    def draw(side, runs, rng):
        radius, angle = radii[side] + deviation * rng.standard_normal(runs), rng.uniform(0, 2 * np.pi, runs)
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

    def log_ratio(x):
        radius = np.hypot(x[:, 0], x[:, 1])
        return ((radius - radii[1]) ** 2 - (radius - radii[0]) ** 2) / (2 * deviation**2)

    return Law(name, draw, log_ratio)


def heavy(name, freedom, coordinates, shift):
    """A multivariate t distribution, shifted in all coordinates."""

    def draw(side, runs, rng):
        scale = np.sqrt(freedom / rng.chisquare(freedom, (runs, 1)))
        return rng.standard_normal((runs, coordinates)) * scale + (shift if side == 0 else 0.0)

    def log_density(x):
        return -(freedom + coordinates) / 2 * np.log1p((x**2).sum(1) / freedom)

    return Law(name, draw, lambda x: log_density(x - shift) - log_density(x))


def angle(name, concentration, centres, number=1):
    """Angles from -pi to pi, around a centre that shows the dataset."""

    def draw(side, runs, rng):
        return np.mod(rng.vonmises(centres[side], concentration, (runs, number)) + np.pi, 2 * np.pi) - np.pi

    def log_ratio(x):
        return concentration * (np.cos(x - centres[0]) - np.cos(x - centres[1])).sum(1)

    return Law(name, draw, log_ratio)


def quaternion(name, centres, deviation):
    """A rotation about one axis as a unit quaternion, whose sign is random."""

    def draw(side, runs, rng):
        half = (centres[side] + deviation * rng.standard_normal(runs)) / 2
        sign = rng.choice([-1.0, 1.0], runs)
        zeros = np.zeros(runs)
        return np.stack([sign * np.cos(half), zeros, zeros, sign * np.sin(half)], axis=1)

    def log_density(x, centre):
        rotation = 2 * np.arctan2(x[:, 3], x[:, 0])
        turns = rotation[:, None] + 2 * np.pi * np.arange(-2, 3) - centre
        return logsumexp(-(turns**2) / (2 * deviation**2), axis=1)

    return Law(name, draw, lambda x: log_density(x, centres[0]) - log_density(x, centres[1]))


def subsampled(name, steps, share, deviation, sides=(0, 1)):
    """Gaussian noise; one dataset has a record that takes part in each step with some probability."""

    def draw(side, runs, rng):
        x = deviation * rng.standard_normal((runs, steps))
        return x + (rng.random((runs, steps)) < share) if sides[side] == 0 else x

    def log_ratio(x):
        ratio = np.log1p(share * np.expm1((2 * x - 1) / (2 * deviation**2))).sum(1)
        return ratio if sides[0] == 0 else -ratio

    return Law(name, draw, log_ratio, {"delta": 1e-5})


def counts(name, scale):
    """A histogram of five bins with two-sided geometric noise; one record moves from one bin to another."""
    truth = np.array([[5, 3, 0, 2, 7], [5, 4, 0, 1, 7]])
    p = -np.expm1(-1 / scale)

    def draw(side, runs, rng):
        noise = rng.geometric(p, (2, runs, 5))
        return truth[side] + noise[0] - noise[1]

    def log_ratio(x):
        return (np.abs(x - truth[1]).sum(1) - np.abs(x - truth[0]).sum(1)) / scale

    return Law(name, draw, log_ratio)


def noisy_max(name, differences):
    """Which of two noisy scores is larger, and by how much; the noise is exponential."""

    def draw(side, runs, rng):
        gap = differences[side] + rng.laplace(size=runs)
        return np.stack([(gap > 0).astype(float), np.abs(gap)], axis=1)

    def log_ratio(x):
        gap = np.where(x[:, 0] > 0, x[:, 1], -x[:, 1])
        return np.abs(gap - differences[1]) - np.abs(gap - differences[0])

    return Law(name, draw, log_ratio)


def sparse_vector(name, queries, threshold_scale, noise_scale):
    """The first of several noisy queries that exceeds a noisy threshold; the index after the last one if none does."""
    queries = np.asarray(queries, float)
    grid = threshold_scale * np.linspace(-30, 30, 60_001)
    weights = np.exp(-np.abs(grid) / threshold_scale)
    tables = []
    for side in queries:
        below = _laplace_cdf((grid[:, None] - side) / noise_scale)
        all_below = np.cumprod(np.concatenate([np.ones((grid.size, 1)), below], axis=1), axis=1)
        first = np.concatenate([all_below[:, :-1] * (1 - below), all_below[:, -1:]], axis=1)
        tables.append(weights @ first / weights.sum())

    def draw(side, runs, rng):
        noisy = queries[side] + noise_scale * rng.laplace(size=(runs, queries.shape[1]))
        above = noisy >= threshold_scale * rng.laplace(size=(runs, 1))
        return np.where(above.any(1), above.argmax(1), queries.shape[1]).astype(float)[:, None]

    return Law(name, draw, lambda x: np.log(tables[0] / tables[1])[x[:, 0].astype(int)])


def clipped(name, shift, limit):
    """Laplace noise, clipped: two atoms and a density between them."""
    ends = [np.log(_laplace_cdf(np.array([-limit - s, s - limit]))) for s in (shift, 0.0)]

    def draw(side, runs, rng):
        return np.clip((shift if side == 0 else 0.0) + rng.laplace(size=(runs, 1)), -limit, limit)

    def log_ratio(x):
        y = x[:, 0]
        inside = np.abs(y) - np.abs(y - shift)
        low, high = ends[0] - ends[1]
        return np.where(y <= -limit, low, np.where(y >= limit, high, inside))

    return Law(name, draw, log_ratio)


def _laplace_cdf(x):
    return np.where(x < 0, np.exp(np.minimum(x, 0)) / 2, 1 - np.exp(-np.maximum(x, 0)) / 2)


def shifted_t(name, freedom, shift):
    """One number with Student noise."""

    def draw(side, runs, rng):
        return rng.standard_t(freedom, (runs, 1)) + (shift if side == 0 else 0.0)

    return Law(name, draw, lambda x: student.logpdf(x[:, 0] - shift, freedom) - student.logpdf(x[:, 0], freedom))


def laws() -> list[Law]:
    """Return the laws whose differences are rare, or visible in single coordinates."""
    units = np.array([1e6, 1.0, 1e-6])
    return [
        leak("leak 1e-3, shift", 1e-3),
        leak("leak 1e-4, shift, 1-D", 1e-4),
        leak("leak 1e-4, shift, 6-D", 1e-4, 6),
        leak("leak 1e-4, shift, 40-D", 1e-4, 40),
        leak("leak 1e-4, one dataset only", 1e-4, 2, (FAR, None)),
        leak("leak 1e-5, shift, 1-D", 1e-5),
        atom("leak 1e-4, an atom", 1e-4),
        mark("leak 1e-4, a flag", 1e-4, 1.0),
        mark("leak 1e-4, NaN", 1e-4, np.nan),
        shifted_t("Student noise, 3 degrees", 3, 1.0),
        mixture(
            "rare mode between two others",
            [[[-4], [0], [4]]] * 2,
            [[0.499, 0.002, 0.499], [0.49999, 2e-5, 0.49999]],
            0.7,
        ),
        gaussians("Gaussian shift", [np.eye(1)] * 2, [np.zeros(1), np.ones(1)]),
        subsampled("subsampled Gaussian, 1 step", 1, 0.1, 1.0),
        subsampled("subsampled Gaussian, removed", 1, 0.1, 1.0, (1, 0)),
        subsampled("subsampled Gaussian, 20 steps", 20, 0.1, 1.0),
        counts("histogram, geometric noise", 2.0),
        noisy_max("noisy max with gap", (1.0, -1.0)),
        sparse_vector("sparse vector", [[0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0]], 1.0, 2.0),
        clipped("clipped Laplace noise", 1.0, 1.5),
        gaussians("very different scales", [np.diag(units**2)] * 2, [np.zeros(3), 0.7 * units]),
        hidden("1000 steps", [np.full(1000, 0.06)], 1000),
    ]
