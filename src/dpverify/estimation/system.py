"""What all estimators share: distributions, state-space systems and their simulation, devices, checks of arguments.

A system is x_{k+1} = f(x_k) + w_k, y_k = h(x_k) + v_k. `f` and `h` are functions written with `jax.numpy`; estimators
obtain their Jacobians by automatic differentiation (docs/method.md, section 7.1). Distributions have independent
coordinates, are sampled with JAX and are plain data (named tuples of numbers), so that they can be compared by value,
hashed and pickled. Every error message is one line of the form `name: found X; expected Y; do Z`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64, host_device
from dpverify.util.checks import is_real_number

LOG2_CPU_BLOCK, LOG2_ACCELERATOR_BLOCK, LOG2_LARGE_BLOCK = 13, 22, 23
LARGE_JAX_MEMORY = 60e9  # bytes that JAX may use on a device that draws large blocks; by default 75% of its memory


def current_device() -> Any:
    """Return the device on which JAX computes in the current context (`jax.default_device`)."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return device if isinstance(device, jax.Device) else jax.local_devices(backend=device)[0]


def compiles_for_cpu() -> bool:
    """Return whether JAX computes on a CPU in the current context."""
    return current_device().platform == "cpu"


def default_block() -> int:
    """Return the number of runs per block: what fits into the caches of a CPU, or what fills an accelerator.

    It depends on the platform and on the memory that JAX may use there, so that results are reproducible on one kind of
    device with the same settings of JAX.
    """
    if compiles_for_cpu():
        return 1 << LOG2_CPU_BLOCK
    statistics = current_device().memory_stats() or {}
    is_large = statistics.get("bytes_limit", 0) >= LARGE_JAX_MEMORY
    return 1 << (LOG2_LARGE_BLOCK if is_large else LOG2_ACCELERATOR_BLOCK)


def start_accelerator() -> None:
    """Start the accelerator of the current context in a thread, if there is one; nothing waits for it.

    The first array on an accelerator starts it, which takes a second or two. A new system calls this function, because
    data are simulated and programs are traced before the first estimator draws.
    """
    device = current_device()
    if device.platform != "cpu":
        started(device)


@functools.cache
def started(device: Any) -> Future[Any]:
    """Return the start of a device, which begins with the first call. If it fails, the next use of the device fails."""
    thread = ThreadPoolExecutor(1, "dpverify-device")
    start = thread.submit(lambda: jax.block_until_ready(jax.device_put(np.zeros(()), device)))
    thread.shutdown(wait=False)
    return start


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


StateMap = Callable[[jax.Array], jax.Array]  # maps a state (states,) to a vector

NOT_RANDOM = Normal(0.0)
STEPS = 8  # T of the paper: the data are y_0, ..., y_T
UNSET: Any = None  # default of a field whose value follows from the other fields


@dataclass(frozen=True)
class Linear:
    """The map x -> matrix x, as a callable that is compared by value and can be pickled."""

    matrix: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, matrix: ArrayLike) -> Linear:
        """Return the map of this matrix."""
        return cls(tuple(tuple(float(v) for v in row) for row in np.atleast_2d(matrix)))

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.asarray(self.matrix) @ x

    @property
    def observed(self) -> tuple[int, ...]:
        """The coordinates of x on which the value depends."""
        return tuple(j for j in range(len(self.matrix[0])) if any(row[j] for row in self.matrix))


@runtime_checkable
class ParametricMap(Protocol):
    """A map x -> h(x) of a family: the same formula with other numbers, such as other positions of the sensors.

    The numbers are then arguments of compiled code, so that all members of a family share one compilation.
    """

    @property
    def parameters(self) -> Any:
        """The numbers of this member, as an array or a tuple of arrays."""
        ...

    @property
    def family(self) -> ParametricMap:
        """One fixed member, the same for the whole family; it is hashable and compared by value."""
        ...

    def bind(self, parameters: Any) -> StateMap:
        """Return the member with these numbers, which may be traced."""
        ...


