"""The direction in which a pair of a box becomes easier to distinguish, estimated from runs of the mechanism.

A score is learned at a point of the box. The mean difference of its smooth indicator between the two data sets is then
measured at points around it, and its slope along every axis is estimated. Every run contributes to the slopes of all
axes, because the points are the rows of an orthogonal design of two levels, each with its mirror image.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from dpverify.sampling.context import RunContext
from dpverify.sampling.stages import collect_samples
from dpverify.selection.proposals import score_values
from dpverify.studies.pair_search.pair_value import DataPair, SearchAim, learn_best_score
from dpverify.util.read_only import read_only

LEARNING_SHARE = 0.25  # of the runs, for the score
STAGE = "decide"  # runs that neither learned the score nor test the pair


def estimate_gradient(
    run: RunContext,
    pair_at: Callable[[np.ndarray], DataPair],
    point: np.ndarray,
    distances: np.ndarray,
    aim: SearchAim,
    runs: int,
) -> np.ndarray:
    """Return the estimated derivatives of the mean difference of a score between the data sets of a pair.

    Parameters
    ----------
    run : RunContext
        Draws the runs.
    pair_at : callable
        The function from a point of the box to a pair.
    point : ndarray of shape (d,)
        The point at which the score is learned.
    distances : ndarray of shape (d,)
        How far the points around it differ from it along each axis.
    aim : SearchAim
        What the search maximises.
    runs : int
        The runs per data set of all points together.
    """
    learned = learn_best_score(run, pair_at(point), aim, int(LEARNING_SHARE * runs))
    design = two_level_design(len(point))
    each = max(1, int((1 - LEARNING_SHARE) * runs) // len(design))
    differences = []
    for signs in design:
        pair = pair_at(point + signs * distances)
        source = run.source._replace(data=tuple(map(read_only, pair)), is_coupled=True)
        first, second = (
            scipy.special.expit((score_values(learned.score, samples) - learned.middle) / learned.spread).mean()
            for samples in collect_samples(source, STAGE, each, run.pool, run.progress)
        )
        differences.append(first - second)
    return design.T @ np.array(differences) / len(design) / distances


def two_level_design(dimension: int) -> np.ndarray:
    """Return rows of signs with orthogonal columns, each row with its mirror image, so that even effects cancel.

    Examples
    --------
    >>> two_level_design(3).T @ two_level_design(3)
    array([[8, 0, 0],
           [0, 8, 0],
           [0, 0, 8]])
    """
    size = 1 << int(dimension).bit_length()
    rows = scipy.linalg.hadamard(size)[:, 1 : dimension + 1]
    return np.concatenate([rows, -rows])
