"""Log-ratios of rows of bins that share their shape: a varying-coefficient model.

An output that mixes atoms and continuous values has many patterns of atoms, and the rare patterns have few runs. Their
log-ratios are often similar, though. Here the log-ratio of a row is a sum over the features of its pattern, for example
how often an atom occurs in it. Each feature has a coefficient that is a smooth function of the continuous value. All
rows together determine these functions, so that a rare pattern has a log-ratio also where it has no runs.
"""

from __future__ import annotations

import numpy as np
import scipy

KNOTS = 32  # of each coefficient
EDGES_PER_KNOT = 3  # of the step function between two knots
PENALTIES = 10.0 ** np.arange(5, -1, -1)  # of half the squared second differences of a coefficient at its knots
RIDGE = 1e-3  # keeps coefficients finite that the counts do not determine
MAX_NEWTON_STEPS, MAX_STEP, STEP_TOLERANCE = 12, 2.0, 1e-3  # of a coefficient at a knot


def varying_steps(
    first: np.ndarray, second: np.ndarray, edges: np.ndarray, features: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and values of step functions that follow a varying-coefficient model of the log-ratio.

    The coefficients have the largest penalised likelihood. The weight of the penalty is the one with the largest
    marginal likelihood.

    Parameters
    ----------
    first, second : ndarray of shape (rows, bins)
        The counts of both data sets.
    edges : ndarray of shape (rows, bins - 1)
        The sorted edges of the bins, padded with infinity.
    features : ndarray of shape (rows, features)
        What the rows have in common. One column should be constant.

    Returns
    -------
    edges : ndarray of shape (rows, E)
        The sorted edges of the steps, the same for every row.
    steps : ndarray of shape (rows, E + 1)
        The values between them.

    Examples
    --------
    Three rows whose log-ratio rises with the value, and with the number of the row:

    >>> edges = np.tile(np.linspace(-2, 2, 9), (3, 1))
    >>> odds = np.exp(np.outer([0.1, 0.2, 0.3], np.arange(10)))
    >>> features = np.array([[1.0, 0.0], [1.0, 0.5], [1.0, 1.0]])
    >>> _, steps = varying_steps(1000 * odds, np.full((3, 10), 1000.0), edges, features)
    >>> (steps[:, -1] - steps[:, 0]).round(1)
    array([0.9, 1.8, 2.7])
    """
    is_used = np.concatenate([np.ones((len(edges), 1), bool), np.isfinite(edges)], axis=1)
    centres = np.concatenate([edges[:, :1], (edges[:, 1:] + edges[:, :-1]) / 2, edges[:, -1:]], axis=1)
    last = np.isfinite(edges).sum(axis=1)
    centres[np.arange(len(edges)), last] = edges[np.arange(len(edges)), last - 1]
    row, values = np.nonzero(is_used)[0], np.where(np.isfinite(centres), centres, 0.0)[is_used]
    c1, c2 = first[is_used].astype(float), second[is_used].astype(float)
    # Knots are equidistant on the scale on which all values together are normally distributed.
    distinct, position = np.unique(values, return_inverse=True)
    mass = np.bincount(position, c1 + c2)
    scale = scipy.special.ndtri((np.cumsum(mass) - mass / 2 + 0.25) / (mass.sum() + 0.5))
    knots = np.linspace(scale[0], scale[-1], KNOTS)
    design = features[row][:, :, None] * _hat_functions(scale[position], knots)[:, None, :]
    coefficients = _fit_coefficients(design.reshape(len(row), -1), c1, c2, features.shape[1])
    places = np.linspace(scale[0], scale[-1], EDGES_PER_KNOT * KNOTS + 1)
    middles = np.concatenate([places[:1], (places[1:] + places[:-1]) / 2, places[-1:]])
    steps = features @ coefficients @ _hat_functions(middles, knots).T
    return np.tile(np.interp(places, scale, distinct), (len(edges), 1)), steps


def _fit_coefficients(design: np.ndarray, c1: np.ndarray, c2: np.ndarray, number: int) -> np.ndarray:
    """Return the values of `number` coefficients at the knots, by penalised logistic regression."""
    second_difference = np.diff(np.eye(KNOTS), 2, axis=0)
    roughness = np.kron(np.eye(number), second_difference.T @ second_difference)
    both, fitted = c1 + c2, np.zeros(design.shape[1])
    best, largest = fitted, -np.inf
    for penalty in PENALTIES:  # from a large penalty to a small one; each fit starts at the previous one
        precision = penalty * roughness + RIDGE * np.eye(len(fitted))
        for _ in range(MAX_NEWTON_STEPS):
            share = scipy.special.expit(design @ fitted)
            hessian = (design.T * (both * share * (1 - share))) @ design + precision
            step = np.linalg.solve(hessian, design.T @ (c1 - both * share) - precision @ fitted)
            fitted = fitted + np.clip(step, -MAX_STEP, MAX_STEP)
            if np.abs(step).max() < STEP_TOLERANCE:
                break
        ratio = design @ fitted
        likelihood = c1 @ ratio - both @ np.logaddexp(0.0, ratio) - fitted @ precision @ fitted / 2
        evidence = likelihood + (np.linalg.slogdet(precision)[1] - np.linalg.slogdet(hessian)[1]) / 2
        if evidence > largest:
            best, largest = fitted, evidence
    return best.reshape(number, KNOTS)


def _hat_functions(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the piecewise linear functions that are 1 at one knot and 0 at the others, one column for each knot."""
    return np.stack([np.interp(x, knots, unit) for unit in np.eye(len(knots))], axis=1)
