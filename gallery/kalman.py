"""Private Kalman filter with noise at the input.

Le Ny and Pappas, Differentially private filtering, 2014; Degue and Le Ny, on two-stage mechanisms, 2017.

Two agents measure scalar states during 4 steps. The measurements y, or an aggregate D y, receive Gaussian noise of
standard deviation kappa times the sensitivity; a Kalman filter that knows this noise estimates both states. D is the
identity (input perturbation) or a row of ones (two-stage).

Neighbours: The measurements of one agent change by at most 1 in the Euclidean norm over the whole trajectory.

Why: The factor kappa comes from a tail bound and is larger than necessary. At the claim (1, 0.01) the exact delta is
0.00119, so the claim holds with room. The estimates determine the noisy input, so the filter neither adds nor removes
privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dpverify import claims
from gallery.entry import Case, Truth, make_entry
from gallery.laws import gaussian_truth, kappa

DYNAMICS = (0.9, 0.7)  # the state of each agent is multiplied by this number in each step

PROCESS_VARIANCE, MEASUREMENT_VARIANCE = 0.1, 0.2


@dataclass(frozen=True)
class PrivateFilter:
    """A Kalman filter for two agents with scalar states; noise is added to `D y` before the filter.

    Attributes
    ----------
    aggregation : tuple of tuple of float
        The matrix D. The identity is input perturbation; one row of ones is the two-stage version.
    epsilon, delta : float
        The claim, which determines the noise.
    bound : float
        The largest Euclidean distance by which the measurements of one agent may change, over all steps.

    Examples
    --------
    >>> mechanism = PrivateFilter(((1.0, 0.0), (0.0, 1.0)), 1.0, 0.01)
    >>> mechanism(np.zeros((4, 2)), 5, np.random.default_rng(0)).shape
    (5, 4, 2)
    """

    aggregation: tuple[tuple[float, ...], ...]
    epsilon: float
    delta: float
    bound: float = 1.0

    @property
    def noise(self) -> float:
        """The standard deviation of the noise: kappa times the sensitivity."""
        columns = np.array(self.aggregation).T
        return kappa(self.epsilon, self.delta) * self.bound * max(float(np.linalg.norm(column)) for column in columns)

    def gains(self, steps: int) -> list[np.ndarray]:
        """Return the Kalman gain of each step; the filter knows the variance of the added noise."""
        A, C = np.diag(DYNAMICS), np.array(self.aggregation)
        V = MEASUREMENT_VARIANCE * C @ C.T + self.noise**2 * np.eye(len(C))
        P, gains = np.eye(len(A)), []
        for _ in range(steps):
            P = A @ P @ A.T + PROCESS_VARIANCE * np.eye(len(A))
            K = P @ C.T @ np.linalg.inv(C @ P @ C.T + V)
            P = P - K @ C @ P
            gains.append(K)
        return gains

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the estimates of both states in every step."""
        A, C = np.diag(DYNAMICS), np.array(self.aggregation)
        noisy = data @ C.T + self.noise * rng.standard_normal((runs, len(data), len(C)))
        state, estimates = np.zeros((runs, len(A))), np.empty((runs, len(data), len(A)))
        for step, K in enumerate(self.gains(len(data))):
            state = state @ A.T
            state = state + (noisy[:, step] - state @ C.T) @ K.T
            estimates[:, step] = state
        return estimates


FIRST = np.array([[1.0, 0.5], [0.8, 0.6], [0.9, 0.3], [0.7, 0.4]])

SECOND = FIRST + np.array([0.5, 0.0])  # distance 1 over the four steps

IDENTITY, SUM = ((1.0, 0.0), (0.0, 1.0)), ((1.0, 1.0),)


def truth(mechanism: PrivateFilter, claim: claims.Approximate) -> Truth:
    """Return the truth: the estimates determine the noisy measurements, so nothing is lost by filtering."""
    distance = float(np.linalg.norm((FIRST - SECOND) @ np.array(mechanism.aggregation).T))
    return gaussian_truth(distance / mechanism.noise, claim)


def make_case(name: str, title: str, aggregation: tuple[tuple[float, ...], ...], epsilon: float, delta: float) -> Case:
    """Return a case at the claim (epsilon, delta)."""
    mechanism, claim = PrivateFilter(aggregation, epsilon, delta), claims.approximate(epsilon, delta)
    return Case(name, title, mechanism, (FIRST, SECOND), claim, partial(truth, mechanism, claim))


ENTRY = make_entry(
    __name__,
    __doc__,
    make_case("kalman-input", "input perturbation, claim (1, 0.01)", IDENTITY, 1.0, 0.01),
    make_case("kalman-two-stage", "two-stage, the sum of both agents, claim (1, 0.01)", SUM, 1.0, 0.01),
    make_case("kalman-input-ln3", "input perturbation, claim (ln 3, 0.05)", IDENTITY, float(np.log(3)), 0.05),
)
