"""Verification that stops as soon as its runs allow an answer (docs/method.md, section 5.8).

The parts of this file: the schedule, bets, the portfolio of families that share the wealth, batches of runs, upper
bounds at looks, the loop over batches, and the report.

Nothing in the schedule depends on the number of test runs, except the ends of budgets. So a verification can be
continued with more test runs: it repeats the same batches up to the end of its first budget, and goes on from there.
The lower bound and the upper bounds have an alpha each, as in every verification. Of the first, `EARLY_SHARE` (in
`report.sequence`) is for the wealth, and the rest is for the exact test at the end of the first budget. The second is
for the upper bounds at that moment. If a Lipschitz constant is stated, the bound over all events can certify the claim
earlier, and the looks at it share the second alpha.

The first family of the portfolio is a simple one: cells between quantiles of one coordinate of the output. The others
hold the events that the selection found in the earlier runs. Every batch is first evidence for the bets that were
placed before it, and then training for the next ones; validity never depends on how good a bet is. A part of the wealth
is kept in reserve until the last selection: the first bets are made with few runs, and they lose most of their wealth
if nothing frequent violates the claim. The reserve is then left for an event that is rare.

The runs up to the last selection are recorded, because events are selected from them again. Later runs are only
counted, where they are drawn.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpverify.claims import Claim, sloped_boundary
from dpverify.errors import FolderError
from dpverify.events.event import Event, SelectedEvents
from dpverify.events.partition import Partition
from dpverify.events.region import Region, RegionIndicator
from dpverify.events.scores import Levels, Linear, Score, UserScore
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import has_fixed_block
from dpverify.report.assemble import count_event, make_report, make_witness
from dpverify.report.certificate import (
    Certificate,
    CertificateSource,
    LogDensity,
    find_certificate_source,
    stated_log_ratio,
)
from dpverify.report.report import Report
from dpverify.report.sequence import EARLY_SHARE, StoppedBy, wealth_p_value
from dpverify.report.sequence import Sequence as StoppedSequence
from dpverify.report.statements import CellBounds
from dpverify.sampling.blocks import FIRST_COMPILED_BLOCK, FIRST_RUNS, SampleSource, fitting_block_size
from dpverify.sampling.checkpoint import Record
from dpverify.sampling.count import (
    Accumulator,
    BlockChecker,
    CellCounter,
    Cells,
    CheckedEvent,
    Counts,
    Errors,
    EventTables,
    MeanError,
    MeanErrors,
    Statistic,
    count_cells,
    mean_errors,
)
from dpverify.sampling.probe import BYTES_PER_NUMBER, RunContext, blocks_repeat, make_region, outputs_hash
from dpverify.sampling.stages import collect_samples, collect_statistics, threads_agree
from dpverify.selection.objective import (
    QUICK_SEARCH,
    SEARCHES,
    ScoreLearner,
    SearchBudget,
    SelectionContext,
    SelectionObjective,
    named_partition,
)
from dpverify.selection.proposals import midpoints, score_values
from dpverify.selection.select import select_events
from dpverify.settings import Settings
from dpverify.stats.anytime import Bets, expected_growth, log_factors
from dpverify.stats.boundaries import Boundary
from dpverify.util.arrays import Array
from dpverify.util.formatting import format_count, format_number

BUDGET_LOOK_SHARE = 0.5  # of the look at the end of the first budget; all earlier and later looks share the rest
MIN_BATCH = 4
BATCH_SHARE = 1 / 16  # of the runs so far
BLOCKS_PER_BATCH = 8  # so that several workers can share a batch
COMPILED_BLOCKS = (
    FIRST_COMPILED_BLOCK,
    512,
    4096,
)  # the only block sizes of a mechanism that JAX compiles for each size
SELECTION_RATIO = 4  # between the runs of two selections
MIN_SELECTION_RUNS = 128
PLANNED_RATIO = 4  # test runs that a selection plans for, in selection runs


def batch_size(runs: int, block: int = 1) -> int:
    """Return the size of the batch after so many runs; it has at least one block.

    Examples
    --------
    >>> batch_size(16), batch_size(1600), batch_size(16, block=64)
    (4, 100, 64)
    """
    return max(MIN_BATCH, int(runs * BATCH_SHARE), block)


def block_size(batch: int, sizes: tuple[int, ...] = ()) -> int:
    """Return the block size of a batch: a power of two with about `BLOCKS_PER_BATCH` blocks, or one of given sizes.

    Examples
    --------
    >>> block_size(4), block_size(1000), block_size(1000, COMPILED_BLOCKS)
    (4, 64, 512)
    """
    if sizes:
        return max([size for size in sizes if size <= batch], default=sizes[0])
    size = MIN_BATCH
    while 2 * size * BLOCKS_PER_BATCH <= batch:
        size *= 2
    return size


def look_share(number: int) -> float:
    """Return the share of the upper bounds' alpha of look `number`, from 0 up; all shares sum to 1 at most.

    Examples
    --------
    >>> BUDGET_LOOK_SHARE + sum(look_share(number) for number in range(60)) <= 1
    True
    """
    return (1 - BUDGET_LOOK_SHARE) * 0.5 ** (number + 1)


class Schedule(NamedTuple):
    """When something other than a batch happens, in runs per dataset.

    Attributes
    ----------
    selections : tuple of int
        When events are selected. The last selection freezes the event of the exact test.
    ends : tuple of int
        The ends of the budgets: that of this call, and before it those of the calls that it continues.
    """

    selections: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def make(cls, first_runs: int, select_runs: int, budgets: tuple[int, ...]) -> Schedule:
        """Return the schedule.

        Parameters
        ----------
        first_runs : int
            The runs before the first bet.
        select_runs : int
            The runs after which the event is frozen.
        budgets : tuple of int
            Numbers of test runs.

        Examples
        --------
        >>> Schedule.make(16, 50_000, (200_000,))
        Schedule(selections=(195, 781, 3125, 12500, 50000), ends=(250000,))
        """
        frozen = max(select_runs, first_runs)
        sizes = [frozen]
        while sizes[-1] // SELECTION_RATIO >= max(MIN_SELECTION_RUNS, first_runs):
            sizes.append(sizes[-1] // SELECTION_RATIO)
        return cls(tuple(sizes[::-1]), tuple(frozen + budget for budget in budgets))

    @property
    def frozen(self) -> int:
        """When the event of the exact test is frozen."""
        return self.selections[-1]

    @property
    def fixed(self) -> int:
        """When the partition that is bounded is fixed."""
        return self.selections[-2:][0]

    def look_number(self, runs: int) -> int | None:
        """Return the number of the look that is due after so many runs, from 0 up, or None: the looks double."""
        number, look = 0, 2 * self.fixed
        while look < runs:
            number, look = number + 1, 2 * look
        return number if look == runs else None

    def next_stop(self, runs: int) -> int:
        """Return after how many runs the current batch has to end."""
        look = 2 * self.fixed
        while look <= runs:
            look *= 2
        return min([look, *(stop for stop in (*self.selections, *self.ends) if stop > runs)])


PRIOR_RUNS = 6.0  # runs per dataset that predict equal probabilities
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
        0 if the first dataset is expected to exceed the claim, 1 if the second is.
    a, b : float
        The predicted probabilities under the exceeding dataset and under the other one.
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
        """Return the counts of the cells for samples of both datasets."""
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


SIMPLE_CELLS = 12  # of about equal probability
MIN_RUNS_PER_TAIL_CELL = 16  # beyond these cells, each tail is halved while a cell has so many runs
MAX_COORDINATES = 16  # of the output that are compared
REFIT_RATIO = 1.1  # the simple family is refitted when there are so many times more runs
MAX_FITTED_RUNS = 4096  # per dataset; a family that was fitted to so many runs is kept
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
        The runs per dataset and the log-wealth after every batch.
    runs : int
        The runs per dataset so far.
    """

    def __init__(
        self, boundary: Boundary, shape: tuple[int, int], score: Callable[[Array], Array] | None = None
    ) -> None:
        self._boundary, self._scores = boundary, simple_scores(shape, score)
        self.families: list[Family] = []
        self.bets: list[list[Bet]] = []
        self.log_wealth, self.history = 0.0, [(0, 0.0)]
        self.runs = self._fitted_runs = self._season = 0
        self._counts: list[tuple[np.ndarray, np.ndarray]] = []  # of each family, for both datasets
        self._shares = np.array([1 - RESERVE])
        self._log_slots, self._log_reserve = np.log(self._shares), math.log(RESERVE)
        self._ledger: list[tuple[float, ...]] = []

    def fit_simple(self, samples: Sequence[np.ndarray]) -> None:
        """Fit the simple family to all runs so far, unless that was done with nearly as many runs.

        Of several coordinates, the one whose best event promises the largest growth is used.
        """
        if not self.families and isinstance(self._scores[0], UserScore):
            self._scores[0].check_row_by_row(samples[0])
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
            All runs so far, of both datasets.
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


