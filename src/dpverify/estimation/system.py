"""What is estimated: a system x_{k+1} = f(x_k) + w_k, y_k = h(x_k) + v_k, and the paper's two parts of one.

The paper's example (docs/method.md, section 7.1) is `oscillator()` seen by `sensor_circle(angles)`. Any `f` and `h`
written with `jax.numpy` will do; Jacobians are found by automatic differentiation.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import expm
from scipy.optimize import bisect

from dpverify.errors import InputError, Warning
from dpverify.estimation.laws import Law, Normal, TruncatedMixture, Uniform
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64

RADIUS = 10 * math.sqrt(2)  # of the circle that the paper's sensors stand on
QUIET = Normal(0.0)
STEPS = 8  # T of the paper: data y_0..y_T


@dataclass(frozen=True)
class Linear:
    """x -> matrix x, as a callable that pickles."""

    matrix: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, matrix: Any) -> Linear:
        return cls(tuple(tuple(float(v) for v in row) for row in np.atleast_2d(matrix)))

    def __call__(self, x: Any) -> Any:
        return jnp.asarray(self.matrix) @ x


@dataclass(frozen=True)
class SensorCircle:
    """The paper's sensors: y_i = 100 tanh(0.1 (x - q_i)) per coordinate of the position, q_i on a circle around 0."""

    angles: tuple[float, ...]
    radius: float = RADIUS

    @property
    def places(self) -> np.ndarray:
        """(sensors, 2)"""
        return self.radius * np.column_stack([np.cos(self.angles), np.sin(self.angles)])

    def __call__(self, x: Any) -> Any:
        return 100 * jnp.tanh(0.1 * (x[:2] - jnp.asarray(self.places))).reshape(-1)

    def moved(self, sensor: int, angle: float) -> SensorCircle:
        """The same circle with one sensor turned by `angle` (radians)."""
        angles = list(self.angles)
        angles[sensor] += angle
        return replace(self, angles=tuple(angles))


def sensor_circle(angles: Sequence[float] | int = 10) -> SensorCircle:
    """Sensors at these angles (radians), or so many of them evenly spread."""
    places = 2 * np.pi * np.arange(angles) / angles if isinstance(angles, int) else np.ravel(angles)
    return SensorCircle(tuple(float(a) for a in places))


