"""Two small verifications in seconds: a claim that is false, and a filter whose claim stands.

The laws are known in closed form, so the last column shows what a perfect answer would be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from dpverify.errors import InputError
from dpverify.pipeline import verify
from dpverify.report.report import Report


def laplace_sum(data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
    """A sum with Laplace noise of scale 1; its author claims epsilon 0.5, but one person changes the sum by 1."""
    return data.sum() + rng.laplace(scale=1.0, size=(runs, 1))


@dataclass(frozen=True)
class PrivateTracker:
    """A Kalman filter for position and velocity that releases its estimates with Gaussian noise."""

    noise: float
    name: str = "private Kalman filter"

    def gains(self, steps: int) -> tuple[np.ndarray, list[np.ndarray]]:
        A = np.array([[1.0, 0.1], [0.0, 1.0]])
        P, gains = np.eye(2), []
        for _ in range(steps):
            P = A @ P @ A.T + 1e-3 * np.eye(2)
            K = P[:, 0] / (P[0, 0] + 0.04)
            P = P - np.outer(K, P[0])
            gains.append(K)
        return A, gains

    def filter(self, y: np.ndarray) -> np.ndarray:
        A, gains = self.gains(len(y))
        x, estimates = np.zeros(2), []
        for y_k, K in zip(y, gains, strict=True):
            x = A @ x
            x = x + K * (y_k - x[0])
            estimates.append(x)
        return np.array(estimates)

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        estimates = self.filter(data)
        return estimates + self.noise * rng.standard_normal((runs, *estimates.shape))

    def delta(self, epsilon: float, first: np.ndarray, second: np.ndarray) -> float:
        """Exact: everything depends on the length of the difference of the two noise-free answers."""
        mu = float(np.linalg.norm(self.filter(first) - self.filter(second))) / self.noise
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def runs() -> list[tuple[Report, str]]:
    first = np.sin(0.3 * np.arange(6))
    second = first + 0.1 * (np.arange(6) == 2)
    tracker = PrivateTracker(noise=0.25)
    exact = tracker.delta(1.0, first, second)
    return [
        (verify(laplace_sum, np.array([3.0, 2.0]), np.array([3.0, 3.0]), epsilon=0.5), "epsilon 1 exactly"),
        (verify(tracker, first, second, epsilon=1.0, delta=1.2 * exact), f"delta {exact:.4g} at epsilon 1 exactly"),
    ]


def page(report: Report, path: str) -> str:
    """The report's page where it can be drawn, and in any case a line for the reader."""
    try:
        report.to_html(path)
    except (InputError, OSError) as problem:
        return f"no page: {problem}"
    return f"its page: {path}"


def main() -> None:
    both = runs()
    for report, truth in both:
        print(report)
        print(f"  truth     {truth}\n")
    print(page(both[0][0], "dpverify-demo.html"))
