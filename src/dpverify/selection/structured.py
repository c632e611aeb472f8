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
STANDARD_ERRORS = 2.0  # subtracted from a log-ratio of counts


class Effort(NamedTuple):
    """How much time the structured scores may take.

    Attributes
    ----------
    screening_runs, fit_runs, held_out_runs : int
        The largest numbers of runs per data set that fit all scores, that fit the promising ones, and that judge them.
    kept : int
        The number of scores that compete on the proposal runs.
    least : tuple of two float
        The separation that a score needs after the first and after the second fit, as a share of the largest one of
        the usual scores.
    """

    screening_runs: int
    fit_runs: int
    held_out_runs: int
    kept: int
    least: tuple[float, float]


USUAL_EFFORT = Effort(1 << 11, 1 << 15, 1 << 10, 2, (0.85, 0.9))
LARGE_EFFORT = Effort(1 << 14, 1 << 16, 1 << 13, 4, (0.8, 0.9))


def promising_scores(training: TrainingData, usual: list[Score], train_runs: int, delta: float) -> list[Score]:
    """Return the structured scores that separate held-out runs about as well as the usual scores, or better.

    All learners are fitted to few runs. Those with promising scores are fitted again to more runs.

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
    """
    runs = min(len(training.first), len(training.second))
    families = [family for family in SCORE_FAMILIES if family.cost == LearnerCost.STRUCTURED]
    if training.dimension == 1 or runs < MIN_STRUCTURED_RUNS:
        return []
    effort = LARGE_EFFORT if train_runs >= MANY_RUNS else USUAL_EFFORT
    held_out = min(effort.held_out_runs, runs // HELD_OUT_SHARE)
    judging = training.first[-held_out:], training.second[-held_out:]
    largest = max(separations(usual, judging, delta), default=0.0)
    chosen: list[tuple[int, int]] | None = None  # the promising learners, as numbers of family and learner
    scores: list[Score] = []
    for limit, least in zip((effort.screening_runs, effort.fit_runs), effort.least, strict=True):
        part = training.head(min(limit, runs - held_out))
        fitted: list[tuple[Score, tuple[int, int]]] = []
        for f, family in enumerate(families):
            if chosen is None or any(one[0] == f for one in chosen):
                for n, learner in enumerate(family.learners(part)):
                    if chosen is None or (f, n) in chosen:
                        fitted += [(score, (f, n)) for score in learner.fit(None, None)]
        own = separations([score for score, _ in fitted], judging, delta)
        best = [i for i in np.argsort(-own, kind="stable")[: effort.kept].tolist() if own[i] > least * largest]
        chosen, scores = [fitted[i][1] for i in best], [fitted[i][0] for i in sorted(best)]
        if not scores or runs - held_out <= limit:
            break
    return scores


def separations(scores: list[Score], runs: tuple[np.ndarray, np.ndarray], delta: float) -> np.ndarray:
    """Return the separation of the runs of both data sets by each score."""
    group = ScoreGroup.of(scores)
    values = zip(*(group.values(side) for side in runs), strict=True)
    return np.array([separation(first, second, delta) for first, second in values])


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