@dataclass(frozen=True)
class System:
    """A state-space system x_{k+1} = f(x_k) + w_k, y_k = h(x_k) + v_k.

    Systems are compared by value, so that a copy in another process reuses the compiled code. `A` and `C` are left out
    of the comparison, because they repeat what `f` and `h` compute.

    Parameters
    ----------
    f : callable, optional
        The noise-free step, from a state (states,) to the next state. It may be omitted where `A` is given.
    h : callable, optional
        The noise-free measurement, from a state to a vector (measurements,). It may be omitted where `C` is given. A
        `ParametricMap`, such as `SensorCircle`, is compiled once for its whole family. An attribute `observed` of h
        holds the indices of the states that h depends on; filters are then faster.
    start : sequence of float
        The centre of the initial distribution, which is also the first guess of every estimator. Required.
    disturbance : Law
        Distribution of w_k, in units of the state.
    noise : Law
        Distribution of v_k, in units of the measurements.
    initial : Law
        Distribution of x_0 - start, in units of the state.
    released : sequence of int, optional
        Indices of the coordinates of the state that an estimator publishes; all of them by default.
    lipschitz : float, optional
        c_f of the paper, a Lipschitz constant of `f`. By default the spectral norm of `A`, where `A` is given.
    A, C : array_like, optional
        The matrices of a linear system, (states, states) and (measurements, states).

    Raises
    ------
    InputError
        Where the shapes do not fit, or `f` or `h` is not finite at `start`.

    Examples
    --------
    >>> from dpverify.estimation import Normal, System
    >>> system = System(A=[[1.0, 0.1], [0.0, 1.0]], C=[[1.0, 0.0]], start=(0.0, 0.5), noise=Normal(0.2))
    >>> system.states, system.measurements, system.released
    (2, 1, (0, 1))
    """

    f: StateMap = UNSET
    h: Any = UNSET  # a StateMap, which may have attributes of its own, such as a SensorCircle
    start: Sequence[float] = ()
    disturbance: Law = NOT_RANDOM
    noise: Law = NOT_RANDOM
    initial: Law = NOT_RANDOM
    released: Sequence[int] = UNSET
    lipschitz: float | None = None
    A: ArrayLike | None = field(default=None, compare=False)
    C: ArrayLike | None = field(default=None, compare=False)
    observed: ClassVar[tuple[int, ...]]  # the states that h depends on; the EKF leaves out the others

    def __post_init__(self) -> None:
        if not len(self.start):
            raise InputError("start: found nothing; expected the first guess of the state; pass start=(...)")
        object.__setattr__(self, "start", tuple(float(v) for v in self.start))
        start_accelerator()
        for name, matrix_name, meaning in (("f", "A", "step"), ("h", "C", "measurement")):
            matrix = getattr(self, matrix_name)
            shape = np.shape(() if matrix is None else matrix)
            if matrix is not None and (shape[1:] != (self.states,) or (name == "f" and shape[0] != self.states)):
                raise InputError(
                    f"{matrix_name}: found shape {shape}; expected {self.states} columns, one for each state"
                )
            if getattr(self, name) is None and matrix is None:
                raise InputError(
                    f"{name}: found neither {name} nor {matrix_name}; expected the {meaning} of the system; pass one "
                    "of them"
                )
            if getattr(self, name) is None:
                object.__setattr__(self, name, Linear.of(matrix))
        if self.lipschitz is None and self.A is not None:
            object.__setattr__(self, "lipschitz", float(np.linalg.norm(self.A, 2)))
        self._check_maps()
        self._check_distributions()
        released = range(self.states) if self.released is None else self.released
        object.__setattr__(self, "released", tuple(int(i) for i in released))
        if not self.released or not all(0 <= i < self.states for i in self.released):
            raise InputError(
                f"released: found {self.released}; expected coordinates 0 to {self.states - 1} of the state; "
                "leave it out to release all of them"
            )
        # No field, because it follows from h; set here, because `bind` replaces h.
        object.__setattr__(self, "observed", tuple(getattr(self.h, "observed", range(self.states))))

    def _check_maps(self) -> None:
        """Check that f and h accept the start, and return finite vectors of the right shape."""
        states = len(self.start)
        with enable_x64(), host_device():
            x = jnp.asarray(self.start, float)
            for name, function in (("f", self.f), ("h", self.h)):
                try:
                    shape = np.shape(jax.eval_shape(function, x))
                except (TypeError, ValueError, IndexError) as error:
                    first_line = str(error).splitlines()[0]
                    raise InputError(
                        f"{name}: found a function that fails for a state of {states} numbers ({first_line}); expected "
                        f"{name}(x) written with jax.numpy; compare start with the state that {name} expects"
                    ) from error
                if len(shape) != 1 or (name == "f" and shape != (states,)):
                    expected = f"({states},), the shape of start" if name == "f" else "(measurements,)"
                    raise InputError(f"{name}: found a result of shape {shape}; expected {expected}; return one vector")
                if not np.isfinite(np.asarray(function(x))).all():
                    raise InputError(
                        f"{name}: found NaN or infinity in {name}(start); expected finite numbers; fix {name} or start"
                    )

    def _check_distributions(self) -> None:
        """Check that the distributions are hashable, and have as many coordinates as their random vectors."""
        for name in ("disturbance", "noise", "initial"):
            distribution = getattr(self, name)
            if not hasattr(distribution, "variance"):
                raise InputError(
                    f"{name}: found {distribution!r}; expected a distribution; Normal({distribution}) has that "
                    "standard deviation"
                )
            try:
                hash(distribution)
            except TypeError as error:
                raise InputError(
                    f"{name}: found a list or an array inside the distribution; expected numbers or tuples of numbers; "
                    "use tuple(...)"
                ) from error
            shape = np.shape(distribution.variance)
            number = self.measurements if name == "noise" else len(self.start)
            if shape not in ((), (number,)):
                raise InputError(
                    f"{name}: found a distribution for {shape} numbers; expected one deviation, or one for each of "
                    f"{number} coordinates"
                )

    @functools.cached_property
    def template(self) -> System:
        """The system with the fixed member of the family of h: the static argument of compiled code."""
        return replace(self, h=self.h.family) if isinstance(self.h, ParametricMap) else self

    @property
    def parameters(self) -> Any:
        """The numbers of h that are arguments of compiled code; none unless h is a `ParametricMap`."""
        return self.h.parameters if isinstance(self.h, ParametricMap) else ()

    def bind(self, parameters: Any) -> System:
        """Return this template with the numbers of h, which may be traced; nothing is checked again."""
        if not isinstance(self.h, ParametricMap):
            return self
        bound = copy.copy(self)
        object.__setattr__(bound, "h", self.h.bind(parameters))
        return bound

    def step_columns(self, z: jax.Array) -> jax.Array:
        """Return f of each column of z (states, runs)."""
        if self.A is not None:  # the compiler fuses this product with the operations around it
            return multiply_columns(jnp.asarray(self.A, z.dtype), z)
        return jax.vmap(self.f, in_axes=1, out_axes=1)(z)

    @property
    def states(self) -> int:
        """The number of states."""
        return len(self.start)

    @functools.cached_property
    def measurements(self) -> int:
        """The number of measurements per step."""
        with enable_x64():  # a shape alone: an array would be placed on the accelerator, which takes seconds to start
            return int(jax.eval_shape(self.h, jax.ShapeDtypeStruct((self.states,), float)).shape[0])


