"""The paper's experiment: sensors, pairs of datasets, and mechanisms under a reading (docs/method.md, section 7).

The paper does not print the angles of its sensors. Q2 has evenly spaced sensors. Those of Q1 and Q3 are drawn: anew for
each seed of a printed row, and once, with seeds 1 and 3, for the library's own test and the figures.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from dpverify.estimation import (
    W2MHE,
    InputPerturbed,
    Normal,
    PrivateEKF,
    System,
    adjacent_recordings,
    oscillator,
    sensor_circle,
)
from reproduction import paper
from reproduction.paper import BASE, Reading

STEPS, SENSORS, WINDOW, DISTANCE = 8, 10, 5, 10.0
SETUP_KEYS = {"Q1": 1, "Q2": 2, "Q3": 3}
DRAW_SEED = 2026  # the seed of draw number k is (DRAW_SEED, k)
RUNS_PER_COVARIANCE = 32  # one covariance for each run would take too long
FILTERS = {  # process, measurement and initial covariance of the EKF; None: those of the paper's noise
    "true": (None, None, None),
    "model": (1e-8, 1.0, 1e-6),
}


class SetUp(NamedTuple):
    """A system, two adjacent datasets and the true positions."""

    system: System
    first: np.ndarray
    second: np.ndarray
    truth: np.ndarray


@functools.lru_cache(maxsize=512)
def seeded_setup(setup: str, seed: int, angle: str, recording: str, steps: int = STEPS) -> SetUp:
    """Return a set-up of which everything is drawn from one seed: sensors, the sensor that moves, and the data."""
    rng = np.random.default_rng((SETUP_KEYS[setup], seed))
    angles = rng.uniform(0, 2 * np.pi, SENSORS)
    system = oscillator(sensor_circle(SENSORS if setup == "Q2" else angles.tolist()))
    return record(system, int(rng.integers(SENSORS)), rng, angle, recording, steps)


@functools.lru_cache(maxsize=8)
def fixed_system(setup: str | int) -> System:
    """Return the oscillator with the sensors of Q1, Q2, Q3 or of a numbered draw."""
    if setup == "Q2":
        return oscillator(sensor_circle(SENSORS))
    rng = np.random.default_rng((DRAW_SEED, setup) if isinstance(setup, int) else SETUP_KEYS[setup])
    return oscillator(sensor_circle(rng.uniform(0, 2 * np.pi, SENSORS).tolist()))


@functools.lru_cache(maxsize=64)
def fixed_setup(setup: str | int, seed: int = 0, angle: str = BASE.angle, recording: str = BASE.recording) -> SetUp:
    """Return a set-up with these sensors, of which the first moves; the seed draws the noise, if there is any."""
    return record(fixed_system(setup), 0, np.random.default_rng(seed), angle, recording)


def record(
    system: System, move: int, rng: np.random.Generator, angle: str, recording: str, steps: int = STEPS
) -> SetUp:
    """Simulate two adjacent datasets; without noise if the recording is "quiet".

    The sensor is turned by d/(20 sqrt 2), read as degrees or as radians, or until the datasets are d apart ("exact").
    """
    simulated = replace(system, disturbance=Normal(0.0), noise=Normal(0.0)) if recording == "quiet" else system
    distance = math.radians(DISTANCE) if angle == "degrees" else DISTANCE
    with jax.disable_jit():  # one trajectory: compiling would take longer than the simulation
        first, second, recorded = adjacent_recordings(
            simulated, system.h, move, distance, rng, steps=steps, angle="exact" if angle == "exact" else "paper"
        )
    return SetUp(system, first, second, recorded.released(system, steps + 1 - WINDOW))


def noiseless_states() -> np.ndarray:
    """Return the states of the target without disturbances, shape (9, 4)."""
    target = fixed_system("Q2")
    return np.array([np.linalg.matrix_power(np.asarray(target.A), k) @ target.start for k in range(STEPS + 1)])


def positions_only(system: System) -> System:
    """Return the model of an estimator that knows the velocities and estimates the positions."""
    A = np.asarray(system.A)
    return System(h=system.h, start=system.start[:2], A=A[:2, :2], B=A[:2, 2:], inputs=noiseless_states()[:, 2:])


@dataclass(frozen=True)
class OutputPerturbedEKF:
    """The EKF with noise on its output: the noise is not fed back into the filter."""

    filter: PrivateEKF  # without noise
    s_hat: float
    name: str = "private EKF"

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        estimate = np.asarray(self.filter(data, 1, rng))
        return estimate + (1 - self.s_hat) / self.s_hat * rng.random((runs, *estimate.shape[1:]))


@dataclass(frozen=True)
class FreshCovariance:
    """Input perturbation with a covariance that is drawn anew for every few runs."""

    estimator: W2MHE
    s_bar: float
    noise_per: str
    name: str = "input perturbation"

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        groups = []
        for _ in range(-(-runs // RUNS_PER_COVARIANCE)):
            covariance = (1 - self.s_bar) * clipped_covariance(rng)
            mechanism = InputPerturbed(self.estimator, covariance=covariance, noise_per=self.noise_per)
            groups.append(np.asarray(mechanism(data, RUNS_PER_COVARIANCE, rng)))
        return np.concatenate(groups)[:runs]


def clipped_covariance(rng: np.random.Generator) -> np.ndarray:
    """Return the printed I + (R + R')/2 for all measurements, with its negative eigenvalues set to 0."""
    R = rng.random((2 * SENSORS, 2 * SENSORS))
    values, vectors = np.linalg.eigh(np.eye(2 * SENSORS) + (R + R.T) / 2)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


PaperMechanism = W2MHE | InputPerturbed | FreshCovariance | PrivateEKF | OutputPerturbedEKF


def build(mechanism: str, reading: Reading, system: System, value: float) -> PaperMechanism:
    """Return a mechanism by its name in the paper, with its parameter at `value`; s_bar below 0 is allowed."""
    if mechanism == paper.EKF:
        filter_ = PrivateEKF(system, value, WINDOW, *FILTERS[reading.filter])
        return filter_ if reading.feedback else OutputPerturbedEKF(replace(filter_, s_hat=1.0), value)
    estimator = W2MHE(
        positions_only(system) if reading.states == "positions" else system,
        WINDOW,
        value if mechanism == paper.W2MHE else 1.0,
        reading.tau,
        law=reading.law,
        span=reading.span,
        prior=reading.prior,
        weights=(1 / (WINDOW + 1) if reading.cost == "mean" else 1.0,) * system.measurements,
    )
    if mechanism == paper.W2MHE:
        return estimator
    if reading.covariance == "fresh":
        return FreshCovariance(estimator, value, reading.noise)
    covariance = (1 - value) * clipped_covariance(np.random.default_rng(0))
    return InputPerturbed(estimator, covariance=covariance, noise_per=reading.noise)


def family_reading(family: dict[str, Any]) -> Reading:
    """Return the reading of a family of the plan."""
    return BASE._replace(**family["reading"])


def build_family(family: dict[str, Any], setup: str | int, value: float) -> PaperMechanism:
    """Return the mechanism of a family of the plan on fixed sensors."""
    return build(family["mechanism"], family_reading(family), fixed_system(setup), value)
