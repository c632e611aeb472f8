"""The high-likely set: how many runs it takes, and a product of minimum-volume ellipsoids (paper, Algorithm 3)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtr

from dpverify.errors import InputError
from dpverify.events.ellipsoid import minimum_volume_ellipsoid
from dpverify.util.arrays import array_namespace, contiguous_transpose, multiply_rows
from dpverify.util.checks import check_probability, check_whole_number

PIECE = 8192  # runs whose passes stay within the caches


def _check(dimension: int, beta: float, gamma: float, steps: int) -> int:
    """The number of variables of one scenario program over all steps: an ellipsoid each."""
    check_probability("beta", beta)
    check_probability("gamma", gamma)
    dimension, steps = check_whole_number("dimension", dimension, 1), check_whole_number("steps", steps, 1)
    return steps * (dimension * (dimension + 1) // 2 + dimension)


def scenario_size(dimension: int, beta: float, gamma: float, steps: int = 1) -> int:
    """The paper's Gamma: runs after which the ellipsoid(s) hold 1 - beta of the mass, at confidence 1 - gamma.

    `dimension` is that of one step's output. With `steps` one program over all of them is meant, so that the mass
    of the product is 1 - beta jointly (docs/method.md, section 4.3); the paper takes each step on its own.
    """
    variables = _check(dimension, beta, gamma, steps)
    return math.ceil(math.e / (math.e - 1) / beta * (math.log(1 / gamma) + variables))


def exact_scenario_size(dimension: int, beta: float, gamma: float, steps: int = 1) -> int:
    """The least number with the same guarantee: BinomCDF(variables - 1; Gamma, beta) <= gamma."""
    variables = _check(dimension, beta, gamma, steps)
    low, high = variables, scenario_size(dimension, beta, gamma, steps)
    while low < high:  # the distribution function falls in Gamma
        middle = (low + high) // 2
        if bdtr(variables - 1, middle, beta) <= gamma:
            high = middle
        else:
            low = middle + 1
    return low


class Region(NamedTuple):
    """A product over K steps of ellipsoids `|A x - b| <= 1`, with pinned directions where the runs are flat.

    Rows of A beyond an ellipsoid's rank are zero, and so are rows of `pins` where nothing is pinned. `centre` and
    `half` give the box around each step's ellipsoid.
    """

    A: np.ndarray  # (K, d, d)
    b: np.ndarray  # (K, d)
    pins: np.ndarray  # (K, d, d)
    values: np.ndarray  # (K, d)
    slack: np.ndarray  # (K, d)
    centre: np.ndarray  # (K, d)
    half: np.ndarray  # (K, d)

    def contains(self, x: Any) -> Any:
        """For samples (runs, K, d): which lie in the ellipsoid of every step."""
        xp = array_namespace(x)
        if xp is np:
            test = self._pinned if self.pins.any() else self._inside
            pieces = [test(x[at : at + PIECE]) for at in range(0, len(x), PIECE)]
            return np.concatenate(pieces) if pieces else np.zeros(0, bool)
        u = _by_step(x, self.A) - self.b[:, None]
        inside = (xp.einsum("kni,kni->kn", u, u) <= 1).all(0)
        pinned = xp.abs(_by_step(x, self.pins) - self.values[:, None])
        return inside & (pinned <= self.slack[:, None]).all((0, 2))

    def _inside(self, x: np.ndarray) -> np.ndarray:
        """With the runs last, so that every pass is over memory in one piece."""
        steps, d = self.b.shape
        u = contiguous_transpose(x.reshape(len(x), -1)).reshape(steps, d, -1)
        u = (u * self.A if d == 1 else np.matmul(self.A, u)) - self.b[:, :, None]
        u *= u
        return (u.sum(1) <= 1).all(0)

    def _pinned(self, x: np.ndarray) -> np.ndarray:
        """The same with one product a step: what an ellipsoid lacks in rank is pinned, d rows together."""
        inside = np.ones(len(x), bool)
        for k, (A, pins) in enumerate(zip(self.A, self.pins, strict=True)):
            free, fixed = A.any(1), pins.any(1)
            both = multiply_rows(x[:, k], np.concatenate([A[free], pins[fixed]]).T)
            u, at = both[:, : free.sum()] - self.b[k, free], both[:, free.sum() :] - self.values[k, fixed]
            inside &= (np.einsum("ni,ni->n", u, u) <= 1) & (np.abs(at) <= self.slack[k, fixed]).all(1)
        return inside


def _by_step(x: Any, matrices: Any) -> Any:
    """Each step's matrix applied to that step of every run: (K, runs, d)."""
    return array_namespace(x).matmul(x.swapaxes(0, 1), matrices.swapaxes(1, 2))


def high_likely_set(samples: Any) -> Region:
    """The product over the steps of the smallest ellipsoids around all runs, (runs,), (runs, d) or (runs, K, d)."""
    samples = np.asarray(samples, float)
    samples = samples.reshape(len(samples), *((1, 1), (1, -1), samples.shape[1:])[min(samples.ndim, 3) - 1])
    if not samples.size:
        raise InputError(f"samples: found shape {samples.shape}; expected at least one run")
    _, steps, d = samples.shape
    A, pins = np.zeros((steps, d, d)), np.zeros((steps, d, d))
    b, values, slack, centre, half = (np.zeros((steps, d)) for _ in range(5))
    for k in range(steps):
        points = samples[:, k]
        e = minimum_volume_ellipsoid(points)
        rank = len(e.b)
        A[k, :rank], b[k, :rank] = e.A, e.b
        directions, at, tolerance = e.flat
        pins[k, : d - rank], values[k, : d - rank], slack[k, : d - rank] = directions, at, tolerance
        # The box: the ellipsoid is {x0 + inverse(A) u : |u| <= 1}, so a coordinate reaches as far as its row is long.
        # Not a pseudo-inverse: that takes a coordinate in units 10^15 times as large as another's for nothing.
        inverse = np.linalg.inv(np.vstack([e.A, directions]))
        half[k] = np.hypot.reduce(inverse[:, :rank], axis=1)
        centre[k] = inverse @ np.append(e.b, at)
    return Region(A, b, pins, values, slack, centre, half)
