"""The paper's experiment as a study can name it: sensors, a pair of data sets, the mechanisms (docs/method.md, 7).

A set-up is "Q1", "Q2" or "Q3", or the number of a draw. The paper prints no angle of its sensors: ours are Q2 evenly
spread, Q1 and Q3 drawn once, from seeds 1 and 3.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from dpverify.errors import InputError
from dpverify.estimation import W2MHE, InputPerturbed, PrivateEKF, adjacent_recordings, oscillator, sensor_circle
from dpverify.estimation.input_perturbation import sensor_blocks
from dpverify.estimation.system import STEPS, System

SENSORS, WINDOW, DISTANCE = 10, 5, 10.0
NAMED = {"Q1": 1, "Q3": 3}  # the seed of each that is drawn
DRAWS = 2026  # the other draws are of a family of their own


@functools.lru_cache(maxsize=8)
def system(setup: str | int) -> System:
    """The oscillator seen by this set-up's sensors; kept, so that it is compiled once."""
    if setup == "Q2":
        return oscillator(sensor_circle(SENSORS))
    if isinstance(setup, str) and setup not in NAMED:
        raise InputError(f"setup: found {setup!r}; expected Q1, Q2, Q3 or the number of a draw")
    rng = np.random.default_rng(NAMED[setup] if isinstance(setup, str) else (DRAWS, setup))
    return oscillator(sensor_circle(rng.uniform(0, 2 * np.pi, SENSORS).tolist()))


def pair(
    setup: str | int, move: int = 0, steps: int = STEPS, seed: int = 0, angle: str = "exact"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first, second, truth): sensor `move` turned until the data sets are 10 apart, or by the paper's angle."""
    seen = system(setup)
    rng = np.random.default_rng(seed)
    with jax.disable_jit():  # one trajectory is simulated sooner than its program is compiled
        first, second, recording = adjacent_recordings(seen, seen.h, move, DISTANCE, rng, steps=steps, angle=angle)
    return first, second, recording.released(seen, steps + 1 - WINDOW)


def gibbs(setup: str | int, s: float, tau: float) -> W2MHE:
    return W2MHE(system(setup), WINDOW, s, tau, name="W2-MHE, Gibbs law")


def blend(setup: str | int, s: float, tau: float) -> W2MHE:
    return W2MHE(system(setup), WINDOW, s, tau, law="blend", name="W2-MHE, blend law")


def perturbed(setup: str | int, s_bar: float, tau: float) -> InputPerturbed:
    """Input perturbation; s_bar below 0 goes on where the paper's range ends, with more noise."""
    estimator = W2MHE(system(setup), WINDOW, 1.0, tau)
    noise = (1 - s_bar) * sensor_blocks(2 * SENSORS, 2, seed=0)
    return InputPerturbed(estimator, covariance=noise)


def ekf(setup: str | int, s_hat: float) -> PrivateEKF:
    return PrivateEKF(system(setup), s_hat, window=WINDOW)


def places(setup: str | int) -> Any:
    """Where the sensors stand: (10, 2)."""
    return system(setup).h.places
