"""One posterior sample of a Kalman filter.

Dimitrakakis, Nelson, Mitrokotsa and Rubinstein, Robust and private Bayesian inference, 2014; Wang, Fienberg and Smola,
Privacy for free, 2015.

A Kalman filter tracks position and velocity from 6 measured positions. Instead of its estimate it releases one sample
of the posterior distribution N(x, P). The claim is Gaussian privacy with mu = |dx| in the norm of P, for the
measurement that moves the estimate most.

Neighbours: One measurement changes by at most 0.5.

Why: The covariance P does not depend on the measurements, so a sample is the estimate with Gaussian noise, and mu is
exactly the length of the shift in units of P. A sample from a posterior with a quarter of the covariance has twice
this mu.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from dpverify import claims
from gallery.entry import Case, Truth, make_entry
from gallery.laws import mu_truth

STEPS = 6

A = np.array([[1.0, 0.5], [0.0, 1.0]])  # position and velocity

Q, R = 0.05 * np.eye(2), 0.2


@cache
def filter_matrices() -> tuple[np.ndarray, np.ndarray]:
    """Return the matrix that maps all measurements to the last estimate, and the covariance of the posterior."""
    P, matrix = np.eye(2), np.zeros((2, STEPS))
    for step in range(STEPS):
        P = A @ P @ A.T + Q
        K = P[:, 0] / (P[0, 0] + R)
        matrix = A @ matrix
        matrix = matrix - np.outer(K, matrix[0])
        matrix[:, step] += K
        P = P - np.outer(K, P[0])
    return matrix, P


@dataclass(frozen=True)
class PosteriorSample:
    """Release one sample of the posterior distribution of position and velocity after the last measurement.

    Attributes
    ----------
    temper : float
        The covariance is multiplied by this factor.

    Examples
    --------
    >>> PosteriorSample()(np.zeros(6), 5, np.random.default_rng(0)).shape
    (5, 2)
    """

    temper: float = 1.0

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return samples."""
        matrix, P = filter_matrices()
        root = np.linalg.cholesky(self.temper * P)
        return matrix @ data + rng.standard_normal((runs, 2)) @ root.T


def distances() -> np.ndarray:
    """Return mu for a change of each measurement by 0.5: the length of the shift of the estimate in units of P."""
    matrix, P = filter_matrices()
    shift = 0.5 * matrix
    return np.sqrt((shift * np.linalg.solve(P, shift)).sum(axis=0))


WORST = int(np.argmax(distances()))

MU = float(distances()[WORST])

FIRST = np.array([0.1, 0.4, 0.9, 1.1, 1.6, 2.0])

SECOND = FIRST + 0.5 * (np.arange(STEPS) == WORST)


def cold_truth() -> Truth:
    """Return the truth with a quarter of the covariance."""
    return mu_truth(2 * MU)


def truth() -> Truth:
    """Return the truth of the posterior itself."""
    return mu_truth(MU)


ENTRY = make_entry(
    __name__,
    __doc__,
    Case("posterior", f"claim mu {MU:.4g}", PosteriorSample(), (FIRST, SECOND), claims.gaussian(MU), truth),
    Case(
        "posterior-cold",
        "a quarter of the covariance at the same claim",
        PosteriorSample(0.25),
        (FIRST, SECOND),
        claims.gaussian(MU),
        cold_truth,
        role="control",
    ),
)
