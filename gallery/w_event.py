"""w-event privacy: budget distribution and budget absorption.

Kellaris, Papadopoulos, Xiao and Papadias, Differentially private event sequences over infinite streams, 2014.

In each step a noisy distance between the count and the last publication decides whether a new count is published with
Laplace noise or the last one is repeated. BD gives a publication half of what is left of eps/2 in the window; BA gives
it the unused shares of the steps before and skips as many steps after it. The window has 3 steps, as long as the
stream; eps is 1.

Neighbours: One user within a window of w steps: every count of the window changes by at most 1.

Why: Decisions and publications each use at most eps/2 in a window, so the claim holds. For these counts the largest
loss of any output is 0.9375 with BD, which cannot spend the whole half of the publications in three steps, and 1 with
BA. It belongs to rare outputs, and the events that samples can show are far below it. Repeated values are atoms of the
output.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpverify import claims
from gallery.entry import Case, Truth, make_entry


@dataclass(frozen=True)
class WindowedRelease:
    """Publish a count, or repeat the last publication, with at most epsilon in every window of w steps.

    Half of the budget decides between publishing and repeating, the other half is spent on publications.

    Attributes
    ----------
    absorbs : bool
        False: budget distribution, a publication gets half of what is left in the window. True: budget absorption, a
        publication gets the shares of the skipped steps before it, and as many steps after it are skipped.
    window : int
        The length w of the window.
    epsilon : float
        The budget of a window.

    Examples
    --------
    >>> WindowedRelease(absorbs=True)(np.array([3.0, 2.0, 4.0]), 5, np.random.default_rng(0)).shape
    (5, 3)
    """

    absorbs: bool
    window: int = 3
    epsilon: float = 1.0

    @property
    def decision_scale(self) -> float:
        """The scale of the noise of each decision."""
        return 2 * self.window / self.epsilon

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the published stream."""
        last, released = np.zeros(runs), np.empty((runs, len(data)))
        spent = np.zeros((runs, len(data)))
        for step, count in enumerate(data):
            budget = self.budget(spent, step)
            may = budget > 0
            distance = np.abs(last - count) + rng.laplace(scale=self.decision_scale, size=runs)
            safe = np.where(may, budget, 1.0)
            publishes = may & (distance > 1 / safe)
            fresh = count + rng.laplace(size=runs) / safe
            last = np.where(publishes, fresh, last)
            spent[:, step] = np.where(publishes, budget, 0.0)
            released[:, step] = last
        return released

    def budget(self, spent: np.ndarray, step: int) -> np.ndarray:
        """Return the budget of a publication in this step, 0 if the step must be skipped."""
        if not self.absorbs:
            recent = spent[:, max(0, step - self.window + 1) : step].sum(axis=1)
            return (self.epsilon / 2 - recent) / 2
        share = self.epsilon / (2 * self.window)
        before = np.arange(1, step + 1) * (spent[:, :step] > 0)  # the step after each publication, counted from 1
        latest = before.max(axis=1, initial=0)
        rows = np.arange(len(spent))
        units = np.where(latest > 0, np.round(spent[rows, np.maximum(latest - 1, 0)] / share), 1.0)
        available = step - (latest + units - 1) + 1  # shares since the skipped steps ended, this step included
        return share * np.clip(available, 0, self.window)


def supremum(mechanism: WindowedRelease, first: np.ndarray, second: np.ndarray) -> float:
    """Return the largest privacy loss over all outputs, in both directions.

    Given the earlier outputs, a decision is a Bernoulli variable with known probability and a publication a Laplace
    variable, so the loss of every output is explicit. It is maximised over all patterns of decisions, and over a grid
    of published values that contains the counts, where the loss has its corners.
    """
    corners = np.concatenate([first, second])
    grid = np.unique(np.concatenate([np.arange(-40.0, 50.0, 0.25), corners, corners - 1e-9, corners + 1e-9]))
    best = 0.0
    for pattern in itertools.product((False, True), repeat=len(first)):
        free = [step for step, publishes in enumerate(pattern) if publishes]
        if free and free[-1] == len(first) - 1:
            free.pop()  # the last value affects nothing after it
        axes = np.meshgrid(*[grid] * len(free), indexing="ij") if free else [np.zeros(1)]
        values = {step: axis.ravel() for step, axis in zip(free, axes, strict=False)}
        loss = pattern_loss(mechanism, first, second, pattern, values)
        if loss is not None:
            best = max(best, float(np.abs(loss).max()))
    return best


def pattern_loss(
    mechanism: WindowedRelease,
    first: np.ndarray,
    second: np.ndarray,
    pattern: Iterable[bool],
    values: dict[int, np.ndarray],
) -> np.ndarray | None:
    """Return the loss of outputs with these decisions and values; None if the mechanism cannot take them.

    A published value that is not given has the loss of a value below or above all counts, whichever is larger in sum.
    """
    size = max((len(value) for value in values.values()), default=1)
    last, loss, extra = np.zeros(size), np.zeros(size), 0.0
    spent = np.zeros((1, len(first)))
    for step, publishes in enumerate(pattern):
        budget = float(mechanism.budget(spent, step)[0])
        if budget <= 0:
            if publishes:
                return None
            continue
        gaps = [1 / budget - np.abs(last - data[step]) for data in (first, second)]
        above = [laplace_above(gap / mechanism.decision_scale) for gap in gaps]
        chances = above if publishes else [1 - chance for chance in above]
        loss = loss + np.log(chances[0] / chances[1])
        if not publishes:
            continue
        spent[0, step] = budget
        if step in values:
            last = values[step]
            loss = loss + budget * (np.abs(last - second[step]) - np.abs(last - first[step]))
        else:
            extra = budget * abs(first[step] - second[step])
    return np.sign(loss) * (np.abs(loss) + extra)


def laplace_above(x: np.ndarray) -> np.ndarray:
    """Return the probability that a Laplace variable of scale 1 exceeds x."""
    return np.where(x < 0, 1 - 0.5 * np.exp(-np.abs(x)), 0.5 * np.exp(-np.abs(x)))


def truth(mechanism: WindowedRelease) -> Truth:
    """Return the supremum of the loss at delta 0."""
    return Truth(supremum(mechanism, FIRST, SECOND), None, "explicit likelihood ratio, maximised on a grid")


FIRST = np.array([3.0, 6.0, 12.0])

SECOND = FIRST + 1

DISTRIBUTION, ABSORPTION = WindowedRelease(absorbs=False), WindowedRelease(absorbs=True)

ENTRY = make_entry(
    __name__,
    __doc__,
    Case(
        "w-event-bd",
        "budget distribution, w 3",
        DISTRIBUTION,
        (FIRST, SECOND),
        claims.pure(1.0),
        partial(truth, DISTRIBUTION),
    ),
    Case(
        "w-event-ba",
        "budget absorption, w 3",
        ABSORPTION,
        (FIRST, SECOND),
        claims.pure(1.0),
        partial(truth, ABSORPTION),
    ),
)
