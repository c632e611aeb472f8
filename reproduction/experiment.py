"""The paper's experiment: sensors, pairs of data sets, and mechanisms under a reading (docs/method.md, section 7).

The paper does not print the angles of its sensors. Q2 has evenly spaced sensors. Those of Q1 and Q3 are drawn: anew for
each seed of a printed row, and once, with seeds 1 and 3, for the library's own test and the figures.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from dpverify.estimation import (
    W2MHE,
    InputPerturbed,
    PrivateEKF,
    System,
    adjacent_recordings,
    oscillator,
    sensor_circle,
)
from reproduction import paper
from reproduction.paper import BASE, Reading

STEPS, SENSORS, WINDOW, DISTANCE = 8, 10, 5, 10.0
DIAMETER = 0.1  # of K_0
SETUP_KEYS = {"Q1": 1, "Q2": 2, "Q3": 3}
DRAW_SEED = 2026  # the seed of draw number k is (DRAW_SEED, k)
FILTERS = {  # process, measurement and initial covariance of the EKF; None: those of the simulation
    "true": (None, None, None),
    "model": (1e-8, 1.0, 1e-6),
    "data": (1e-2, 1e-4, 1.0),
}
PaperMechanism = W2MHE | InputPerturbed | PrivateEKF


class SetUp(NamedTuple):
    """A system, two adjacent data sets and the true positions."""

    system: System
    first: np.ndarray
    second: np.ndarray
    truth: np.ndarray


@functools.lru_cache(maxsize=512)
def seeded_setup(setup: str, angle: str, seed: int, steps: int = STEPS) -> SetUp:
    """Return a set-up of which everything is drawn from one seed: sensors, the sensor that moves, and the data."""
    rng = np.random.default_rng((SETUP_KEYS[setup], seed))
    angles = rng.uniform(0, 2 * np.pi, SENSORS)
    system = oscillator(sensor_circle(SENSORS if setup == "Q2" else angles.tolist()))
    moved = int(rng.integers(SENSORS))
    first, second, recording = adjacent_recordings(system, system.h, moved, DISTANCE, rng, steps=steps, angle=angle)
    return SetUp(system, first, second, recording.released(system, steps + 1 - WINDOW))


@functools.lru_cache(maxsize=8)
def fixed_system(setup: str | int) -> System:
    """Return the oscillator with the sensors of Q1, Q2, Q3 or of a numbered draw; JAX compiles it once."""
    if setup == "Q2":
        return oscillator(sensor_circle(SENSORS))
    rng = np.random.default_rng((DRAW_SEED, setup) if isinstance(setup, int) else SETUP_KEYS[setup])
    return oscillator(sensor_circle(rng.uniform(0, 2 * np.pi, SENSORS).tolist()))


@functools.lru_cache(maxsize=64)
def fixed_setup(setup: str | int, move: int = 0, seed: int = 0, angle: str = "exact") -> SetUp:
    """Return a set-up with these sensors; the seed draws the trajectory and the noise.

    `move` is the sensor that stands elsewhere in the second data set. It is turned by the paper's angle ("paper"), or
    until the data sets are 10 apart ("exact").
    """
    system = fixed_system(setup)
    with jax.disable_jit():  # one trajectory: compiling would take longer than the simulation
        first, second, recording = adjacent_recordings(
            system, system.h, move, DISTANCE, np.random.default_rng(seed), steps=STEPS, angle=angle
        )
    return SetUp(system, first, second, recording.released(system, STEPS + 1 - WINDOW))


def noiseless_states() -> np.ndarray:
    """Return the states of the target without disturbances, shape (9, 4)."""
    target = fixed_system("Q2")
    return np.array([np.linalg.matrix_power(np.asarray(target.A), k) @ target.start for k in range(STEPS + 1)])


def build(mechanism: str, reading: Reading, system: System, value: float) -> PaperMechanism:
    """Return a mechanism by its name in the paper, with its parameter at `value`; s_bar below 0 is allowed."""
    if mechanism == paper.EKF:
        process, measurement, initial = FILTERS[reading.filter]
        return PrivateEKF(system, value, WINDOW, process, measurement, initial)
    constant = reading.support == "constant"
    estimator = W2MHE(
        system,
        WINDOW,
        value if mechanism == paper.W2MHE else 1.0,
        reading.tau,
        law=reading.law,
        span=reading.span,
        prior=reading.prior,
        support="wide" if constant else "theorem",
        diameter=DIAMETER,
        radius=DIAMETER / 2 if constant else None,
    )
    if mechanism == paper.W2MHE:
        return estimator
    covariance = (1 - value) * input_covariance(reading.covariance)
    return InputPerturbed(estimator, covariance=covariance, noise_per=reading.noise)


def input_covariance(kind: str) -> np.ndarray:
    """Return the covariance of the input noise for s_bar 0: the printed I + (R + R')/2, or a repair of it."""
    measurements, rng = 2 * SENSORS, np.random.default_rng(0)
    identity = np.eye(measurements)
    if kind == "identity":
        return identity
    if kind == "mean":
        return identity + 0.5
    if kind == "blocks":  # one 2 x 2 block for each sensor, which is always positive definite
        for i in range(0, measurements, 2):
            R = rng.random((2, 2))
            identity[i : i + 2, i : i + 2] += (R + R.T) / 2
        return identity
    R = rng.random((measurements, measurements))
    values, vectors = np.linalg.eigh(identity + (R + R.T) / 2)
    values = np.maximum(values, 0.0) if kind == "clipped" else values - min(values[0], 0.0)
    return (vectors * values) @ vectors.T


def family_reading(family: dict[str, Any], tau: float) -> Reading:
    """Return the reading of a family of the plan; the claims use the calibrated tau and the exact distance."""
    return BASE._replace(**family["reading"], tau=tau, angle="exact")


def build_family(family: dict[str, Any], setup: str | int, value: float, tau: float) -> PaperMechanism:
    """Return the mechanism of a family of the plan on fixed sensors."""
    return build(family["mechanism"], family_reading(family, tau), fixed_system(setup), value)
