"""A verification that stops as soon as the claim is refuted or bounded, or when its budget is spent.

Runs come in batches that grow with the number of runs so far. Before a batch, the portfolio places its bets from all
earlier runs. After the batch the bets are settled, and the runs are used for the next bets. Three things can end the
verification:

- the wealth reaches 1 / (`EARLY_SHARE` * alpha): the claim is refuted;
- at a look, the upper bound on the partition meets the claim: the claim is bounded;
- the budget is spent. At the end of the first budget, the events that were frozen after `select_runs` runs are tested
  once on the runs that came after them, as in a verification with a fixed number of runs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpverify.events.partition import Partition
from dpverify.events.region import Region
from dpverify.events.scores import Levels
from dpverify.events.selected import SelectedEvents
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.all_events import SmoothGrid
from dpverify.report.sequence import EARLY_SHARE, StoppedBy, wealth_boundary, wealth_p_value
from dpverify.sampling.block_counts import BlockChecker
from dpverify.sampling.context import RunContext
from dpverify.sampling.counts import Counts
from dpverify.sampling.pilot import make_region
from dpverify.selection.context import (
    QUICK_SEARCH,
    THOROUGH_SEARCH,
    ScoreLearner,
    SearchBudget,
    SelectionContext,
    named_partition,
)
from dpverify.selection.objective import SelectionObjective
from dpverify.selection.select import select_events
from dpverify.sequential.batches import Batches, read_budgets, recordable_runs
from dpverify.sequential.bets import Family
from dpverify.sequential.bounding import Bounding, Look, bounded_partition, tighter
from dpverify.sequential.portfolio import Portfolio
from dpverify.sequential.schedule import (
    BUDGET_LOOK_SHARE,
    PLANNED_RATIO,
    Schedule,
    batch_size,
    look_share,
)
from dpverify.stats.claim_kinds import Claim
from dpverify.util.formatting import format_count, format_number

LOGGER = logging.getLogger(__name__)
MakeGrid = Callable[[Region, np.ndarray], tuple[SmoothGrid | None, tuple[Diagnostic, ...]]]


class Question(NamedTuple):
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
    watched: Family | None = None
    watched_shape: tuple[int, int] | None = None


class WatchedCells:
    """Cells of an earlier verification, and their counts in all batches; an array of shape (data sets, cells)."""

    def __init__(self, family: Family) -> None:
        self.family, self.runs = family, 0
        self.counts = np.zeros((2, family.partition.size if family.codes is None else 2), np.int64)

    def add(self, pair: tuple[Counts, Counts], runs: int) -> None:
        """Add the counts of a batch in the cells of the partition."""
        self.counts += [self.family.columns(side) for side in pair]
        self.runs += runs


class Frozen:
    """The events of the exact test with their shares of its level, and their counts in the runs after they were frozen.

    `counts` has one row per event and one column per data set.
    """

    def __init__(self, selected: SelectedEvents) -> None:
        self.events, self.shares, self.runs = selected.events, selected.shares, 0
        self.counts = np.zeros((len(self.events), 2), np.int64)

    @property
    def partitions(self) -> list[Partition | Levels]:
        """The partition of each event."""
        return [event.partition for event in self.events]

    def add(self, pairs: Sequence[tuple[Counts, Counts]], runs: int) -> None:
        """Add the counts of a batch in the cells of each event's partition."""
        for row, event, pair in zip(self.counts, self.events, pairs, strict=True):
            row += [int(side.of(event.codes).sum()) for side in pair]
        self.runs += runs


class Decision(NamedTuple):
    """How a verification that may stop early ended.

    Attributes
    ----------
    stopped : StoppedBy
        Why it ended.
    portfolio : Portfolio
        All bets, and the event with the most wealth.
    batches : Batches
        The recorded runs, the checks and the error.
    exact : Frozen or None
        The exact test at the end of the first budget; None if the verification ended before.
    look : Look or None
        The tightest look at the upper bounds.
    bounding : Bounding or None
        What the looks bounded.
    region, points
        The region of likely outputs, and the finite runs from which it was made.
    diagnostics : tuple of Diagnostic
        Findings during the runs.
    watched : WatchedCells or None
        The counts of the watched cells in all batches; None if there are none.
    """

    stopped: StoppedBy
    portfolio: Portfolio
    batches: Batches
    exact: Frozen | None
    look: Look | None
    bounding: Bounding | None
    region: Region
    points: np.ndarray
    diagnostics: tuple[Diagnostic, ...]
    watched: WatchedCells | None = None


