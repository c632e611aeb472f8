"""Input perturbation: noise on the data, then an estimator without noise of its own (docs/method.md, section 7.5)."""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

import jax
import numpy as np

from dpverify.errors import InputError
from dpverify.estimation.blocks import device_block, finite_estimate, recorded, share
from dpverify.estimation.kalman import Matrix, covariance
from dpverify.estimation.system import System
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64


class Estimator(Protocol):
    """What can be fed with perturbed data. It may also offer `near(data)`, and then that is used.

    `near(data)` answers the same function as `estimate`, made faster by knowing that it will be called near `data`.
    """

    @property
    def system(self) -> System: ...

    def estimate(self, data: Any) -> Any:
        """(T + 1, measurements) -> (K, d) without noise: pure JAX, can be vmapped over data."""
        ...


def sensor_blocks(measurements: int, coordinates: int, seed: int) -> np.ndarray:
    """I + (Rm + Rm')/2, one block for each sensor of so many coordinates, Rm uniform on (0, 1) and drawn from `seed`.

    Up to two coordinates a block is always positive definite; one large block, as the paper's formula reads, is not.
    """
    covariance, rng = np.eye(measurements), np.random.default_rng(seed)
    for i in range(0, measurements, coordinates):
        R = rng.random((coordinates, coordinates))
        covariance[i : i + coordinates, i : i + coordinates] += (R + R.T) / 2
    return covariance


@dataclass(frozen=True)
class InputPerturbed:
    """`estimator.estimate` of data with Gaussian noise of covariance (1 - s_bar)(I + (Rm + Rm')/2) on every y_k.

    One block Rm for each sensor, which measures so many `coordinates`, drawn once from `seed`: the same for all steps,
    all runs and both data sets. `s_bar` = 1 is the estimator itself. In place of `s_bar` a `covariance` of one y_k can
    be stated: a number, variances, or a matrix.
    """

    estimator: Estimator
    s_bar: float | None = None
    _: KW_ONLY
    covariance: Any = None
    coordinates: int = 2
    seed: int = 0
    name: str = "input perturbation"

    def __post_init__(self) -> None:
        if not callable(getattr(self.estimator, "estimate", None)):
            raise InputError(
                f"estimator: found {type(self.estimator).__name__} without estimate(data); expected a deterministic "
                "estimator such as W2MHE, PrivateEKF or PrivateKalman"
            )
        number = self.estimator.system.measurements
        if (self.s_bar is None) == (self.covariance is None):
            raise InputError(
                "found both or neither of s_bar and covariance; expected one of them; state how much noise"
            )
        if self.covariance is not None:
            object.__setattr__(self, "covariance", covariance(self.covariance, 0.0, number, "covariance"))
            return
        share("s_bar", self.s_bar)
        if number % self.coordinates:
            raise InputError(
                f"found {number} measurements; expected a multiple of the {self.coordinates} of a sensor; state "
                "coordinates=..., or a covariance"
            )

    @property
    def system(self) -> System:
        return self.estimator.system

    @property
    def block(self) -> int:
        return device_block()

    @property
    def of_one_step(self) -> Matrix:
        """The noise's covariance on one y_k."""
        if self.covariance is not None:
            return self.covariance
        assert self.s_bar is not None
        number = self.system.measurements
        noise = (1 - self.s_bar) * sensor_blocks(number, self.coordinates, self.seed)
        return covariance(noise, 0.0, number, "covariance")

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> Any:
        with enable_x64():
            y = recorded(self.system, data, getattr(self.estimator, "window", 0) + 1)
            finite_estimate(self.estimator, y)
            return _perturbed_runs(self.estimator, _root(self.of_one_step), y, jax_key(rng), runs)


@functools.lru_cache(maxsize=64)
def _root(covariance: Matrix) -> np.ndarray:
    """B with B B' = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(np.asarray(covariance))
    return vectors * np.sqrt(np.maximum(values, 0.0))


@functools.partial(jax.jit, static_argnums=(0, 4))
def _perturbed_runs(estimator: Any, root: Any, data: Any, key: Any, runs: int) -> Any:
    noisy = data + jax.random.normal(key, (runs, *data.shape)) @ root.T
    near = getattr(estimator, "near", None)
    return jax.vmap(near(data) if near else estimator.estimate)(noisy)