@dataclass(frozen=True)
class System:
    """The noise-free step `f`, the measurement `h`, the laws of w, v and x_0 - start, and what is released.

    `start` is where the initial law is centred, and every estimator's first guess. `released` are the coordinates of
    the state that an estimator gives away (None: all). Where the system is linear, `A` and `C` say so, and stand for
    `f` and `h` if these are None. `lipschitz` is c_f of the paper: a Lipschitz constant of f (with A: its 2-norm).

    Systems are compared by value, so that a copy in another process finds its compiled code again. `A` and `C` are
    left out of that: they say again what `f` and `h` do.
    """

    f: Any = None
    h: Any = None
    start: Sequence[float] = ()
    disturbance: Law = QUIET
    noise: Law = QUIET
    initial: Law = QUIET
    released: Any = None
    lipschitz: float | None = None
    A: Any = field(default=None, compare=False)
    C: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not len(self.start):
            raise InputError("found no start; expected the first guess of the state, start=(...); state it")
        object.__setattr__(self, "start", tuple(float(v) for v in self.start))
        for map_, matrix, letter in (("f", "A", "step"), ("h", "C", "measurement")):
            if getattr(self, map_) is None:
                if getattr(self, matrix) is None:
                    raise InputError(
                        f"found neither {map_} nor {matrix}; expected the {letter} of the system; give one"
                    )
                object.__setattr__(self, map_, Linear.of(getattr(self, matrix)))
        for law in ("disturbance", "noise", "initial"):
            if not hasattr(getattr(self, law), "variance"):
                found = getattr(self, law)
                raise InputError(f"{law}: found {found!r}; expected a law; Normal({found}) has that standard deviation")
        chosen = range(len(self.start)) if self.released is None else self.released
        object.__setattr__(self, "released", tuple(int(i) for i in chosen))
        if self.lipschitz is None and self.A is not None:
            object.__setattr__(self, "lipschitz", float(np.linalg.norm(self.A, 2)))
        self._check()

    def _check(self) -> None:
        states = len(self.start)
        with enable_x64():
            x = jnp.asarray(self.start, float)
            for name, map_ in (("f", self.f), ("h", self.h)):
                try:
                    shape = np.shape(jax.eval_shape(map_, x))
                except (TypeError, ValueError, IndexError) as wrong:
                    line = str(wrong).splitlines()[0]
                    raise InputError(
                        f"found that {name} can't take a state of {states} numbers ({line}); expected {name}(x) "
                        "written with jax.numpy; compare start with what it expects"
                    ) from wrong
                if len(shape) != 1 or (name == "f" and shape != (states,)):
                    expected = f"({states},) like start" if name == "f" else "(measurements,)"
                    raise InputError(f"found that {name} answers shape {shape}; expected {expected}; return one vector")
                if not bool(jnp.isfinite(map_(x)).all()):
                    raise InputError(
                        f"found NaN or infinity in {name}(start); expected finite numbers; mend {name} or start"
                    )
        if not self.released or not all(0 <= i < states for i in self.released):
            raise InputError(f"found released {self.released}; expected coordinates 0 to {states - 1} of the state")
        for name in ("disturbance", "noise", "initial"):
            try:
                hash(getattr(self, name))
            except TypeError as wrong:
                raise InputError(
                    f"found a list or an array in the law of {name}; expected numbers or tuples of them; use tuple(...)"
                ) from wrong
            shape, number = np.shape(getattr(self, name).variance), self.measurements if name == "noise" else states
            if shape not in ((), (number,)):
                raise InputError(
                    f"found a law of {name} for {shape} numbers; expected one deviation, or one for each of {number}"
                )
        for name, matrix, states_only in (("A", self.A, True), ("C", self.C, False)):
            if matrix is None:
                continue
            shape = np.shape(matrix)
            if len(shape) != 2 or shape[1] != states or (states_only and shape[0] != states):
                raise InputError(f"found {name} of shape {shape}; expected {states} columns, one for each state")

    @property
    def states(self) -> int:
        return len(self.start)

    @functools.cached_property
    def measurements(self) -> int:
        with enable_x64():
            return int(jax.eval_shape(self.h, jnp.asarray(self.start, float)).shape[0])


def oscillator(sensors: Callable[[Any], Any] | None = None, step: float = 0.05) -> System:
    """The paper's target: two independent springs (1 and 4), sampled exactly, seen by `sensors` (ten evenly spread).

    The mixtures are ours, the paper prints none: the start within a cube of diameter .1, noise within .05.
    """
    A = expm(step * np.block([[np.zeros((2, 2)), np.eye(2)], [-np.diag([1.0, 4.0]), np.zeros((2, 2))]]))
    return System(
        h=sensor_circle() if sensors is None else sensors,
        start=(5.0, 0.0, 0.0, 2.5),
        disturbance=Uniform((0.001, 0.001, 0.0, 0.0)),
        noise=TruncatedMixture((0.5, 0.5), (-0.02, 0.02), (0.01, 0.01), 0.05),
        initial=TruncatedMixture((0.5, 0.5), (-0.01, 0.01), (0.008, 0.008), 0.025),
        released=(0, 1),
        A=A,
    )


class Recording(NamedTuple):
    """A simulated trajectory x_0..x_T, its noise v_0..v_T, and the data y_0..y_T."""

    states: np.ndarray
    noise: np.ndarray
    data: np.ndarray

    def released(self, system: System, steps: int) -> np.ndarray:
        """The truth beside the first `steps` estimates, for `rmse`."""
        return self.states[:steps, list(system.released)]


