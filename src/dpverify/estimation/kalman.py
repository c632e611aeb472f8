"""Linear estimators whose privacy is known exactly, for every prefix of their output: the oracles of the library.

Every output is an affine function of the data plus Gaussian (or, for consensus, Laplace) noise. A Kalman filter or
smoother of a linear system is an affine map of all measurements: its matrices are computed once, in NumPy, and every
run needs one product. A mechanism states its mean and a factor of its covariance; runs and the closed form follow from
them (docs/method.md, sections 6, 7.7 and 7.9).
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag, toeplitz
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from dpverify.errors import InputError
from dpverify.estimation.ekf import PrivateEKF
from dpverify.estimation.system import (
    System,
    as_tuples,
    check_data,
    check_positive,
    covariance_root,
    default_block,
    freeze_covariances,
)
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import array_namespace, enable_x64
from dpverify.util.checks import check_choice, check_whole_number, is_real_number
from dpverify.util.hashing import fingerprint

RANK_TOLERANCE = 1e-10  # relative; a smaller singular value of a factor is rounding
SUBSPACE_TOLERANCE = 1e-6  # of the largest standard deviation; rounding moves an output by less out of its subspace
LOSS_STEP = 5e-4  # width of a bin of the privacy loss of Laplace noise


class GaussianTruth(NamedTuple):
    """The exact privacy of a pair of datasets under a linear-Gaussian mechanism.

    The outputs are N(mean, covariance) with the same covariance for both datasets. The privacy depends only on `mu`,
    the Mahalanobis distance of the two means (docs/method.md, section 6).

    Parameters
    ----------
    first, second : np.ndarray
        The means under the two datasets, of shape (K, d).
    covariance : np.ndarray
        The covariance of the flattened output, of shape (K d, K d).
    mu : float
        The Mahalanobis distance of the means.
    factor : np.ndarray or None
        A matrix F with covariance F F', of shape (K d, n); None: a factor of the covariance is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import GaussianTruth
    >>> truth = GaussianTruth(np.zeros((1, 1)), np.ones((1, 1)), np.eye(1), mu=1.0)
    >>> round(truth.delta(1.0), 4), round(truth.epsilon(0.01), 4)
    (0.1269, 2.3178)
    """

    first: np.ndarray
    second: np.ndarray
    covariance: np.ndarray
    mu: float
    factor: np.ndarray | None = None

    def prefix(self, steps: int) -> GaussianTruth:
        """Return the exact privacy of the first steps of the output.

        Examples
        --------
        >>> truth = GaussianTruth(np.zeros((2, 1)), np.ones((2, 1)), np.eye(2), mu=2**0.5)
        >>> float(truth.prefix(1).mu)
        1.0
        """
        first, second = self.first[:steps], self.second[:steps]
        covariance = self.covariance[: first.size, : first.size]
        factor = covariance_root(self.covariance) if self.factor is None else self.factor
        factor, shift = factor[: first.size], (first - second).ravel()
        distance = np.linalg.norm(np.linalg.lstsq(factor, shift)[0]) if factor.any() else np.inf
        return GaussianTruth(first, second, covariance, float(distance) if shift.any() else 0.0, factor)

    def delta(self, epsilon: float) -> float:
        """Return the exact delta at this epsilon, over all events; it is the same for both orders."""
        if self.mu in (0.0, np.inf):
            return float(self.mu > 0)
        a, b = self.mu / 2, epsilon / self.mu
        return float(ndtr(a - b) - np.exp(epsilon + log_ndtr(-a - b)))

    def epsilon(self, delta: float) -> float:
        """Return the exact epsilon at this delta; it is infinite at delta 0 if the means differ."""
        if self.delta(0.0) <= delta:
            return 0.0
        if delta <= 0 or self.mu == np.inf:
            return np.inf
        upper = self.mu**2 / 2 + self.mu * 40
        root: Any = brentq(lambda e: self.delta(e) - delta, 0.0, upper, xtol=1e-12)
        return float(root)


class LaplaceTruth(NamedTuple):
    """The exact privacy of a pair of datasets under independent Laplace noise, step by step.

    Parameters
    ----------
    shifts : np.ndarray
        By how much the centre of each number moves, in units of the scale of its noise, of shape (K, d).

    Examples
    --------
    >>> import numpy as np
    >>> truth = LaplaceTruth(np.array([[0.5], [0.25]]))
    >>> truth.epsilon(0.0), truth.prefix(1).epsilon(0.0)
    (0.75, 0.5)
    """

    shifts: np.ndarray

    def prefix(self, steps: int) -> LaplaceTruth:
        """Return the exact privacy of the first steps of the output."""
        return LaplaceTruth(self.shifts[:steps])

    def delta(self, epsilon: float) -> float:
        """Return delta at this epsilon; above the exact one by at most 5e-4 for each number that moves."""
        return self._curve(epsilon) if epsilon < self.shifts.sum() else 0.0

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at this delta; exact at delta 0."""
        if delta <= 0:
            return float(self.shifts.sum())
        if self.delta(0.0) <= delta:
            return 0.0
        largest = float(self.shifts.sum()) + LOSS_STEP * self.shifts.size  # losses are rounded up to bins
        root: Any = brentq(lambda epsilon: self._curve(epsilon) - delta, 0.0, largest)
        return float(root)

    def _curve(self, epsilon: float) -> float:
        """Return delta from the distribution of the sum of the privacy losses."""
        loss, masses = _laplace_loss(tuple(self.shifts[self.shifts > 0].tolist()))
        return float((masses * np.maximum(-np.expm1(epsilon - loss), 0)).sum())


