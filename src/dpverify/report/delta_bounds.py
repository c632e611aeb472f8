"""Lower bounds on delta from events that were chosen for them (`dpverify.events.selected.DeltaAims`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpverify.events.selected import DeltaAims
from dpverify.stats.lower_bound import delta_lower_bound
from dpverify.stats.profile import delta_lower_curve

CURVE_SHARE = 0.2  # of alpha, in a bound at one epsilon


@dataclass(frozen=True)
class DeltaEvents:
    """The events that were chosen for bounds on delta, one for each of some epsilons, and their counts.

    Attributes
    ----------
    aims : DeltaAims
        The events as plain data, and the epsilons for which they were chosen.
    c1, c2 : array of int
        Test runs in each event: under the data set that is expected to exceed, and under the other one.
    runs : int
        Test runs per data set.
    """

    aims: DeltaAims
    c1: np.ndarray
    c2: np.ndarray
    runs: int

    def lower(self, epsilon: float, alpha: float) -> float:
        """Return a lower bound on delta at this epsilon, with confidence 1 - alpha.

        Most of alpha is for the event of the nearest chosen epsilon, which does not depend on the test runs. The rest
        is for the curve of all events, because the event of one epsilon can be a poor choice.
        """
        number = int(np.argmin(np.abs(self.aims.epsilons - epsilon)))
        level = (1 - CURVE_SHARE) * alpha
        own = delta_lower_bound(int(self.c1[number]), int(self.c2[number]), self.runs, epsilon, level)
        return max(own, float(self.curve(np.array([epsilon]), CURVE_SHARE * alpha)[0]))

    def curve(self, epsilons: np.ndarray, alpha: float) -> np.ndarray:
        """Return lower bounds on delta that hold at all given epsilons together, with confidence 1 - alpha.

        The distinct events share alpha equally. Delta at an epsilon is at least delta at every larger epsilon.
        """
        pairs = np.unique(np.stack([self.c1, self.c2]), axis=1).T.tolist()
        share = alpha / np.unique(np.stack([self.aims.edges, self.aims.directions]), axis=1).shape[1]
        bounds = np.max([delta_lower_curve(c1, c2, self.runs, epsilons, share) for c1, c2 in pairs], axis=0)
        return np.maximum.accumulate(bounds[::-1])[::-1]
