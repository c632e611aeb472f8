"""Event-triggered release: DSFT and DSAT.

Li, Xiong and Jiang, Differentially private histogram publication for dynamic datasets, 2015.

A count is released with Laplace noise when its distance from the last release exceeds a noisy threshold; at most C = 2
of 12 steps are released, the first always, and what is left at the end is released too. DSFT keeps the threshold. DSAT
moves it by theta |E - delta| / delta, where E is the distance between the rate of releases and its target, and keeps
it between 0 and 2. Epsilon is 1, of which 0.8 is for the decisions. The scales of the threshold noise, 2/eps1, and of
the decision noise, 2C/eps1, are our reading of the source.

Neighbours: One user is present in every step or in none, so that every count changes by 1.

Why: The proof of DSFT hides the shift of all silent steps behind one noisy threshold. DSAT moves this threshold and
then clips it to at most 2. From most starting values the clipped threshold is exactly 2, so that its noise is gone.
Every further silent step then compares a fresh noisy distance with a known number, and each of them can cost eps1/(2C)
= 0.2. The loss grows with the number of silent steps: for this pair it reaches 2.2 on very rare outputs, and delta at
epsilon 1 is 0.00031 instead of 0. Without the clipping the noise of the threshold stays, and the largest loss of this
pair is 0.6; with the fixed threshold it is 0.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from scipy.stats import laplace

from dpverify import claims
from gallery.entry import Case, Runs, Truth, approximate_truth, make_entry

THRESHOLD_RANGE = (0.0, 2.0)  # DSAT keeps the threshold in this range

THRESHOLDS = np.linspace(-100.0, 100.0, 1001)  # values that replace the distribution of the noisy threshold

RELEASES = np.linspace(-60.0, 80.0, 701)  # first releases at which probabilities are tabulated


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

DSAT, DSFT = TriggeredRelease(adaptive=True), TriggeredRelease(adaptive=False)

UNCLIPPED = TriggeredRelease(adaptive=True, clipped=False)


@cache
def decision_table(mechanism: TriggeredRelease) -> tuple[np.ndarray, np.ndarray]:
    """Return first releases, and the probabilities of each second step given them: (dataset, step, release).

    Given the first release, the noisy threshold before the first decision is the only hidden variable; its distribution
    is replaced by one on a grid. This needs C = 2, so that the number of releases is 1 until the second one.
    """
    steps, for_decisions = len(FIRST), mechanism.share * mechanism.epsilon
    threshold = mechanism.threshold + THRESHOLDS
    weight = np.exp(-np.abs(THRESHOLDS) * for_decisions / 2)
    weight /= weight.sum()
    silent = np.ones((2, len(RELEASES), len(THRESHOLDS)))
    table = np.zeros((2, steps + 1, len(RELEASES)))
    for step in range(2, steps + 1):
        if mechanism.adaptive:
            threshold = mechanism._adapt(threshold, np.ones(len(THRESHOLDS)), step, steps)
        for side, data in enumerate((FIRST, SECOND)):
            distance = np.abs(data[step - 1] - RELEASES)
            gap = (threshold - distance[:, None]) * for_decisions / (2 * mechanism.releases)
            stays = np.where(gap < 0, 0.5 * np.exp(-np.abs(gap)), 1 - 0.5 * np.exp(-np.abs(gap)))
            if step == steps:  # the last release takes place in any case
                stays = np.zeros_like(stays)
            table[side, step] = (silent[side] * (1 - stays)) @ weight
            silent[side] *= stays
    return RELEASES, table


def release_loss(values: np.ndarray, step: np.ndarray, mechanism: TriggeredRelease) -> np.ndarray:
    """Return the loss of a released value: Laplace noise around the counts of this step."""
    scale = mechanism.releases / ((1 - mechanism.share) * mechanism.epsilon)
    return (np.abs(values - SECOND[step - 1]) - np.abs(values - FIRST[step - 1])) / scale


def log_likelihood_ratio(samples: np.ndarray) -> np.ndarray:
    """Return the logarithm of the likelihood ratio of outputs of DSAT, for use as a score."""
    releases, table = decision_table(DSAT)
    first_release, second_release, second_step = np.asarray(samples)[:, 0].T
    ratio = np.log(table[0, 2:] / table[1, 2:])
    step, position = second_step.astype(int), np.interp(first_release, releases, np.arange(len(releases)))
    low = np.minimum(position.astype(int), len(releases) - 2)
    weight = position - low
    decisions = (1 - weight) * ratio[step - 2, low] + weight * ratio[step - 2, low + 1]
    released = release_loss(first_release, np.ones_like(step), DSAT) + release_loss(second_release, step, DSAT)
    return decisions + released


def exact_truth(mechanism: TriggeredRelease, claim: claims.Approximate = claims.pure(1.0)) -> Truth:  # noqa: B008 (frozen)
    """Return the truth for this pair: the largest loss, and delta at the claim, from the table of probabilities."""
    releases, table = decision_table(mechanism)
    scale = mechanism.releases / ((1 - mechanism.share) * mechanism.epsilon)
    decisions = np.log(table[0, 2:] / table[1, 2:])
    first_loss = release_loss(releases, np.ones(len(releases), dtype=int), mechanism)
    supremum = float(np.abs(decisions + first_loss).max()) + 1 / scale  # the second release adds up to 1 / scale
    density = np.exp(-np.abs(releases - FIRST[0]) / scale) / (2 * scale) * (releases[1] - releases[0])
    nodes = laplace.ppf((np.arange(41) + 0.5) / 41)
    second_loss = (np.abs(nodes * scale - 1) - np.abs(nodes * scale)) / scale
    loss = (decisions + first_loss)[:, :, None] + second_loss
    weight = np.broadcast_to((table[0, 2:] * density)[:, :, None] / len(nodes), loss.shape)

    def delta_at(epsilon: float) -> float:
        forwards = (weight * np.maximum(-np.expm1(epsilon - loss), 0)).sum()
        backwards = (weight * np.maximum(np.exp(-loss) - np.exp(epsilon), 0)).sum()
        return float(max(forwards, backwards))

    mass = float(weight[loss >= 0.99 * supremum].sum())
    return approximate_truth(delta_at, claim, "quadrature", supremum, mass)


ENTRY = make_entry(
    __name__,
    __doc__,
    Case(
        "dsat",
        "DSAT, threshold clipped to [0, 2]",
        DSAT,
        (FIRST, SECOND),
        claims.pure(1.0),
        partial(exact_truth, DSAT),
        full=Runs(4_000_000, 10_000_000),
        quick=Runs(400_000, 1_000_000),
    ),
    Case(
        "dsat-score",
        "DSAT, tested with its likelihood ratio as the score",
        DSAT,
        (FIRST, SECOND),
        claims.pure(1.0),
        partial(exact_truth, DSAT),
        events=log_likelihood_ratio,
        full=Runs(4_000_000, 10_000_000),
        quick=Runs(1_000_000, 2_000_000),
    ),
    Case(
        "dsat-unclipped",
        "DSAT without clipping",
        UNCLIPPED,
        (FIRST, SECOND),
        claims.pure(1.0),
        partial(exact_truth, UNCLIPPED),
        role="corrected",
        full=Runs(1_000_000, 4_000_000),
    ),
    Case(
        "dsft",
        "DSFT, C 2",
        DSFT,
        (FIRST, SECOND),
        claims.pure(1.0),
        partial(exact_truth, DSFT),
        full=Runs(1_000_000, 4_000_000),
    ),
)
