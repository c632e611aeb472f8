"""Linear-Gaussian estimators that release a stream, with the exact privacy of every prefix.

Every output is Gaussian with a mean that is an affine function of the data. A mechanism states its mean and a factor of
its covariance; runs and the closed form follow from them (docs/method.md, section 7.9).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag, toeplitz

from dpverify.errors import InputError
from dpverify.estimation.devices import default_block
from dpverify.estimation.filter_maps import FilterMaps, LinearModel, filter_maps, smoother_maps
from dpverify.estimation.kalman import gaussian_runs
from dpverify.estimation.system import System
from dpverify.estimation.truths import GaussianTruth
from dpverify.estimation.validation import check_data, check_positive
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64
from dpverify.util.checks import check_choice


class GaussianOutput(NamedTuple):
    """The distribution of an output: its mean (K, d), and a factor F of its covariance F F', of shape (K d, n)."""

    mean: np.ndarray
    factor: np.ndarray


class GaussianStream(ABC):
    """A mechanism whose output is Gaussian, with a covariance that does not depend on the values of the readings."""

    @property
    def block(self) -> int:
        """The number of runs per block."""
        return default_block()

    @abstractmethod
    def distribution(self, data: object) -> GaussianOutput:
        """Return the distribution of the output for these data."""

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> jax.Array:
        output = self.distribution(data)
        with enable_x64():
            return gaussian_runs(jnp.asarray(output.mean), 1.0, jnp.asarray(output.factor), jax_key(rng), runs)

    def truth(self, first: object, second: object) -> GaussianTruth:
        """Return the exact privacy of this pair of data sets; its method `prefix` has that of the first steps."""
        one, two = self.distribution(first), self.distribution(second)
        if one.factor.shape != two.factor.shape or not np.allclose(one.factor, two.factor, rtol=1e-9, atol=0.0):
            raise InputError(
                "data: found data sets with different covariances of the output; expected equal lengths and the same "
                "missing readings; use privacy_over_time or verify, which need no closed form"
            )
        whole = GaussianTruth(one.mean, two.mean, one.factor @ one.factor.T, 0.0, one.factor)
        return whole.prefix(len(one.mean))


@dataclass(frozen=True)
class IntermittentKalman(GaussianStream):
    """A Kalman filter with missing readings, and Gaussian noise on its estimates or on its data.

    A reading that is NaN is missing; the filter predicts without it. Which readings are missing is not hidden by noise
    on the data; noise on the estimates hides it as well.

    Parameters
    ----------
    system : System
        A linear system; it must have `A` and `C`.
    scale : float
        Standard deviation of the noise, in units of the released estimates or of the readings.
    where : {"output", "input"}
        Whether the noise is added to the released estimates or to the readings.
    process, measurement, initial : array_like, optional
        The covariances of the filter, as for `PrivateEKF`.
    name : str
        Name in reports.

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

    system: System
    scale: float
    where: str = "output"
    process: ArrayLike | None = None
    measurement: ArrayLike | None = None
    initial: ArrayLike | None = None
    name: str = "Kalman filter with missing readings"

    def __post_init__(self) -> None:
        check_positive("scale", self.scale, "the standard deviation of the noise")
        check_choice("where", self.where, ("output", "input"))
        _freeze_covariances(self)

    def maps(self, observed: np.ndarray) -> FilterMaps:
        """Return the estimator without noise, for readings that are observed or missing."""
        return filter_maps(_model(self), observed).released(tuple(self.system.released))

    def distribution(self, data: object) -> GaussianOutput:
        """Return the distribution of the output for these data."""
        y = check_data(self.system, data, missing=True)
        maps = self.maps(~np.isnan(y))
        mean = maps.estimate(np.nan_to_num(y))
        return GaussianOutput(mean, self.scale * (np.eye(mean.size) if self.where == "output" else maps.matrix))


@dataclass(frozen=True)
class PrivateSmoother(IntermittentKalman):
    """A fixed-interval smoother with Gaussian noise: every estimate uses all readings, later ones included.

    A reading therefore shows in the outputs of earlier steps, too. Missing readings are NaN.

    Parameters
    ----------
    system, scale, where, process, measurement, initial, name
        As for `IntermittentKalman`.

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
        return smoother_maps(_model(self), observed).released(tuple(self.system.released))


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
        object.__setattr__(self, "aggregation", tuple(tuple(row) for row in D.tolist()))
        _freeze_covariances(self)

    def distribution(self, data: object) -> GaussianOutput:
        """Return the distribution of the output for these data."""
        y, D, model = check_data(self.system, data), np.asarray(self.aggregation), _model(self)
        noisy = D @ model.measurement @ D.T + self.scale**2 * np.eye(len(D))
        seen = model._replace(C=D @ model.C, measurement=noisy)
        maps = filter_maps(seen, np.ones((len(y), len(D)), bool)).released(tuple(self.system.released))
        return GaussianOutput(maps.estimate(y @ D.T), self.scale * maps.matrix)


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
        object.__setattr__(self, "prefilter", tuple(response.tolist()))
        _freeze_covariances(self)

    def distribution(self, data: object) -> GaussianOutput:
        """Return the distribution of the output for these data."""
        y = check_data(self.system, data)
        maps = filter_maps(_model(self), np.ones(y.shape, bool)).released(tuple(self.system.released))
        response = np.zeros(len(y))
        response[: len(self.prefilter)] = self.prefilter[: len(y)]
        F = np.kron(toeplitz(response, np.zeros(len(y))), np.eye(y.shape[1]))
        return GaussianOutput(maps.estimate(y), self.scale * np.linalg.solve(F.T, maps.matrix.T).T)


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
        _freeze_covariances(self)

    def distribution(self, data: object) -> GaussianOutput:
        """Return the distribution of the output for these data."""
        y = check_data(self.system, data)
        maps = filter_maps(_model(self), np.ones(y.shape, bool)).released(tuple(self.system.released))
        roots = [_root(self.temperature * covariance) for covariance in maps.covariances]
        return GaussianOutput(maps.estimate(y), np.asarray(block_diag(*roots)))


def _model(mechanism: object) -> LinearModel:
    """Return the linear model of a mechanism with a system and covariances."""
    return LinearModel.of(*(getattr(mechanism, name) for name in ("system", "process", "measurement", "initial")))


def _freeze_covariances(mechanism: object) -> None:
    """Check the covariances of a mechanism and store them as tuples, so that it can be compared and pickled."""
    model = _model(mechanism)
    for name in ("process", "measurement", "initial"):
        object.__setattr__(mechanism, name, tuple(tuple(row) for row in getattr(model, name).tolist()))


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return a matrix F with covariance F F'; the covariance may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))
