"""The portfolio: families of events that share the wealth, refitted from all earlier runs.

The first slot holds a simple family: cells between quantiles of one coordinate of the output. The other slots hold the
events that the selection found in the earlier runs, as soon as there are any. Every batch is first evidence for the
bets that were placed before it, and then training for the next ones.

A part of the wealth is kept in reserve until the last selection. The first bets are made with few runs, and they lose
most of their wealth if nothing frequent violates the claim. The reserve is then left for an event that is rare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dpverify.events.event import Event
from dpverify.events.scores import Levels, Linear, Score, UserScore
from dpverify.events.selected import SelectedEvents
from dpverify.sampling.counts import Counts
from dpverify.selection.histograms import midpoints, score_values
from dpverify.sequential.bets import Bet, Family, choose_bets
from dpverify.stats.anytime import Bets, log_factors
from dpverify.stats.boundaries import Boundary
from dpverify.util.arrays import Array

SIMPLE_CELLS = 12  # of about equal probability
MIN_RUNS_PER_TAIL_CELL = 16  # beyond these cells, each tail is halved while a cell has so many runs
MAX_COORDINATES = 16  # of the output that are compared
REFIT_RATIO = 1.1  # the simple family is refitted when there are so many times more runs
MAX_FITTED_RUNS = 4096  # per data set; a family that was fitted to so many runs is kept
SIMPLE_SHARE = 0.75  # of the wealth that is bet, for the simple family; the selected events share the rest
RESERVE = 0.2  # of the wealth, until the last selection


class Portfolio:
    """The families, their counts, and all bets so far.

    Parameters
    ----------
    boundary : callable
        The boundary of the claim.
    shape : tuple of int
        Steps and dimensions of one output.
    score : callable, optional
        The user's score; the simple family then consists of its levels.

    Attributes
    ----------
    families : list of Family
        The families of the current season, one per slot.
    log_wealth : float
        The logarithm of the wealth.
    history : list of (int, float)
        The runs per data set and the log-wealth after every batch.
    runs : int
        The runs per data set so far.
    """

    def __init__(
        self, boundary: Boundary, shape: tuple[int, int], score: Callable[[Array], Array] | None = None
    ) -> None:
        self._boundary, self._scores = boundary, simple_scores(shape, score)
        self.families: list[Family] = []
        self.bets: list[list[Bet]] = []
        self.log_wealth, self.history = 0.0, [(0, 0.0)]
        self.runs = self._fitted_runs = self._season = 0
        self._counts: list[tuple[np.ndarray, np.ndarray]] = []  # of each family, for both data sets
        self._shares = np.array([1 - RESERVE])
        self._log_slots, self._log_reserve = np.log(self._shares), math.log(RESERVE)
        self._ledger: list[tuple[float, ...]] = []

    def fit_simple(self, samples: Sequence[np.ndarray]) -> None:
        """Fit the simple family to all runs so far, unless that was done with nearly as many runs.

        Of several coordinates, the one whose best event promises the largest growth is used.
        """
        fitted = min(len(samples[0]), MAX_FITTED_RUNS)
        if fitted < min(REFIT_RATIO * self._fitted_runs, MAX_FITTED_RUNS) or self._fitted_runs == MAX_FITTED_RUNS:
            return
        best: tuple[float, Family, tuple[np.ndarray, np.ndarray]] | None = None
        for score in self._scores:
            values = [score_values(score, side) for side in samples]
            family = Family(Levels(score, quantile_edges(np.concatenate([v[:MAX_FITTED_RUNS] for v in values]))))
            counts = family.count(samples)
            growth = choose_bets(*counts, self._boundary)[0].growth if len(self._scores) > 1 else 0.0
            if best is None or growth > best[0]:
                best = growth, family, counts
        assert best is not None
        _, family, counts = best
        self.families[:1], self._counts[:1] = [family], [counts]
        self._fitted_runs, self.runs = fitted, len(samples[0])

    def hold(self, selected: SelectedEvents, samples: Sequence[np.ndarray], is_last: bool = False) -> None:
        """Begin a season with the selected events in the other slots.

        Parameters
        ----------
        selected : SelectedEvents
            The selected events. All thresholds of one score are one family.
        samples : sequence of ndarray
            All runs so far, of both data sets.
        is_last : bool
            Whether this is the last selection, after which nothing is kept in reserve.
        """
        families: dict[int, Family] = {}
        for event in selected.events:
            codes = event.codes if event.partition.levels is None else None
            families.setdefault(id(event.partition), Family(event.partition, codes, one_sided=True))
        self.families[1:] = families.values()
        self._counts[1:] = [family.count(samples) for family in families.values()]
        self._season += 1
        part = 1.0 if is_last else math.exp(np.logaddexp.reduce(self._log_slots) - self.log_wealth)
        others = np.full(len(families), (1 - SIMPLE_SHARE) / len(families))
        self._shares = part * np.append(SIMPLE_SHARE, others)
        self._log_slots = self.log_wealth + np.log(self._shares)
        if is_last:
            self._log_reserve = -math.inf

    def place(self) -> list[list[Bet]]:
        """Return the bets of the next batch, for each family."""
        self.bets = [
            choose_bets(*counts, self._boundary, family.one_sided)
            for family, counts in zip(self.families, self._counts, strict=True)
        ]
        return self.bets

    def settle(self, counts: Sequence[tuple[Counts, Counts]], runs: int) -> None:
        """Pay out the bets that were placed, from the counts of a batch in the partition of each family."""
        batch, entries = len(self.history) - 1, []
        for slot, (bets, family, pair) in enumerate(zip(self.bets, self.families, counts, strict=True)):
            columns = [family.columns(side) for side in pair]
            for bet in bets:
                inside = [int(column[bet.cells].sum()) for column in columns]
                c1, c2 = inside if bet.direction == 0 else inside[::-1]
                entries.append((batch, self._season, slot, self._shares[slot], bet.weight, runs, c1, c2, bet.a, bet.b))
            for total, column in zip(self._counts[slot], columns, strict=True):
                total += column
        self._ledger += entries
        _, _, slots, _, weights, sizes, c1, c2, a, b = np.array(entries).T
        factors = np.log(weights) + log_factors(c1, c2, sizes, a, b, self._boundary)
        self._log_slots += [np.logaddexp.reduce(factors[slots == slot]) for slot in range(len(self.families))]
        self.runs += runs
        self.log_wealth = float(np.logaddexp(np.logaddexp.reduce(self._log_slots), self._log_reserve))
        self.history.append((self.runs, self.log_wealth))

    def all_bets(self) -> Bets:
        """Return all bets so far as columns."""
        columns = zip(*self._ledger, strict=True) if self._ledger else [()] * len(Bets._fields)
        kinds = (int, int, int, float, float, int, int, int, float, float)
        return Bets(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))

    def leader(self) -> tuple[Event, tuple[int, int], int]:
        """Return the last event of the slot with the most wealth, its counts in all runs, and the number of runs."""
        slot = int(np.argmax(self._log_slots))
        bet = self.bets[slot][0]
        first, second = (int(counts[bet.cells].sum()) for counts in self._counts[slot])
        return self.families[slot].event(bet), (first, second), self.runs


def simple_scores(shape: tuple[int, int], score: Callable[[Array], Array] | None) -> list[Score]:
    """Return the scores of the simple family: the user's score, or single coordinates of the output."""
    if score is not None:
        return [UserScore(score, shape)]
    size = shape[0] * shape[1]
    coordinates = np.unique(np.linspace(0, size - 1, min(MAX_COORDINATES, size)).round().astype(int))
    return [Linear(np.eye(1, size, k)[0]) for k in coordinates.tolist()]


def quantile_edges(values: np.ndarray, cells: int = SIMPLE_CELLS, with_tails: bool = True) -> np.ndarray:
    """Return edges of cells of about equal size, with further cells in the tails; repeated values share a cell."""
    values = np.sort(values[np.isfinite(values)])
    if not values.size:
        return np.zeros(1)
    ranks = np.arange(1, cells) * values.size // cells
    tail = values.size // cells // 2
    while with_tails and tail >= 2 * MIN_RUNS_PER_TAIL_CELL:
        ranks = np.concatenate([ranks, [tail, values.size - 1 - tail]])
        tail //= 2
    ends = values[np.unique(ranks)]
    between = midpoints(values)
    if not between.size:
        return values[:1]
    # An edge lies between two different values, so that a value is never divided by rounding.
    return between[np.unique(np.minimum(np.searchsorted(between, ends), between.size - 1))]
