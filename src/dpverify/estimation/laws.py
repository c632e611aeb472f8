"""Laws of noise and of starting points: independent coordinates, sampled with JAX, plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import truncnorm


class Law(Protocol):
    """What a noise or a starting point is drawn from, coordinate by coordinate."""

    def sample(self, key: Any, shape: tuple[int, ...]) -> Any: ...

    @property
    def variance(self) -> Any:
        """Of one coordinate, or one number a coordinate."""
        ...


class Normal(NamedTuple):
    """Zero-mean normal; `deviation` a number, or one a coordinate."""

    deviation: float | Sequence[float] = 0.0

    def sample(self, key: Any, shape: tuple[int, ...]) -> Any:
        return jnp.asarray(self.deviation) * jax.random.normal(key, shape)

    @property
    def variance(self) -> Any:
        return np.square(self.deviation)


class Uniform(NamedTuple):
    """Uniform on [-half, half]; `half` a number, or one a coordinate (0: this coordinate is not disturbed)."""

    half: float | Sequence[float]

    def sample(self, key: Any, shape: tuple[int, ...]) -> Any:
        return jnp.asarray(self.half) * jax.random.uniform(key, shape, minval=-1.0)

    @property
    def variance(self) -> Any:
        return np.square(self.half) / 3


class TruncatedMixture(NamedTuple):
    """A mixture of normals, each cut to [-limit, limit]: the paper's noise 'whose volume has a limit'."""

    weights: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    limit: float

    def sample(self, key: Any, shape: tuple[int, ...]) -> Any:
        which, where = jax.random.split(key)
        part = jax.random.choice(which, len(self.weights), shape, p=jnp.asarray(self.weights))
        mean, deviation = jnp.asarray(self.means)[part], jnp.asarray(self.deviations)[part]
        low, high = (-self.limit - mean) / deviation, (self.limit - mean) / deviation
        return mean + deviation * jax.random.truncated_normal(where, low, high, shape)

    @property
    def variance(self) -> float:
        mean, deviation = np.asarray(self.means), np.asarray(self.deviations)
        parts = truncnorm((-self.limit - mean) / deviation, (self.limit - mean) / deviation, mean, deviation)
        middle, spread = parts.mean(), parts.var()
        centre = np.dot(self.weights, middle)
        return float(np.dot(self.weights, spread + np.square(middle - centre)))
