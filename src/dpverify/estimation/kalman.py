"""Kalman filters that release noisy estimates: the paper's private EKF, and linear filters with an exact answer.

docs/method.md, sections 7.6 and 7.7.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.estimation.devices import default_block
from dpverify.estimation.extended_filter import MAX_UNROLLED_STATES, filter_runs, whitener
from dpverify.estimation.small_linalg import posterior_covariance
from dpverify.estimation.system import System
from dpverify.estimation.truths import GaussianTruth
from dpverify.estimation.validation import (
    bind_parameters,
    check_covariance,
    check_data,
    check_integer,
    check_noise_parameter,
    finite_estimate,
    split_parameters,
)
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64
from dpverify.util.checks import check_choice, is_real_number


@dataclass(frozen=True)
class PrivateEKF:
    """The paper's private extended Kalman filter: each update adds (1 - s_hat)/s_hat * w, w uniform on [0, 1]^n.

    The noise enters the state and therefore all later estimates. Its mean is (1 - s_hat)/(2 s_hat) and not 0, so that
    it biases the estimates; this is the paper's definition. The filter starts at `system.start` and updates with y_0
    before its first prediction.

    Parameters
    ----------
    system : System
        The model of the data.
    s_hat : float
        Amount of noise, above 0 and at most 1; 1 is the filter without noise.
    window : int
        0 releases all steps k = 0, ..., T. N releases the first T + 1 - N steps, which are those of a moving-horizon
        estimator with this window, so that both can be compared on the same events.
    process, measurement, initial : array_like, optional
        The covariances Q, R and P0 of the filter: a number, one variance per coordinate, or a matrix, in squared units
        of the state and of the measurements. By default those of the system's distributions. R must be positive
        definite.
    name : str
        Name in reports.

    References
    ----------
    docs/method.md, sections 3 and 7.6.

    Examples
    --------
    >>> from dpverify.estimation import Normal, PrivateEKF, System
    >>> system = System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal(0.5), initial=Normal(1.0))
    >>> PrivateEKF(system, s_hat=0.9).measurement
    ((0.25,),)
    """

    system: System
    s_hat: float
    window: int = 0
    process: ArrayLike | None = None
    measurement: ArrayLike | None = None
    initial: ArrayLike | None = None
    name: str = "private EKF"

    def __post_init__(self) -> None:
        check_noise_parameter("s_hat", self.s_hat, positive=True)
        object.__setattr__(self, "window", check_integer("window", self.window))
        system, n = self.system, self.system.states
        covariances = {
            "process": check_covariance("process", self.process, system.disturbance.variance, n),
            "measurement": check_covariance(
                "measurement", self.measurement, system.noise.variance, system.measurements, definite=True
            ),
            "initial": check_covariance("initial", self.initial, system.initial.variance, n),
        }
        if not np.any(covariances["process"]) and not np.any(covariances["initial"]):
            raise InputError(
                "initial: found initial and process covariance 0; expected a positive variance of some state, because "
                "the filter ignores its data otherwise; pass initial=... or process=..."
            )
        for name, matrix in covariances.items():
            object.__setattr__(self, name, matrix)

    @property
    def block(self) -> int:
        """The number of runs per block."""
        return default_block()

    @functools.cached_property
    def noise_free(self) -> PrivateEKF:
        """The filter without noise. It is the static argument of compiled code, which thus serves all s_hat."""
        return replace(self, s_hat=1.0, name="")

    def estimate(self, data: jax.Array) -> jax.Array:
        """Return the released estimates without noise, (K, d): pure JAX, can be vmapped over data."""
        steps = data.shape[0] - self.window
        return self.filtered(data, jnp.zeros((steps, self.system.states)))

    def filtered(self, data: jax.Array, shocks: jax.Array) -> jax.Array:
        """Return the released estimates of one run in which update k adds shocks[k] to the state."""
        system, Q = self.system, jnp.asarray(self.process)
        whiten = whitener(self.measurement)
        released = jnp.asarray(system.released)

        def update_and_predict(
            prior: tuple[jax.Array, jax.Array], y_and_shock: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            (x, P), (y, shock) = prior, y_and_shock
            H = jax.jacfwd(lambda z: whiten(system.h(z)))(x)
            innovation = whiten(y - system.h(x))
            # One product with H' for the information matrix and the information vector.
            information = H.T @ jnp.concatenate([H, innovation[:, None]], axis=1)
            P = posterior_covariance(P, information[:, :-1])
            x = x + P @ information[:, -1] + shock
            F = jax.jacfwd(system.f)(x)
            return (system.f(x), F @ P @ F.T + Q), x[released]

        start = jnp.asarray(system.start), jnp.asarray(self.initial)
        return jax.lax.scan(update_and_predict, start, (data[: len(shocks)], shocks))[1]

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> jax.Array:
        with enable_x64():
            y = check_data(self.system, data, self.window + 1)
            finite_estimate(self.noise_free, y)
            template, parameters = split_parameters(self.noise_free)
            return _ekf_runs(template, parameters, (1 - self.s_hat) / self.s_hat, y, jax_key(rng), runs)


@functools.partial(jax.jit, static_argnums=(0, 5))
def _ekf_runs(
    template: PrivateEKF, parameters: Any, scale: float, data: jax.Array, key: jax.Array, runs: int
) -> jax.Array:
    noise_free = bind_parameters(template, parameters)
    system = noise_free.system
    shape = (runs, data.shape[0] - noise_free.window, system.states)
    shocks = scale * jax.random.uniform(key, shape)
    if system.states > MAX_UNROLLED_STATES:
        return jax.vmap(noise_free.filtered, (None, 0))(data, shocks)
    covariances = np.asarray(noise_free.process), np.asarray(noise_free.initial)
    return filter_runs(system, whitener(noise_free.measurement), *covariances, data, shocks)


@dataclass(frozen=True)
class PrivateKalman:
    """A Kalman filter with Gaussian noise N(0, scale^2) on its released estimates or on its data.

    The filter is an affine map M(y) = G y + c, so that both output distributions are Gaussian and `truth` returns the
    exact privacy.

    Parameters
    ----------
    system : System
        A linear system; it must have `A` and `C`.
    scale : float
        Standard deviation of the noise, in units of the released estimates or of the measurements.
    where : {"output", "input"}
        Whether the noise is added to the released estimates or to the data.
    window : int
        As for `PrivateEKF`: the last `window` steps are not released.
    process, measurement, initial : array_like, optional
        The covariances Q, R and P0 of the filter, as for `PrivateEKF`.
    name : str
        Name in reports.

    References
    ----------
    docs/method.md, sections 6 and 7.7.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import Normal, PrivateKalman, System
    >>> system = System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal(1.0), initial=Normal(1.0))
    >>> mechanism = PrivateKalman(system, scale=0.5)
    >>> round(mechanism.truth(np.zeros((1, 1)), np.ones((1, 1))).mu, 6)
    1.0
    """

    system: System
    scale: float
    where: str = "output"
    window: int = 0
    process: ArrayLike | None = None
    measurement: ArrayLike | None = None
    initial: ArrayLike | None = None
    name: str = "private Kalman filter"

    def __post_init__(self) -> None:
        if self.system.A is None or self.system.C is None:
            raise InputError(
                "system: found a system without A or C; expected a linear one; pass both, or use PrivateEKF"
            )
        if not (is_real_number(self.scale) and self.scale >= 0):
            raise InputError(f"scale: found {self.scale!r}; expected a standard deviation, a number from 0 up")
        check_choice("where", self.where, ("output", "input"))
        for name in ("window", "process", "measurement", "initial"):
            object.__setattr__(self, name, getattr(self.filter, name))

    @functools.cached_property
    def filter(self) -> PrivateEKF:
        """The same filter as an extended one: on a linear system the Jacobians are A and C."""
        linear = replace(self.system, f=None, h=None)
        return PrivateEKF(linear, 1.0, self.window, self.process, self.measurement, self.initial, "")

    @property
    def block(self) -> int:
        """The number of runs per block."""
        return default_block()

    def estimate(self, data: jax.Array) -> jax.Array:
        """Return the released estimates without noise, (K, d): pure JAX, can be vmapped over data."""
        return self.filter.estimate(data)

    def gain(self, steps: int) -> np.ndarray:
        """Return G for data of `steps` rows, of shape (K d, steps * measurements)."""
        return _gain(self.filter, steps)

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> jax.Array:
        with enable_x64():
            y = check_data(self.system, data, self.window + 1)
            centre = finite_estimate(self.filter, y)
            G = jnp.asarray(self.gain(len(y))) if self.where == "input" else None
            return gaussian_runs(centre, self.scale, G, jax_key(rng), runs)

    def truth(self, first: object, second: object) -> GaussianTruth:
        """Return the exact privacy of this pair of data sets, with which a report can be compared."""
        with enable_x64():
            sides = [check_data(self.system, data, self.window + 1) for data in (first, second)]
            means = [np.asarray(finite_estimate(self.filter, y)) for y in sides]
        if np.shape(sides[0]) != np.shape(sides[1]):
            raise InputError(f"data: found shapes {sides[0].shape} and {sides[1].shape}; expected two equal ones")
        shift = (means[0] - means[1]).ravel()
        if self.where == "output":
            covariance, length, factor = np.eye(shift.size), float(np.linalg.norm(shift)), np.eye(shift.size)
        else:
            factor = G = self.gain(len(sides[0]))
            # G may have fewer columns than rows. The distribution is then supported on its range, which also contains
            # the shift.
            covariance, length = G @ G.T, float(np.linalg.norm(np.linalg.lstsq(G, shift)[0]))
        with np.errstate(divide="ignore"):
            mu = float(np.divide(length, self.scale)) if length else 0.0
        return GaussianTruth(means[0], means[1], self.scale**2 * covariance, mu, self.scale * factor)


@functools.lru_cache(maxsize=64)
def _gain(noise_free: PrivateEKF, steps: int) -> np.ndarray:
    with enable_x64():
        zero = jnp.zeros((steps, noise_free.system.measurements))
        jacobian = np.asarray(jax.jacfwd(noise_free.estimate)(zero))
    return jacobian.reshape(-1, zero.size)


@functools.partial(jax.jit, static_argnums=4)
def gaussian_runs(centre: jax.Array, scale: float, gain: jax.Array | None, key: jax.Array, runs: int) -> jax.Array:
    """Draw runs around a centre (K, d): with independent noise, or with noise that passes the matrix `gain`."""
    if gain is None:
        return centre + scale * jax.random.normal(key, (runs, *centre.shape))
    noise = scale * jax.random.normal(key, (runs, gain.shape[1]))
    return centre + (noise @ gain.T).reshape(runs, *centre.shape)