@functools.cache
def _laplace_loss(shifts: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the possible privacy losses of independent Laplace noises of scale 1 that are shifted, and their masses.

    Each loss lies in a bin of width LOSS_STEP and is rounded up, so that delta is never below the exact one.
    """
    masses, lowest = np.ones(1), 0
    for shift in shifts:
        low, high = math.floor(-shift / LOSS_STEP), math.ceil(shift / LOSS_STEP)
        edges = np.clip(np.arange(low, high + 1) * LOSS_STEP, -shift, shift)
        # The loss is |x - shift| - |x|. It is at most l where x is at least (shift - l) / 2, for -shift <= l < shift.
        below = np.where(edges >= shift, 1.0, 0.5 * np.exp(-np.maximum(shift - edges, 0) / 2))
        masses, lowest = np.convolve(masses, np.diff(below, prepend=0.0)), lowest + low
    return (lowest + np.arange(len(masses))) * LOSS_STEP, masses


class LinearModel(NamedTuple):
    """The matrices of a linear system and the covariances that a filter of it assumes."""

    A: np.ndarray
    C: np.ndarray
    process: np.ndarray
    measurement: np.ndarray
    initial: np.ndarray
    start: np.ndarray
    drift: np.ndarray = np.zeros((1, 1))  # B u_k, one row for each step; the last one serves all later steps

    def predict(self, estimate: np.ndarray, k: int) -> np.ndarray:
        """Return the prediction from step k; the last column of the estimate is the constant part of the map."""
        predicted = self.A @ estimate
        predicted[:, -1] += self.drift[min(k, len(self.drift) - 1)]
        return predicted


class FilterMaps(NamedTuple):
    """The estimate of step k is `gains[k] @ y.ravel() + offsets[k]`, with the posterior covariance `covariances[k]`.

    Attributes
    ----------
    gains : ndarray of shape (K, states, K * measurements)
        The matrices; columns of missing measurements are 0.
    offsets : ndarray of shape (K, states)
        The estimates if all measurements are 0.
    covariances : ndarray of shape (K, states, states)
        The covariances of the states given the measurements.
    """

    gains: np.ndarray
    offsets: np.ndarray
    covariances: np.ndarray

    def released(self, coordinates: tuple[int, ...]) -> FilterMaps:
        """Return the maps of some coordinates of the state."""
        chosen = list(coordinates)
        return FilterMaps(self.gains[:, chosen], self.offsets[:, chosen], self.covariances[:, chosen][:, :, chosen])

    def estimate(self, data: np.ndarray) -> np.ndarray:
        """Return the estimates of shape (K, states)."""
        return self.gains @ data.ravel() + self.offsets

    @property
    def matrix(self) -> np.ndarray:
        """The gains of all steps as one matrix of shape (K * states, K * measurements)."""
        return self.gains.reshape(-1, self.gains.shape[-1])


def filter_maps(model: LinearModel, observed: np.ndarray) -> FilterMaps:
    """Return the Kalman filter. It updates with y_0 before its first prediction.

    Parameters
    ----------
    model : LinearModel
        The system.
    observed : ndarray of bool, of shape (K, measurements)
        Which measurements exist.

    Examples
    --------
    >>> one = np.eye(1)
    >>> maps = filter_maps(LinearModel(one, one, 0 * one, one, one, np.zeros(1)), np.array([[True], [False], [True]]))
    >>> maps.gains[2].round(3).tolist()
    [[0.333, 0.0, 0.333]]
    """
    steps, sensors = observed.shape
    # The last column is the constant part of the map.
    estimate = np.zeros((len(model.start), steps * sensors + 1))
    estimate[:, -1] = model.start
    P, estimates, covariances = model.initial, [], []
    for k in range(steps):
        if k:
            estimate, P = model.predict(estimate, k - 1), model.A @ P @ model.A.T + model.process
        rows = np.flatnonzero(observed[k])
        C, R = model.C[rows], model.measurement[np.ix_(rows, rows)]
        gain = P @ C.T @ np.linalg.inv(C @ P @ C.T + R)
        measured = np.zeros((len(rows), estimate.shape[1]))
        measured[np.arange(len(rows)), k * sensors + rows] = 1.0
        estimate = estimate + gain @ (measured - C @ estimate)
        P = P - gain @ C @ P
        estimates.append(estimate)
        covariances.append((P + P.T) / 2)
    return _as_maps(np.array(estimates), np.array(covariances))


def smoother_maps(model: LinearModel, observed: np.ndarray) -> FilterMaps:
    """Return the Rauch-Tung-Striebel smoother: every estimate uses all measurements, later ones included.

    Examples
    --------
    >>> one = np.eye(1)
    >>> maps = smoother_maps(LinearModel(one, one, 0 * one, one, one, np.zeros(1)), np.ones((2, 1), bool))
    >>> maps.gains[0].round(3).tolist()
    [[0.333, 0.333]]
    """
    filtered = filter_maps(model, observed)
    estimates = np.concatenate([filtered.gains, filtered.offsets[:, :, None]], axis=2)
    covariances = filtered.covariances.copy()
    for k in range(len(observed) - 2, -1, -1):
        P = filtered.covariances[k]
        predicted = model.A @ P @ model.A.T + model.process
        back = P @ model.A.T @ np.linalg.pinv(predicted, hermitian=True)
        estimates[k] += back @ (estimates[k + 1] - model.predict(estimates[k], k))
        covariances[k] += back @ (covariances[k + 1] - predicted) @ back.T
    return _as_maps(estimates, covariances)


def _as_maps(estimates: np.ndarray, covariances: np.ndarray) -> FilterMaps:
    """Split the constant part from the matrices."""
    return FilterMaps(estimates[:, :, :-1], estimates[:, :, -1], covariances)


class GaussianOutput(NamedTuple):
    """The distribution of an output: its mean (K, d), and noise of a standard deviation that passes the matrix `gain`.

    The gain has shape (K d, n); None stands for independent noise on every number.
    """

    mean: np.ndarray
    scale: float
    gain: np.ndarray | None = None

    @property
    def factor(self) -> np.ndarray:
        """A factor F of the covariance F F', of shape (K d, n)."""
        return self.scale * (np.eye(self.mean.size) if self.gain is None else self.gain)


class GaussianStream(ABC):
    """A filter of a linear system whose output is Gaussian, with a covariance that does not depend on the readings."""

    system: System

    def __post_init__(self) -> None:
        if self.system.A is None or self.system.C is None:
            raise InputError(
                "system: found a system without A or C; expected a linear one; pass both, or use PrivateEKF"
            )
        freeze_covariances(self)

    @property
    def block(self) -> int:
        """The number of runs per block."""
        return default_block()

    @property
    def model(self) -> LinearModel:
        """The matrices of the system and the covariances of the filter."""
        system, own = self.system, (getattr(self, name) for name in ("process", "measurement", "initial"))
        model = LinearModel(*(np.asarray(v, float) for v in (system.A, system.C, *own, system.start)))
        return model if system.B is None else model._replace(drift=np.asarray(system.inputs) @ np.transpose(system.B))

    def maps(self, observed: np.ndarray) -> FilterMaps:
        """Return the estimator without noise, for readings that are observed or missing."""
        return filter_maps(self.model, observed).released(tuple(self.system.released))

    @abstractmethod
    def distribution(self, data: object) -> GaussianOutput:
        """Return the distribution of the output for these data."""

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> jax.Array:
        mean, scale, gain = self.distribution(data)
        with enable_x64():
            return _gaussian_runs(
                jnp.asarray(mean), scale, None if gain is None else jnp.asarray(gain), jax_key(rng), runs
            )

    def log_density(self, data: object, samples: Any) -> Any:
        """Return the logarithm of the density of outputs (runs, K, d); -inf outside the subspace that they lie in.

        With independent noise it is that of every prefix, of shape (runs, K).
        """
        mean, scale, gain = self.distribution(data)
        if gain is None:
            return -0.5 * (((samples - mean) / scale) ** 2).sum(2).cumsum(1)
        kept = self.__dict__.setdefault("_densities", {})  # of each dataset: the decomposition takes long
        key = fingerprint(data)
        if key not in kept:
            output = self.distribution(data)
            left, values, _ = np.linalg.svd(output.factor, full_matrices=False)
            rank = int((values > RANK_TOLERANCE * values[0]).sum())
            kept[key] = output.mean.ravel(), left[:, :rank], values[:rank]
        mean, axes, scales = kept[key]
        difference = samples.reshape(samples.shape[0], -1) - mean
        along = difference @ axes
        log = -0.5 * ((along / scales) ** 2).sum(1) - np.log(scales).sum()
        if scales.size == mean.size:
            return log
        outside = abs(difference - along @ axes.T).max(1) > SUBSPACE_TOLERANCE * scales[0]
        return array_namespace(samples).where(outside, -np.inf, log)

    def truth(self, first: object, second: object) -> GaussianTruth:
        """Return the exact privacy of this pair of datasets; its method `prefix` has that of the first steps."""
        one, two = self.distribution(first), self.distribution(second)
        factor = one.factor
        if factor.shape != two.factor.shape or not np.allclose(factor, two.factor, rtol=1e-9, atol=0.0):
            raise InputError(
                "data: found datasets with different covariances of the output; expected equal lengths and the same "
                "missing readings; use privacy_over_time or verify, which need no closed form"
            )
        whole = GaussianTruth(one.mean, two.mean, factor @ factor.T, 0.0, factor)
        return whole.prefix(len(one.mean))


@functools.partial(jax.jit, static_argnums=4)
def _gaussian_runs(centre: jax.Array, scale: float, gain: jax.Array | None, key: jax.Array, runs: int) -> jax.Array:
    """Draw runs around a centre (K, d): with independent noise, or with noise that passes the matrix `gain`."""
    if gain is None:
        return centre + scale * jax.random.normal(key, (runs, *centre.shape))
    noise = scale * jax.random.normal(key, (runs, gain.shape[1]))
    return centre + (noise @ gain.T).reshape(runs, *centre.shape)


@dataclass(frozen=True)
class PrivateKalman(GaussianStream):
    """A Kalman filter with Gaussian noise N(0, scale^2) on its released estimates or on its data.

    The filter is an affine map M(y) = G y + c, so that both output distributions are Gaussian.

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
    may_miss: ClassVar[bool] = False  # whether a reading that is NaN is missing

    def __post_init__(self) -> None:
        if not (is_real_number(self.scale) and self.scale >= 0):
            raise InputError(f"scale: found {self.scale!r}; expected a standard deviation, a number from 0 up")
        check_choice("where", self.where, ("output", "input"))
        object.__setattr__(self, "window", check_whole_number("window", self.window))
        super().__post_init__()

    @functools.cached_property
    def filter(self) -> PrivateEKF:
        """The same filter as an extended one: on a linear system the Jacobians are A and C."""
        linear = replace(self.system, f=None, h=None)
        return PrivateEKF(linear, 1.0, self.window, self.process, self.measurement, self.initial, "")

    def maps(self, observed: np.ndarray) -> FilterMaps:
        """Return the estimator without noise, for readings that are observed or missing."""
        steps = len(observed) - self.window
        return FilterMaps(*(v[:steps] for v in super().maps(observed)))

    def estimate(self, data: jax.Array) -> jax.Array:
        """Return the released estimates without noise, (K, d): pure JAX, can be vmapped over data."""
        maps = self.maps(np.ones(data.shape, bool))
        return jnp.tensordot(jnp.asarray(maps.gains), data.reshape(-1), 1) + maps.offsets

    def gain(self, steps: int) -> np.ndarray:
        """Return G for data of `steps` rows, of shape (K d, steps * measurements)."""
        return self.maps(np.ones((steps, self.system.measurements), bool)).matrix

    def distribution(self, data: object) -> GaussianOutput:
        """Return the distribution of the output for these data."""
        y = check_data(self.system, data, self.window + 1, self.may_miss)
        maps = self.maps(~np.isnan(y))
        return GaussianOutput(
            maps.estimate(np.nan_to_num(y)), self.scale, None if self.where == "output" else maps.matrix
        )


@dataclass(frozen=True)
class IntermittentKalman(PrivateKalman):
    """A Kalman filter with missing readings, and Gaussian noise on its estimates or on its data.

    A reading that is NaN is missing; the filter predicts without it. Which readings are missing is not hidden by noise
    on the data; noise on the estimates hides it as well.

    Parameters
    ----------
    system, scale, where, window, process, measurement, initial, name
        As for `PrivateKalman`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import IntermittentKalman, Normal, System
    >>> system = System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal(1.0), initial=Normal(1.0))
    >>> mechanism = IntermittentKalman(system, scale=0.5)
    >>> truth = mechanism.truth([[0.0], [np.nan], [0.0]], [[1.0], [np.nan], [0.0]])
    >>> [round(truth.prefix(steps).mu, 3) for steps in (1, 2, 3)]
    [1.0, 1.414, 1.563]
    """

    name: str = "Kalman filter with missing readings"
    may_miss: ClassVar[bool] = True


@dataclass(frozen=True)
class PrivateSmoother(IntermittentKalman):
    """A fixed-interval smoother with Gaussian noise: every estimate uses all readings, later ones included.

    A reading therefore shows in the outputs of earlier steps, too. Missing readings are NaN.

    Parameters
    ----------
    system, scale, where, window, process, measurement, initial, name
        As for `PrivateKalman`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import Normal, PrivateSmoother, System
    >>> system = System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal(1.0), initial=Normal(1.0))
    >>> truth = PrivateSmoother(system, scale=0.5).truth(np.zeros((3, 1)), np.array([[0.0], [0.0], [1.0]]))
    >>> truth.prefix(1).mu > 0  # the last reading is visible in the first output
    True
    """

    name: str = "private smoother"

    def maps(self, observed: np.ndarray) -> FilterMaps:
        """Return the estimator without noise, for readings that are observed or missing."""
        maps = smoother_maps(self.model, observed).released(tuple(self.system.released))
        return FilterMaps(*(v[: len(observed) - self.window] for v in maps))


@dataclass(frozen=True)
class TwoStageKalman(GaussianStream):
    """Aggregate the readings, add Gaussian noise, and run a Kalman filter that knows this noise.

    The filter assumes the measurement matrix D C and the covariance D R D' + scale^2 I of what it sees.

    Parameters
    ----------
    system : System
        A linear system; it must have `A` and `C`.
    aggregation : sequence of sequences of float
        The matrix D, with one column per measurement. The identity gives input perturbation.
    scale : float
        Standard deviation of the noise on the aggregated readings.
    process, measurement, initial : array_like, optional
        The covariances Q, R and P0, as for `PrivateEKF`; R is that of the readings before aggregation.
    name : str
        Name in reports.

    References
    ----------
    Le Ny and Pappas, Differentially private filtering, 2014; Degue and Le Ny, on two-stage mechanisms, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import Normal, System, TwoStageKalman
    >>> pair = System(A=[[0.9]], C=[[1.0], [1.0]], start=(0.0,), noise=Normal(0.5), initial=Normal(1.0))
    >>> mechanism = TwoStageKalman(pair, [[1.0, 1.0]], scale=2.0)  # the noisy sum of two sensors
    >>> round(mechanism.truth(np.zeros((4, 2)), np.array([[1.0, 0.0]] * 4)).mu, 6)
    1.0
    """

    system: System
    aggregation: Sequence[Sequence[float]]
    scale: float
    process: ArrayLike | None = None
    measurement: ArrayLike | None = None
    initial: ArrayLike | None = None
    name: str = "two-stage Kalman filter"

    def __post_init__(self) -> None:
        check_positive("scale", self.scale, "the standard deviation of the noise")
        D = np.asarray(self.aggregation, float)
        if D.ndim != 2 or D.shape[1] != self.system.measurements:
            raise InputError(
                f"aggregation: found shape {D.shape}; expected a matrix with {self.system.measurements} columns, one "
                "for each measurement"
            )
        object.__setattr__(self, "aggregation", as_tuples(D))
        super().__post_init__()

    def distribution(self, data: object) -> GaussianOutput:
        """Return the distribution of the output for these data."""
        y, D, model = check_data(self.system, data), np.asarray(self.aggregation), self.model
        noisy = D @ model.measurement @ D.T + self.scale**2 * np.eye(len(D))
        seen = model._replace(C=D @ model.C, measurement=noisy)
        maps = filter_maps(seen, np.ones((len(y), len(D)), bool)).released(tuple(self.system.released))
        return GaussianOutput(maps.estimate(y @ D.T), self.scale, maps.matrix)


@dataclass(frozen=True)
class EqualisedKalman(GaussianStream):
    """A Kalman filter behind a zero-forcing equaliser: prefilter, noise, inverse of the prefilter, Kalman filter.

    The readings of each sensor pass the causal prefilter F and receive Gaussian noise. The inverse of F follows, so
    that the mean of the output is the estimate without noise.

    Parameters
    ----------
    system : System
        A linear system; it must have `A` and `C`.
    prefilter : sequence of float
        The impulse response of F; its first value is not 0. `(1.0,)` gives input perturbation.
    scale : float
        Standard deviation of the noise on the prefiltered readings.
    process, measurement, initial : array_like, optional
        The covariances of the filter, as for `PrivateEKF`.
    name : str
        Name in reports.

    References
    ----------
    Le Ny and Pappas, Differentially private filtering, 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import EqualisedKalman, Normal, System
    >>> system = System(A=[[0.8]], C=[[1.0]], start=(0.0,), noise=Normal(1.0), initial=Normal(1.0))
    >>> mechanism = EqualisedKalman(system, prefilter=(1.0, 0.5), scale=1.0)
    >>> first, second = np.zeros((3, 1)), np.array([[1.0], [0.0], [0.0]])
    >>> round(mechanism.truth(first, second).mu ** 2, 6)  # the response to one reading is 1, 0.5
    1.25
    """

    system: System
    prefilter: Sequence[float]
    scale: float
    process: ArrayLike | None = None
    measurement: ArrayLike | None = None
    initial: ArrayLike | None = None
    name: str = "equalised Kalman filter"

    def __post_init__(self) -> None:
        check_positive("scale", self.scale, "the standard deviation of the noise")
        response = np.asarray(self.prefilter, float)
        if response.ndim != 1 or not response.size or not np.isfinite(response).all() or response[0] == 0:
            raise InputError(
                f"prefilter: found {self.prefilter!r}; expected an impulse response, finite numbers of which the first "
                "is not 0"
            )
        object.__setattr__(self, "prefilter", as_tuples(response))
        super().__post_init__()

    def distribution(self, data: object) -> GaussianOutput:
        """Return the distribution of the output for these data."""
        y = check_data(self.system, data)
        maps = self.maps(np.ones(y.shape, bool))
        response = np.zeros(len(y))
        response[: len(self.prefilter)] = self.prefilter[: len(y)]
        F = np.kron(toeplitz(response, np.zeros(len(y))), np.eye(y.shape[1]))
        return GaussianOutput(maps.estimate(y), self.scale, np.linalg.solve(F.T, maps.matrix.T).T)


@dataclass(frozen=True)
class PosteriorKalman(GaussianStream):
    """A Kalman filter that releases, at every step, one sample of its posterior distribution instead of its estimate.

    The samples of different steps are independent given the readings.

    Parameters
    ----------
    system : System
        A linear system; it must have `A` and `C`.
    temperature : float
        Factor of the posterior covariance; a larger one releases less.
    process, measurement, initial : array_like, optional
        The covariances of the filter, as for `PrivateEKF`.
    name : str
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import Normal, PosteriorKalman, System
    >>> system = System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal(1.0), initial=Normal(1.0))
    >>> round(PosteriorKalman(system).truth(np.zeros((1, 1)), np.ones((1, 1))).mu, 6)  # shift 1/2, variance 1/2
    0.707107
    """

    system: System
    temperature: float = 1.0
    process: ArrayLike | None = None
    measurement: ArrayLike | None = None
    initial: ArrayLike | None = None
    name: str = "posterior sample of a Kalman filter"

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature, "the factor of the posterior covariance")
        super().__post_init__()

    def distribution(self, data: object) -> GaussianOutput:
        """Return the distribution of the output for these data."""
        y = check_data(self.system, data)
        maps = self.maps(np.ones(y.shape, bool))
        roots = [covariance_root(self.temperature * covariance) for covariance in maps.covariances]
        return GaussianOutput(maps.estimate(y), 1.0, np.asarray(block_diag(*roots)))


@dataclass(frozen=True)
class PrivateConsensus:
    """Agents agree on the average of their states. All messages are public; the initial states are hidden.

    In step k agent i sends x_i = theta_i + eta_i with Laplace noise eta_i of scale noise * decay^k. Its state becomes
    theta_i - step_size (L x)_i + own_weight * eta_i, with the Laplacian matrix L of the network.

    Parameters
    ----------
    laplacian : sequence of sequences of float
        The matrix L.
    steps : int
        Number of messages of each agent.
    noise : float
        Scale of the noise in the first step, in units of the states.
    decay : float
        Factor of the scale from step to step, above |own_weight - 1| and below 1.
    own_weight : float
        Weight of an agent's own noise in its state; 1 costs only the first message.
    step_size : float
        Step size of the consensus.
    name : str
        Name in reports.

    References
    ----------
    Nozari, Tallapragada and Cortes, Differentially private average consensus, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import PrivateConsensus
    >>> path = [[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]
    >>> mechanism = PrivateConsensus(path, steps=5, noise=1.0, decay=0.5, own_weight=0.9)
    >>> truth = mechanism.truth(np.zeros(3), np.array([1.0, 0.0, 0.0]))
    >>> [round(truth.prefix(steps).epsilon(0.0), 4) for steps in (1, 2, 5)]
    [1.0, 1.2, 1.2496]
    """

    laplacian: Sequence[Sequence[float]]
    steps: int
    noise: float
    decay: float = 0.5
    own_weight: float = 1.0
    step_size: float = 0.2
    name: str = "private consensus"

    def __post_init__(self) -> None:
        L = np.asarray(self.laplacian, float)
        if L.ndim != 2 or L.shape[0] != L.shape[1] or not np.allclose(L.sum(axis=1), 0.0):
            raise InputError(f"laplacian: found shape {L.shape}; expected a square matrix whose rows add up to 0")
        object.__setattr__(self, "laplacian", as_tuples(L))
        object.__setattr__(self, "steps", check_whole_number("steps", self.steps, 1))
        check_positive("noise", self.noise, "the scale of the noise")
        check_positive("step_size", self.step_size, "the step size of the consensus")
        low = abs(self.own_weight - 1) if is_real_number(self.own_weight) else 1.0
        if not (is_real_number(self.decay) and low < self.decay < 1):
            raise InputError(
                f"decay: found {self.decay!r} with own_weight {self.own_weight!r}; expected a number above "
                "|own_weight - 1| and below 1"
            )

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return all messages, of shape (runs, steps, agents)."""
        L, states = np.asarray(self.laplacian), np.broadcast_to(self._check(data), (runs, len(self.laplacian)))
        messages = np.empty((runs, self.steps, len(L)))
        for k in range(self.steps):
            eta = rng.laplace(scale=self.noise * self.decay**k, size=states.shape)
            messages[:, k] = states + eta
            states = states - self.step_size * messages[:, k] @ L.T + self.own_weight * eta
        return messages

    def log_density(self, data: object, samples: np.ndarray) -> np.ndarray:
        """Return the log-density of the messages up to each step, but for a constant: they show all noise."""
        L, states, logs = np.asarray(self.laplacian), np.broadcast_to(self._check(data), samples[:, 0].shape), []
        for k in range(self.steps):
            eta = samples[:, k] - states
            logs.append(-abs(eta).sum(1) / (self.noise * self.decay**k))
            states = states - self.step_size * samples[:, k] @ L.T + self.own_weight * eta
        return np.cumsum(logs, axis=0).T

    def truth(self, first: object, second: object) -> LaplaceTruth:
        """Return the exact privacy: given the messages, the states differ by |1 - own_weight|^k of the start."""
        difference = np.abs(self._check(first) - self._check(second))
        k = np.arange(self.steps)[:, None]
        return LaplaceTruth(difference * (abs(1 - self.own_weight) / self.decay) ** k / self.noise)

    def _check(self, data: object) -> np.ndarray:
        """Return the initial states as an array."""
        try:
            states = np.asarray(data, float)  # pyright: ignore[reportArgumentType, reportCallIssue]
        except (TypeError, ValueError):
            states = np.empty(0)
        if states.shape != (len(self.laplacian),) or not np.isfinite(states).all():
            raise InputError(
                f"data: found {type(data).__name__} of shape {np.shape(states)}; expected {len(self.laplacian)} finite "
                "initial states, one per agent"
            )
        return states
