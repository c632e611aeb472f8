"""The paper's experiment: sensors, pairs of data sets and mechanisms (docs/method.md, section 7).

A set-up is "Q1", "Q2", "Q3", or the number of a random draw of the sensor positions. The paper does not print the
angles of its sensors. Here Q2 has evenly spaced sensors, and Q1 and Q3 are drawn once, with seeds 1 and 3. Study files
name the functions of this module.
"""

from __future__ import annotations

import functools

import jax
import numpy as np

from dpverify.errors import InputError
from dpverify.estimation import W2MHE, InputPerturbed, PrivateEKF, adjacent_recordings, oscillator, sensor_circle
from dpverify.estimation.input_perturbation import sensor_blocks
from dpverify.estimation.system import STEPS, System

SENSORS, WINDOW, DISTANCE = 10, 5, 10.0
SETUP_SEEDS = {"Q1": 1, "Q3": 3}
DRAW_SEED = 2026  # the seed of draw number k is (DRAW_SEED, k)


@functools.lru_cache(maxsize=8)
def system(setup: str | int) -> System:
    """Return the oscillator with the sensors of this set-up; cached, so that JAX compiles it once."""
    if setup == "Q2":
        return oscillator(sensor_circle(SENSORS))
    if isinstance(setup, str) and setup not in SETUP_SEEDS:
        raise InputError(f"setup: found {setup!r}; expected Q1, Q2, Q3 or the number of a draw")
    rng = np.random.default_rng(SETUP_SEEDS[setup] if isinstance(setup, str) else (DRAW_SEED, setup))
    return oscillator(sensor_circle(rng.uniform(0, 2 * np.pi, SENSORS).tolist()))


def pair(
    setup: str | int, move: int = 0, steps: int = STEPS, seed: int = 0, angle: str = "exact"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first data set, the second data set and the true positions.

    Parameters
    ----------
    setup : str or int
        The set-up.
    move : int
        The sensor whose position differs between the data sets.
    steps : int
        The horizon T.
    seed : int
        Seed of trajectory and noise.
    angle : str
        "exact" turns the sensor until the data sets are 10 apart; "paper" turns it by the paper's angle.

    Returns
    -------
    tuple of ndarray
        Both data sets, and the positions at the steps that the W2-MHE estimates.
    """
    observed = system(setup)
    rng = np.random.default_rng(seed)
    with jax.disable_jit():  # one trajectory: compiling would take longer than the simulation
        first, second, recording = adjacent_recordings(
            observed, observed.h, move, DISTANCE, rng, steps=steps, angle=angle
        )
    return first, second, recording.released(observed, steps + 1 - WINDOW)


def gibbs(setup: str | int, s: float, tau: float) -> W2MHE:
    """Return the W2-MHE whose estimate has the Gibbs distribution."""
    return W2MHE(system(setup), WINDOW, s, tau, name="W2-MHE, Gibbs distribution")


def blend(setup: str | int, s: float, tau: float) -> W2MHE:
    """Return the W2-MHE whose estimate has the blend distribution."""
    return W2MHE(system(setup), WINDOW, s, tau, law="blend", name="W2-MHE, blend distribution")


def perturbed(setup: str | int, s_bar: float, tau: float) -> InputPerturbed:
    """Return the mechanism that perturbs the data; s_bar below 0 gives more noise than the paper's range allows."""
    estimator = W2MHE(system(setup), WINDOW, 1.0, tau)
    noise = (1 - s_bar) * sensor_blocks(2 * SENSORS, 2, seed=0)
    return InputPerturbed(estimator, covariance=noise)


def ekf(setup: str | int, s_hat: float) -> PrivateEKF:
    """Return the private extended Kalman filter."""
    return PrivateEKF(system(setup), s_hat, window=WINDOW)


def build_mechanism(name: str, setup: str | int, value: float, tau: float) -> W2MHE | InputPerturbed | PrivateEKF:
    """Return the mechanism of this name ("gibbs", "blend", "perturbed", "ekf") with its parameter at `value`."""
    if name == "ekf":
        return ekf(setup, value)
    return {"gibbs": gibbs, "blend": blend, "perturbed": perturbed}[name](setup, value, tau)


def sensor_positions(setup: str | int) -> np.ndarray:
    """Return the positions of the sensors, shape (10, 2)."""
    return system(setup).h.places


def noiseless_states() -> np.ndarray:
    """Return the states of the target without disturbances, shape (9, 4)."""
    target = system("Q2")
    return np.array([np.linalg.matrix_power(np.asarray(target.A), k) @ target.start for k in range(STEPS + 1)])