def run_until_decided(
    run: RunContext,
    question: Question,
    make_grid: MakeGrid,
    is_void: bool = False,
) -> Decision:
    """Draw batches until the claim is refuted or bounded, or the budget is spent.

    Parameters
    ----------
    run : RunContext
        The verification.
    question : Question
        The claim, and what else is asked.
    make_grid : callable
        Makes the grid for a bound over all events from a region and its points.
    is_void : bool
        Whether a diagnostic voids the test, so that few runs are enough.
    """
    claim, settings, batches = question.claim, run.settings, Batches(run, question.error)
    assert claim is not None
    score = settings.events if callable(settings.events) else None
    portfolio = Portfolio(wealth_boundary(claim), batches.samples[0].shape[1:], score)
    schedule = Schedule.make(batches.first_runs, recordable_runs(run), read_budgets(run))
    bounding: Bounding | None = None
    frozen: Frozen | None = None
    exact: Frozen | None = None
    watched = watched_cells(question, batches.samples)
    look: Look | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    stopped: StoppedBy | None = None
    while stopped is None:
        # Everything that is fixed here depends on earlier runs only.
        portfolio.fit_simple(batches.samples)
        if portfolio.runs in schedule.selections:
            region, points = region_of(run, batches.samples)
            budget = THOROUGH_SEARCH if portfolio.runs >= schedule.fixed else QUICK_SEARCH
            selected = select(run, question, region, points, batches.samples, budget)
            portfolio.hold(selected, batches.samples, is_last=portfolio.runs == schedule.frozen)
            if portfolio.runs == schedule.fixed:
                smooth, diagnostics = make_grid(region, points)
                partition = bounded_partition(selected, batches.samples, question.delta)
                bounding = Bounding(partition, region, smooth, settings)
            if portfolio.runs == schedule.frozen:
                frozen = Frozen(selected)
        bets = portfolio.place()
        if batches.checker is None:
            event = portfolio.families[0].event(bets[0][0])
            batches.checker = BlockChecker.make(event, finite_runs(batches.samples))
        # The next batch is evidence for these bets.
        runs = portfolio.runs
        size = min(batch_size(runs, run.fixed_block or 1), schedule.next_stop(runs) - runs)
        partitions = [family.partition for family in portfolio.families]
        partitions += [] if bounding is None else bounding.counted
        partitions += [] if frozen is None else frozen.partitions
        partitions += [] if watched is None else [watched.family.partition]
        counts = batches.draw(size, partitions, record=runs < schedule.frozen)
        portfolio.settle(counts[: len(bets)], size)
        if bounding is not None:
            bounding.add(counts[len(bets) : len(bets) + len(bounding.counted)], size)
        if watched is not None:
            watched.add(counts.pop(), size)
        if frozen is not None and exact is None:
            frozen.add(counts[-len(frozen.events) :], size)
        show_wealth(run, portfolio.runs, portfolio.log_wealth)

        repeats = batches.repeat()
        if repeats:
            diagnostics += (Diagnostic.REPEATED_BLOCKS,)
        if is_void or repeats:
            stopped = StoppedBy.BUDGET
        elif repeats is False and is_refuted(portfolio, claim, settings.alpha):
            stopped = StoppedBy.REFUTED
        else:
            share = 0.0
            if portfolio.runs == schedule.ends[0]:
                exact, share = frozen, BUDGET_LOOK_SHARE
            elif (number := schedule.look_number(portfolio.runs)) is not None:
                share = look_share(number)
            if share > 0 and bounding is not None:
                latest = bounding.look(share)
                if latest.on_partition.meets_claim(claim) and not latest.on_partition.uses_delta_zero(question.delta):
                    look, stopped = latest, StoppedBy.BOUNDED
                else:
                    look = tighter(look, latest, lambda statement: statement.epsilon_upper(question.delta))
            if stopped is None and portfolio.runs == schedule.ends[-1]:
                stopped = StoppedBy.BUDGET
    region, points = region_of(run, batches.samples)
    run.clock.lap("test")
    return Decision(stopped, portfolio, batches, exact, look, bounding, region, points, diagnostics, watched)


def watched_cells(question: Question, samples: list[np.ndarray]) -> WatchedCells | None:
    """Return the watched cells without counts; None if there are none that fit the outputs."""
    if question.watched is None or samples[0].shape[1:] != question.watched_shape:
        return None
    return WatchedCells(question.watched)


def log_threshold(alpha: float) -> float:
    """Return the logarithm of the wealth that refutes the claim."""
    return math.log(1 / (EARLY_SHARE * alpha))


def is_refuted(portfolio: Portfolio, claim: Claim, alpha: float) -> bool:
    """Return whether the claim, and with it every stronger claim of the same kind, is refuted."""
    if portfolio.log_wealth < log_threshold(alpha):  # most of the time
        return False
    return wealth_p_value(portfolio.all_bets(), claim, getattr(claim, "parameter", None)) <= EARLY_SHARE * alpha


def show_wealth(run: RunContext, runs: int, log_wealth: float) -> None:
    """Show the wealth beside its threshold."""
    wealth, threshold = (
        format_number(math.exp(min(x, 700.0))) for x in (log_wealth, log_threshold(run.settings.alpha))
    )
    run.progress.note(f"wealth {wealth}, refuted at {threshold}")
    LOGGER.info("%s runs per data set: wealth %s, refuted at %s", format_count(runs), wealth, threshold)


def region_of(run: RunContext, samples: list[np.ndarray]) -> tuple[Region, np.ndarray]:
    """Return the region around the first recorded runs, as many as a pilot would have, and these runs."""
    region, points, _ = make_region([side[: run.plan.pilot_runs] for side in samples], is_limited=True)
    return region, points


def finite_runs(samples: list[np.ndarray]) -> np.ndarray:
    """Return the finite runs of both data sets; a zero if there is none."""
    runs = np.concatenate(samples)
    finite = runs[np.isfinite(runs).all(axis=(1, 2))]
    return finite if len(finite) else np.zeros((1, *runs.shape[1:]))


def select(
    run: RunContext,
    question: Question,
    region: Region,
    points: np.ndarray,
    samples: list[np.ndarray],
    budget: SearchBudget,
) -> SelectedEvents:
    """Select events from all recorded runs."""
    runs = len(samples[0])
    settings = run.settings.change(select_runs=runs)
    objective = SelectionObjective(
        PLANNED_RATIO * runs, question.delta, settings.alpha, budget.decision_penalty, question.claim
    )
    recorded = samples[0], samples[1]
    context = SelectionContext(
        run.source, settings, region, objective, run.pool, run.progress, budget, recorded, question.learn
    )
    return select_events(context, named_partition(settings, region, points))
