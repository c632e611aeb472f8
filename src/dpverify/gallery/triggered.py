"""Event-triggered release of a stream: DSFT with a fixed threshold, and DSAT with an adaptive one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpverify.gallery.entry import Case, Entry, Runs, Truth
from dpverify.stats.claims import pure

THRESHOLD_RANGE = (0.0, 2.0)  # DSAT keeps the threshold in this range


@dataclass(frozen=True)
class TriggeredRelease:
    """Release a count only if it has moved away from the last release by more than a noisy threshold.

    The first count is always released. An output contains the values of the releases, followed by the steps of all
    releases but the first. This is all the information of the released stream, which repeats the last release.

    Attributes
    ----------
    adaptive : bool
        Whether the threshold follows the rate of releases (DSAT) or is fixed (DSFT).
    clipped : bool
        Whether the adaptive threshold is kept between 0 and 2, as in the source.
    releases : int
        The number C of releases.
    epsilon, share : float
        The whole budget, and the share of it that the decisions use.
    threshold : float
        The threshold before noise.
    gain, tolerance : float
        The gain theta and the set point delta of the adaptation.

    Examples
    --------
    >>> release = TriggeredRelease(adaptive=True)(np.full(12, 10.0), 3, np.random.default_rng(0))
    >>> release.shape
    (3, 3)
    """

    adaptive: bool
    clipped: bool = True
    releases: int = 2
    epsilon: float = 1.0
    share: float = 0.8
    threshold: float = 0.025
    gain: float = 0.5
    tolerance: float = 0.05

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the values and the steps of the releases."""
        steps, C = len(data), self.releases
        for_decisions = self.share * self.epsilon
        release_scale = C / (self.epsilon - for_decisions)
        threshold = self.threshold + rng.laplace(scale=2 / for_decisions, size=runs)
        values, times = np.zeros((runs, C)), np.ones((runs, C))
        last = data[0] + rng.laplace(scale=release_scale, size=runs)
        values[:, 0] = last
        count = np.ones(runs, dtype=int)
        for step in range(2, steps + 1):
            if self.adaptive:
                threshold = self._adapt(threshold, count, step, steps)
            distance = np.abs(data[step - 1] - last) + rng.laplace(scale=2 * C / for_decisions, size=runs)
            must = steps - step < C - count  # the remaining releases need all remaining steps
            row = np.flatnonzero(((distance >= threshold) | must) & (count < C))
            released = data[step - 1] + rng.laplace(scale=release_scale, size=len(row))
            last[row] = released
            values[row, count[row]] = released
            times[row, count[row]] = step
            count[row] += 1
        return np.hstack([values, times[:, 1:]])

    def _adapt(self, threshold: np.ndarray, count: np.ndarray, step: int, steps: int) -> np.ndarray:
        """Return the threshold of this step: lower if there were too few releases so far, otherwise higher."""
        rate, target = count / step, self.releases / steps
        change = self.gain * np.abs(np.abs(rate - target) - self.tolerance) / self.tolerance
        moved = np.where(rate < target, threshold - change, threshold + change)
        if not self.clipped:
            return moved
        low, high = THRESHOLD_RANGE
        return np.where(rate < target, np.maximum(low, moved), np.minimum(high, moved))


FIRST = np.array([10.0, 12, 12, 12, 12, 10, 10, 10, 10, 10, 10, 10])
SECOND = FIRST + 1  # one user is present in every step


def adaptive_truth() -> Truth:
    """Return the supremum for DSAT with clipping: each silent step costs as much as a decision with no threshold noise.

    The releases cost the budget for releases. Behind the clipping the threshold is the same number in nearly all runs,
    and each of the 11 decisions can cost eps1 / (2 C). An event that shows all of it is very rare.
    """
    mechanism = TriggeredRelease(adaptive=True)
    for_decisions = mechanism.share * mechanism.epsilon
    silent = (len(FIRST) - 1) * for_decisions / (2 * mechanism.releases)
    return Truth(mechanism.epsilon - for_decisions + silent, None, "supremum, derived", None, is_exact=False)


def claimed_bound() -> Truth:
    """Return the upper bound that the proof of the sparse vector technique gives."""
    return Truth(1.0, None, "proof of the claim", None, is_exact=False)


ENTRY = Entry(
    name="triggered",
    title="Event-triggered release: DSFT and DSAT",
    source="Li, Xiong and Jiang, Differentially private histogram publication for dynamic datasets, 2015",
    what=(
        "A count is released with Laplace noise when its distance from the last release exceeds a noisy threshold; "
        "at most C = 2 of 12 steps are released, the first always, and what is left at the end is released too. DSFT "
        "keeps the threshold. DSAT moves it by theta |E - delta| / delta, where E is the distance between the rate "
        "of releases and its target, and keeps it between 0 and 2. Epsilon is 1, of which 0.8 is for the decisions. "
        "The scales of the threshold noise, 2/eps1, and of the decision noise, 2C/eps1, are our reading of the "
        "source."
    ),
    neighbours="One user is present in every step or in none, so that every count changes by 1.",
    why=(
        "The proof of DSFT hides the shift of all silent steps behind one noisy threshold. DSAT moves this threshold "
        "and then clips it to at most 2. From most starting values the clipped threshold is exactly 2, so that its "
        "noise is gone. Every further silent step then compares a fresh noisy distance with a known number, and each "
        "of them can cost eps1/(2C) = 0.2. The loss grows with the number of silent steps and exceeds the claim. "
        "Without the clipping the noise of the threshold stays, and the claim is not refuted."
    ),
    cases=(
        Case(
            "dsat",
            "DSAT, threshold clipped to [0, 2]",
            TriggeredRelease(adaptive=True),
            FIRST,
            SECOND,
            pure(1.0),
            adaptive_truth,
            full=Runs(4_000_000, 10_000_000),
            quick=Runs(400_000, 1_000_000),
        ),
        Case(
            "dsat-unclipped",
            "DSAT without clipping",
            TriggeredRelease(adaptive=True, clipped=False),
            FIRST,
            SECOND,
            pure(1.0),
            claimed_bound,
            role="corrected",
            full=Runs(1_000_000, 4_000_000),
        ),
        Case("dsft", "DSFT, C 2", TriggeredRelease(adaptive=False), FIRST, SECOND, pure(1.0), claimed_bound),
    ),
)