MAX_RECORDED_BYTES = 256 << 20  # per dataset
COMPARED_RUNS = 64  # recorded runs of the first dataset that are checked for repeated blocks

CountsPair = tuple[Counts, Counts]


class Batches:
    """Draws batches, and keeps what is needed of them.

    Parameters
    ----------
    run : RunContext
        The verification.
    error : callable or None
        The user's error function.

    Attributes
    ----------
    samples : list of ndarray
        The recorded runs of both datasets.
    """

    def __init__(self, run: RunContext, error: Callable[[Any], Any] | None) -> None:
        self._run, self._error = run, error
        self._number = 0
        self._blocks: list[tuple[EventTables, EventTables]] = []
        self._errors: list[tuple[Errors, Errors]] = []
        self._runs = 0  # per dataset
        self._last: SampleSource | None = None
        self._first_block = 0
        self.samples = first_samples(run)
        self.first_runs = len(self.samples[0])
        self._simple = BlockChecker.make((), finite_runs(self.samples))
        self._checker = self._simple

    def draw(self, size: int, partitions: Sequence[Cells], events: Sequence[Event], record: bool) -> list[CountsPair]:
        """Draw a batch and return its counts in each partition.

        `events` are those that the batch tests, for the check that runs are independent; `record` also keeps its runs.
        """
        self._checker = self._simple._replace(events=tuple(map(CheckedEvent.of, events)))
        source = self._source(size)
        run = self._run
        statistics: list[Statistic] = [*(CellCounter(p) for p in partitions), self._checker]
        if self._error is not None:
            statistics.append(MeanError(self._error))
        if record:
            samples = collect_samples(source, "test", size, run.pool, run.progress)
            results = measure(statistics, samples, source.block)
            self.samples = [np.concatenate(pair) for pair in zip(self.samples, samples, strict=True)]
        else:
            results = collect_statistics(source, "test", size, statistics, run.pool, run.progress)
        if self._error is not None:
            self._errors.append(results.pop())
        self._blocks.append(results.pop())
        self._number, self._runs = self._number + 1, self._runs + size
        self._first_block = self._first_block or source.block
        self._last = source
        return results

    def _source(self, size: int) -> SampleSource:
        """Return the source of the next batch: it has a block size and random streams of its own."""
        source, shape = self._run.source, self._run.source.shape
        assert shape is not None
        block = self._run.fixed_block
        if block is None:
            compiled = COMPILED_BLOCKS if has_fixed_block(source.mechanism) else ()
            block = fitting_block_size(block_size(size, compiled), shape[0] * shape[1] * BYTES_PER_NUMBER)
        return source._replace(block=block, test_key=(*source.test_key, self._number))

    def blocks(self) -> tuple[tuple[EventTables, ...], ...]:
        """Return the tables of all batches. Simple events, which stay the same, are taken together over the batches."""
        number, groups = 1 + self._simple.coordinates.size, []
        for side in zip(*self._blocks, strict=True):
            simple = [batch.columns(np.arange(number)) for batch in side]
            blocks = np.concatenate([batch.blocks for batch in simple])
            groups.append((EventTables.merge(simple)._replace(blocks=blocks),))
            groups.append(tuple(one.columns(np.r_[0, number : one.blocks.shape[1]]) for one in side))
        return tuple(groups)

    def error(self) -> MeanErrors | None:
        """Return the mean error over all batches and its standard error, for both datasets."""
        if not self._errors:
            return None
        first, second = (
            Errors(*map(np.concatenate, zip(*side, strict=True))) for side in zip(*self._errors, strict=True)
        )
        return mean_errors((first, second), self._runs)

    def repeat(self) -> bool | None:
        """Return whether blocks repeat each other, from the first recorded runs; None if this is not certain yet."""
        pair = 2 * self._first_block
        runs = self.samples[0][self.first_runs :][: max(COMPARED_RUNS, pair)]
        if len(runs) < pair:
            return None
        blocks = runs[: len(runs) // pair * pair].reshape(-1, self._first_block, *runs.shape[1:])
        even, odd = np.concatenate(blocks[::2]), np.concatenate(blocks[1::2])
        if not np.array_equal(even, odd, equal_nan=True):
            return False
        return blocks_repeat(even, odd) or (False if len(runs) >= COMPARED_RUNS else None)

    def threads_agree(self) -> bool:
        """Return False if threads disturb each other, from blocks of the last batch that are drawn again."""
        assert self._last is not None
        return threads_agree(self._last, self._run.pool)


def measure(statistics: Sequence[Statistic], samples: Sequence[np.ndarray], block: int) -> list[tuple[Any, Any]]:
    """Return the result of each statistic for both datasets, whose samples were drawn in blocks of this size."""
    sums = [Accumulator(statistics) for _ in samples]
    for side, accumulator in zip(samples, sums, strict=True):
        for number in range(-(-len(side) // block)):
            accumulator.add(number, side[number * block : (number + 1) * block])
    first, second = (one.results() for one in sums)
    return list(zip(first, second, strict=True))


def first_samples(run: RunContext) -> list[np.ndarray]:
    """Return the first runs of both datasets, which the probe has drawn; a resumed run reads them from its folder.

    They are stored because a mechanism without seeds gives other runs when it is called again.
    """
    record = run.checkpoint.read("first")
    if record is not None:
        return list(record.arrays)
    samples = []
    for wanted in (0, 1):
        blocks = [runs for (side, _), runs in sorted(run.pilot_blocks.items()) if side == wanted]
        samples.append(np.concatenate(blocks))
    length = min(map(len, samples))
    samples = [side[:length] for side in samples]
    run.checkpoint.write("first", Record({}, samples))
    return samples


def finite_runs(samples: list[np.ndarray]) -> np.ndarray:
    """Return the finite runs of both datasets; a zero if there is none."""
    runs = np.concatenate(samples)
    finite = runs[np.isfinite(runs).all(axis=(1, 2))]
    return finite if len(finite) else np.zeros((1, *runs.shape[1:]))


def recordable_runs(run: RunContext) -> int:
    """Return how many runs are recorded: the selection runs, or as many as fit into memory, but enough for checks."""
    assert run.source.shape is not None
    steps, dimension = run.source.shape
    most = MAX_RECORDED_BYTES // (steps * dimension * BYTES_PER_NUMBER)
    fewest = FIRST_RUNS + run.source.block + max(COMPARED_RUNS, 2 * run.source.block)
    return max(min(run.settings.select_runs, most), fewest)


def read_budgets(run: RunContext) -> tuple[int, ...]:
    """Return the test runs of the calls that this folder has seen, and store those of this call.

    The exact test is made once, at the end of the first budget. A folder therefore remembers all budgets.
    """
    record = run.checkpoint.read("budgets")
    budgets = [] if record is None else [int(budget) for budget in record.head["test_runs"]]
    requested = run.settings.test_runs
    if budgets and requested < budgets[-1]:
        raise FolderError(
            f"{run.checkpoint.folder}: found test_runs={requested}; expected at least {budgets[-1]}, the budget that "
            "this folder has already; pass at least as many, or use another folder"
        )
    if not budgets or requested > budgets[-1]:
        budgets.append(requested)
        run.checkpoint.write("budgets", Record({"test_runs": budgets}))
    return tuple(budgets)


Look = tuple[CellBounds, Certificate | None]  # the upper bounds at one moment


class Tally:
    """The counts of some partitions in all batches since they were fixed."""

    def __init__(self, partitions: Sequence[Cells]) -> None:
        self.partitions, self.runs = list(partitions), 0
        self.counts: list[CountsPair] = []

    def add(self, counts: Sequence[CountsPair], runs: int) -> None:
        """Add the counts of a batch in each of the partitions."""
        if self.counts:
            pairs = zip(self.counts, counts, strict=True)
            counts = [(Counts.merge([old[0], new[0]]), Counts.merge([old[1], new[1]])) for old, new in pairs]
        self.counts, self.runs = list(counts), self.runs + runs


@dataclass(frozen=True)
class Bounding:
    """The partition whose unions of cells are bounded, the region, what bounds all events, and their counts."""

    partition: Partition | Levels
    region: Region
    source: CertificateSource | None
    tally: Tally

    def look(self, settings: Settings, share: float) -> Look:
        """Return the upper bounds from all runs since the partition was fixed, at this share of alpha."""
        cells, inside, *rest = self.tally.counts
        level = settings.change(alpha=share * settings.alpha, test_runs=self.tally.runs)
        certificate = self.source and self.source.certificate(rest[0], self.tally.runs, settings.alpha, share)
        return CellBounds.of(self.partition, cells, inside, level), certificate


def begin_bounding(
    run: RunContext,
    request: Request,
    selected: SelectedEvents,
    region: Region,
    points: np.ndarray,
    samples: Sequence[np.ndarray],
) -> tuple[Bounding, tuple[Diagnostic, ...]]:
    """Return what is bounded from now on, and why no certificate is possible although something is stated."""
    partition = bounded_partition(selected, samples, request.delta)
    source, found = find_certificate_source(
        request.log_density, request.log_lipschitz, run.source, region, points, selected.rival
    )
    cells: list[Cells] = [] if source is None else [source.cells]
    return Bounding(partition, region, source, Tally([partition, RegionIndicator(region), *cells])), found


ZERO_DELTA_CELLS = 12  # at delta 0 the cell with the fewest runs determines the bound, so there are few cells


def bounded_partition(selected: SelectedEvents, samples: Sequence[np.ndarray], delta: float) -> Partition | Levels:
    """Return the partition that is bounded: level sets of the selected score with equal shares of the runs so far.

    A partition that the settings name is used as it is. The threshold of the event is not among the edges.
    """
    levels = selected.partition.levels
    if levels is None:
        return selected.partition
    values = np.concatenate([score_values(levels.score, side) for side in samples])
    number = ZERO_DELTA_CELLS if delta == 0 else levels.size
    return Levels(levels.score, quantile_edges(values, number, with_tails=False))


def nothing_bounded(alpha: float) -> CellBounds:
    """Return the statement of a verification that ended before its upper bounds were computed."""
    none = np.zeros(0, np.int64)
    return CellBounds(none, none, none, 0, alpha, 0, (0, 0))


LOGGER = logging.getLogger(__name__)
WATCHED_KEY = "watched"  # the entry of `report.provenance` with the counts of the watched cells
OUTPUTS_KEY = "first outputs"  # the entry with their hash


class Request(NamedTuple):
    """What is asked about a mechanism.

    Attributes
    ----------
    claim : Claim or None
        The claim; None states no claim.
    delta : float
        The delta at which epsilon is bounded.
    error : callable or None
        The user's error function.
    log_lipschitz : float, pair of float, or None
        The Lipschitz constant of the log-density that the user states.
    learn : callable or None
        The user's learner of scores.
    log_density : callable or None
        The log-density of the output that the user states.
    watched : Family or None
        Cells of an earlier verification that are counted in all batches of a verification that may stop early. They are
        left out if the outputs have another shape than `watched_shape`.
    watched_shape : tuple of int or None
        The steps and dimensions of the outputs for which the cells were made.
    """

    claim: Claim | None
    delta: float
    error: Callable[[Any], Any] | None = None
    log_lipschitz: float | tuple[float, float] | None = None
    learn: ScoreLearner | None = None
    log_density: LogDensity | None = None
    watched: Family | None = None
    watched_shape: tuple[int, int] | None = None


def run_until_decided(
    run: RunContext,
    request: Request,
    diagnostics: tuple[Diagnostic, ...],
) -> Report:
    """Draw batches until the claim is refuted or certified, or the budget is spent, and report.

    Parameters
    ----------
    run : RunContext
        The verification.
    request : Request
        The claim, and what else is asked.
    diagnostics : tuple of Diagnostic
        Findings before the first batch. If one of them voids the test, few runs are enough.
    """
    claim, settings, batches = request.claim, run.settings, Batches(run, request.error)
    assert claim is not None
    is_void = any(diagnostic.voids for diagnostic in diagnostics)
    score = settings.events if callable(settings.events) else None
    portfolio = Portfolio(sloped_boundary(claim), batches.samples[0].shape[1:], score)
    schedule = Schedule.make(batches.first_runs, recordable_runs(run), read_budgets(run))
    watched = Tally(watched_partitions(request, batches.samples))
    frozen: SelectedEvents | None = None  # the events of the exact test, which counts them up to the first budget
    exact, exact_counts = Tally([]), None
    bounding: Bounding | None = None
    look: Look | None = None
    stopped: StoppedBy | None = None
    while stopped is None:
        # Everything that is fixed here depends on earlier runs only.
        portfolio.fit_simple(batches.samples)
        if portfolio.runs in schedule.selections:
            region, points = region_of(run, batches.samples)
            budget = SEARCHES[run.settings.search] if portfolio.runs >= schedule.fixed else QUICK_SEARCH
            selected = select(run, request, region, points, batches.samples, budget)
            portfolio.hold(selected, batches.samples, is_last=portfolio.runs == schedule.frozen)
            if portfolio.runs == schedule.fixed:
                bounding, found = begin_bounding(run, request, selected, region, points, batches.samples)
                diagnostics += found
            if portfolio.runs == schedule.frozen:
                frozen, exact = selected, Tally([event.partition for event in selected.events])
        bets = portfolio.place()
        # The next batch is evidence for these bets.
        runs = portfolio.runs
        size = min(batch_size(runs, run.fixed_block or 1), schedule.next_stop(runs) - runs)
        tallies = [watched] if bounding is None else [watched, bounding.tally]
        tallies += [] if exact_counts else [exact]
        partitions: list[Cells] = [family.partition for family in portfolio.families]
        events = [family.event(own[0]) for family, own in zip(portfolio.families, bets, strict=True)]
        events += [] if frozen is None else frozen.events
        counted = [*partitions, *(partition for tally in tallies for partition in tally.partitions)]
        counts = batches.draw(size, counted, events, record=runs < schedule.frozen)
        portfolio.settle(counts[: len(bets)], size)
        rest = iter(counts[len(bets) :])
        for tally in tallies:
            tally.add([next(rest) for _ in tally.partitions], size)
        show_wealth(run, portfolio.runs, portfolio.log_wealth)

        repeats = batches.repeat()
        if repeats:
            diagnostics += (Diagnostic.REPEATED_BLOCKS,)
        if is_void or repeats:
            stopped = StoppedBy.BUDGET
        elif repeats is False and is_refuted(portfolio, claim, settings.alpha):
            stopped = StoppedBy.REFUTED
        elif bounding is not None:
            number = schedule.look_number(portfolio.runs)
            if portfolio.runs == schedule.ends[0]:
                exact_counts = exact.counts
                look = bounding.look(settings, 1.0 if bounding.source is None else BUDGET_LOOK_SHARE)
                stopped = certifies(look, claim)
            elif number is not None and bounding.source is not None:
                latest = bounding.look(settings, look_share(number))
                if stopped := certifies(latest, claim):
                    look = latest
            if stopped is None and portfolio.runs == schedule.ends[-1]:
                stopped = StoppedBy.BUDGET
    run.finished["test"] = time.perf_counter()

    # The tested events are those of the exact test, with their counts. If there was no exact test, there is one: the
    # event with the most wealth, with its counts in all runs, which are shown and used for no bound.
    event, count, runs = portfolio.leader()
    events, shares, counts_of_events = (event,), (1.0,), [count]
    if frozen is not None and exact_counts:
        events, shares, runs = frozen.events, frozen.shares, exact.runs
        counts_of_events = [count_event(one, pair) for one, pair in zip(events, exact_counts, strict=True)]
    sequence = StoppedSequence(
        stopped=stopped,
        runs_used=portfolio.runs,
        first_runs=batches.first_runs,
        exact_runs=exact.runs if exact_counts else 0,
        early_share=EARLY_SHARE,
        claimed=claim.parameter,
        bets=portfolio.all_bets(),
    )
    region, points = region_of(run, batches.samples)
    indicator = RegionIndicator(region if bounding is None else bounding.region)  # whose mass is bounded
    level = sequence.exact_alpha(settings.alpha)
    report = make_report(
        run,
        claim,
        request.delta,
        diagnostics,
        indicator.region,
        batches.samples,
        (count_cells(indicator, batches.samples[0]), count_cells(indicator, batches.samples[1])),
        batches.blocks(),
        batches.threads_agree(),
        tested=tuple(
            make_witness(points, one, pair, runs, level, share)
            for one, pair, share in zip(events, counts_of_events, shares, strict=True)
        ),
        cell_counts=nothing_bounded(settings.alpha) if look is None else look[0],
        certificate_counts=None if look is None else look[1],
        sequence=sequence,
        error=batches.error(),
    )
    report.provenance[OUTPUTS_KEY] = outputs_hash(batches.samples)
    if request.watched is not None and watched.partitions:
        cells = [request.watched.columns(side).tolist() for side in watched.counts[0]]
        report.provenance[WATCHED_KEY] = {"runs": watched.runs, "cells": cells}
    return report


def watched_partitions(request: Request, samples: list[np.ndarray]) -> list[Cells]:
    """Return the partition of the watched cells; nothing if there are none that fit the outputs."""
    if request.watched is None or samples[0].shape[1:] != request.watched_shape:
        return []
    return [request.watched.partition]


def certifies(look: Look, claim: Claim) -> StoppedBy | None:
    """Return that the claim is certified if the upper bound over all events meets it, otherwise None."""
    certificate = look[1]
    return StoppedBy.CERTIFIED if certificate is not None and certificate.meets_claim(claim) else None


def log_threshold(alpha: float) -> float:
    """Return the logarithm of the wealth that refutes the claim."""
    return math.log(1 / (EARLY_SHARE * alpha))


def is_refuted(portfolio: Portfolio, claim: Claim, alpha: float) -> bool:
    """Return whether the claim, and with it every stronger claim of the same kind, is refuted."""
    if portfolio.log_wealth < log_threshold(alpha):  # most of the time
        return False
    return wealth_p_value(portfolio.all_bets(), claim, claim.parameter) <= EARLY_SHARE * alpha


def show_wealth(run: RunContext, runs: int, log_wealth: float) -> None:
    """Show the wealth beside its threshold."""
    wealth, threshold = (
        format_number(math.exp(min(x, 700.0))) for x in (log_wealth, log_threshold(run.settings.alpha))
    )
    run.progress.note(f"wealth {wealth}, refuted at {threshold}")
    LOGGER.info("%s runs per dataset: wealth %s, refuted at %s", format_count(runs), wealth, threshold)


def region_of(run: RunContext, samples: list[np.ndarray]) -> tuple[Region, np.ndarray]:
    """Return the region around the first recorded runs, as many as a pilot would have, and these runs."""
    region, points, _ = make_region(
        [side[: run.plan.pilot_runs] for side in samples], run.settings.nonfinite, is_limited=True
    )
    return region, points


def select(
    run: RunContext,
    request: Request,
    region: Region,
    points: np.ndarray,
    samples: list[np.ndarray],
    budget: SearchBudget,
) -> SelectedEvents:
    """Select events from all recorded runs."""
    runs = len(samples[0])
    settings = run.settings.change(select_runs=runs)
    objective = SelectionObjective(
        PLANNED_RATIO * runs, request.delta, settings.alpha, budget.decision_penalty, request.claim
    )
    recorded = samples[0], samples[1]
    context = SelectionContext(
        run.source,
        settings,
        region,
        objective,
        run.pool,
        run.progress,
        budget,
        recorded,
        request.learn,
        stated_log_ratio(request.log_density, run.source),
    )
    return select_events(context, named_partition(settings, region, points))
