"""Estimators and mechanisms of other Python packages. A package is imported only when it is used.

Most estimators are deterministic functions of their data. `filterpy_estimates` and `dynamax_estimates` make such
functions; `perturbed` and `perturbed_jax` turn any such function into a mechanism by adding noise, and state the
density of its output. An object that must be built first is given as the function that builds it, at the top level of a
module, so that everything can be pickled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpverify.claims import Claim, approximate, profile, pure, renyi, zcdp
from dpverify.errors import InputError
from dpverify.mechanisms.neighbours import are_equal
from dpverify.mechanisms.protocol import Mechanism, inherited_attribute, mechanism_name
from dpverify.mechanisms.wrappers import jax_run, per_run
from dpverify.util.arrays import Array, array_namespace, enable_x64
from dpverify.util.checks import check_choice

MAX_ESTIMATES = 16  # estimates that are kept: those of a few mechanisms and pairs of datasets


SUPPORT_TOLERANCE = 1e-6  # relative; rounding moves uniform noise by less beyond the ends of its interval


class Noise(NamedTuple):
    """A kind of noise of scale 1, and the logarithm of its density but for a constant. `xp` is NumPy or JAX.

    `from_key` makes the noise from a key of JAX, and `draw` from a generator of NumPy.
    """

    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    from_key: Callable[[Any, Any, tuple[int, ...]], Any]
    log_density: Callable[[Any, Any], Any]


NOISES = {
    "gaussian": Noise(
        lambda rng, shape: rng.standard_normal(shape),
        lambda random, key, shape: random.normal(key, shape, float),
        lambda xp, x: -0.5 * x**2,
    ),
    "laplace": Noise(
        lambda rng, shape: rng.laplace(size=shape),
        lambda random, key, shape: random.laplace(key, shape, float),
        lambda xp, x: -abs(x),
    ),
    "uniform": Noise(
        lambda rng, shape: rng.uniform(-1.0, 1.0, shape),
        lambda random, key, shape: random.uniform(key, shape, float, -1.0, 1.0),
        lambda xp, x: xp.where(abs(x) <= 1.0 + SUPPORT_TOLERANCE, 0.0, -xp.inf),
    ),
}


def _check_noise(scale: float, where: str, noise: str) -> None:
    check_choice("noise", noise, tuple(NOISES))
    if where not in ("output", "input"):
        raise InputError(f"where: found {where!r}; expected 'output' or 'input'")
    if not np.all(np.asarray(scale) >= 0):
        raise InputError(f"scale: found {scale!r}; expected a scale, 0 or more")


_estimates: dict[tuple[int, int], tuple[object, object, np.ndarray]] = {}  # by the identities of estimator and data


def _estimate_once(estimate: Callable[[Any], ArrayLike], data: Any) -> np.ndarray:
    """Return `estimate(data)`, which is computed once for each dataset in a process and must not be random."""
    key = id(estimate), id(data)
    kept = _estimates.get(key)
    if kept is not None and kept[0] is estimate and kept[1] is data:
        return kept[2]
    first, again = (np.ma.copy(np.asanyarray(estimate(data), float)) for _ in range(2))  # a mask stays
    if not are_equal(first, again):
        raise InputError(
            "estimate: found two results for the same data; expected a deterministic function of the data, to which "
            "perturbed adds the noise; per_run makes a mechanism of a function with noise of its own"
        )
    if len(_estimates) >= MAX_ESTIMATES:
        _estimates.pop(next(iter(_estimates)), None)
    _estimates[key] = estimate, data, first
    return first


@dataclass(frozen=True)
class _Noisy:
    """An estimator with noise, and its density; with noise on the data it is unknown, and there is no method."""

    estimate: Callable[[Any], Any]
    scale: float
    where: str
    noise: str = "gaussian"

    @property
    def name(self) -> str:
        return mechanism_name(self.estimate)

    def clean(self, data: Any) -> ArrayLike:
        """Return the estimate without noise."""
        raise NotImplementedError

    def __getattr__(self, attribute: str) -> Any:
        if attribute != "log_density":
            return inherited_attribute(attribute, lambda: self.estimate)
        if self.where == "output" and np.all(np.asarray(self.scale) > 0):
            return self._log_density
        raise AttributeError(attribute)

    def _log_density(self, data: ArrayLike, samples: Array) -> Array:
        """Return the logarithm of the density of every prefix of the output, but for a constant."""
        clean = np.asarray(self.clean(data), float)
        scale = np.broadcast_to(self.scale, clean.shape)
        clean, scale = (one.reshape(samples.shape[1:]) for one in (clean, scale))
        return NOISES[self.noise].log_density(array_namespace(samples), (samples - clean) / scale).sum(2).cumsum(1)


@dataclass(frozen=True)
class Perturbed(_Noisy):
    """The mechanism that `perturbed` returns."""

    def __call__(self, data: ArrayLike, runs: int, rng: np.random.Generator) -> np.ndarray:
        clean = np.asanyarray(data, float) if self.where == "input" else _estimate_once(self.estimate, data)
        noisy = clean + self.scale * NOISES[self.noise].draw(rng, (runs, *clean.shape))
        if self.where == "output":
            return noisy
        return np.ma.stack([self.estimate(noisy_data) for noisy_data in noisy])

    def clean(self, data: Any) -> ArrayLike:
        return _estimate_once(self.estimate, data)


def perturbed(
    estimate: Callable[[Any], ArrayLike], scale: float, where: str = "output", noise: str = "gaussian"
) -> Mechanism:
    """Make a mechanism from a deterministic estimator by adding noise.

    Parameters
    ----------
    estimate : callable
        `estimate(data)` returns an array. It must not be random. Its attributes such as `output_names` are kept.
    scale : float
        The scale of the noise: the standard deviation, the scale of a Laplace distribution, or half the width of a
        uniform one.
    where : {"output", "input"}
        Whether the noise is added to the estimate or to the data. With "input" the estimator runs once per run; with
        "output" once for each dataset, and once more to see that it gives the same result. With "output" the
        mechanism states the density of its output, so that a claim can be certified.
    noise : {"gaussian", "laplace", "uniform"}
        The distribution of the noise.

    Returns
    -------
    Mechanism
        A mechanism with the name of the estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.adapters import perturbed
    >>> mechanism = perturbed(np.cumsum, scale=0.5)
    >>> mechanism(np.ones(3), 4, np.random.default_rng(0)).shape
    (4, 3)
    """
    _check_noise(scale, where, noise)
    return Perturbed(estimate, scale, where, noise)


@dataclass(frozen=True)
class _PerturbedRun(_Noisy):
    """One run of the mechanism that `perturbed_jax` returns."""

    def __call__(self, data: ArrayLike, key: Any) -> Any:
        import jax

        if np.ma.is_masked(data):
            raise InputError(
                "data: found masked numbers, which JAX does not know; mark missing readings in another way"
            )
        clean = jax.numpy.asarray(data, float)
        if self.where == "output":
            clean = self.estimate(clean)
        noisy = clean + self.scale * NOISES[self.noise].from_key(jax.random, key, clean.shape)
        return noisy if self.where == "output" else self.estimate(noisy)

    def clean(self, data: Any) -> ArrayLike:
        import jax

        with enable_x64():
            return self.estimate(jax.numpy.asarray(data, float))


def perturbed_jax(
    estimate: Callable[[Any], Any], scale: float, where: str = "output", noise: str = "gaussian"
) -> Mechanism:
    """Make a mechanism from a deterministic estimator that is written with JAX, by adding noise.

    All runs of a block are computed at once, compiled and in 64-bit mode.

    Parameters
    ----------
    estimate : callable
        `estimate(data)` returns a JAX array.
    scale : float
        The scale of the noise: the standard deviation, the scale of a Laplace distribution, or half the width of a
        uniform one.
    where : {"output", "input"}
        Whether the noise is added to the estimate or to the data.
    noise : {"gaussian", "laplace", "uniform"}
        The distribution of the noise.

    Returns
    -------
    Mechanism
        A mechanism with the name of the estimator.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> from dpverify.adapters import perturbed_jax
    >>> mechanism = perturbed_jax(jnp.cumsum, scale=0.5, where="input")
    >>> mechanism(np.ones(3), 4, np.random.default_rng(0)).shape
    (4, 3)
    """
    _check_noise(scale, where, noise)
    return jax_run(_PerturbedRun(estimate, scale, where, noise))


@dataclass(frozen=True)
class FilterPyEstimates:
    """The function that `filterpy_estimates` returns."""

    make: Callable[[], Any]
    update: Callable[[Any, Any], None] | None

    @property
    def name(self) -> str:
        return mechanism_name(self.make)

    def __call__(self, data: ArrayLike) -> np.ndarray:
        tracker = self.make()
        states = []
        for measurement in np.asanyarray(data):
            tracker.predict()
            if self.update is None:
                tracker.update(measurement)
            else:
                self.update(tracker, measurement)
            states.append(np.ravel(tracker.x).copy())  # some filters store the state as a column
        return np.array(states)


def filterpy_estimates(
    make: Callable[[], Any], update: Callable[[Any, Any], None] | None = None
) -> Callable[[ArrayLike], np.ndarray]:
    """Make a function that returns the estimates of a filterpy filter, one for each row of the data.

    Parameters
    ----------
    make : callable
        `make()` returns a new filter (`KalmanFilter`, `UnscentedKalmanFilter`, ...), or any object with `predict()`,
        `update(z)` and the state `x`.
    update : callable, optional
        `update(filter, z)` replaces `filter.update(z)`. An `ExtendedKalmanFilter` needs its model at every update:
        `filter.update(z, HJacobian, Hx)`.

    Returns
    -------
    callable
        A function from data of K rows to estimates of shape (K, d), for `perturbed`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.adapters import filterpy_estimates
    >>> class Average:  # the interface of filterpy.kalman.KalmanFilter
    ...     x = np.zeros(1)
    ...     def predict(self):
    ...         pass
    ...     def update(self, z):
    ...         self.x = 0.5 * self.x + 0.5 * z
    >>> filterpy_estimates(Average)(np.array([[1.0], [3.0]])).tolist()
    [[0.5], [1.75]]
    """
    return FilterPyEstimates(make, update)


@dataclass(frozen=True)
class DynamaxEstimates:
    """The function that `dynamax_estimates` returns."""

    filter: Callable[..., Any]
    make: Callable[[], Any]

    @property
    def name(self) -> str:
        return mechanism_name(self.make)

    def __call__(self, data: Array) -> Array:
        return self.filter(self.make(), data).filtered_means


def dynamax_estimates(filter: Callable[..., Any], make: Callable[[], Any]) -> Callable[[Array], Array]:
    """Make a function that returns the filtered means of a dynamax filter.

    Parameters
    ----------
    filter : callable
        A filter of dynamax, for example `lgssm_filter` or `extended_kalman_filter`: `filter(parameters, data)` returns
        an object with `filtered_means`.
    make : callable
        `make()` returns the parameters. It is called once per compilation.

    Returns
    -------
    callable
        A function from data to estimates, for `perturbed_jax`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> from dpverify.adapters import dynamax_estimates
    >>> def scaling_filter(gain, data):  # the interface of dynamax.linear_gaussian_ssm.lgssm_filter
    ...     return types.SimpleNamespace(filtered_means=gain * data)
    >>> dynamax_estimates(scaling_filter, lambda: 0.5)(np.array([2.0, 4.0])).tolist()
    [1.0, 2.0]
    """
    return DynamaxEstimates(filter, make)


@functools.cache
def _made(make: Callable[[], Any]) -> Any:
    """Call `make` once per process."""
    return make()


@dataclass(frozen=True)
class OpenDP:
    """The mechanism that `opendp` returns.

    Attributes
    ----------
    source : object
        The measurement, or a function that makes it.
    seeded : bool
        False: OpenDP draws its noise from the operating system.
    """

    source: Any
    seeded = False

    @property
    def measurement(self) -> Any:
        """The measurement of this process."""
        return self.source if hasattr(self.source, "output_measure") else _made(self.source)

    @property
    def name(self) -> str:
        return "OpenDP measurement" if hasattr(self.source, "output_measure") else mechanism_name(self.source)

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> list[Any]:
        measurement, argument = self.measurement, data.tolist() if isinstance(data, np.ndarray) else data
        return [measurement(argument) for _ in range(runs)]

    def claim(self, distance: Any) -> Claim:
        """Return what OpenDP states for datasets at a distance.

        Parameters
        ----------
        distance : object
            The distance between the datasets, in the input metric of the measurement.

        Returns
        -------
        Claim
            Pure, approximate, zero-concentrated or Rényi differential privacy, or a privacy profile, by the
            measurement's output measure.
        """
        measure, loss = str(self.measurement.output_measure), self.measurement.map(distance)
        if measure == "ZeroConcentratedDivergence":
            return zcdp(loss)
        if measure == "RenyiDivergence":
            return renyi(2.0, loss(2.0))
        if hasattr(loss, "delta"):
            return profile(loss)
        return approximate(*loss) if isinstance(loss, tuple) else pure(loss)


def opendp(measurement: Any) -> OpenDP:
    """Make a mechanism from an OpenDP measurement, whatever it returns.

    Parameters
    ----------
    measurement : Measurement, or callable
        The measurement. A measurement cannot be sent to another process: for several processes, pass a function at the
        top level of a module that makes it.

    Returns
    -------
    OpenDP
        A mechanism that cannot be seeded. Its method `claim(distance)` returns what OpenDP states for datasets at that
        distance, for the argument `claim` of `dpverify.verify`.

    Examples
    --------
    >>> import numpy as np
    >>> import opendp.prelude as dp
    >>> from dpverify.adapters import opendp
    >>> dp.enable_features("contrib")
    >>> noise = dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=0.5)
    >>> mechanism = opendp(noise)
    >>> len(mechanism(0.0, 3, np.random.default_rng(0))), mechanism.claim(1.0)
    (3, Approximate(epsilon=2.0, delta=0.0))
    """
    if not callable(measurement):
        raise InputError(
            f"measurement: found {type(measurement).__name__}; expected an OpenDP measurement, or a function that "
            "makes one"
        )
    return OpenDP(measurement)


@dataclass(frozen=True)
class DPAuditorium:
    """The mechanism that `dp_auditorium` returns."""

    generate: Callable[[Any, int], ArrayLike]
    seeded = False

    @property
    def name(self) -> str:
        return mechanism_name(self.generate)

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(self.generate(data, runs))


def dp_auditorium(generate: Callable[[Any, int], ArrayLike]) -> Mechanism:
    """Make a mechanism from one of DP-Auditorium, which has no random generator as an argument.

    Parameters
    ----------
    generate : callable
        `generate(dataset, num_samples)` returns as many samples.

    Returns
    -------
    Mechanism
        A mechanism that cannot be seeded.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.adapters import dp_auditorium
    >>> def noisy_mean(dataset, num_samples):
    ...     return np.mean(dataset) + np.random.laplace(size=num_samples)
    >>> dp_auditorium(noisy_mean)(np.ones(3), 5, np.random.default_rng(0)).shape
    (5,)
    """
    return DPAuditorium(generate)


@dataclass(frozen=True)
class FittedModel:
    """One run of the mechanism that `fitted` returns."""

    make: Callable[[], Any]
    attributes: tuple[str, ...]

    @property
    def name(self) -> str:
        return mechanism_name(self.make)

    @property
    def seeded(self) -> bool:
        return "random_state" in getattr(self.make(), "get_params", dict)()

    def __call__(self, data: Any, rng: np.random.Generator) -> dict[str, Any]:
        model = self.make()
        if self.seeded:
            model.set_params(random_state=int(rng.integers(1 << 31)))
        model.fit(*data) if isinstance(data, tuple) else model.fit(data)
        return {name: getattr(model, name) for name in self.attributes}


def fitted(make: Callable[[], Any], attributes: Sequence[str] = ("coef_", "intercept_")) -> Mechanism:
    """Make a mechanism from a model with a method `fit`, as in diffprivlib and scikit-learn.

    Parameters
    ----------
    make : callable
        `make()` returns a new model. Its parameter `random_state` is set in every run; a model without it cannot be
        seeded.
    attributes : sequence of str
        The attributes of the fitted model that are published.

    Returns
    -------
    Mechanism
        A mechanism whose data are a tuple of the arguments of `fit`, for example `(X, y)`, or one argument.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.adapters import fitted
    >>> class NoisyMean:
    ...     def fit(self, X):
    ...         self.mean_ = X.mean() + np.random.laplace()
    >>> list(fitted(NoisyMean, ["mean_"])(np.ones(3), 2, np.random.default_rng(0))[0])
    ['mean_']
    """
    return per_run(FittedModel(make, tuple(attributes)))
