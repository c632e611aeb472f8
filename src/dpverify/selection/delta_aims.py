"""Choice of the events for bounds on delta: for each of some epsilons, a level set of one score."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from dpverify.events.scores import Levels
from dpverify.events.selected import WITNESS, DeltaAims
from dpverify.selection.histograms import threshold_counts
from dpverify.selection.objective import SelectionObjective
from dpverify.selection.proposals import Candidate, JudgedProposal
from dpverify.stats.profile import PROFILE_EPSILONS

AIM_EPSILONS = PROFILE_EPSILONS[PROFILE_EPSILONS <= 10]
SAME_SCORE_BONUS = 0.03  # relative


class AimOptions(NamedTuple):
    """What one score offers for bounds on delta.

    Attributes
    ----------
    candidate : Candidate
        The score.
    thresholds : ndarray of shape (n,)
        The best threshold for each epsilon.
    directions : ndarray of shape (n,)
        0 for {score > threshold}, 1 for {score <= threshold}.
    deltas : ndarray of shape (n,)
        The lower bounds on delta that the test runs are expected to prove.
    """

    candidate: Candidate
    thresholds: np.ndarray
    directions: np.ndarray
    deltas: np.ndarray


def aim_options(candidate: Candidate, objective: SelectionObjective) -> AimOptions:
    """Return the best level sets of one score."""
    runs = candidate.histogram.runs
    thresholds, above1, above2 = threshold_counts(candidate.histogram, candidate.binned.edges)
    values = np.stack(
        [
            expected_delta(above1, above2, runs, objective),
            expected_delta(runs - above2, runs - above1, runs, objective),
        ]
    )  # directions, epsilons, thresholds
    best = values.argmax(2)
    deltas = np.take_along_axis(values, best[..., None], 2)[..., 0]
    directions = deltas.argmax(0)
    columns = np.arange(AIM_EPSILONS.size)
    return AimOptions(
        candidate, thresholds[best[directions, columns]], directions, np.maximum(deltas[directions, columns], 0.0)
    )


def expected_delta(c1: np.ndarray, c2: np.ndarray, runs: int, objective: SelectionObjective) -> np.ndarray:
    """Return the expected lower bounds on delta for each aimed epsilon and each pair of counts.

    The errors of the selection and of the test are subtracted.
    """
    p1, p2 = (c1 + 0.5) / (runs + 1), (c2 + 0.5) / (runs + 1)
    growth = np.exp(AIM_EPSILONS)[:, None]
    variance = p1 * (1 - p1) + growth**2 * p2 * (1 - p2)
    error = np.sqrt(variance * (1 / objective.planned + 1 / runs))
    return p1 - growth * p2 + scipy.special.ndtri(objective.alpha) * error


def choose_aims(options: list[AimOptions], first: JudgedProposal, objective: SelectionObjective) -> DeltaAims:
    """Return the level sets of the score that offers most in relation to the best score, summed over the epsilons.

    An epsilon at which the first tested event offers more is assigned to that event.
    """
    deltas = np.stack([one.deltas for one in options])
    best = deltas.max(0)
    shares = np.divide(deltas, best, out=np.zeros_like(deltas), where=best > 0).sum(1)
    # The score of the first tested event is evaluated anyway.
    own_score = getattr(first.proposal.event.partition, "score", None)
    shares *= [1 + SAME_SCORE_BONUS * (one.candidate.binned.score is own_score) for one in options]
    chosen = options[int(shares.argmax())]
    side = first.proposal.event.direction
    c1, c2 = (np.array([first.proposal.counts[k] + first.decided[k ^ side]]) for k in (side, 1 - side))
    own = expected_delta(c1, c2, chosen.candidate.histogram.runs, objective)[:, 0]
    levels = Levels(chosen.candidate.binned.score, np.unique(chosen.thresholds))
    edges = np.searchsorted(levels.edges, chosen.thresholds)
    return DeltaAims(
        levels, AIM_EPSILONS.copy(), np.where(own >= chosen.deltas, WITNESS, edges), chosen.directions.astype(np.int64)
    )
