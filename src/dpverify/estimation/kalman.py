"""Kalman filters that give away noisy estimates: the paper's private EKF, and linear ones whose law is known exactly.

docs/method.md, sections 7.6 and 7.7.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from dpverify.errors import InputError
from dpverify.estimation.blocks import NUMBERS, device_block, finite_estimate, one_of, recorded, share, whole
from dpverify.estimation.small import posterior
from dpverify.estimation.system import System
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64

Matrix = tuple[tuple[float, ...], ...]


def covariance(stated: Any, variance: Any, size: int, name: str, definite: bool = False) -> Matrix:
    """A covariance from a number, one variance a coordinate, or a matrix; what is not stated is the law's own."""
    value = np.asarray(variance if stated is None else stated, float)
    matrix = np.diag(np.broadcast_to(value, size)) if value.shape in ((), (size,)) else value
    if matrix.shape != (size, size) or not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        raise InputError(
            f"{name}: found shape {value.shape}; expected a finite number, {size} variances, or a symmetric "
            f"{size} x {size} matrix"
        )
    values = np.linalg.eigvalsh(matrix)
    least, most = float(values[0]), float(values[-1])
    if least < -1e-12 * max(most, 0.0) or (definite and least <= 1e-13 * most):
        kind = "positive definite (a singular one leaves no gain)" if definite else "positive semidefinite"
        raise InputError(f"{name}: found an eigenvalue {least:.3g}; expected a {kind} covariance; state {name}=...")
    return tuple(tuple(float(v) for v in row) for row in matrix)


