"""Bets: which event is expected to violate the claim most clearly, and how probable it is expected to be.

A family of events is a partition whose cells have an order. Its events are intervals of cells and their complements,
or, if it is one-sided, the cells above or below a threshold. A bet names an event, a direction and predicted
probabilities, from the counts of earlier runs only. Validity never depends on how good a bet is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpverify.events.event import Event
from dpverify.events.partition import Partition
from dpverify.events.scores import Levels
from dpverify.sampling.counts import Counts, count_cells
from dpverify.stats.anytime import expected_growth
from dpverify.stats.boundaries import Boundary

PRIOR_RUNS = 6.0  # runs per data set that predict equal probabilities
PRIOR_COUNT = 0.5  # added to the counts of an event and of its complement
PENALTY = 0.7  # standard errors by which a difference is reduced before events are compared
FINALISTS = 12  # events whose growth is computed exactly
EVENTS = 6  # at most, that share the wealth of a family in one batch
SHARPNESS = 0.5  # of the weights: a power of how much more wealth an event would have won in the runs so far
MIN_WEIGHT = 0.1  # relative to the largest; smaller bets are not placed
MIN_PROBABILITY = 1e-9  # of a prediction


class Bet(NamedTuple):
    """An event of a family, and what is predicted for it.

    Attributes
    ----------
    cells : ndarray of bool
        Which cells of the family form the event.
    direction : int
        0 if the first data set is expected to exceed the claim, 1 if the second is.
    a, b : float
        The predicted probabilities under the exceeding data set and under the other one.
    weight : float
        The part of the family's wealth that is placed on this event.
    growth : float
        The expected growth of the log-wealth per run; 0 if no violation is expected.
    """

    cells: np.ndarray
    direction: int
    a: float
    b: float
    weight: float
    growth: float


@dataclass(frozen=True)
class Family:
    """Events that are made of the ordered cells of a partition.

    Attributes
    ----------
    partition : Partition or Levels
        The partition.
    codes : ndarray or None
        None: the cells are those of the partition, in the order of their codes. Otherwise there are two cells: all
        others, and the union of these.
    one_sided : bool
        Whether only thresholds are events, and not intervals.
    """

    partition: Partition | Levels
    codes: np.ndarray | None = None
    one_sided: bool = False

    def columns(self, counts: Counts) -> np.ndarray:
        """Return the counts of the family's cells."""
        if self.codes is None:
            return counts.of(np.arange(self.partition.size))
        inside = counts.of(self.codes).sum()
        return np.array([counts.total - inside, inside])

    def count(self, samples: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts of the cells for samples of both data sets."""
        first, second = (self.columns(count_cells(self.partition, side)) for side in samples)
        return first, second

    def event(self, bet: Bet) -> Event:
        """Return the event of a bet."""
        if self.codes is None:
            return Event(self.partition, np.flatnonzero(bet.cells), bet.direction)
        codes = self.codes if bet.cells[1] else np.setdiff1d(np.arange(self.partition.size), self.codes)
        return Event(self.partition, codes, bet.direction)


def choose_bets(first: np.ndarray, second: np.ndarray, boundary: Boundary, one_sided: bool = False) -> list[Bet]:
    """Return the bets with the largest expected growth, the best first, given the counts of earlier runs in each cell.

    The predicted probabilities are shrunk towards each other. An approximation of the growth selects some events, of
    which the exact growth is compared. Several events share the wealth: they differ little in their promise, and a
    mixture varies less than the single best event of a small sample.

    Examples
    --------
    >>> from dpverify.stats.boundaries import line_boundary
    >>> best, *others = choose_bets(np.array([10, 40]), np.array([30, 20]), line_boundary(0.5))
    >>> best.cells.tolist(), best.direction, round(best.a, 2), round(best.b, 2)
    ([True, False], 1, 0.58, 0.22)
    """
    start, stop = _intervals(first.size, one_sided)
    runs = max(int(first.sum()), 1), max(int(second.sum()), 1)
    inside = [np.append(0, np.cumsum(cells)) for cells in (first, second)]
    count1, count2 = (np.diff(cumulated[np.stack([start, stop])], axis=0)[0] for cumulated in inside)
    common = (count1 + count2 + PRIOR_COUNT) / (sum(runs) + 2 * PRIOR_COUNT)
    p1 = (count1 + PRIOR_RUNS * common) / (runs[0] + PRIOR_RUNS)
    p2 = (count2 + PRIOR_RUNS * common) / (runs[1] + PRIOR_RUNS)
    # Every interval is an event in two directions, and so is its complement.
    exceeding, other = np.concatenate([p1, p2, 1 - p1, 1 - p2]), np.concatenate([p2, p1, 1 - p2, 1 - p1])
    doubt = PENALTY * np.tile(np.sqrt(common * (1 - common) / sum(runs)), 4)
    a, b = np.clip([exceeding, other], MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    middle, half = (a + b) / 2, np.maximum((a - b) / 2 - doubt, 0.0)
    finalists = _finalists(middle + half, middle - half, boundary)
    growth = expected_growth((middle + half)[finalists], (middle - half)[finalists], boundary)
    order = np.argsort(-growth, kind="stable")[:EVENTS]
    chosen, growth = finalists[order], growth[order]
    weights = np.exp(SHARPNESS * max(runs) * (growth - growth[0]))
    is_placed = (weights >= MIN_WEIGHT) & ((growth > 0) | (np.arange(growth.size) == 0))
    weights = weights / weights[is_placed].sum()
    bets = []
    for event, weight, rate in zip(chosen[is_placed].tolist(), weights[is_placed], growth[is_placed], strict=True):
        interval, (is_complement, direction) = event % start.size, divmod(event // start.size, 2)
        cells = np.zeros(first.size, bool)
        cells[start[interval] : stop[interval]] = True
        prediction = float(a[event]), float(b[event])
        bets.append(Bet(cells ^ bool(is_complement), direction, *prediction, float(weight), float(rate)))
    return bets


def _intervals(size: int, one_sided: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the first cells and the ends of all intervals that start at cell 0, or of all intervals but the whole.

    Of an interval and its complement only one is listed.
    """
    if size < 2:
        return np.zeros(1, int), np.ones(1, int)
    if one_sided:
        return np.zeros(size - 1, int), np.arange(1, size)
    start, stop = np.triu_indices(size, 1)
    return start, stop  # `stop` is below the size, so the last cell is in the complement


def _finalists(a: np.ndarray, b: np.ndarray, boundary: Boundary) -> np.ndarray:
    """Return the events with the largest approximate growth: the squared excess over twice its variance."""
    allowed = boundary(b)
    slope = (allowed - boundary(np.zeros(1))) / b
    excess = np.maximum(a - allowed, 0.0)
    growth = excess**2 / (a * (1 - a) + slope**2 * b * (1 - b))
    number = min(FINALISTS, growth.size)
    return np.sort(np.argpartition(-growth, number - 1)[:number])
