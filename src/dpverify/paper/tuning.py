"""The two numbers that the paper does not print and that one printed number each fixes: tau, and s_hat of the EKF."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq

from dpverify.mechanisms.accuracy import rmse
from dpverify.paper import setting
from dpverify.paper.plan import printed


def mean_error(mechanism: Any, data: Any, truth: Any, runs: int, block: int = 4096) -> float:
    """E_correct from runs that are the same for every parameter, so that it is smooth in the parameter."""
    rng, error = np.random.default_rng(0), rmse(truth)
    return float(np.mean([np.mean(error(np.asarray(mechanism(data, block, rng)))) for _ in range(-(-runs // block))]))


def meet(goal: float, error_at: Callable[[float], float], low: float, high: float) -> float:
    """The parameter whose error is the goal, sought along its logarithm."""
    found: Any = brentq(lambda u: error_at(math.exp(u)) - goal, math.log(low), math.log(high), xtol=1e-4)
    return math.exp(found)


def tune(runs: int) -> dict[str, Any]:
    """Tau from E_correct of the W2-MHE (Q1, s .8), s_hat from that of the EKF (Q1): these cells are no predictions."""
    goals = printed()["calibration"]
    tau_goal, ekf_goal = goals["tau"], goals["s_hat"]
    data, _, truth = setting.pair(tau_goal["setup"])

    def of_tau(tau: float) -> float:
        return mean_error(setting.gibbs(tau_goal["setup"], tau_goal["s"], tau), data, truth, runs)

    def of_noise(scale: float) -> float:
        return mean_error(setting.ekf(ekf_goal["setup"], 1 / (1 + scale)), data, truth, runs)

    tau = meet(tau_goal["error"], of_tau, 2e-6, 2e-4)
    s_hat = 1 / (1 + meet(ekf_goal["error"], of_noise, 1e-4, 1e-1))
    return {
        "tau": tau,
        "s_hat": s_hat,
        "says": "tau is the one at which E_correct of the W2-MHE (Gibbs law, Q1, s 0.8) is the printed "
        f"{tau_goal['error']}; s_hat the one at which that of the private EKF on Q1 is {ekf_goal['error']}. "
        "Neither is printed. Every other number is a prediction.",
        "runs": runs,
    }