@dataclass(frozen=True)
class PrivateEKF:
    """The paper's private extended Kalman filter: each update adds (1 - s_hat)/s_hat * w, w uniform on [0, 1]^n.

    The noise goes into the state, hence into all later estimates, and its mean is (1 - s_hat)/(2 s_hat), not 0: it
    biases. The paper has it so, and so it stays. `s_hat` = 1 is the plain filter. The filter starts at `system.start`
    and updates with y_0 before anything is predicted. Its covariances are those of the system's laws unless stated
    (`process` Q, `measurement` R, `initial` P0: a number, variances, or a matrix); R must be positive definite.

    Released are all k = 0..T, or with `window` N the first T + 1 - N: the steps that a moving-horizon estimator with
    this window answers, so that both are compared on the same events and the same truth.
    """

    system: System
    s_hat: float
    window: int = 0
    process: Any = None
    measurement: Any = None
    initial: Any = None
    name: str = "private EKF"

    def __post_init__(self) -> None:
        share("s_hat", self.s_hat, above=True)
        object.__setattr__(self, "window", whole("window", self.window))
        system, n = self.system, self.system.states
        known = {
            "process": covariance(self.process, system.disturbance.variance, n, "process"),
            "measurement": covariance(
                self.measurement, system.noise.variance, system.measurements, "measurement", definite=True
            ),
            "initial": covariance(self.initial, system.initial.variance, n, "initial"),
        }
        if not np.any(known["process"]) and not np.any(known["initial"]):
            raise InputError(
                "found initial and process covariance 0; expected some doubt about the state, or the filter never "
                "looks at its data; state initial=... or process=..."
            )
        for name, matrix in known.items():
            object.__setattr__(self, name, matrix)

    @property
    def block(self) -> int:
        return device_block()

    @functools.cached_property
    def plain(self) -> PrivateEKF:
        """The filter without noise, which is what gets compiled: once for all s_hat."""
        return replace(self, s_hat=1.0, name="")

    def estimate(self, data: Any) -> Any:
        """The plain filter's released estimates (K, d): pure JAX, can be vmapped over data."""
        steps = data.shape[0] - self.window
        return self.filtered(data, jnp.zeros((steps, self.system.states)))

    def filtered(self, data: Any, shocks: Any) -> Any:
        """The released estimates of one run whose update k adds shocks[k] to the state; len(shocks) steps."""
        system, Q = self.system, jnp.asarray(self.process)
        whiten = _whitener(self.measurement)
        released = jnp.asarray(system.released)

        def update_and_predict(prior: tuple[Any, Any], y_and_shock: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
            (x, P), (y, shock) = prior, y_and_shock
            H = jax.jacfwd(lambda z: whiten(system.h(z)))(x)
            innovation = whiten(y - system.h(x))
            gathered = H.T @ jnp.concatenate([H, innovation[:, None]], axis=1)  # one pass over the measurements
            P = posterior(P, gathered[:, :-1])
            x = x + P @ gathered[:, -1] + shock
            F = jax.jacfwd(system.f)(x)
            return (system.f(x), F @ P @ F.T + Q), x[released]

        start = jnp.asarray(system.start), jnp.asarray(self.initial)
        return jax.lax.scan(update_and_predict, start, (data[: len(shocks)], shocks))[1]

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> Any:
        with enable_x64():
            y = recorded(self.system, data, self.window + 1)
            finite_estimate(self.plain, y)
            return _ekf_runs(self.plain, (1 - self.s_hat) / self.s_hat, y, jax_key(rng), runs)


def _whitener(measurement: Any) -> Any:
    R = np.asarray(measurement)
    if np.array_equal(R, np.diag(np.diag(R))):
        return lambda r: r / np.sqrt(np.diag(R))
    inverse = np.linalg.inv(np.linalg.cholesky(R))
    return lambda r: inverse @ r


@functools.partial(jax.jit, static_argnums=(0, 4))
def _ekf_runs(plain: PrivateEKF, scale: Any, data: Any, key: Any, runs: int) -> Any:
    shape = (runs, data.shape[0] - plain.window, plain.system.states)
    return jax.vmap(plain.filtered, (None, 0))(data, scale * jax.random.uniform(key, shape))


class GaussianTruth(NamedTuple):
    """The two output laws of a linear-Gaussian mechanism, N(mean, covariance) on the flattened output, and `mu`.

    `mu` is the Mahalanobis length of the difference of the means; it decides everything (docs/method.md, section 6).
    """

    first: np.ndarray  # (K, d)
    second: np.ndarray
    covariance: np.ndarray  # (K d, K d)
    mu: float

    def delta(self, epsilon: float) -> float:
        """The exact delta over all events, either order."""
        if self.mu in (0.0, np.inf):
            return float(self.mu > 0)
        a, b = self.mu / 2, epsilon / self.mu
        return float(ndtr(a - b) - np.exp(epsilon + log_ndtr(-a - b)))

    def epsilon(self, delta: float) -> float:
        """The exact epsilon at this delta; infinite at delta 0, as for all Gaussians that differ."""
        if self.delta(0.0) <= delta:
            return 0.0
        if delta <= 0 or self.mu == np.inf:
            return np.inf
        most = self.mu**2 / 2 + self.mu * 40
        found: Any = brentq(lambda e: self.delta(e) - delta, 0.0, most, xtol=1e-12)
        return float(found)


@dataclass(frozen=True)
class PrivateKalman:
    """A Kalman filter with N(0, scale^2) noise on what it releases (`where="output"`) or on its data ("input").

    The filter is linear, M(y) = G y + c, so both laws are Gaussian and `truth` has the exact answer. The system must
    state `A` and `C`; covariances and `window` are as in `PrivateEKF`.
    """

    system: System
    scale: float
    where: str = "output"
    window: int = 0
    process: Any = None
    measurement: Any = None
    initial: Any = None
    name: str = "private Kalman filter"

    def __post_init__(self) -> None:
        if self.system.A is None or self.system.C is None:
            raise InputError("found a system without A or C; expected a linear one; state both, or use PrivateEKF")
        if not (isinstance(self.scale, NUMBERS) and 0 <= self.scale < np.inf):
            raise InputError(f"scale: found {self.scale!r}; expected a standard deviation, a number from 0 up")
        one_of("where", self.where, ("output", "input"))
        for name in ("window", "process", "measurement", "initial"):
            object.__setattr__(self, name, getattr(self.filter, name))

    @functools.cached_property
    def filter(self) -> PrivateEKF:
        """The same filter as an extended one: on a linear system the Jacobians are A and C."""
        linear = replace(self.system, f=None, h=None)
        return PrivateEKF(linear, 1.0, self.window, self.process, self.measurement, self.initial, "")

    @property
    def block(self) -> int:
        return device_block()

    def estimate(self, data: Any) -> Any:
        """The filter's released estimates (K, d): pure JAX, can be vmapped over data."""
        return self.filter.estimate(data)

    def gain(self, steps: int) -> np.ndarray:
        """G for data of `steps` rows: (K d, steps * measurements)."""
        return _gain(self.filter, steps)

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> Any:
        with enable_x64():
            y = recorded(self.system, data, self.window + 1)
            centre = finite_estimate(self.filter, y)
            G = jnp.asarray(self.gain(len(y))) if self.where == "input" else None
            return _gaussian_runs(centre, self.scale, G, jax_key(rng), runs)

    def truth(self, first: Any, second: Any) -> GaussianTruth:
        """The closed form beside which a report on this pair can be laid."""
        with enable_x64():
            sides = [recorded(self.system, data, self.window + 1) for data in (first, second)]
            means = [np.asarray(finite_estimate(self.filter, y)) for y in sides]
        if np.shape(sides[0]) != np.shape(sides[1]):
            raise InputError(f"data: found shapes {sides[0].shape} and {sides[1].shape}; expected two equal ones")
        shift = (means[0] - means[1]).ravel()
        if self.where == "output":
            covariance, length = np.eye(shift.size), float(np.linalg.norm(shift))
        else:
            G = self.gain(len(sides[0]))
            # G may have fewer columns than rows: then the law lives on its range, where the shift lies too.
            covariance, length = G @ G.T, float(np.linalg.norm(np.linalg.lstsq(G, shift)[0]))
        with np.errstate(divide="ignore"):
            mu = float(np.divide(length, self.scale)) if length else 0.0
        return GaussianTruth(means[0], means[1], self.scale**2 * covariance, mu)


@functools.lru_cache(maxsize=64)
def _gain(plain: PrivateEKF, steps: int) -> np.ndarray:
    with enable_x64():
        zero = jnp.zeros((steps, plain.system.measurements))
        jacobian = np.asarray(jax.jacfwd(plain.estimate)(zero))
    return jacobian.reshape(-1, zero.size)


@functools.partial(jax.jit, static_argnums=4)
def _gaussian_runs(centre: Any, scale: Any, gain: Any, key: Any, runs: int) -> Any:
    if gain is None:
        return centre + scale * jax.random.normal(key, (runs, *centre.shape))
    noise = scale * jax.random.normal(key, (runs, gain.shape[1]))
    return centre + (noise @ gain.T).reshape(runs, *centre.shape)
