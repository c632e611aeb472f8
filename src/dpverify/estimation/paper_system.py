"""The paper's system: an oscillator, sensors on a circle, and pairs of adjacent datasets (docs/method.md, section 3).

Two datasets are adjacent if they come from the same trajectory and the same measurement noise, and one sensor stands
at another point of the circle.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import expm
from scipy.optimize import bisect

from dpverify.errors import DPVerifyWarning, InputError
from dpverify.estimation.system import STEPS, Recording, StateMap, System, TruncatedMixture, Uniform, simulate
from dpverify.util.arrays import enable_x64, host_device
from dpverify.util.checks import check_choice

CIRCLE_RADIUS = 10 * math.sqrt(2)  # of the circle on which the paper's sensors stand


@dataclass(frozen=True)
class SensorCircle:
    """The paper's sensors: y_i = 100 tanh(0.1 (x - q_i)) in each of two coordinates, with q_i on a circle around 0.

    An object of this class is a measurement function h of a state whose first two coordinates are a position.

    Parameters
    ----------
    angles : tuple of float
        Angle of each sensor on the circle, in radians.
    radius : float
        Radius of the circle, in the unit of the position.

    Examples
    --------
    >>> from dpverify.estimation import sensor_circle
    >>> sensor_circle(4).places.round(2).tolist()[:2]
    [[14.14, 0.0], [0.0, 14.14]]
    """

    angles: tuple[float, ...]
    radius: float = CIRCLE_RADIUS

    observed = (0, 1)  # the states that the measurements depend on (`System`)
    arguments = ("p",)  # `System` passes the positions as numbers, so that all placements share one compilation

    @property
    def places(self) -> np.ndarray:
        """The positions q_i, of shape (sensors, 2)."""
        return self.radius * np.column_stack([np.cos(self.angles), np.sin(self.angles)])

    def __call__(self, x: jax.Array, p: jax.Array | None = None) -> jax.Array:
        places = jnp.asarray(self.places if p is None else p)
        return 100 * jnp.tanh(0.1 * (x[:2] - places)).reshape(-1)

    @property
    def parameters(self) -> np.ndarray:
        """The numbers of this member of the family."""
        return self.places

    @property
    def family(self) -> SensorCircle:
        """The circle with as many sensors at angle 0, which stands for all placements."""
        return replace(self, angles=(0.0,) * len(self.angles))

    def moved(self, sensor: int, angle: float) -> SensorCircle:
        """Return the same circle with one sensor turned by `angle` radians."""
        angles = list(self.angles)
        angles[sensor] += angle
        return replace(self, angles=tuple(angles))


def sensor_circle(angles: Sequence[float] | int = 10) -> SensorCircle:
    """Place sensors on the paper's circle.

    Parameters
    ----------
    angles : sequence of float or int
        The angles in radians, or the number of evenly spaced sensors.

    Returns
    -------
    SensorCircle
        The measurement function of these sensors.

    Examples
    --------
    >>> from dpverify.estimation import sensor_circle
    >>> [round(a, 4) for a in sensor_circle(4).angles]
    [0.0, 1.5708, 3.1416, 4.7124]
    """
    values = 2 * np.pi * np.arange(angles) / angles if isinstance(angles, int) else np.ravel(angles)
    return SensorCircle(tuple(float(a) for a in values))


def oscillator(sensors: StateMap | None = None, step: float = 0.05) -> System:
    """Return the paper's system: two independent oscillators with spring constants 1 and 4, observed by sensors.

    The paper does not print its mixture distributions. The ones used here put the initial state into a cube of
    diameter 0.1 and bound the measurement noise by 0.05.

    Parameters
    ----------
    sensors : callable, optional
        The measurement function h; ten evenly spaced sensors by default.
    step : float
        Sampling interval. The discretisation is exact.

    Returns
    -------
    System
        States: two positions and two velocities. The positions are released.

    References
    ----------
    docs/method.md, section 3 ("Oscillator") and section 7.1.

    Examples
    --------
    >>> from dpverify.estimation import oscillator
    >>> system = oscillator()
    >>> system.states, system.measurements, round(system.lipschitz, 4)
    (4, 20, 1.0777)
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
    """Simulate two datasets that share trajectory and noise and differ in the position of one sensor.

    Parameters
    ----------
    system : System
        The system; its `h` should be `sensors`.
    sensors : SensorCircle
        The sensors that record the first dataset.
    move : int
        Index of the sensor that stands elsewhere in the second dataset.
    distance : float
        Distance of the two datasets in the Euclidean norm over all steps.
    rng : numpy.random.Generator
        Source of the random numbers.
    steps : int
        T, the index of the last measurement.
    angle : {"exact", "paper"}
        "exact" turns the sensor until the datasets are `distance` apart. "paper" turns it by the paper's angle
        distance / (20 sqrt 2); the distance of the datasets is then larger (docs/method.md, section 4.6).

    Returns
    -------
    first, second : np.ndarray
        The datasets, each of shape (steps + 1, measurements).

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import adjacent_pair, oscillator
    >>> system = oscillator()
    >>> first, second = adjacent_pair(system, system.h, 0, 10.0, np.random.default_rng(0))
    >>> first.shape, round(float(np.linalg.norm(second - first)), 6)
    ((9, 20), 10.0)
    """
    first, second, _ = adjacent_recordings(system, sensors, move, distance, rng, steps=steps, angle=angle)
    return first, second


