"""Laws for the power benchmark whose differences are invisible in single coordinates."""

from __future__ import annotations

import itertools

import numpy as np
from laws import Law, angle, gaussians, heavy, hidden, mixture, parity, quaternion, ring, stationary


def structured_laws() -> list[Law]:
    """Return interactions, covariances, unknown times and records, and laws on curved sets."""
    one, wave = np.eye(20), np.sin(np.arange(200) / 7)
    jumps = [0.6 * (np.arange(40) >= k) for k in range(2, 38)]
    bursts = [sign * 2.0 * ((np.arange(50) >= k) & (np.arange(50) < k + 4)) for k in range(47) for sign in (-1, 1)]
    pairs = [np.kron(row, [2.5, -2.5]) for row in np.eye(15)]
    orders = [list(order) for order in itertools.permutations(range(4))]
    permuted = [[np.array(values)[order] for order in orders] for values in ([0.0, 1, 2, 3], [0.0, 0, 3, 3])]
    corners = [[-4, -4], [-4, 4], [4, -4], [4, 4]]
    moving_average = [np.eye(400) * (1 + c**2) + c * (np.eye(400, k=1) + np.eye(400, k=-1)) for c in (0.3, 0.45)]
    return [
        parity("parity of 2 of 8", 2),
        parity("parity of 3 of 8", 3),
        parity("parity of 3 of 20", 3, 20),
        gaussians("interaction of 2 of 8", [_correlated(8, 0.5), _correlated(8, -0.5)]),
        gaussians("variances, 20", [1.15**2 * one, one]),
        gaussians("autoregression, 100 steps", [stationary(100, 0.5), stationary(100, 0.3)]),
        gaussians("moving average, 400 steps", moving_average),
        gaussians("low rank, 200", [np.eye(200) + 0.03 * np.outer(wave, wave), np.eye(200)]),
        hidden("burst in one of 60 steps", 4.0 * np.eye(60), 60),
        hidden("burst of 4 steps, either sign", bursts, 50),
        hidden("jump at an unknown time", jumps, 40),
        hidden("one record of 20", 3.5 * one, 20),
        hidden("one record of 15, two numbers", pairs, 30),
        mixture("permuted outputs", permuted, [np.full(24, 1 / 24)] * 2),
        mixture("four modes", [corners, corners], [[0.4, 0.1, 0.1, 0.4], [0.1, 0.4, 0.4, 0.1]]),
        ring("ring", (3.0, 3.3), 0.2),
        heavy("multivariate t, 5 coordinates", 3, 5, 0.6),
        angle("wrapped angle", 2.0, (2.9, -2.9 + 0.6)),
        angle("four wrapped angles", 1.0, (2.9, -2.9 + 0.6), 4),
        quaternion("quaternion of either sign", (0.5, 1.0), 0.3),
    ]


def _correlated(coordinates, correlation):
    matrix = np.eye(coordinates)
    matrix[0, 1] = matrix[1, 0] = correlation
    return matrix
