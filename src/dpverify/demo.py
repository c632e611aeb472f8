"""The demonstration `dpverify demo`: two small verifications that take seconds.

The first claim is false and is refuted. The second claim, of a Kalman filter with noise, is true. The exact privacy of
both mechanisms is known in closed form and is printed below each report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from dpverify.errors import InputError
from dpverify.pipeline import verify
from dpverify.report.report import Report

SAMPLING_TIME = 0.1
PROCESS_VARIANCE = 1e-3
MEASUREMENT_VARIANCE = 0.04
PAGE_FILE = "dpverify-demo.html"


def laplace_sum(data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Sum with Laplace noise of scale 1. Its epsilon is 1, because one person changes the sum by 1."""
    return data.sum() + rng.laplace(scale=1.0, size=(runs, 1))


@dataclass(frozen=True)
class PrivateTracker:
    """A Kalman filter for position and velocity whose estimates are released with Gaussian noise.

    Attributes
    ----------
    noise : float
        Standard deviation of the noise.
    name : str
        The name in reports.

    Examples
    --------
    >>> tracker = PrivateTracker(noise=0.25)
    >>> tracker(np.zeros(6), 100, np.random.default_rng(0)).shape
    (100, 6, 2)
    """

    noise: float
    name: str = "private Kalman filter"

    def gains(self, steps: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the transition matrix, and the Kalman gain of each step."""
        A = np.array([[1.0, SAMPLING_TIME], [0.0, 1.0]])
        P, gains = np.eye(2), []
        for _ in range(steps):
            P = A @ P @ A.T + PROCESS_VARIANCE * np.eye(2)
            K = P[:, 0] / (P[0, 0] + MEASUREMENT_VARIANCE)
            P = P - np.outer(K, P[0])
            gains.append(K)
        return A, gains

    def filter(self, y: np.ndarray) -> np.ndarray:
        """Return the estimates without noise, one row per measured position."""
        A, gains = self.gains(len(y))
        x, estimates = np.zeros(2), []
        for y_k, K in zip(y, gains, strict=True):
            x = A @ x
            x = x + K * (y_k - x[0])
            estimates.append(x)
        return np.array(estimates)

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the estimates of so many runs, with noise."""
        estimates = self.filter(data)
        return estimates + self.noise * rng.standard_normal((runs, *estimates.shape))

    def delta(self, epsilon: float, first: np.ndarray, second: np.ndarray) -> float:
        """Return the exact delta of the Gaussian mechanism at this epsilon.

        It depends only on the distance between the estimates without noise, in units of the noise.
        """
        mu = float(np.linalg.norm(self.filter(first) - self.filter(second))) / self.noise
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


class Example(NamedTuple):
    """A report, and the exact privacy of its mechanism in words."""

    report: Report
    truth: str


def run_examples() -> list[Example]:
    """Verify a false claim about a noisy sum, and a true one about a filter."""
    first = np.sin(0.3 * np.arange(6))
    second = first + 0.1 * (np.arange(6) == 2)
    tracker = PrivateTracker(noise=0.25)
    exact = tracker.delta(1.0, first, second)
    return [
        Example(verify(laplace_sum, np.array([3.0, 2.0]), np.array([3.0, 3.0]), epsilon=0.5), "epsilon is exactly 1"),
        Example(
            verify(tracker, first, second, epsilon=1.0, delta=1.2 * exact),
            f"the claim is true: at epsilon 1 the exact delta is {exact:.4g}, below the claimed one",
        ),
    ]


def demonstrate() -> str:
    """Write the page of the first example, and return both reports as text."""
    examples = run_examples()
    try:
        examples[0].report.to_html(PAGE_FILE)
        page = f"page: {PAGE_FILE}"
    except (InputError, OSError) as problem:
        page = f"no page: {problem}"
    return "\n\n".join([*(f"{report}\n  truth     {truth}" for report, truth in examples), page])