class Recording(NamedTuple):
    """A simulated trajectory with its measurements.

    Parameters
    ----------
    states : np.ndarray
        x_0, ..., x_T, of shape (T + 1, states).
    noise : np.ndarray
        v_0, ..., v_T, of shape (T + 1, measurements).
    data : np.ndarray
        y_0, ..., y_T, of shape (T + 1, measurements).
    """

    states: np.ndarray
    noise: np.ndarray
    data: np.ndarray

    def released(self, system: System, steps: int) -> np.ndarray:
        """Return the true released coordinates of the first `steps` states, (steps, d), as `rmse` needs them."""
        return self.states[:steps, list(system.released)]


def simulate(
    system: System, rng: np.random.Generator, steps: int = STEPS, start: Sequence[float] | None = None
) -> Recording:
    """Simulate one trajectory of the system over k = 0, ..., steps.

    Parameters
    ----------
    system : System
        The system to simulate.
    rng : numpy.random.Generator
        Source of the random numbers.
    steps : int
        T, the index of the last measurement; there are T + 1 measurements.
    start : sequence of float, optional
        x_0. By default it is `system.start` plus a draw from the initial distribution.

    Returns
    -------
    Recording
        States, measurement noise and data.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import Normal, System, simulate
    >>> system = System(A=[[1.0]], C=[[2.0]], start=(0.5,))
    >>> simulate(system, np.random.default_rng(0), steps=2).data.tolist()
    [[1.0], [1.0], [1.0]]
    """
    with enable_x64(), host_device():
        x_0 = jnp.asarray(system.start if start is None else start, float)
        states, noise = _simulated(system.template, jax_key(rng), steps, x_0, start is None)
        # Outside the compiled part, so that the rounding is the same for another h of the same states.
        data = jax.vmap(system.h)(states) + noise
        return Recording(np.asarray(states), np.asarray(noise), np.asarray(data))