def simulate(
    system: System, rng: np.random.Generator, steps: int = STEPS, start: Sequence[float] | None = None
) -> Recording:
    """One run of the system itself over k = 0..steps, from `start` (None: drawn from the initial law)."""
    with enable_x64():
        x_0 = jnp.asarray(system.start if start is None else start, float)
        states, noise = _simulated(system, jax_key(rng), steps, x_0, start is None)
        data = jax.vmap(system.h)(states) + noise  # by itself: rounded as it is for another h of the same states
        return Recording(np.asarray(states), np.asarray(noise), np.asarray(data))


@functools.partial(jax.jit, static_argnums=(0, 2))
def _simulated(system: System, key: Any, steps: int, start: Any, spread: Any) -> tuple[Any, Any]:
    """States and noise; `spread` says whether the initial law is added to the start."""
    first, w, v = jax.random.split(key, 3)
    x_0 = start + jnp.where(spread, system.initial.sample(first, (system.states,)), 0.0)
    disturbances = system.disturbance.sample(w, (steps, system.states))

    def step(x: Any, w_k: Any) -> tuple[Any, Any]:
        after = system.f(x) + w_k
        return after, after

    _, later = jax.lax.scan(step, x_0, disturbances)
    states = jnp.concatenate([x_0[None], later])
    return states, system.noise.sample(v, (steps + 1, system.measurements))


def adjacent_pair(
    system: System,
    sensors: SensorCircle,
    move: int,
    distance: float,
    rng: np.random.Generator,
    *,
    steps: int = STEPS,
    angle: str = "exact",
) -> tuple[np.ndarray, np.ndarray]:
    """Two data sets that share trajectory and noise; in the second, sensor `move` stands elsewhere on the circle.

    `angle="exact"` turns it until the data sets are `distance` apart in the 2-norm; `angle="paper"` by the paper's
    distance / (20 sqrt 2), whose real distance is larger (docs/method.md, section 4.6).
    """
    first, second, _ = adjacent_recordings(system, sensors, move, distance, rng, steps=steps, angle=angle)
    return first, second


class AdjacentRecordings(NamedTuple):
    first: np.ndarray
    second: np.ndarray
    recording: Recording


def adjacent_recordings(
    system: System,
    sensors: SensorCircle,
    move: int,
    distance: float,
    rng: np.random.Generator,
    *,
    steps: int = STEPS,
    angle: str = "exact",
) -> AdjacentRecordings:
    """`adjacent_pair` with the truth behind it, for measuring accuracy.

    As in the paper, the target sets out from `start`.
    """
    if not 0 <= move < len(sensors.angles):
        raise InputError(f"found sensor {move} to move; expected 0 to {len(sensors.angles) - 1}")
    if not distance > 0:
        raise InputError(f"found distance {distance}; expected a positive number")
    if system.h != sensors:
        warnings.warn(
            "the system's h is not these sensors, so an estimator of this system reads the data as if from others; "
            "build it with oscillator(sensors), or System(h=sensors, ...)",
            Warning,
            stacklevel=2,
        )
    recording = simulate(replace(system, h=sensors, C=None), rng, steps, system.start)

    def measured(turn: float) -> np.ndarray:
        with enable_x64():
            return np.asarray(jax.vmap(sensors.moved(move, turn))(jnp.asarray(recording.states))) + recording.noise

    def apart(turn: float) -> float:
        return float(np.linalg.norm(measured(turn) - recording.data)) - distance

    if angle == "paper":
        turn: Any = distance / (20 * math.sqrt(2))
    elif angle == "exact":
        turns = np.linspace(0, math.pi, 65)[1:]
        reached = next((t for t in turns if apart(t) >= 0), None)
        if reached is None:
            raise InputError(
                f"found that no turn of sensor {move} moves the data by {distance}; expected a smaller distance"
            )
        turn = bisect(apart, 0.0, reached, xtol=1e-15, maxiter=100)
    else:
        raise InputError(f'found angle {angle!r}; expected "exact" or "paper"')
    return AdjacentRecordings(recording.data, measured(turn), recording)
