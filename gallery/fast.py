"""FAST: adaptive sampling with a Kalman correction.

Fan and Xiong, Real-time aggregate monitoring with differential privacy, 2012.

At most M = 4 of 12 counts are sampled with Laplace noise of scale M/eps; a Kalman filter corrects its prediction with
each sample, and a PID controller on the relative correction chooses the next interval. All 12 filtered counts are
released.

Neighbours: One user is present in every step or in none, so that every count changes by 1.

Why: Only the noisy samples touch the data; filter and controller use released values. With these gains an interval
grows by at most 1, so all four samples are used in every run, and the losses of four Laplace variables of eps/4 add up
to exactly eps: the claim holds and is tight. With the noise of three samples it fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dpverify import claims
from gallery.entry import Case, Truth, make_entry
from gallery.laws import laplace_truth


@dataclass(frozen=True)
class AdaptiveSampling:
    """Sample at most M counts with Laplace noise, at intervals that a PID controller chooses, and filter them.

    Attributes
    ----------
    epsilon : float
        The whole budget.
    samples : int
        The largest number M of samples.
    scale : float
        The scale of the noise, in units of 1/epsilon. M spends the whole budget in M samples.
    process_variance : float
        The variance of the change of the count per step, of the filter.
    gains : tuple of float
        Proportional, integral and derivative gain.
    growth, set_point : float
        How much an interval can grow, and the relative correction at which it stays.

    Examples
    --------
    >>> AdaptiveSampling()(np.full(12, 20.0), 5, np.random.default_rng(0)).shape
    (5, 12)
    """

    epsilon: float = 1.0
    samples: int = 4
    scale: float = 4.0
    process_variance: float = 1.0
    gains: tuple[float, float, float] = (0.8, 0.1, 0.1)
    growth: float = 1.0
    set_point: float = 0.2

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the filtered count of every step."""
        R = 2 * (self.scale / self.epsilon) ** 2  # the variance of the noise
        state, P = np.zeros(runs), np.full(runs, 100.0)
        interval, next_sample, count = np.ones(runs), np.zeros(runs), np.zeros(runs, dtype=int)
        total, previous = np.zeros(runs), np.zeros(runs)
        released = np.empty((runs, len(data)))
        for step in range(len(data)):
            P = P + self.process_variance
            row = np.flatnonzero((step >= next_sample) & (count < self.samples))
            measured = data[step] + rng.laplace(scale=self.scale / self.epsilon, size=len(row))
            gain = P[row] / (P[row] + R)
            corrected = state[row] + gain * (measured - state[row])
            error = np.abs(corrected - state[row]) / np.maximum(np.abs(corrected), 1.0)
            total[row] += error
            # The mean of the errors is the integral part; the derivative is per step since the last sample.
            parts = error, total[row] / (count[row] + 1), (error - previous[row]) / interval[row]
            control = sum(factor * part for factor, part in zip(self.gains, parts, strict=True))
            exponent = np.minimum((control - self.set_point) / self.set_point, 50.0)
            interval[row] = np.maximum(1.0, interval[row] + self.growth * (1 - np.exp(exponent)))
            next_sample[row] = step + np.floor(interval[row])
            state[row], P[row], previous[row] = corrected, (1 - gain) * P[row], error
            count[row] += 1
            released[:, step] = state
        return released


def truth(samples: int, scale: float, claim: claims.Approximate) -> Truth:
    """Return the truth if every run uses all samples: a sum of as many Laplace losses."""
    return laplace_truth([1 / scale] * samples, claim)


FIRST = np.array([20.0, 21, 23, 22, 24, 26, 25, 24, 22, 21, 20, 22])

CLAIM = claims.pure(1.0)

ENTRY = make_entry(
    __name__,
    __doc__,
    Case("fast", "noise scale M/eps", AdaptiveSampling(), (FIRST, FIRST + 1), CLAIM, partial(truth, 4, 4.0, CLAIM)),
    Case(
        "fast-too-little-noise",
        "four samples, noise scale 3/eps",
        AdaptiveSampling(scale=3.0),
        (FIRST, FIRST + 1),
        CLAIM,
        partial(truth, 4, 3.0, CLAIM),
        role="control",
    ),
)
