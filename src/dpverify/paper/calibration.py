"""Calibration of tau and of the EKF's s_hat, which the paper does not print.

Each of the two is the value at which the estimated error equals one printed error. Root finding runs on the logarithm
of the parameter, with the same random numbers for every parameter value.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from dpverify.mechanisms.accuracy import rmse
from dpverify.mechanisms.protocol import Mechanism
from dpverify.paper import experiment
from dpverify.paper.measurements import CalibratedNumbers
from dpverify.paper.printed import read_printed


def mean_error(mechanism: Mechanism, data: np.ndarray, truth: np.ndarray, runs: int, block: int = 4096) -> float:
    """Return the mean error under the first data set, from the same random numbers for every mechanism."""
    rng, error = np.random.default_rng(0), rmse(truth)
    blocks = -(-runs // block)
    return float(np.mean([np.mean(error(np.asarray(mechanism(data, block, rng)))) for _ in range(blocks)]))


def solve_for_error(target: float, error_of: Callable[[float], float], low: float, high: float) -> float:
    """Return the parameter between `low` and `high` whose error equals the target."""

    def excess(logarithm: float) -> float:
        return error_of(math.exp(logarithm)) - target

    root = brentq(excess, math.log(low), math.log(high), xtol=1e-4)
    assert isinstance(root, float)
    return math.exp(root)


def calibrate_numbers(runs: int) -> CalibratedNumbers:
    """Return tau, from the printed error of the W2-MHE (Q1, s 0.8), and s_hat, from that of the private EKF (Q1)."""
    tau_target, s_hat_target = read_printed().tau_target, read_printed().s_hat_target
    data, _, truth = experiment.pair(tau_target.setup)

    def error_of_tau(tau: float) -> float:
        return mean_error(experiment.gibbs(tau_target.setup, tau_target.s, tau), data, truth, runs)

    def error_of_noise(scale: float) -> float:
        return mean_error(experiment.ekf(s_hat_target.setup, 1 / (1 + scale)), data, truth, runs)

    return CalibratedNumbers(
        tau=solve_for_error(tau_target.error, error_of_tau, 2e-6, 2e-4),
        s_hat=1 / (1 + solve_for_error(s_hat_target.error, error_of_noise, 1e-4, 1e-1)),
        says="The paper prints neither number. At this tau E_correct of the W2-MHE (Gibbs distribution, Q1, s 0.8) "
        f"equals the printed {tau_target.error}; at this s_hat E_correct of the private EKF on Q1 equals the printed "
        f"{s_hat_target.error}.",
        runs=runs,
    )
