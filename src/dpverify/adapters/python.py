"""Estimators and mechanisms of other Python packages; none is imported before it is used.

Most estimators are functions of their data without a noise of their own. `filterpy_estimates` and `dynamax_estimates`
make such a function, `perturbed` and `perturbed_jax` make a private mechanism of any. What has to be built first is
given as the function that builds it, at the top of a module: so everything pickles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpverify.errors import InputError
from dpverify.mechanisms.protocol import Mechanism, mechanism_name
from dpverify.mechanisms.wrappers import jax_run


def _check(scale: float, where: str) -> None:
    if where not in ("output", "input"):
        raise InputError(f"where: found {where!r}; expected 'output' or 'input'")
    if not np.all(np.asarray(scale) >= 0):
        raise InputError(f"scale: found {scale!r}; expected a standard deviation, 0 or more")


@dataclass(frozen=True)
class Perturbed:
    estimate: Callable[[Any], Any]
    scale: float
    where: str

    @property
    def name(self) -> str:
        return mechanism_name(self.estimate)

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> np.ndarray:
        clean = np.asarray(data if self.where == "input" else self.estimate(data), float)
        noisy = clean + self.scale * rng.standard_normal((runs, *clean.shape))
        return np.stack([np.asarray(self.estimate(one)) for one in noisy]) if self.where == "input" else noisy


def perturbed(estimate: Callable[[Any], Any], scale: float, where: str = "output") -> Mechanism:
    """A mechanism from any `estimate(data) -> array`: N(0, scale^2) on what it releases, or on its data ("input")."""
    _check(scale, where)
    return Perturbed(estimate, scale, where)


@dataclass(frozen=True)
class _PerturbedOnce:
    estimate: Callable[[Any], Any]
    scale: float
    where: str

    @property
    def name(self) -> str:
        return mechanism_name(self.estimate)

    def __call__(self, data: Any, key: Any) -> Any:
        import jax

        clean = jax.numpy.asarray(data, float)
        if self.where == "output":
            clean = self.estimate(clean)
        noisy = clean + self.scale * jax.random.normal(key, clean.shape, clean.dtype)
        return noisy if self.where == "output" else self.estimate(noisy)


def perturbed_jax(estimate: Callable[[Any], Any], scale: float, where: str = "output") -> Mechanism:
    """The same for an estimate that is written with JAX: all runs of a block at once, by vmap, in 64 bit."""
    _check(scale, where)
    return jax_run(_PerturbedOnce(estimate, scale, where))


@dataclass(frozen=True)
class FilterPyEstimates:
    make: Callable[[], Any]
    update: Callable[[Any, Any], None] | None

    @property
    def name(self) -> str:
        return mechanism_name(self.make)

    def __call__(self, data: Any) -> np.ndarray:
        tracker, states = self.make(), []
        for z in np.asarray(data):
            tracker.predict()
            tracker.update(z) if self.update is None else self.update(tracker, z)
            states.append(np.ravel(tracker.x).copy())  # some filters keep a column
        return np.array(states)


def filterpy_estimates(
    make: Callable[[], Any], update: Callable[[Any, Any], None] | None = None
) -> Callable[[Any], np.ndarray]:
    """The estimates x_1..x_K of a filterpy filter, one for each row of the data.

    `make()` builds a fresh filter (KalmanFilter, UnscentedKalmanFilter, ...). An ExtendedKalmanFilter needs its model
    at every update: `update(filter, z)` calls `filter.update(z, HJacobian, Hx)`.
    """
    return FilterPyEstimates(make, update)


@dataclass(frozen=True)
class DynamaxEstimates:
    filter: Callable[..., Any]
    make: Callable[[], Any]

    @property
    def name(self) -> str:
        return mechanism_name(self.make)

    def __call__(self, data: Any) -> Any:
        return self.filter(self.make(), data).filtered_means


def dynamax_estimates(filter: Callable[..., Any], make: Callable[[], Any]) -> Callable[[Any], Any]:
    """The filtered means of a dynamax filter (`lgssm_filter`, `extended_kalman_filter`, ...); for `perturbed_jax`.

    `make()` builds its parameters; it is called while the code is traced, once a compilation.
    """
    return DynamaxEstimates(filter, make)


@functools.cache
def _built(make: Callable[[], Any]) -> Any:
    return make()


@dataclass(frozen=True)
class OpenDPMeasurement:
    make: Callable[[], Any]
    seeded = False  # OpenDP draws from the system's own source

    @property
    def name(self) -> str:
        return mechanism_name(self.make)

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> np.ndarray:
        measurement = _built(self.make)
        plain = data.tolist() if isinstance(data, np.ndarray) else data
        return np.array([measurement(plain) for _ in range(runs)])

    def claim(self, distance: Any, delta: float = 0.0) -> float:
        """The epsilon that OpenDP's own map promises to data sets at this distance, at this delta."""
        import opendp.prelude as dp

        measurement = _built(self.make)
        if "ZeroConcentrated" in str(measurement.output_measure):
            measurement = dp.c.make_zCDP_to_approxDP(measurement)
        loss = measurement.map(distance)
        if hasattr(loss, "epsilon"):  # a privacy profile
            return float(loss.epsilon(delta))
        epsilon, promised = loss if isinstance(loss, tuple) else (loss, 0.0)
        if promised > delta:
            raise InputError(f"delta: found {delta}; expected {promised} or more, which the measurement is made for")
        return float(epsilon)


def opendp_measurement(make: Callable[[], Any]) -> OpenDPMeasurement:
    """An OpenDP measurement as a mechanism; `make()` builds it once in each process. `.claim` is OpenDP's own."""
    if hasattr(make, "output_measure"):
        raise InputError(
            "found a measurement; expected a function that makes one, since it does not pickle: def make(): return ..."
        )
    return OpenDPMeasurement(make)
