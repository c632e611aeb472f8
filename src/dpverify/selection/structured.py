"""Scores with structure: they are fitted to some of the kept training runs, and the others choose a few of them.

Most outputs have none of the structures. Therefore every score is judged on few runs first, and only those that do
about as well as the best of the usual scores are counted on the proposal runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.events.scores import SCORE_FAMILIES, LearnerCost, Score, ScoreGroup, TrainingData

MIN_STRUCTURED_RUNS = 2000  # kept training runs per data set
HELD_OUT_SHARE = 4  # one of so many kept runs judges the scores
MANY_RUNS = 50_000  # training runs from which more time is spent


class Effort(NamedTuple):
    """How much time the structured scores may take.

    Attributes
    ----------
    fit_runs, held_out_runs : int
        The largest numbers of runs per data set that fit and that judge the scores.
    kept : int
        The number of scores that compete on the proposal runs.
    """

    fit_runs: int
    held_out_runs: int
    kept: int


USUAL_EFFORT = Effort(1 << 14, 1 << 11, 2)
LARGE_EFFORT = Effort(1 << 16, 1 << 14, 4)
CLOSE = 0.9  # of the largest separation of the usual scores
STANDARD_ERRORS = 2.0  # subtracted from a log-ratio of counts


def promising_scores(
    training: TrainingData, usual: list[Score], train_runs: int, delta: float, cost: LearnerCost
) -> list[Score]:
    """Return the structured scores that separate held-out runs about as well as the usual scores, or better.

    Parameters
    ----------
    training : TrainingData
        The kept training runs.
    usual : list of Score
        The scores that compete in any case. They were fitted to all training runs, so that they look slightly better
        than they are.
    train_runs : int
        The training runs per data set, including those that are not kept.
    delta : float
        The claimed delta.
    cost : LearnerCost
        The most expensive learners that are used.
    """
    runs = min(len(training.first), len(training.second))
    if cost < LearnerCost.STRUCTURED or runs < MIN_STRUCTURED_RUNS:
        return []
    effort = LARGE_EFFORT if train_runs >= MANY_RUNS else USUAL_EFFORT
    held_out = min(effort.held_out_runs, runs // HELD_OUT_SHARE)
    fitted = training.head(min(effort.fit_runs, runs - held_out))
    families = [family for family in SCORE_FAMILIES if family.cost == LearnerCost.STRUCTURED]
    learners = [learner for family in families for learner in family.learners(fitted)]
    scores = [score for learner in learners for score in learner.fit(None, None)]
    if not scores:
        return []
    group = ScoreGroup.of([*usual, *scores])
    values = zip(group.values(training.first[-held_out:]), group.values(training.second[-held_out:]), strict=True)
    separations = np.array([separation(first, second, delta) for first, second in values])
    least = CLOSE * separations[: len(usual)].max(initial=0.0)
    own = separations[len(usual) :]
    best = np.argsort(-own, kind="stable")[: effort.kept]
    return [scores[i] for i in sorted(best.tolist()) if own[i] > max(least, 0.0)]


def separation(first: np.ndarray, second: np.ndarray, delta: float) -> float:
    """Return the largest log-ratio of counts above or below a threshold, less standard errors."""
    pooled = np.concatenate([first, second])
    if not np.isfinite(pooled).all():
        return -np.inf
    order = np.argsort(pooled, kind="stable")
    is_last = np.append(np.diff(pooled[order]) > 0, False)  # of equal values; the threshold above all is left out
    below1 = np.cumsum(order < len(first))[is_last]
    below2 = np.cumsum(order >= len(first))[is_last]
    if not below1.size:
        return 0.0
    above1, above2 = len(first) - below1, len(second) - below2
    largest = 0.0
    for c1, c2, runs in ((above1, above2, len(first)), (below2, below1, len(second))):
        excess = c1 + 0.5 - delta * runs
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.sqrt((c1 + 0.5) / excess**2 + 1 / (c2 + 0.5))
            ratios = np.where(excess > 0, np.log(excess / (c2 + 0.5)) - STANDARD_ERRORS * error, 0.0)
        largest = max(largest, float(ratios.max()))
    return largest