@functools.partial(jax.jit, static_argnums=(0, 2, 4))
def _simulated(
    system: System, key: jax.Array, steps: int, start: jax.Array, random_start: bool
) -> tuple[jax.Array, jax.Array]:
    """Return states and noise; `random_start` tells whether a draw from the initial distribution is added."""
    initial_key, disturbance_key, noise_key = jax.random.split(key, 3)
    x_0 = start + system.initial.sample(initial_key, (system.states,)) if random_start else start
    disturbances = system.disturbance.sample(disturbance_key, (steps, system.states))

    def step(x: jax.Array, w_k: jax.Array) -> tuple[jax.Array, jax.Array]:
        next_x = system.f(x) + w_k
        return next_x, next_x

    _, later_states = jax.lax.scan(step, x_0, disturbances)
    states = jnp.concatenate([x_0[None], later_states])
    return states, system.noise.sample(noise_key, (steps + 1, system.measurements))


Matrix = tuple[tuple[float, ...], ...]  # hashable, so that it can be part of a static argument


EstimatorType = TypeVar("EstimatorType", bound="Estimator")


class Estimator(Protocol):
    """A deterministic estimator, as `InputPerturbed` needs it.

    An estimator may also have the method `warm_start(data)`. It returns a function with the same values as `estimate`
    that is faster for data sets close to `data`; `InputPerturbed` uses it where it exists.
    """

    @property
    def system(self) -> System:
        """The system whose measurements are the data."""
        ...

    def estimate(self, data: jax.Array) -> jax.Array:
        """Map data (T + 1, measurements) to estimates (K, d) without noise: pure JAX, can be vmapped over data."""
        ...


def check_data(system: System, data: object, min_steps: int = 1, missing: bool = False) -> np.ndarray:
    """Return `data` as a NumPy array (T + 1, measurements), or raise an InputError.

    `min_steps` is the number of rows that the estimator needs: window + 1 for a moving horizon. `missing` allows NaN.
    The result is a NumPy array because a JAX array would be copied to the device and back with every block.
    """
    try:
        array = np.asarray(data, float)  # pyright: ignore[reportArgumentType, reportCallIssue]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"data: found {type(data).__name__}; expected an array of numbers (steps, measurements)"
        ) from error
    if array.ndim != 2 or array.shape[1] != system.measurements:
        raise InputError(
            f"data: found shape {array.shape}; expected (steps, {system.measurements}), one row y_k per step; "
            "compare it with the shape that the system's h returns"
        )
    if len(array) < min_steps:
        raise InputError(
            f"data: found {len(array)} steps; expected at least {min_steps}; record longer or shorten the window"
        )
    if not (np.isfinite(array) | (missing & np.isnan(array))).all():
        raise InputError(
            "data: found NaN or infinity; expected finite measurements; fill in such readings, or cut the recording "
            "before the first one"
        )
    return array


def check_noise_parameter(name: str, value: object, positive: bool = False) -> None:
    """Raise an InputError unless `value` is a number in [0, 1], or in (0, 1] where it must be positive."""
    if not (is_real_number(value) and 0 <= value <= 1) or (positive and value == 0):
        interval = "above 0, up to 1" if positive else "from 0 to 1"
        raise InputError(f"{name}: found {value!r}; expected a number {interval} (1: no noise)")


def check_positive(name: str, value: object, meaning: str) -> None:
    """Raise an InputError unless `value` is a positive finite number; `meaning` ends the message."""
    if not (is_real_number(value) and value > 0):
        raise InputError(f"{name}: found {value!r}; expected a positive number, {meaning}")


def measurement_weights(system: System, weights: object) -> tuple[float, ...]:
    """Return the weight of each measurement's squared residual; None stands for weights of 1."""
    number = system.measurements
    try:
        values = tuple(float(w) for w in np.ravel(np.ones(number) if weights is None else weights))  # pyright: ignore
    except (TypeError, ValueError):
        values = ()
    if len(values) != number or not all(0 <= w < np.inf for w in values):
        raise InputError(f"weights: found {weights!r}; expected {number} numbers from 0 up, one for each measurement")
    return values


