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
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import array_namespace, enable_x64, host_device
from dpverify.util.checks import is_real_number

LOG2_CPU_BLOCK, LOG2_ACCELERATOR_BLOCK, LOG2_LARGE_BLOCK = 13, 22, 23
SUPPORT_TOLERANCE = 1e-6  # relative; rounding moves bounded noise by less beyond the ends of its interval
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


Matrix = tuple[tuple[float, ...], ...]  # hashable, so that it can be part of a static argument
StateMap = Callable[..., jax.Array]  # maps a state (states,), and what its signature names beside it, to a vector

NOT_RANDOM = Normal(0.0)
STEPS = 8  # T of the paper: the data are y_0, ..., y_T
UNSET: Any = None  # default of a field whose value follows from the other fields


@dataclass(frozen=True)
class Linear:
    """The map (x, u) -> matrix x + gain u, as a callable that is compared by value and can be pickled."""

    matrix: Matrix
    gain: Matrix = ()

    def __call__(self, x: jax.Array, u: jax.Array | None = None) -> jax.Array:
        moved = jnp.asarray(self.matrix) @ x
        return moved + jnp.asarray(self.gain) @ u if self.gain else moved

    @property
    def arguments(self) -> tuple[str, ...]:
        """What is passed beside the state."""
        return ("u",) if self.gain else ()

    @property
    def observed(self) -> tuple[int, ...]:
        """The coordinates of x on which the value depends."""
        return tuple(j for j in range(len(self.matrix[0])) if any(row[j] for row in self.matrix))


@dataclass(frozen=True)
class Rescaled:
    """A map of a state, as a map of state / scale; a step returns a state in the same units."""

    function: StateMap
    scale: tuple[float, ...]
    is_step: bool

    def __call__(self, x: jax.Array, **others: Any) -> jax.Array:
        value = self.function(x * jnp.asarray(self.scale), **others)
        return value / jnp.asarray(self.scale) if self.is_step else value

    @property
    def arguments(self) -> tuple[str, ...]:
        """What is passed beside the state; a family of maps is called with its own numbers."""
        return () if hasattr(self.function, "family") else arguments_of(self.function)


def arguments_of(function: StateMap) -> tuple[str, ...]:
    """Return the names of the arguments without a default that follow the state."""
    if hasattr(function, "arguments"):
        return tuple(function.arguments)
    try:
        others = list(inspect.signature(function).parameters.values())[1:]
    except ValueError:  # a function that is written in C has no signature
        return ()
    return tuple(v.name for v in others if v.default is v.empty and v.kind in (v.POSITIONAL_OR_KEYWORD, v.KEYWORD_ONLY))


def as_tuples(values: ArrayLike) -> Any:
    """Return an array as nested tuples of numbers, which are hashable."""
    array = np.asarray(values, float)
    return tuple(as_tuples(row) for row in array) if array.ndim else float(array)


