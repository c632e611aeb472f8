"""Nonnegative least squares for problems with many unknowns and a good first guess."""

from __future__ import annotations

import numpy as np
import scipy

RIDGE = 1e-13  # relative; repeated columns make the matrix singular
DUAL_TOLERANCE = 1e-11  # relative to the largest entry of the linear term
MAX_IDLE_STEPS = 3  # consecutive steps after which no fewer signs are wrong than before


def nonnegative_minimum(gram: np.ndarray, linear: np.ndarray, is_positive: np.ndarray) -> np.ndarray | None:
    """Return the u >= 0 that minimises u^T gram u / 2 - linear^T u, by block principal pivoting (Judice & Pires 1994).

    Unlike an active-set method, which adds one positive unknown at a time, each step exchanges all unknowns with a
    wrong sign. From a good guess of the positive unknowns few steps are needed.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        The matrix, symmetric and positive semidefinite.
    linear : ndarray of shape (n,)
        The linear term.
    is_positive : ndarray of bool, shape (n,)
        Which unknowns are probably positive.

    Returns
    -------
    ndarray of shape (n,), or None
        The minimum; None if the steps do not converge, which happens if the matrix is nearly singular.

    Examples
    --------
    >>> nonnegative_minimum(np.eye(2), np.array([1.0, -1.0]), np.array([False, True])).round(6).tolist()
    [1.0, 0.0]
    """
    ridge = RIDGE * float(np.trace(gram)) / len(gram)
    tolerance = DUAL_TOLERANCE * float(np.abs(linear).max())
    fewest, idle_steps = len(linear) + 1, 0
    while idle_steps <= MAX_IDLE_STEPS:
        positive = np.flatnonzero(is_positive)
        rows = gram[positive]
        matrix = rows[:, positive]
        matrix.flat[:: len(positive) + 1] += ridge
        solution = np.zeros(0)
        if len(positive):  # older versions of SciPy do not solve a system without unknowns
            try:
                factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
            except np.linalg.LinAlgError:
                return None
            solution = scipy.linalg.cho_solve(factor, linear[positive], check_finite=False)
        is_wrong = solution @ rows - linear < -tolerance  # here the objective falls if the unknown becomes positive
        is_wrong[positive] = solution < 0
        number = np.count_nonzero(is_wrong)
        if not number:
            result = np.zeros(len(linear))
            result[positive] = solution
            return result
        fewest, idle_steps = (number, 0) if number < fewest else (fewest, idle_steps + 1)
        is_positive = is_positive ^ is_wrong
    return None