def check_covariance(
    name: str, value: ArrayLike | None, default: ArrayLike, size: int, definite: bool = False
) -> Matrix:
    """Return a covariance matrix from a number, one variance per coordinate, or a matrix; None stands for `default`.

    The matrix must be positive semidefinite, or positive definite where `definite` is True.
    """
    array = np.asarray(default if value is None else value, float)
    matrix = np.diag(np.broadcast_to(array, size)) if array.shape in ((), (size,)) else array
    if matrix.shape != (size, size) or not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        raise InputError(
            f"{name}: found shape {array.shape}; expected a finite number, {size} variances, or a symmetric "
            f"{size} x {size} matrix"
        )
    eigenvalues = np.linalg.eigvalsh(matrix)
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    if smallest < -1e-12 * max(largest, 0.0) or (definite and smallest <= 1e-13 * largest):
        kind = "positive definite covariance (a singular one has no gain)" if definite else "positive semidefinite one"
        raise InputError(f"{name}: found an eigenvalue {smallest:.3g}; expected a {kind}; pass {name}=...")
    return tuple(tuple(float(v) for v in row) for row in matrix)


def covariance_root(covariance: ArrayLike) -> np.ndarray:
    """Return a matrix F with F F' = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(np.asarray(covariance))
    return vectors * np.sqrt(np.maximum(values, 0.0))


def freeze_covariances(mechanism: Any) -> None:
    """Check the covariances of a filter and store them as tuples; by default those of its system's distributions."""
    system = mechanism.system
    covariances = {
        "process": check_covariance("process", mechanism.process, system.disturbance.variance, system.states),
        "measurement": check_covariance(
            "measurement", mechanism.measurement, system.noise.variance, system.measurements, definite=True
        ),
        "initial": check_covariance("initial", mechanism.initial, system.initial.variance, system.states),
    }
    for name, matrix in covariances.items():
        object.__setattr__(mechanism, name, matrix)
    if not np.any(mechanism.process) and not np.any(mechanism.initial):
        raise InputError(
            "initial: found initial and process covariance 0; expected a positive variance of some state, because the "
            "filter ignores its data otherwise; pass initial=... or process=..."
        )


def split_parameters(estimator: EstimatorType) -> tuple[EstimatorType, Any]:
    """Return an estimator as a static argument of compiled code and the numbers of its h, for `bind_parameters`.

    Estimators that differ only in these numbers have the same static argument. An estimator that is no dataclass
    stays as it is.
    """
    system = estimator.system
    if not dataclasses.is_dataclass(estimator) or system.template is system:
        return estimator, ()
    return dataclasses.replace(estimator, system=system.template), system.parameters


def bind_parameters(template: EstimatorType, parameters: Any) -> EstimatorType:
    """Return the estimator with the numbers of its h, which may be traced; nothing is checked again."""
    if isinstance(parameters, tuple) and not parameters:
        return template
    bound = copy.copy(template)
    object.__setattr__(bound, "system", template.system.bind(parameters))
    return bound


@functools.partial(jax.jit, static_argnums=0)
def _estimate(template: Estimator, parameters: Any, data: jax.Array) -> jax.Array:
    return bind_parameters(template, parameters).estimate(data)


@functools.lru_cache(maxsize=64)
def _cached_estimate(estimator: Estimator, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    """Return the estimate for a data set, given as bytes so that it can be the key of a cache."""
    with enable_x64(), host_device():
        return np.asarray(_estimate(*split_parameters(estimator), np.frombuffer(data).reshape(shape)))


def finite_estimate(estimator: Estimator, data: np.ndarray | jax.Array) -> np.ndarray:
    """Return the noise-free `estimator.estimate(data)`; raise an InputError that names the first step with NaN."""
    array = np.ascontiguousarray(data, float)
    estimate = _cached_estimate(estimator, array.shape, array.tobytes())
    finite = np.isfinite(estimate).reshape(len(estimate), -1).all(1)
    if not finite.all():
        raise InputError(
            f"data: found NaN or infinity in the noise-free estimate at step {int(np.argmin(finite))}; expected f and "
            "h that are finite around the trajectory; fix f or h, or compare data and start with the model"
        )
    return estimate


def multiply_columns(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """Return `matrix @ x` for a small matrix (rows, n) and many columns x (n, runs)."""

    def unrolled(matrix: jax.Array, x: jax.Array) -> jax.Array:
        terms = [matrix[:, j, None] * x[j] for j in range(x.shape[0])]
        return sum(terms[1:], terms[0])

    return jax.lax.platform_dependent(matrix, x, cpu=jnp.matmul, default=unrolled)
