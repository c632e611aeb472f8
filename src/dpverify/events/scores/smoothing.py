"""Smooth log-ratios of counts in bins, by penalised maximum likelihood.

A log-ratio of raw counts is noisy where bins are narrow, and coarse where they are wide. A smooth curve uses the
neighbours of each bin, and its level sets need not end at the edges of bins.
"""

from __future__ import annotations

import numpy as np
import scipy

from dpverify.events.cells import pad_rows

ROUGHNESS_PENALTY = 1.0  # per run in a bin; multiplies half the squared second differences of the log-ratio
PRIOR_RUNS = 0.5  # runs; keeps the log-ratio finite in a bin with runs of one data set only
MAX_NEWTON_STEPS, MAX_STEP, STEP_TOLERANCE = 12, 2.0, 1e-3
MAX_LEVELS, MIN_HEIGHT = 24, 0.05  # a step is one of so many parts of the range of the curve, or this height


def smooth_steps(
    first: np.ndarray, second: np.ndarray, edges: np.ndarray, penalty: float = ROUGHNESS_PENALTY
) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and values of step functions that follow smooth log-ratios.

    Atoms keep a value of their own: the curve is interrupted there.

    Parameters
    ----------
    first, second : ndarray of shape (features, bins)
        The counts of both data sets.
    edges : ndarray of shape (features, bins - 1)
        The sorted edges of the bins, padded with infinity.
    penalty : float
        The weight of the roughness.

    Returns
    -------
    edges : ndarray of shape (features, E)
        The sorted edges of the steps, padded with infinity.
    steps : ndarray of shape (features, E + 1)
        The values between them; the last value is repeated.
    """
    used = np.concatenate([np.ones((len(edges), 1), bool), np.isfinite(edges)], axis=1)
    is_atom = np.zeros(used.shape, bool)
    is_atom[:, 1:-1] = edges[:, :-1] == np.nextafter(edges[:, 1:], -np.inf)
    is_joined = used[:, 1:] & ~is_atom[:, 1:] & ~is_atom[:, :-1]  # each bin with the one before it
    joined = np.concatenate([np.zeros((len(edges), 1), bool), is_joined], axis=1)[used][1:]
    ratio = np.zeros(used.shape)
    ratio[used] = smooth_ratio(first[used], second[used], joined, penalty)
    rows = [_as_steps(*row) for row in zip(edges, ratio, is_joined, strict=True)]
    new_edges = pad_rows([own for own, _ in rows], least=1)
    steps = [np.pad(heights, (0, new_edges.shape[1] + 1 - len(heights)), mode="edge") for _, heights in rows]
    return new_edges, np.stack(steps)


def smooth_ratio(c1: np.ndarray, c2: np.ndarray, joined: np.ndarray, penalty: float) -> np.ndarray:
    """Return the log-ratio with the largest penalised likelihood.

    Parameters
    ----------
    c1, c2 : ndarray of shape (n,)
        The counts of both data sets.
    joined : ndarray of bool, shape (n - 1,)
        Whether each bin after the first continues the curve of the bin before it.
    penalty : float
        The weight of the squared second differences, per run.
    """
    both = (c1 + c2).astype(float)
    # Bins with few runs lie where the log-ratio changes fast, so that they are penalised less.
    fewest = np.minimum(np.minimum(both[:-2], both[1:-1]), both[2:])
    curved = penalty * (fewest + 1) * (joined[1:] & joined[:-1])
    bands = np.zeros((3, len(both)))  # of the matrix of the penalty, in the upper form of `solveh_banded`
    for k, factor in enumerate((1.0, -2.0, 1.0)):
        bands[2, k : k + len(curved)] += factor**2 * curved
    bands[1, 1:-1] -= 2 * curved
    bands[1, 2:] -= 2 * curved
    bands[0, 2:] += curved
    ratio = np.full(len(both), np.log((c1.sum() + 0.5) / (c2.sum() + 0.5)))
    for _ in range(MAX_NEWTON_STEPS):
        share = scipy.special.expit(ratio)
        gradient = c1 - both * share - PRIOR_RUNS * (share - 0.5)
        bends = curved * np.diff(ratio, 2)
        for k, factor in enumerate((1.0, -2.0, 1.0)):
            gradient[k : k + len(curved)] -= factor * bends
        matrix = bands.copy()
        matrix[2] += (both + PRIOR_RUNS) * np.maximum(share * (1 - share), np.finfo(float).eps)
        step = scipy.linalg.solveh_banded(matrix, gradient, check_finite=False)
        ratio += np.clip(step, -MAX_STEP, MAX_STEP)
        if np.abs(step).max() < STEP_TOLERANCE:
            break
    return ratio


def _as_steps(edges: np.ndarray, ratio: np.ndarray, is_joined: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the step function of one feature. Between the centres of joined bins it follows a line."""
    edges = edges[np.isfinite(edges)]
    if not edges.size:
        return edges, ratio[:1]
    ratio, is_joined = ratio[: edges.size + 1], is_joined[: edges.size]
    centres = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    height = max(np.ptp(ratio) / MAX_LEVELS, MIN_HEIGHT)
    change = np.diff(ratio)
    number = np.where(is_joined, np.maximum(np.ceil(np.abs(change) / height), 1), 1).astype(np.intp)
    bin_of = np.repeat(np.arange(edges.size), number)
    within = np.arange(bin_of.size) - np.repeat(np.cumsum(number) - number, number)
    share = (within + 0.5) / number[bin_of]
    places = centres[:-1][bin_of] + share * np.diff(centres)[bin_of]
    places = np.where(is_joined[bin_of], places, edges[bin_of])
    values = ratio[:-1][bin_of] + (within + 1) / number[bin_of] * change[bin_of]
    return places, _hold(np.append(ratio[0], values), height)


def _hold(values: np.ndarray, height: float) -> np.ndarray:
    """Return values that change only where they would be wrong by more than the height; noise then adds no steps."""
    held, result = values[0], []
    for value in values.tolist():
        if abs(value - held) > height:
            held = value
        result.append(held)
    return np.array(result)