class AdjacentRecordings(NamedTuple):
    """Two adjacent datasets, and the simulation that they come from.

    Parameters
    ----------
    first, second : np.ndarray
        The datasets, each of shape (T + 1, measurements).
    recording : Recording
        The states, the noise and the first dataset.
    """

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
    """Simulate an adjacent pair and keep the true trajectory, so that the accuracy of an estimator can be measured.

    As in the paper, the trajectory starts at `system.start`.

    Parameters
    ----------
    system, sensors, move, distance, rng, steps, angle
        As for `adjacent_pair`.

    Returns
    -------
    AdjacentRecordings
        The two datasets and the recording behind them.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import adjacent_recordings, oscillator
    >>> system = oscillator()
    >>> rng = np.random.default_rng(0)
    >>> first, second, recording = adjacent_recordings(system, system.h, 0, 10.0, rng, angle="paper")
    >>> recording.states.shape, bool((recording.data == first).all())
    ((9, 4), True)
    """
    if not 0 <= move < len(sensors.angles):
        raise InputError(f"move: found sensor {move}; expected an index from 0 to {len(sensors.angles) - 1}")
    if not distance > 0:
        raise InputError(f"distance: found {distance}; expected a positive number")
    check_choice("angle", angle, ("exact", "paper"))
    if system.h != sensors:
        warnings.warn(
            "sensors: found other sensors than the system's h; expected the same, because an estimator of this system "
            "interprets the data with h; build the system with oscillator(sensors), or System(h=sensors, ...)",
            DPVerifyWarning,
            stacklevel=2,
        )
    recording = simulate(replace(system, h=sensors, C=None), rng, steps, system.start)

    def measured(turn: float) -> np.ndarray:
        with enable_x64(), host_device():
            return np.asarray(jax.vmap(sensors.moved(move, turn))(jnp.asarray(recording.states))) + recording.noise

    def excess_distance(turn: float) -> float:
        return float(np.linalg.norm(measured(turn) - recording.data)) - distance

    if angle == "paper":
        turn: Any = distance / (20 * math.sqrt(2))
    else:
        turns = np.linspace(0, math.pi, 65)[1:]
        upper = next((t for t in turns if excess_distance(t) >= 0), None)
        if upper is None:
            raise InputError(
                f"distance: found that no turn of sensor {move} moves the data by {distance}; expected a smaller "
                "distance"
            )
        turn = bisect(excess_distance, 0.0, upper, xtol=1e-15, maxiter=100)
    return AdjacentRecordings(recording.data, measured(turn), recording)
