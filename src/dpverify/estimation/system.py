"""State-space systems x_{k+1} = f(x_k) + w_k, y_k = h(x_k) + v_k, and their simulation.

`f` and `h` are functions written with `jax.numpy`; estimators obtain their Jacobians by automatic differentiation
(docs/method.md, section 7.1). The paper's own system is in `paper_system`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.estimation.devices import start_accelerator
from dpverify.estimation.distributions import Law, Normal
from dpverify.estimation.small_linalg import multiply_columns
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64, host_device

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
        `ParametricMap`, such as `SensorCircle`, is compiled once for its whole family.
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

    def __post_init__(self) -> None:
        if not len(self.start):
            raise InputError("start: found nothing; expected the first guess of the state; pass start=(...)")
        object.__setattr__(self, "start", tuple(float(v) for v in self.start))
        start_accelerator()
        self._fill_in_maps()
        for name in ("disturbance", "noise", "initial"):
            value = getattr(self, name)
            if not hasattr(value, "variance"):
                raise InputError(
                    f"{name}: found {value!r}; expected a distribution; Normal({value}) has that standard deviation"
                )
        released = range(len(self.start)) if self.released is None else self.released
        object.__setattr__(self, "released", tuple(int(i) for i in released))
        if self.lipschitz is None and self.A is not None:
            object.__setattr__(self, "lipschitz", float(np.linalg.norm(self.A, 2)))
        self._check_maps()
        self._check_released()
        self._check_distributions()
        self._check_matrices()

    def _fill_in_maps(self) -> None:
        """Set f and h from A and C where they are missing."""
        for map_name, matrix_name, meaning in (("f", "A", "step"), ("h", "C", "measurement")):
            if getattr(self, map_name) is None:
                matrix = getattr(self, matrix_name)
                if matrix is None:
                    raise InputError(
                        f"{map_name}: found neither {map_name} nor {matrix_name}; expected the {meaning} of the "
                        "system; pass one of them"
                    )
                object.__setattr__(self, map_name, Linear.of(matrix))

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

    def _check_released(self) -> None:
        """Check that the released coordinates exist."""
        states = len(self.start)
        if not self.released or not all(0 <= i < states for i in self.released):
            raise InputError(
                f"released: found {self.released}; expected coordinates 0 to {states - 1} of the state; "
                "leave it out to release all of them"
            )

    def _check_distributions(self) -> None:
        """Check that the distributions are hashable, and have as many coordinates as their random vectors."""
        for name in ("disturbance", "noise", "initial"):
            distribution = getattr(self, name)
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

    def _check_matrices(self) -> None:
        """Check the shapes of A and C."""
        states = len(self.start)
        for name, matrix in (("A", self.A), ("C", self.C)):
            if matrix is None:
                continue
            shape = np.shape(matrix)
            if len(shape) != 2 or shape[1] != states or (name == "A" and shape[0] != states):
                raise InputError(f"{name}: found shape {shape}; expected {states} columns, one for each state")

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