@dataclass(frozen=True)
class System:
    """A state-space system x_{k+1} = f(x_k) + w_k, y_k = h(x_k) + v_k, or a more general one.

    `f` and `h` are written with `jax.numpy`. Beside the state they receive what their signature names: the known input
    `u` of the step, the index `k` of the step, the parameters `p`, and the noise, which is `w` in f and `v` in h. So
    `f(x, u)` is a controlled system with additive noise, and `f(x, w)` is the paper's equation (1). Arguments with a
    default are left alone. Systems are compared by value, so that a copy in another process reuses the compiled code.

    Parameters
    ----------
    f : callable, optional
        The step, from a state (states,) to the next state. It may be omitted where `A` is given.
    h : callable, optional
        The measurement, from a state to a vector (measurements,). It may be omitted where `C` is given. An attribute
        `observed` of h holds the indices of the states that h depends on; filters are then faster.
    start : sequence of float
        The centre of the initial distribution, which is also the first guess of every estimator. Required.
    disturbance : Law
        Distribution of w_k, in units of the state where w_k is added to it.
    noise : Law
        Distribution of v_k, in units of the measurements where v_k is added to them.
    initial : Law
        Distribution of x_0 - start, in units of the state.
    released : sequence of int, optional
        Indices of the coordinates of the state that an estimator publishes; all of them by default.
    lipschitz : float, optional
        c_f of the paper, a Lipschitz constant of `f`. By default the spectral norm of `A`, where `A` is given.
    A, C : array_like, optional
        The matrices of a linear system, (states, states) and (measurements, states).
    B : array_like, optional
        The matrix (states, inputs) of a linear system x_{k+1} = A x_k + B u_k + w_k.
    inputs : array_like, optional
        The known inputs u_0, u_1, ..., one row for each step. The last row also serves all later steps.
    parameters : NamedTuple of float or array_like, optional
        `p`: numbers that are arguments of compiled code, so that other values need no other compilation.

    Raises
    ------
    InputError
        Where the shapes do not fit, or `f` or `h` is not finite at `start`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from dpverify.estimation import Normal, System
    >>> system = System(A=[[1.0, 0.1], [0.0, 1.0]], C=[[1.0, 0.0]], start=(0.0, 0.5), noise=Normal(0.2))
    >>> system.states, system.measurements, system.released
    (2, 1, (0, 1))
    >>> def tank(x, u, p):  # level, pump and outflow
    ...     return x + 0.1 * (u - p * jnp.sqrt(x))
    >>> level = System(f=tank, C=[[1.0]], start=(4.0,), inputs=[[1.0]] * 20, parameters=0.5, noise=Normal(0.1))
    >>> level.step(jnp.array([4.0])).tolist()
    [4.0]
    """

    f: StateMap = UNSET
    h: Any = UNSET  # a StateMap, which may have attributes of its own, such as a SensorCircle
    start: Sequence[float] = ()
    disturbance: Law = NOT_RANDOM
    noise: Law = NOT_RANDOM
    initial: Law = NOT_RANDOM
    released: Sequence[int] = UNSET
    lipschitz: float | None = None
    A: ArrayLike | None = field(default=None, compare=False)  # f and h repeat the matrices
    C: ArrayLike | None = field(default=None, compare=False)
    B: ArrayLike | None = field(default=None, compare=False)
    inputs: ArrayLike | None = None
    parameters: Any = None

    def __post_init__(self) -> None:
        if not len(self.start):
            raise InputError("start: found nothing; expected the first guess of the state; pass start=(...)")
        set_ = functools.partial(object.__setattr__, self)
        set_("start", as_tuples(self.start))
        start_accelerator()
        if self.inputs is not None:
            rows = np.asarray(self.inputs, float)
            set_("inputs", as_tuples(rows.reshape(len(rows), -1)))
        if self.parameters is not None and not hasattr(self.parameters, "_fields"):
            set_("parameters", as_tuples(self.parameters))
        for name in ("disturbance", "noise", "initial"):
            self._check_distribution(name)
        self._set_map("f", "A", "step", "w")
        self._set_map("h", "C", "measurement", "v")
        if self.lipschitz is None and self.A is not None:
            set_("lipschitz", float(np.linalg.norm(self.A, 2)))
        released = range(self.states) if self.released is None else self.released
        set_("released", tuple(int(i) for i in released))
        if not self.released or not all(0 <= i < self.states for i in self.released):
            raise InputError(
                f"released: found {self.released}; expected coordinates 0 to {self.states - 1} of the state; "
                "leave it out to release all of them"
            )

    def _check_distribution(self, name: str) -> None:
        distribution = getattr(self, name)
        if not hasattr(distribution, "variance"):
            raise InputError(
                f"{name}: found {distribution!r}; expected a distribution; Normal({distribution}) has that standard "
                "deviation"
            )
        try:
            hash(distribution)
        except TypeError as error:
            raise InputError(
                f"{name}: found a list or an array inside the distribution; expected numbers or tuples of numbers; "
                "use tuple(...)"
            ) from error

    def _set_map(self, name: str, matrix_name: str, meaning: str, noise: str) -> None:
        """Turn a matrix into f or h; check its arguments, its shape, and that it is finite at the start."""
        matrix, states = getattr(self, matrix_name), self.states
        shape = np.shape(() if matrix is None else matrix)
        if matrix is not None and (shape[1:] != (states,) or (name == "f" and shape[0] != states)):
            raise InputError(f"{matrix_name}: found shape {shape}; expected {states} columns, one for each state")
        if getattr(self, name) is None:
            if matrix is None:
                raise InputError(
                    f"{name}: found neither {name} nor {matrix_name}; expected the {meaning} of the system; pass one "
                    "of them"
                )
            gain = () if self.B is None or name == "h" else as_tuples(self.B)
            object.__setattr__(self, name, Linear(as_tuples(matrix), gain))
        function = getattr(self, name)
        has = {"u": self.inputs is not None, "p": self.parameters is not None or hasattr(function, "family")}
        for argument in arguments_of(function):
            if not has.get(argument, argument in ("k", noise)):
                raise InputError(
                    f"{name}: found the argument {argument!r}; expected x and any of u (with inputs=...), k, p (with "
                    f"parameters=...) and {noise}; rename it, pass what it needs, or give it a default"
                )
        with enable_x64(), host_device():
            x, evaluate = jnp.asarray(self.start), self.step if name == "f" else self.measure
            try:
                value = np.asarray(evaluate(x))
            except (TypeError, ValueError, IndexError) as error:
                first_line = str(error).splitlines()[0]
                raise InputError(
                    f"{name}: found a function that fails for a state of {states} numbers ({first_line}); expected "
                    f"{name}(x) written with jax.numpy; compare start with the state that {name} expects"
                ) from error
        if value.ndim != 1 or (name == "f" and value.shape != (states,)):
            expected = f"({states},), the shape of start" if name == "f" else "(measurements,)"
            raise InputError(f"{name}: found a result of shape {value.shape}; expected {expected}; return one vector")
        if not np.isfinite(value).all():
            raise InputError(
                f"{name}: found NaN or infinity in {name}(start); expected finite numbers; fix {name} or start"
            )
        for law in ("disturbance", "initial") if name == "f" else ("noise",):
            size = np.shape(getattr(self, law).variance)
            if size not in ((), value.shape) and (law == "initial" or noise not in arguments_of(function)):
                raise InputError(
                    f"{law}: found a distribution for {size} numbers; expected one deviation, or one for each of "
                    f"{len(value)} coordinates"
                )

    def noise_size(self, name: str) -> int:
        """Return the number of coordinates of w_k ("f") or v_k ("h")."""
        shape = np.shape((self.disturbance if name == "f" else self.noise).variance)
        return shape[0] if shape else self.states if name == "f" else self.measurements

    def _value(self, name: str, x: jax.Array, k: Any, noise: jax.Array | None) -> jax.Array:
        """Return f or h with the arguments that its signature names."""
        function, own_noise = getattr(self, name), "w" if name == "f" else "v"
        needed, (inputs, parameters, own) = arguments_of(function), self.numbers
        values: dict[str, Any] = {"k": k, "p": own if hasattr(function, "family") else parameters, own_noise: noise}
        if "u" in needed:
            values["u"] = jnp.asarray(inputs)[jnp.minimum(k, len(inputs) - 1)]
        if noise is None and own_noise in needed:
            values[own_noise] = jnp.zeros(self.noise_size(name))
        value = function(x, **{argument: values[argument] for argument in needed})
        return value if noise is None or own_noise in needed else value + noise

    def step(self, x: jax.Array, k: Any = 0, w: jax.Array | None = None) -> jax.Array:
        """Return the state that follows x_k; without w it is the noise-free step f0."""
        return self._value("f", x, k, w)

    def measure(self, x: jax.Array, k: Any = 0, v: jax.Array | None = None) -> jax.Array:
        """Return the measurement of x_k; without v it is the noise-free measurement."""
        return self._value("h", x, k, v)

    def noise_covariance(self, name: str, covariance: ArrayLike, x: jax.Array, k: Any = 0) -> jax.Array:
        """Return the covariance that the noise gives to f or h at x, to first order; itself where it is added."""
        own_noise, evaluate = ("w", self.step) if name == "f" else ("v", self.measure)
        if own_noise not in arguments_of(getattr(self, name)):
            return jnp.asarray(covariance)
        slope = jax.jacfwd(lambda noise: evaluate(x, k, noise))(jnp.zeros(self.noise_size(name)))
        return slope @ jnp.asarray(covariance) @ slope.T

    @property
    def measurement_variances(self) -> np.ndarray:
        """The variance that the noise gives to each measurement at the start."""
        R = np.diag(np.broadcast_to(self.noise.variance, self.noise_size("h")))
        with enable_x64(), host_device():
            return np.diag(np.asarray(self.noise_covariance("h", R, jnp.asarray(self.start))))

    @functools.cached_property
    def numbers(self) -> tuple[Any, Any, Any]:
        """The inputs, the parameters and the numbers of h: arguments of compiled code."""
        p, inputs = self.parameters, () if self.inputs is None else np.asarray(self.inputs)
        if p is not None:
            p = type(p)(*(np.asarray(v, float) for v in p)) if hasattr(p, "_fields") else np.asarray(p)
        return inputs, p, self.h.parameters if hasattr(self.h, "family") else ()

    @functools.cached_property
    def template(self) -> System:
        """The system without its numbers: the static argument of compiled code."""
        if not jax.tree.leaves(self.numbers):
            return self
        return self._with(h=getattr(self.h, "family", self.h), inputs=None, parameters=None)

    def bind(self, numbers: Any) -> System:
        """Return this template with numbers, which may be traced; nothing is checked again."""
        return self._with(numbers=numbers)

    def _with(self, **attributes: Any) -> System:
        changed = copy.copy(self)
        changed.__dict__.pop("numbers", None)
        changed.__dict__.update(attributes)
        return changed

    def rescaled(self, scale: Sequence[float]) -> System:
        """Return the same system in terms of state / scale; its distributions are not those of the new state."""
        f, h = Rescaled(self.f, tuple(scale), True), Rescaled(self.h, tuple(scale), False)
        start = tuple(v / s for v, s in zip(self.start, scale, strict=True))
        if self.A is not None:
            A = np.asarray(self.A) * np.asarray(scale) / np.asarray(scale)[:, None]
            B = None if self.B is None else np.asarray(self.B) / np.asarray(scale)[:, None]
            return replace(self, f=None, A=A, B=B, h=h, C=None, start=start, lipschitz=None)
        return replace(self, f=f, h=h, C=None, start=start, lipschitz=None)

    def step_columns(self, z: jax.Array, k: Any) -> jax.Array:
        """Return the noise-free step of each column of z (states, runs)."""
        if self.A is not None and self.B is None:  # the compiler fuses this product with the operations around it
            return multiply_columns(jnp.asarray(self.A, z.dtype), z)
        return jax.vmap(lambda x: self.step(x, k), in_axes=1, out_axes=1)(z)

    @property
    def states(self) -> int:
        """The number of states."""
        return len(self.start)

    @property
    def observed(self) -> tuple[int, ...]:
        """The states that h depends on; filters leave out the others."""
        return tuple(getattr(self.h, "observed", range(self.states)))

    @functools.cached_property
    def measurements(self) -> int:
        """The number of measurements per step."""
        v = np.zeros(np.shape(self.noise.variance) or 1) if "v" in arguments_of(self.h) else None
        with enable_x64():  # a shape alone: an array would be placed on the accelerator, which takes seconds to start
            return int(jax.eval_shape(lambda x: self.measure(x, 0, v), np.zeros(self.states)).shape[0])

    def simulate(self, rng: np.random.Generator, steps: int = STEPS, start: Sequence[float] | None = None) -> Recording:
        """Simulate one trajectory over k = 0, ..., steps; see `simulate`."""
        with enable_x64(), host_device():
            x_0 = jnp.asarray(self.start if start is None else start, float)
            states, noise = _simulated(self.template, self.numbers, jax_key(rng), steps, x_0, start is None)
            # Outside the compiled part, so that the rounding is the same for another h of the same states.
            data = jax.vmap(self.measure)(states, jnp.arange(steps + 1), noise)
            recording = Recording(np.asarray(states), np.asarray(noise), np.asarray(data))
        bad = first_bad_row(np.hstack([recording.states, recording.data]))
        if bad is not None:
            raise InputError(
                f"simulate: found NaN or infinity at step {bad}; expected a system that stays finite "
                "over all steps; simulate fewer steps, start elsewhere, or take a smaller sampling interval"
            )
        return recording

    def predicted(self, steps: int) -> tuple[jax.Array, jax.Array]:
        """Return the noise-free prediction from the start, and the deviations of its error to first order.

        Both have the shape (steps, states). This is pure JAX.
        """

        def step(state: tuple[jax.Array, jax.Array], k: jax.Array) -> tuple[Any, Any]:
            x, P = state
            F = jax.jacfwd(self.step)(x, k)
            return (self.step(x, k), F @ P @ F.T + self.noise_covariance("f", Q, x, k)), (x, jnp.sqrt(jnp.diag(P)))

        Q, P0 = (
            jnp.diag(jnp.broadcast_to(jnp.asarray(law.variance, float), size))
            for law, size in ((self.disturbance, self.noise_size("f")), (self.initial, self.states))
        )
        return jax.lax.scan(step, (jnp.asarray(self.start), P0), jnp.arange(steps))[1]

    def open_loop(self, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Return what `predicted` returns, or raise an InputError where a prediction is not finite."""
        with enable_x64(), host_device():
            states, deviations = map(np.asarray, _predicted(self.template, self.numbers, steps))
        bad = first_bad_row(np.hstack([states, deviations]))
        if bad is not None:
            raise InputError(
                f"f: found NaN or infinity in the prediction of step {bad} from start; expected a step that stays "
                "finite; use fewer steps, or a smaller sampling interval"
            )
        return states, deviations


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
    return system.simulate(rng, steps, start)


@functools.partial(jax.jit, static_argnums=(0, 3, 5))
def _simulated(
    template: System, numbers: Any, key: jax.Array, steps: int, start: jax.Array, random_start: bool
) -> tuple[jax.Array, jax.Array]:
    """Return states and noise; `random_start` tells whether a draw from the initial distribution is added."""
    system, (initial_key, disturbance_key, noise_key) = template.bind(numbers), jax.random.split(key, 3)
    x_0 = start + system.initial.sample(initial_key, (system.states,)) if random_start else start
    disturbances = system.disturbance.sample(disturbance_key, (steps, system.noise_size("f")))

    def step(x: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        next_x = system.step(x, *inputs)
        return next_x, next_x

    _, later_states = jax.lax.scan(step, x_0, (jnp.arange(steps), disturbances))
    states = jnp.concatenate([x_0[None], later_states])
    return states, system.noise.sample(noise_key, (steps + 1, system.noise_size("h")))


@functools.partial(jax.jit, static_argnums=(0, 2))
def _predicted(template: System, numbers: Any, steps: int) -> tuple[jax.Array, jax.Array]:
    return template.bind(numbers).predicted(steps)


EstimatorType = TypeVar("EstimatorType", bound="Estimator")


class Estimator(Protocol):
    """A deterministic estimator, as `InputPerturbed` needs it.

    An estimator may also have the method `warm_start(data)`. It returns a function with the same values as `estimate`
    that is faster for datasets close to `data`; `InputPerturbed` uses it where it exists.
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
    return as_tuples(matrix)


def covariance_root(covariance: ArrayLike) -> np.ndarray:
    """Return a matrix F with F F' = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(np.asarray(covariance))
    return vectors * np.sqrt(np.maximum(values, 0.0))


def freeze_covariances(mechanism: Any) -> None:
    """Check the covariances of a filter and store them as tuples; by default those of its system's distributions."""
    system = mechanism.system
    covariances = {
        "process": check_covariance("process", mechanism.process, system.disturbance.variance, system.noise_size("f")),
        "measurement": check_covariance(
            "measurement", mechanism.measurement, system.noise.variance, system.noise_size("h"), definite=True
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
    return _with_system(estimator, system.template), system.numbers


def bind_parameters(template: EstimatorType, parameters: Any) -> EstimatorType:
    """Return the estimator with the numbers of its h, which may be traced; nothing is checked again."""
    if isinstance(parameters, tuple) and not parameters:
        return template
    return _with_system(template, template.system.bind(parameters))


def _with_system(estimator: EstimatorType, system: System) -> EstimatorType:
    changed = copy.copy(estimator)
    object.__setattr__(changed, "system", system)
    return changed


@functools.partial(jax.jit, static_argnums=0)
def _estimate(template: Estimator, parameters: Any, data: jax.Array) -> jax.Array:
    return bind_parameters(template, parameters).estimate(data)


@functools.lru_cache(maxsize=64)
def _cached_estimate(estimator: Estimator, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    """Return the estimate for a dataset, given as bytes so that it can be the key of a cache."""
    with enable_x64(), host_device():
        return np.asarray(_estimate(*split_parameters(estimator), np.frombuffer(data).reshape(shape)))


def first_bad_row(rows: np.ndarray) -> int | None:
    """Return the number of the first row with NaN or infinity, or None."""
    finite = np.isfinite(rows).reshape(len(rows), -1).all(1)
    return None if finite.all() else int(np.argmin(finite))


def finite_estimate(estimator: Estimator, data: np.ndarray | jax.Array) -> np.ndarray:
    """Return the noise-free `estimator.estimate(data)`; raise an InputError that names the first step with NaN."""
    array = np.ascontiguousarray(data, float)
    estimate = _cached_estimate(estimator, array.shape, array.tobytes())
    bad = first_bad_row(estimate)
    if bad is not None:
        raise InputError(
            f"data: found NaN or infinity in the noise-free estimate at step {bad}; expected f and "
            "h that are finite around the trajectory; fix f or h, or compare data and start with the model"
        )
    return estimate


def multiply_columns(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """Return `matrix @ x` for a small matrix (rows, n) and many columns x (n, runs)."""

    def unrolled(matrix: jax.Array, x: jax.Array) -> jax.Array:
        terms = [matrix[:, j, None] * x[j] for j in range(x.shape[0])]
        return sum(terms[1:], terms[0])

    return jax.lax.platform_dependent(matrix, x, cpu=jnp.matmul, default=unrolled)


def log_uniform(noise: Any) -> Any:
    """Return the log-density of every prefix of uniform noise on [-1, 1] of shape (runs, K, d), but for a constant."""
    inside = (abs(noise) <= 1 + SUPPORT_TOLERANCE).all(2)
    return array_namespace(noise).where(inside, 0.0, -np.inf).cumsum(1)
