"""Distributions of noise, disturbances and initial states.

Every distribution has independent coordinates, is sampled with JAX and is plain data (a named tuple of numbers), so
that it can be compared by value, hashed and pickled. A distribution of your own needs the two members of `Law`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

QUADRATURE_NODES = 256
TAIL_LENGTH = 40.0  # beyond so many scales from its mode a truncated normal density is negligible


class Law(Protocol):
    """Interface of a distribution with independent coordinates.

    An implementation must be hashable, because it is a static argument of compiled code.
    """

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return independent draws of this shape; the last axis counts the coordinates."""
        ...

    @property
    def variance(self) -> float | np.ndarray:
        """The variance of every coordinate: one number for all of them, or one number for each."""
        ...


class Normal(NamedTuple):
    """Normal distribution with mean 0.

    Parameters
    ----------
    deviation : float or sequence of float
        Standard deviation, in the unit of the coordinate: one number for all coordinates, or a tuple with one number
        for each. 0 means that the coordinate is not random.

    Examples
    --------
    >>> from dpverify.estimation import Normal
    >>> float(Normal(0.5).variance)
    0.25
    """

    deviation: float | Sequence[float] = 0.0

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return independent draws of this shape."""
        return jnp.asarray(self.deviation) * jax.random.normal(key, shape)

    @property
    def variance(self) -> float | np.ndarray:
        """The variance of every coordinate."""
        return np.square(self.deviation)


class Uniform(NamedTuple):
    """Uniform distribution on [-half, half].

    Parameters
    ----------
    half : float or sequence of float
        Half the width of the interval, in the unit of the coordinate: one number for all coordinates, or a tuple with
        one number for each. 0 means that the coordinate is not random.

    Examples
    --------
    >>> from dpverify.estimation import Uniform
    >>> [float(v) for v in Uniform((3.0, 0.0)).variance]
    [3.0, 0.0]
    """

    half: float | Sequence[float]

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return independent draws of this shape."""
        return jnp.asarray(self.half) * jax.random.uniform(key, shape, minval=-1.0)

    @property
    def variance(self) -> float | np.ndarray:
        """The variance of every coordinate."""
        return np.square(self.half) / 3


class TruncatedMixture(NamedTuple):
    """Mixture of normal distributions, each truncated to [-limit, limit].

    The paper's noise has this form. All coordinates have the same distribution.

    Parameters
    ----------
    weights : tuple of float
        Probability of each component; they add up to 1.
    means : tuple of float
        Mean of each component before truncation, in the unit of the coordinate.
    deviations : tuple of float
        Standard deviation of each component before truncation, in the unit of the coordinate.
    limit : float
        Largest absolute value that can be drawn.

    Examples
    --------
    >>> from dpverify.estimation import TruncatedMixture
    >>> noise = TruncatedMixture((0.5, 0.5), (-0.02, 0.02), (0.01, 0.01), 0.05)
    >>> round(noise.variance, 6)
    0.000497
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    limit: float

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return independent draws of this shape."""
        component_key, value_key = jax.random.split(key)
        component = jax.random.choice(component_key, len(self.weights), shape, p=jnp.asarray(self.weights))
        mean, deviation = jnp.asarray(self.means)[component], jnp.asarray(self.deviations)[component]
        low, high = (-self.limit - mean) / deviation, (self.limit - mean) / deviation
        return mean + deviation * jax.random.truncated_normal(value_key, low, high, shape)

    @property
    def variance(self) -> float:
        """The variance of every coordinate, truncation included."""
        moments = [_truncated_moments(*one, self.limit) for one in zip(self.means, self.deviations, strict=True)]
        means, variances = np.transpose(moments)
        mixture_mean = np.dot(self.weights, means)
        return float(np.dot(self.weights, variances + np.square(means - mixture_mean)))


@functools.lru_cache(maxsize=256)
def _truncated_moments(mean: float, deviation: float, limit: float) -> tuple[float, float]:
    """Return mean and variance of a normal distribution that is truncated to [-limit, limit], by quadrature.

    This is accurate for all parameters, also if the interval is very short or lies in a tail. There
    `scipy.stats.truncnorm` is not, and importing it takes as long as importing the rest of the package. The moments are
    kept, because estimators ask for them at every call.
    """
    mode = min(max(mean, -limit), limit)
    if not deviation:
        return mode, 0.0
    reach = TAIL_LENGTH * deviation**2 / (deviation + abs(mean - mode))
    low, high = max(-limit, mode - reach), min(limit, mode + reach)
    nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    x = low + (high - low) / 2 * (1 + nodes)
    weights = weights * np.exp((mode - x) * (mode + x - 2 * mean) / (2 * deviation**2))
    weights /= weights.sum()
    truncated_mean = weights @ x
    return float(truncated_mean), float(weights @ np.square(x - truncated_mean))
