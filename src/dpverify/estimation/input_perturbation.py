"""Input perturbation: noise on the data, then an estimator without noise (docs/method.md, section 7.5)."""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.estimation.moving_horizon import sliding_windows
from dpverify.estimation.system import (
    Estimator,
    Matrix,
    System,
    bind_parameters,
    check_covariance,
    check_data,
    check_noise_parameter,
    covariance_root,
    default_block,
    finite_estimate,
    split_parameters,
)
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64
from dpverify.util.checks import check_choice


def sensor_blocks(measurements: int, coordinates: int, seed: int) -> np.ndarray:
    """Return the block-diagonal matrix I + (Rm + Rm')/2 with one block for each sensor.

    The entries of Rm are uniform on (0, 1) and drawn from `seed`. A block of up to two coordinates is always positive
    definite; one large block, as the paper's formula reads, is not.
    """
    covariance, rng = np.eye(measurements), np.random.default_rng(seed)
    for i in range(0, measurements, coordinates):
        R = rng.random((coordinates, coordinates))
        covariance[i : i + coordinates, i : i + coordinates] += (R + R.T) / 2
    return covariance


@dataclass(frozen=True)
class InputPerturbed:
    """A deterministic estimator applied to data with Gaussian noise on every y_k.

    The covariance of the noise is (1 - s_bar)(I + (Rm + Rm')/2), with one random block Rm for each sensor. It is the
    same for all steps, all runs and both datasets. Pass either `s_bar` or `covariance`.

    Parameters
    ----------
    estimator : W2MHE, PrivateEKF, PrivateKalman or any object with `system` and `estimate(data)`
        The estimator; `estimate` is a pure JAX function from data (T + 1, measurements) to estimates (K, d). Where the
        estimator also has `warm_start(data)`, that is used.
    s_bar : float, optional
        Amount of noise, from 0 (covariance I + (Rm + Rm')/2) to 1 (no noise).
    covariance : array_like, optional
        Covariance of the noise on one y_k, instead of `s_bar`: a number, one variance per measurement, or a matrix, in
        squared units of the measurements.
    noise_per : {"run", "window"}
        Whether the noise of a run is drawn once, or anew for every window of a moving-horizon estimator.
    coordinates : int
        Number of measurements of one sensor, which is the size of a block Rm.
    seed : int
        Seed of the blocks Rm.
    name : str
        Name in reports.

    References
    ----------
    docs/method.md, sections 3 and 7.5.

    Examples
    --------
    >>> from dpverify.estimation import InputPerturbed, Normal, PrivateKalman, System
    >>> system = System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal(0.2), initial=Normal(1.0))
    >>> InputPerturbed(PrivateKalman(system, 0.0), covariance=0.04).noise_covariance
    ((0.04,),)
    """

    estimator: Estimator
    s_bar: float | None = None
    _: KW_ONLY
    covariance: ArrayLike | None = None
    noise_per: str = "run"
    coordinates: int = 2
    seed: int = 0
    name: str = "input perturbation"

    def __post_init__(self) -> None:
        if not callable(getattr(self.estimator, "estimate", None)):
            raise InputError(
                f"estimator: found {type(self.estimator).__name__} without estimate(data); expected a deterministic "
                "estimator such as W2MHE, PrivateEKF or PrivateKalman"
            )
        check_choice("noise_per", self.noise_per, ("run", "window"))
        if self.noise_per == "window" and not hasattr(self.estimator, "warm_start_windows"):
            raise InputError(
                f'noise_per: found "window" with {type(self.estimator).__name__}; expected a moving-horizon estimator '
                'such as W2MHE; pass one, or noise_per="run"'
            )
        number = self.estimator.system.measurements
        if (self.s_bar is None) == (self.covariance is None):
            raise InputError("use s_bar or covariance for the amount of noise, not both, and not neither")
        if self.covariance is not None:
            object.__setattr__(self, "covariance", check_covariance("covariance", self.covariance, 0.0, number))
            return
        check_noise_parameter("s_bar", self.s_bar)
        if number % self.coordinates:
            raise InputError(
                f"coordinates: found {number} measurements; expected a multiple of the {self.coordinates} coordinates "
                "of a sensor; pass coordinates=..., or a covariance"
            )

    @property
    def system(self) -> System:
        """The system of the estimator."""
        return self.estimator.system

    @property
    def block(self) -> int:
        """The number of runs per block."""
        return default_block()

    @property
    def noise_covariance(self) -> Matrix:
        """The covariance of the noise on one y_k."""
        number, noise = self.system.measurements, self.covariance
        if self.s_bar is not None:
            noise = (1 - self.s_bar) * sensor_blocks(number, self.coordinates, self.seed)
        return check_covariance("covariance", noise, 0.0, number)

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> jax.Array:
        with enable_x64():
            y = check_data(self.system, data, getattr(self.estimator, "window", 0) + 1)
            finite_estimate(self.estimator, y)
            template, parameters = split_parameters(self.estimator)
            arguments = parameters, _noise_root(self.noise_covariance), y, jax_key(rng), runs
            estimates = _perturbed_runs(template, self.noise_per, True, *arguments)
            if hasattr(template, "warm_start") and jnp.isnan(estimates).any():  # the data of a run are too far away
                estimates = _perturbed_runs(template, self.noise_per, False, *arguments)
            if not jnp.isfinite(estimates).all():
                raise InputError(
                    "covariance: found runs whose noise drives the estimator to NaN or infinity; expected f and h that "
                    "are finite there; choose less noise"
                )
            return estimates


@functools.lru_cache(maxsize=64)
def _noise_root(covariance: Matrix) -> np.ndarray:
    return covariance_root(covariance)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 7))
def _perturbed_runs(
    template: Any, noise_per: str, warm: bool, parameters: Any, root: Any, data: Any, key: Any, runs: int
) -> jax.Array:
    """Draw the runs; `warm` starts each from the solution of the data, where the estimator can."""
    estimator = bind_parameters(template, parameters)
    if noise_per == "window":
        windows = sliding_windows(data, estimator.window)
        start, rows = getattr(estimator, "warm_start_windows", None), windows.y
        own = start(data) if start and warm else estimator.estimate_windows

        def solve(y: jax.Array) -> jax.Array:
            return own(windows._replace(y=y))
    else:
        start, rows = getattr(estimator, "warm_start", None), data
        solve = start(data) if start and warm else estimator.estimate
    return jax.vmap(solve)(rows + jax.random.normal(key, (runs, *rows.shape)) @ root.T)
