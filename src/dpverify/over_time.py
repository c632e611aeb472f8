"""`privacy_over_time`: the privacy of every prefix of an output, from the same runs in one pass.

The stages are those of `verify`, and every stage serves all prefixes: selection runs choose one event per prefix, the
events are frozen, and the test runs count all of them (docs/method.md, section 5.12). The parts of this file: the looks
of `stop_early`, the events, their selection, the results of one pair and of many records, and the run.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TextIO, Unpack, overload

import numpy as np
import scipy

from dpverify.claims import CLAIM_KINDS, Approximate, Claim, is_curve, resolve_claim
from dpverify.errors import DPVerifyWarning, InputError
from dpverify.events.partition import pad_rows
from dpverify.events.prefix_scores import (
    PREFIX_SCORE_KINDS,
    AnyPrefixScores,
    PrefixScore,
    gaussian_prefixes,
    prefix_learners,
)
from dpverify.events.region import Region
from dpverify.events.scores import Levels, TrainingData, UserScore, summarise
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.neighbours import check_pairs
from dpverify.mechanisms.protocol import Mechanism, is_seeded, mechanism_name
from dpverify.pipeline import check_stop_early
from dpverify.report import json as files
from dpverify.report.assemble import describe_problems, describe_run
from dpverify.report.certificate import (
    DENSITY_ALPHA,
    DensityCertificate,
    LogDensity,
    LogRatio,
    slice_edges,
    stated_log_ratio,
)
from dpverify.report.report import divide_p_value, load_pages
from dpverify.report.sequence import StoppedBy
from dpverify.report.statements import CellBounds, Verdict
from dpverify.report.text import as_sentence
from dpverify.sampling.checkpoint import Record
from dpverify.sampling.count import (
    BlockChecker,
    EventTables,
    Statistic,
    TableCounter,
    counts_from_table,
    runs_are_dependent,
)
from dpverify.sampling.executors import open_pool
from dpverify.sampling.probe import RunContext, check_mechanism, open_run, shorten_run, try_optional_method
from dpverify.sampling.stages import collect_statistics, threads_agree
from dpverify.selection.learn import count_training_runs
from dpverify.selection.objective import USUAL_SEARCH, KnownBlocks, SelectionContext, SelectionObjective
from dpverify.selection.proposals import (
    BinnedScore,
    Candidate,
    Extremes,
    JudgedProposal,
    PairedHistogram,
    Proposal,
    SelectionCounts,
    bounding_levels,
    fine_edges,
    judge,
    level_event,
    merge_levels,
    prefer_simpler,
    propose_levels,
    refine_threshold,
)
from dpverify.settings import Settings, SettingsChanges
from dpverify.stats.exact import epsilon_lower_bound
from dpverify.stats.many import holm
from dpverify.stats.upper import epsilon_upper_bound
from dpverify.studies.tables import STATES, ResultColumn, ResultTable, Row, lower_text, upper_text, verdict_text
from dpverify.util.arrays import Array, array_namespace, digitize, digitize_columns, evaluate_method, on_accelerator
from dpverify.util.checks import check_epsilon, shorten
from dpverify.util.formatting import (
    format_confidence,
    format_count,
    format_lower,
    format_number,
    format_percent,
    format_upper,
)
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import nested_kinds, to_plain

if TYPE_CHECKING:
    from dpverify.render import Drawing


EARLY_LOOKS = ((16, 0.1), (4, 0.1))  # a look after one 16th of the test runs has 10% of alpha, and so on
MIN_BLOCKS = 4  # before a look, so that noise that the runs of a block share is noticed


class PlannedLook(NamedTuple):
    """A number of test runs per dataset, and the share of alpha of the statements that are made there."""

    runs: int
    share: float


def plan_looks(settings: Settings) -> tuple[PlannedLook, ...]:
    """Return the looks in their order: the last one is after all test runs, and is the only one without `stop_early`.

    An early look is after whole blocks. Looks after equal numbers of runs are one look, with the first share.

    Examples
    --------
    >>> plan_looks(Settings(test_runs=6400, block=100, stop_early=True))
    (PlannedLook(runs=400, share=0.1), PlannedLook(runs=1600, share=0.1), PlannedLook(runs=6400, share=0.8))
    >>> plan_looks(Settings(test_runs=6400))
    (PlannedLook(runs=6400, share=1.0),)
    """
    runs, block = settings.test_runs, settings.block or 1
    early: dict[int, float] = {}
    for divisor, share in EARLY_LOOKS if settings.stop_early else ():
        part = max(-(-runs // (divisor * block)), MIN_BLOCKS) * block
        if part < runs:
            early.setdefault(part, share)
    return (*(PlannedLook(*look) for look in early.items()), PlannedLook(runs, 1.0 - sum(early.values())))


class ScoreTable(NamedTuple):
    """The scores of all prefixes with edges. As a statistic it counts the runs between the edges, for every prefix.

    Attributes
    ----------
    scores : AnyPrefixScores
        The scores.
    edges : ndarray of shape (K, E)
        The sorted edges of each prefix, padded with infinity.
    """

    scores: AnyPrefixScores
    edges: np.ndarray

    def measure(self, samples: Array) -> np.ndarray:
        """Return the counts of a block of runs, of shape (K, E + 1). Samples in the host's memory are counted there."""
        return evaluate_method(self, "tables", samples if on_accelerator(samples) else np.asarray(samples))

    def tables(self, samples: Array) -> Array:
        """Return the counts as an array on the device of the samples."""
        return count_levels(self.scores.values(samples.reshape(samples.shape[0], -1)), self.edges)


def count_levels(values: Array, edges: np.ndarray, counted: Array | None = None) -> Array:
    """Return how many runs lie in each level, for scores of shape (runs, K) and edges of shape (K, E).

    On a device, runs that are not `counted` are left out.
    """
    xp, number = array_namespace(values), edges.shape[1] + 1
    if xp is np:
        cells = digitize_columns(edges, values) + number * np.arange(len(edges))
        return np.bincount(cells.ravel(), minlength=number * len(edges)).reshape(-1, number)
    cells = [digitize(own, column) for own, column in zip(edges, values.T, strict=True)]
    return xp.stack([xp.bincount(one, counted, length=number) for one in cells])


class PrefixEvents(NamedTuple):
    """The events of all prefixes, frozen before the test runs, as plain data.

    The event of a prefix is {score > threshold} if the first dataset is expected to fall into it more often, and
    {score <= threshold} otherwise. The level sets between the edges are the cells whose unions are bounded.

    Attributes
    ----------
    scores : tuple of scores
        The scores that were selected for at least one prefix.
    choice : ndarray of shape (K,)
        The score of each prefix.
    direction : ndarray of shape (K,)
        0 if the first dataset is expected to fall into the event more often, 1 if the second is.
    threshold : ndarray of shape (K,)
        The threshold of each prefix; it is one of its edges.
    edges : ndarray of shape (K, E)
        The edges of the level sets of each prefix, padded with infinity.
    tested : ndarray of shape (K,)
        Whether the prefix has a share of alpha. A prefix without one has the bound of the prefix before it.
    """

    scores: tuple[AnyPrefixScores, ...]
    choice: np.ndarray
    direction: np.ndarray
    threshold: np.ndarray
    edges: np.ndarray
    tested: np.ndarray

    def values(self, flat: Array) -> Array:
        """Return the selected score of each prefix, of shape (runs, K)."""
        xp = array_namespace(flat)
        result = self.scores[0].values(flat)
        for number, scores in enumerate(self.scores[1:], 1):
            result = xp.where(self.choice == number, scores.values(flat), result)
        return result

    def indicators(self, samples: Array, known: object, counted: Array | None = None) -> tuple[Array, Array]:
        """Return which runs fall into the event of each prefix, of shape (K, runs), and the counts of the level sets.

        The level counts have the shape (K, E + 1) and leave out runs that are not `counted`.
        """
        values = self.values(samples.reshape(samples.shape[0], -1))
        inside = (values > self.threshold) != (self.direction == 1)
        return inside.T, count_levels(values, self.edges, counted)

    def contains(self, samples: Array) -> np.ndarray:
        """Return which runs of shape (runs, K, d) fall into the event of each prefix, as an array (runs, K)."""
        return self.indicators(np.asarray(samples, float), {})[0].T


# The classes that the plain data of the events are made of.
PREFIX_EVENT_KINDS = tuple(
    dict.fromkeys(kind for top in (PrefixEvents, *PREFIX_SCORE_KINDS) for kind in nested_kinds(top))
)


MAX_LEVELS = 256  # of each score during the selection, for each prefix; the tails have further ones
RANKED_STEPS = 6  # prefixes that rank the scores: neighbouring ones have nearly the same bound
NO_REGION = Region(*[np.zeros(0)] * 7)  # the scores of prefixes need none
NO_EXTREMES = Extremes(np.zeros(0), np.zeros(0))

TablePair = tuple[np.ndarray, np.ndarray]  # counts of the levels of all prefixes, for each dataset


class CountedScore(NamedTuple):
    """A score of all prefixes with its counts of proposal runs and of decision runs, for each dataset."""

    table: ScoreTable
    proposed: TablePair
    decided: TablePair

    def edges(self, step: int) -> np.ndarray:
        """Return the edges of one prefix."""
        edges = self.table.edges[step]
        return edges[np.isfinite(edges)]

    def histogram(self, step: int, counts: TablePair, runs: int) -> PairedHistogram:
        """Return the histograms of one prefix."""
        first, second = (table[step, : self.edges(step).size + 1] for table in counts)
        return PairedHistogram((first, second), (NO_EXTREMES, NO_EXTREMES), runs)


def select_prefix_events(run: RunContext, delta: float, claim: Claim | None) -> tuple[PrefixEvents, np.ndarray]:
    """Return the event of every prefix, and training runs of both datasets of shape (runs, K, d).

    Parameters
    ----------
    run : RunContext
        The run.
    delta : float
        The delta at which epsilon is bounded.
    claim : Claim or None
        The claim, if there is one.
    """
    settings = run.settings
    assert run.source.shape is not None
    steps, dimension = run.source.shape
    curve = claim if is_curve(claim) else None  # every step has an epsilon, which the events measure
    penalty = USUAL_SEARCH.decision_penalty
    objective = SelectionObjective(settings.test_runs, delta, settings.alpha / steps, penalty, curve)
    context = SelectionContext(run.source, settings, NO_REGION, objective, run.pool, run.progress)
    samples, known = context.draw_training_runs()
    examples = np.concatenate(samples)
    flat = examples.reshape(-1, steps * dimension)
    counted = []
    for scores in _train(context, summarise(samples), samples, known):
        edges = [fine_edges(column, MAX_LEVELS) for column in scores.values(flat).T]
        counted.append(ScoreTable(scores, pad_rows(edges, least=1)))
    proposed, decided = (
        context.count(stage, [TableCounter(one) for one in counted]) for stage in ("propose", "decide")
    )
    candidates = list(map(CountedScore, counted, proposed, decided))
    winners = [_select_at(step, candidates, context) for step in range(steps)]
    return _freeze(winners, _bounding_levels(winners, objective, settings.resolution)), examples


def _train(
    context: SelectionContext, training: TrainingData, samples: list[np.ndarray], known: KnownBlocks
) -> list[AnyPrefixScores]:
    """Return the scores that compete, fitted to all training runs."""
    learners = prefix_learners(training, context.shape, context.runs["train"])
    sums = count_training_runs(context, [TableCounter(one.statistic) for one in learners], samples, known)
    scores = gaussian_prefixes(training, context.shape)
    for learner, pair in zip(learners, sums, strict=True):
        scores += learner.fit(*pair)
    return scores


Winner = tuple[JudgedProposal, bool]  # the event of a prefix, and whether the test runs may prove anything with it


def _select_at(step: int, scores: list[CountedScore], context: SelectionContext) -> Winner:
    """Return the best event of one prefix; the decision runs that judge it were not used to propose it."""
    objective, runs, proposal_runs = context.objective, context.runs["decide"], context.runs["propose"]
    judged: list[JudgedProposal] = []
    histograms: dict[int, PairedHistogram] = {}  # of the decision runs
    # A score without weights has one level, and nothing can be bounded with it.
    for one in [score for score in scores if score.edges(step).size > 1] or scores:
        edges = one.edges(step)
        binned = BinnedScore(PrefixScore(one.table.scores, step), edges)
        candidate = Candidate(binned, one.histogram(step, one.proposed, proposal_runs))
        proposals, histogram = propose_levels(candidate, objective).proposals, one.histogram(step, one.decided, runs)
        levels = proposals[0].event.partition
        histograms[id(levels)] = histogram
        first, second = (counts_from_table(merge_levels(table, levels.edges, edges)) for table in histogram.table)
        counts = SelectionCounts(first, second, runs, proposal_runs)
        judged += [judge(proposal, counts, objective) for proposal in proposals]
    winner = prefer_simpler(judged)
    if objective.is_curve:  # events were judged by their distance from a curve
        return winner, True
    if not _may_prove(winner, proposal_runs, objective):
        return winner._replace(proposal=_median_event(winner.proposal)), False
    return refine_threshold(winner, histograms[id(winner.proposal.event.partition)], objective), True


def _may_prove(winner: JudgedProposal, proposal_runs: int, objective: SelectionObjective) -> bool:
    """Return whether the log-ratio of an event in the selection runs is at least half the error of the test."""
    side, before = winner.proposal.event.direction, winner.proposal.counts
    pair = zip((before[side], before[1 - side]), winner.decided, strict=True)
    p1, p2 = ((old + new + 0.5) / (winner.decision_runs + proposal_runs + 1) for old, new in pair)
    excess = p1 - objective.delta
    if excess <= 0:
        return False
    error = np.sqrt((p1 * (1 - p1) / excess**2 + (1 - p2) / p2) / objective.planned)
    return bool(np.log(excess / p2) >= -0.5 * scipy.special.ndtri(objective.alpha) * error)


def _median_event(proposal: Proposal) -> Proposal:
    """Return the event of the same score with about half of the runs, for a prefix that proves nothing.

    A rare event would be a cell of its own, and would make the upper bound of the prefix too large. The threshold is
    the edge that `bounding_levels` takes for one half. Another edge near it would leave a cell with hardly any run
    between the two, and this cell alone would make the upper bound large.
    """
    candidate, side = proposal.candidate, proposal.event.direction
    assert candidate is not None
    (score, edges), histogram = candidate.binned, candidate.histogram
    share = np.cumsum(histogram.table[0] + histogram.table[1])[:-1] / (2 * histogram.runs)
    threshold = float(edges[min(int(np.searchsorted(share, 0.5)), edges.size - 1)])
    return proposal._replace(
        event=level_event(Levels(score, np.array([threshold])), threshold, side), threshold=threshold
    )


def _bounding_levels(winners: list[Winner], objective: SelectionObjective, resolution: int | None) -> list[Levels]:
    """Return the level sets of every prefix. At a positive delta all have as many as are best for the last prefix."""
    if resolution is None and objective.delta > 0:
        resolution = bounding_levels(winners[-1][0], objective, None).size
    return [bounding_levels(judged, objective, resolution) for judged, _ in winners]


def _freeze(winners: list[Winner], levels: list[Levels]) -> PrefixEvents:
    """Return the selected events as plain data. If no prefix is expected to prove anything, all of them share alpha."""
    views = [one.score for one in levels if isinstance(one.score, PrefixScore)]
    distinct = list({id(view.scores): view.scores for view in views}.values())
    numbers = {id(scores): number for number, scores in enumerate(distinct)}
    proposals = [judged.proposal for judged, _ in winners]
    tested = np.array([may_prove for _, may_prove in winners])
    return PrefixEvents(
        tuple(distinct),
        np.array([numbers[id(view.scores)] for view in views]),
        np.array([proposal.event.direction for proposal in proposals]),
        np.array([proposal.threshold for proposal in proposals]),
        pad_rows([one.edges for one in levels], least=1),
        tested if tested.any() else np.ones(len(winners), bool),
    )


class StreamBudget(NamedTuple):
    """For how many steps an output may be released under a budget (`PrivacyOverTime.until`).

    Attributes
    ----------
    epsilon, delta : float
        The budget.
    bounded : int
        The first so many steps together are within the budget, over the cells of their partitions.
    exceeded : int or None
        The number of steps that is proved to exceed the budget, over all events; None if nothing is proved.
    steps : int
        The number of steps of the output.
    """

    epsilon: float
    delta: float
    bounded: int
    exceeded: int | None
    steps: int

    @property
    def unknown(self) -> tuple[int, ...]:
        """The numbers of steps about which nothing is known."""
        end = self.steps + 1 if self.exceeded is None else self.exceeded
        return tuple(range(self.bounded + 1, end))

    def __str__(self) -> str:
        """Return the answer in words."""
        lines = [f"budget epsilon {format_number(self.epsilon)}, delta {format_number(self.delta)}:"]
        if self.bounded:
            steps = "the first step stays" if self.bounded == 1 else f"the first {self.bounded} steps stay"
            lines.append(f"  {steps} within it, over the cells; events that split a cell were not checked")
        if self.exceeded is not None:
            lines.append(f"  {self.exceeded} steps or more exceed it; this is proved")
        if self.unknown:
            first, last = self.unknown[0], self.unknown[-1]
            span = f"{first} steps" if first == last else f"{first} to {last} steps"
            lines.append(f"  unknown for {span}; more test_runs narrow this down")
        return "\n".join(lines)


class _OverTime(ResultTable):
    """What results over time have in common: their files, and pages whose sentences have symbols."""

    on_page = staticmethod(as_sentence)
    digest: str

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Return whether both results have the same digest."""
        return isinstance(other, type(self)) and self.digest == other.digest

    def __str__(self) -> str:
        """Return the result as plain text."""
        return f"{self.over}\n{super().__str__()}"

    def to_json(self, path: str | os.PathLike[str] | TextIO) -> None:
        """Write the result as JSON to a file, or to a stream that is open for text."""
        files.write(self, {"steps": self.rows}, path)

    @classmethod
    def from_json(cls, path: str | Path) -> Self:
        """Read a result that `to_json` wrote. All bounds are computed from the counts in the file."""
        return files.read(cls, path, KINDS)


class LossTable(NamedTuple):
    """Slices of the stated log-ratios of prefixes, each divided by the event of its prefix: what a certificate counts.

    Attributes
    ----------
    ratio : LogRatio
        The log-ratios of J prefixes, the last ones.
    edges : ndarray of shape (J, S)
        The edges of the slices, padded with infinity.
    events : PrefixEvents
        The events of all prefixes.
    """

    ratio: LogRatio
    edges: np.ndarray
    events: PrefixEvents

    def measure(self, samples: Array) -> np.ndarray:
        """Return the counts of a block of runs, of shape (J, S + 1, 2)."""
        number, slices = len(self.edges), self.edges.shape[1] + 1
        codes = digitize_columns(self.edges, np.asarray(self.ratio.of_prefixes(samples)))
        codes = 2 * (codes + slices * np.arange(number)) + self.events.contains(np.asarray(samples))[:, -number:]
        return np.bincount(codes.ravel(), minlength=2 * slices * number).reshape(number, slices, 2)


@dataclass(frozen=True)
class PrefixLosses:
    """Test runs in slices of the stated log-ratios of the last J prefixes.

    Attributes
    ----------
    edges : ndarray of shape (J, S)
        The edges of the slices of each prefix, padded with infinity.
    counts : ndarray of shape (2, J, S + 1, 2)
        Test runs of each dataset in each slice, outside and inside the event of the prefix.
    """

    edges: np.ndarray
    counts: np.ndarray

    def certificates(self, runs: int, level: float, misfit_level: float) -> list[DensityCertificate]:
        """Return the certificate of each prefix; all of them hold together, with confidence 1 - level."""
        number, found = len(self.edges), []
        for prefix, own in enumerate(self.edges):
            edges = own[np.isfinite(own)]
            counts = self.counts[:, prefix, : edges.size + 1]
            found.append(DensityCertificate(edges, counts, runs, level / number, misfit_level / number))
        return found


@dataclass(frozen=True, eq=False, repr=False)
class PrivacyOverTime(_OverTime):
    """The privacy of every prefix of an output: how much the steps 0 to k reveal together, for every k.

    The lower bounds hold over all events and for all steps together, with confidence 1 - alpha. The upper bounds hold
    over the cells of one partition per prefix, for all steps together, with confidence 1 - alpha. Steps count
    from 0. With `stop_early` all of this holds for the look that ended the run. A result without an answer (`voiding`)
    has its counts and no bounds: they are None. `print` shows a table.

    Attributes
    ----------
    name : str
        The name of the mechanism.
    record : str
        The name of the record in which the two datasets differ; "" without a name.
    delta : float
        The delta at which epsilon is bounded.
    claim : Claim or None
        The claim.
    events : PrefixEvents
        The selected event of every prefix, which was fixed before the test runs.
    counts : ndarray of shape (2, K, E + 1)
        Test runs of each dataset in the level sets of every prefix.
    shape : tuple of int
        Steps K and dimensions of one output.
    settings : Settings
        The settings.
    seeded : bool
        Whether the mechanism can be seeded.
    diagnostics : tuple of Diagnostic
        Findings that a reader must know.
    truth : ndarray of shape (K,) or None
        The exact epsilon of every prefix if the mechanism knows it (its method `truth`), otherwise None.
    provenance : dict
        Time, versions, device and workers; not part of the result.
    losses : PrefixLosses or None
        What `epsilon_certified` is computed from; None unless the density of the output is stated.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def noisy_stream(data, runs, rng):  # every output is the current reading with Laplace noise
    ...     return data + rng.laplace(size=(runs, len(data), 1))
    >>> first, second = np.zeros((4, 1)), np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> over_time = dpv.privacy_over_time(noisy_stream, first, second, select_runs=4000, test_runs=20_000)
    >>> over_time.start, bool(over_time.epsilon_lower[3] > 1.0)
    (2, True)
    """

    name: str
    record: str
    delta: float
    claim: Claim | None
    events: PrefixEvents
    counts: np.ndarray
    shape: tuple[int, int]
    settings: Settings
    seeded: bool
    diagnostics: tuple[Diagnostic, ...]
    truth: np.ndarray | None
    provenance: dict[str, Any]
    losses: PrefixLosses | None = None

    identity: ClassVar[Sequence[str]] = ("record", "step")

    @property
    def steps(self) -> int:
        """The number of steps K."""
        return self.shape[0]

    @property
    def alpha(self) -> float:
        """One minus the confidence of the lower bounds, of the upper bounds, and of the test of the claim."""
        return self.settings.alpha

    @property
    def runs(self) -> int:
        """The number of test runs per dataset; with `stop_early` those that were drawn."""
        return int(self.counts[0, 0].sum())

    @property
    def share(self) -> float:
        """The share of alpha of these statements: 1, or with `stop_early` that of the look that ended the run."""
        return next(look.share for look in plan_looks(self.settings) if look.runs == self.runs)

    @property
    def look_alpha(self) -> float:
        """The level of the statements of this look."""
        return self.share * self.alpha

    @property
    def voiding(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that make the bounds meaningless."""
        return tuple(diagnostic for diagnostic in self.diagnostics if diagnostic.voids)

    @functools.cached_property
    def event_counts(self) -> np.ndarray:
        """Test runs in the event of every prefix, of shape (K, 2): first the dataset that is expected to have more."""
        is_above = np.pad(self.events.edges >= self.events.threshold[:, None], ((0, 0), (1, 0)))
        above, first_exceeds = (self.counts * is_above).sum(-1), self.events.direction == 0
        return np.where(first_exceeds, above, self.runs - above[::-1]).T

    @property
    def step_alpha(self) -> float:
        """The level of the bound of one prefix: the prefixes that are tested share alpha."""
        return self.look_alpha / int(self.events.tested.sum())

    @functools.cached_property
    def epsilon_lower(self) -> Any:
        """Lower bounds on epsilon, one per step, over all events and for all steps together; None without an answer.

        A longer prefix reveals at least as much as a shorter one, so a bound also holds for all later steps.
        """
        return self._accumulate(lambda c1, c2: epsilon_lower_bound(c1, c2, self.runs, self.delta, self.step_alpha))

    @functools.cached_property
    def claim_lower(self) -> np.ndarray | None:
        """Lower bounds on the claim's own parameter (epsilon, mu, rho), as `epsilon_lower`; None if it has none."""
        claim = self.claim
        if claim is None or claim.parameter_name is None:
            return None
        return self._accumulate(lambda c1, c2: claim.lower_bound(c1, c2, self.runs, self.step_alpha))

    def _accumulate(self, bound: Any) -> np.ndarray | None:
        """Return the largest bound of each prefix and the prefixes before it; None without an answer."""
        if self.voiding:
            return None
        single = [
            bound(int(c1), int(c2)) if tested else 0.0
            for (c1, c2), tested in zip(self.event_counts, self.events.tested, strict=True)
        ]
        return np.maximum.accumulate(np.array(single, float))

    def on_partition(self, step: int) -> CellBounds | None:
        """Return the upper bounds over unions of the level sets of one prefix; all prefixes together at 1 - alpha.

        None without an answer.
        """
        return None if self.voiding else self._counted(step)

    def _counted(self, step: int) -> CellBounds:
        """Return the counts of the level sets of one prefix, which bound unions of them."""
        cells = int(np.isfinite(self.events.edges[step]).sum()) + 1
        first, second = self.counts[:, step, :cells]
        level = self.look_alpha / self.steps
        return CellBounds(first, second, np.ones(cells, np.int64), self.runs, level, cells, (0, 0))

    @functools.cached_property
    def epsilon_upper(self) -> Any:
        """Upper bounds on epsilon over the cells, one per step, for all steps together; may be infinite.

        None without an answer.
        """
        if self.voiding:
            return None
        parts = [self._counted(step) for step in range(self.steps)]
        deltas = [self.delta if part.is_bounded_at(self.delta) else 0.0 for part in parts]
        return np.array(
            [epsilon_upper_bound(p.c1, p.c2, p.runs, d, p.alpha) for p, d in zip(parts, deltas, strict=True)]
        )

    @functools.cached_property
    def certificates(self) -> list[DensityCertificate]:
        """Upper bounds over all events of the prefixes whose density is stated, the last ones; all hold together."""
        if self.losses is None:
            return []
        return self.losses.certificates(self.runs, self.look_alpha, self.share * DENSITY_ALPHA)

    @functools.cached_property
    def epsilon_certified(self) -> np.ndarray | None:
        """Upper bounds on epsilon over all events, one per step, if the stated density is correct; may be infinite.

        What bounds a longer prefix bounds a shorter one. None without an answer or a stated density.
        """
        if self.voiding or not self.certificates:
            return None
        bounds = np.array([one.epsilon_upper(self.delta) for one in self.certificates])
        unstated = np.full(self.steps - bounds.size, np.inf)
        return np.minimum.accumulate(np.r_[unstated, bounds][::-1])[::-1]

    @functools.cached_property
    def p_values(self) -> np.ndarray | None:
        """The p-value of the claim for every prefix on its own, over all looks together, or None."""
        if self.claim is None or self.voiding:
            return None
        values = []
        for c1, c2 in self.event_counts.tolist():
            p_value = self.claim.p_value(c1, c2, self.runs, self.look_alpha)
            values.append(divide_p_value(p_value, self.share, self.alpha))
        return np.array(values)

    @property
    def refuted_from(self) -> int | None:
        """The earliest step from which on the claim is proved to be false, or None.

        The prefixes are tested from the longest to the shortest at level alpha, until one is not refuted. The statement
        holds with confidence 1 - alpha for one claim that was fixed before the runs. For claims that are chosen later,
        use `epsilon_lower`, which holds for all epsilons together.
        """
        if self.p_values is None:
            return None
        kept = np.flatnonzero(self.p_values > self.alpha)
        earliest = int(kept[-1]) + 1 if kept.size else 0
        return earliest if earliest < self.steps else None

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted for the whole output."""
        return self.refuted_from is not None

    @functools.cached_property
    def verdict(self) -> Verdict:
        """The verdict about the claim for the whole output."""
        if self.voiding:
            return Verdict.NO_ANSWER
        if self.claim is None:
            return Verdict.MEASURED
        if self.refuted:
            return Verdict.REFUTED
        is_certified = bool(self.certificates) and self.certificates[-1].meets_claim(self.claim)
        return Verdict.CERTIFIED if is_certified else Verdict.NOT_REFUTED

    @functools.cached_property
    def holds_on_cells(self) -> bool:
        """Whether the upper bounds show that no union of the cells of any prefix violates the claim."""
        if self.claim is None or self.voiding:
            return False
        return all(self._counted(step).meets_claim(self.claim) for step in range(self.steps))

    @property
    def stopped(self) -> StoppedBy | None:
        """Why a run with `stop_early` ended: "refuted" or "budget"; None without `stop_early`."""
        if not self.settings.stop_early:
            return None
        return StoppedBy.REFUTED if self.refuted and self.runs < self.settings.test_runs else StoppedBy.BUDGET

    @property
    def start(self) -> int | None:
        """The first step at which a privacy loss is proved, or None."""
        if self.voiding or self.final == 0:
            return None
        return int(np.flatnonzero(self.epsilon_lower > 0)[0])

    @property
    def final(self) -> Any:
        """The lower bound on epsilon of the whole output; None without an answer."""
        return None if self.voiding else float(self.epsilon_lower[-1])

    @property
    def increments(self) -> Any:
        """What each new output adds to the lower bound. The sum is a bound; a single increment is not.

        None without an answer.
        """
        return None if self.voiding else np.diff(self.epsilon_lower, prepend=0.0)

    @property
    def spent(self) -> Any:
        """The share of the final lower bound that is reached at each step; 0 if nothing is proved, None if void."""
        if self.voiding:
            return None
        return self.epsilon_lower / self.final if self.final > 0 else np.zeros(self.steps)

    def until(self, epsilon: float) -> StreamBudget:
        """Return for how many steps the output may be released under a privacy budget.

        Parameters
        ----------
        epsilon : float
            The budget, at the delta of this result.

        Returns
        -------
        StreamBudget
            How many steps are bounded, which number of steps is proved to be too many, and what is unknown. Nothing is
            known if a diagnostic makes the bounds meaningless.
        """
        check_epsilon(epsilon)
        if self.voiding:
            return StreamBudget(epsilon, self.delta, 0, None, self.steps)
        above = np.flatnonzero(self.epsilon_lower > epsilon)
        over = np.flatnonzero(self.epsilon_upper > epsilon)
        bounded = int(over[0]) if over.size else self.steps
        exceeded = int(above[0]) + 1 if above.size else None
        if exceeded is not None:
            bounded = min(bounded, exceeded - 1)
        return StreamBudget(epsilon, self.delta, bounded, exceeded, self.steps)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the result. It does not depend on executor, number of workers or order of blocks."""
        return files.digest(self)

    @functools.cached_property
    def rows(self) -> list[Row]:
        """One row per step; without an answer a row has no result, and names the diagnostic."""
        claim = self.claim
        columns = {
            "claim_lower": self.claim_lower,
            "p_value": self.p_values,
            "epsilon_lower": self.epsilon_lower,
            "epsilon_upper_on_partition": self.epsilon_upper,
            "epsilon_certified": self.epsilon_certified,
            "increment": self.increments,
            "spent": self.spent,
            "c1": None if self.voiding else self.event_counts[:, 0],
            "c2": None if self.voiding else self.event_counts[:, 1],
            "exact": self.truth,
        }
        whole = {
            "record": self.record,
            "verdict": self.verdict.name,
            "diagnostic": self.voiding[0].name if self.voiding else None,
            "epsilon": claim.epsilon if isinstance(claim, Approximate) else None,
            "delta": self.delta,
            "claim": None if claim is None else claim.describe(),
            "claim_parameter": None if claim is None else claim.parameter_name,
            "alpha": self.alpha,
            "holds_on_cells": self.holds_on_cells,
            "test_runs": self.runs,
        }
        return [
            {
                **whole,
                "step": step,
                **{name: None if column is None else column[step].item() for name, column in columns.items()},
            }
            for step in range(self.steps)
        ]

    @property
    def listed(self) -> list[Row]:
        """The rows of the text and of the page; none without an answer."""
        return [] if self.voiding else self.rows

    @property
    def over(self) -> str:
        """What was measured."""
        label = f" ({self.record})" if self.record else ""
        return f"{self.name}{label}: privacy over {self.steps} steps at delta {format_number(self.delta)}"

    @property
    def headline(self) -> str:
        """By which step the record is proved to be visible, and what it costs in the end, in one sentence."""
        subject = self.record or "the difference of the datasets"
        if self.voiding:
            return f"{subject}: no answer; {self.voiding[0].value}"
        if self.start is None:
            nothing = f"no lower bound above 0 in {self.steps} steps, which does not prove that nothing leaks"
            return f"nothing is proved about {subject}: {nothing}"
        leaks = "leak" if subject.startswith(("readings ", "records ")) else "leaks"
        return f"{subject} {leaks} by step {self.start}: epsilon at least {format_lower(self.final)} in total"

    def sentences(self) -> list[str]:
        """Return what is said below the headline."""
        claim = [] if self.claim is None else [f"claim: {self.claim_sentence()}"]
        runs = f"{runs_phrase([self])}, the same for all steps"
        scope = f"the bounds hold for all steps together with confidence {format_confidence(self.alpha)}; {UNCHECKED}"
        assumed = [f"the bounds over all events hold provided that {one.assumption}" for one in self.certificates[:1]]
        bounds = [] if self.voiding else [scope, *assumed, runs]
        return [*claim, *bounds, *other_findings([self])]

    def claim_sentence(self) -> str:
        """Return what is known about the claim, in one sentence."""
        assert self.claim is not None
        claim, confidence = self.claim.describe(), f"confidence {format_confidence(self.alpha)}"
        if self.voiding:
            return f"{claim}: no verdict"
        if self.refuted_from is not None:
            return f"{claim}: refuted from step {self.refuted_from} on{self.sharper_test()}; {confidence}"
        if self.verdict is Verdict.CERTIFIED:
            return f"{claim}: certified for all events, provided that {self.certificates[0].assumption}; {confidence}"
        if self.holds_on_cells:
            return f"{claim}: not refuted in {self.steps} steps, and no union of the cells violates it; {confidence}"
        return f"{claim}: not refuted in {self.steps} steps; this does not prove that it holds"

    def sharper_test(self) -> str:
        """Return an explanation if the claim is refuted although the lower bounds do not exceed its parameter."""
        lower = self.claim_lower
        if self.claim is None or lower is None or lower[-1] > (self.claim.parameter or 0.0):
            return ""
        return " (the test of the claim is sharper than the bounds, which hold for all steps together)"

    @property
    def state(self) -> str:
        """The name of the verdict about the whole output."""
        return self.verdict.name

    @property
    def columns(self) -> list[ResultColumn]:
        """The columns of the text and of the page."""
        return [
            ResultColumn("step", "step", lambda row: str(row["step"]), True),
            *BOUND_COLUMNS,
            ResultColumn("increment", "added", lambda row: _text(row["increment"], format_number), True),
            ResultColumn("spent", "spent", lambda row: _text(row["spent"], format_percent), True),
            ResultColumn("exact", "exact epsilon", lambda row: _text(row["exact"], format_number), True),
        ]

    def printed_rows(self, most: int) -> Sequence[Row]:
        """Return evenly spaced steps, the last one included."""
        return self.listed[::-1][:: -(-self.steps // most)][::-1]

    def drawings(self) -> list[Drawing]:
        """Return the figure of the bounds of every step."""
        if self.voiding:
            return []
        pages = load_pages()
        exact = [None] * self.steps if self.truth is None else self.truth.tolist()
        limits = zip(self.epsilon_lower.tolist(), self.epsilon_upper.tolist(), exact, strict=True)
        bounds = [
            pages.Bounds(f"steps 0 to {step}", low, high, step, None, x) for step, (low, high, x) in enumerate(limits)
        ]
        subject = f": {self.record}" if self.record else ""
        title = f"{self.name}{subject}, δ = {format_number(self.delta)}"
        marks = [] if self.start is None else [(self.start, f"first proved loss: step {self.start}")]
        drawing = pages.draw_bounds(bounds, title, "last released step", self.rows[0]["epsilon"], marks=marks)
        longer = "A longer prefix reveals at least as much as a shorter one, so the lower bound never falls."
        description = f"Over {self.steps} steps: {self.headline}"
        return [drawing._replace(caption=f"{longer} {drawing.caption}", description=description)]

    def __repr__(self) -> str:
        """Return name, number of steps and the final bound."""
        bound = "no answer" if self.voiding else f"epsilon >= {math.floor(self.final * 1e4) / 1e4:g}"
        return f"<PrivacyOverTime {self.name}: {self.steps} steps, {bound}>"


@dataclass(frozen=True, eq=False, repr=False)
class PrivacyTable(_OverTime):
    """The privacy of several records over time, as `privacy_over_time(..., pairs=...)` returns it.

    `print` shows one line per record.

    Attributes
    ----------
    curves : tuple of PrivacyOverTime
        The result of each record.
    jointly : bool
        Whether the bounds of all records hold together with confidence 1 - alpha. Otherwise the bounds of each record
        hold for all its steps together with this confidence.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def noisy_stream(data, runs, rng):
    ...     return data + rng.laplace(size=(runs, *data.shape))
    >>> pairs = dpv.neighbours.one_reading(np.zeros((3, 1)), change=2.0)
    >>> table = dpv.privacy_over_time(noisy_stream, pairs=pairs, select_runs=4000, test_runs=9000)
    >>> table.start
    (0, 1, 2)
    """

    curves: tuple[PrivacyOverTime, ...]
    jointly: bool

    identity: ClassVar[Sequence[str]] = ("record",)

    @property
    def records(self) -> tuple[str, ...]:
        """The names of the records."""
        return tuple(curve.record for curve in self.curves)

    @property
    def steps(self) -> int:
        """The number of steps of an output."""
        return self.curves[0].steps

    @property
    def alpha(self) -> float:
        """One minus the confidence of the whole table if it holds jointly, otherwise that of each record."""
        return self.curves[0].alpha * (len(self.curves) if self.jointly else 1)

    @functools.cached_property
    def epsilon_lower(self) -> np.ndarray:
        """Lower bounds on epsilon of each record (rows) and step (columns); NaN for a record without an answer."""
        return self._stack([curve.epsilon_lower for curve in self.curves])

    @functools.cached_property
    def epsilon_upper(self) -> np.ndarray:
        """Upper bounds on epsilon over the cells, of each record (rows) and step (columns); NaN as above."""
        return self._stack([curve.epsilon_upper for curve in self.curves])

    def _stack(self, columns: Sequence[np.ndarray | None]) -> np.ndarray:
        """Return one row per record."""
        return np.stack([np.full(self.steps, np.nan) if column is None else column for column in columns])

    @property
    def truth(self) -> np.ndarray | None:
        """The exact epsilons if the mechanism knows them for every record, otherwise None."""
        exact = [curve.truth for curve in self.curves]
        return None if any(one is None for one in exact) else np.array(exact)

    @property
    def start(self) -> tuple[int | None, ...]:
        """The first step at which a loss of each record is proved, or None."""
        return tuple(curve.start for curve in self.curves)

    @property
    def final(self) -> np.ndarray:
        """The lower bound on epsilon of the whole output, for each record."""
        return self.epsilon_lower[:, -1]

    @property
    def spent(self) -> np.ndarray:
        """The share of its final loss that each record (rows) has reached at each step (columns)."""
        return self._stack([curve.spent for curve in self.curves])

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted for all records together: a true claim is with probability at most alpha.

        Each curve has a verdict of its own, at its own alpha. Of many records with a true claim some are refuted so.
        """
        return bool(self.certain)

    @property
    def certain(self) -> tuple[str, ...]:
        """The records for which the claim is refuted, all of them together with confidence 1 - alpha (Holm)."""
        answered = {c.record: c.p_values[-1] for c in self.curves if c.p_values is not None and not c.voiding}
        return tuple(list(answered)[index] for index in holm(list(answered.values()), self.alpha))

    @functools.cached_property
    def digest(self) -> str:  # type: ignore[override]
        """A hash of the results. It does not depend on executor, number of workers or order of blocks."""
        return hashlib.sha256("".join(curve.digest for curve in self.curves).encode()).hexdigest()

    def __getitem__(self, record: str) -> PrivacyOverTime:
        """Return the result of one record."""
        for curve in self.curves:
            if curve.record == record:
                return curve
        raise KeyError(record)

    @property
    def rows(self) -> list[Row]:
        """One row per record and step."""
        return [row for curve in self.curves for row in curve.rows]

    @property
    def listed(self) -> list[Row]:
        """One row per record, for the text and the page: that of its last step, with the bounds of all steps."""
        return [
            {
                **curve.rows[-1],
                "start": curve.start,
                "half": None if curve.start is None else int((curve.spent >= 0.5).argmax()),
                "lower": [row["epsilon_lower"] for row in curve.rows],
            }
            for curve in self.curves
        ]

    @property
    def over(self) -> str:
        """What was measured."""
        first, number = self.curves[0], count_records(len(self.curves))
        return f"{first.name}: privacy of {number} over {first.steps} steps at delta {format_number(first.delta)}"

    @property
    def headline(self) -> str:
        """Which records have no answer, and which one leaks most."""
        void = [curve.record for curve in self.curves if curve.voiding]
        worst = max((curve for curve in self.curves if not curve.voiding), key=lambda curve: curve.final, default=None)
        parts = [f"no answer for {', '.join(void)}"] if void else []
        return "; ".join([*parts, *([] if worst is None else [worst.headline])])

    def sentences(self) -> list[str]:
        """Return what is said below the headline."""
        claimed, void = self.curves[0].claim is not None, [curve.headline for curve in self.curves if curve.voiding]
        scope = (
            f"the bounds of each record hold for all its steps together with confidence {format_confidence(self.alpha)}"
        )
        scope += "; the bounds of different records do not hold jointly"
        if self.jointly:
            scope = (
                f"the bounds of all records and all steps hold together with confidence {format_confidence(self.alpha)}"
            )
        claim = [f"claim: {self.claim_sentence()}"] if claimed else []
        return [*void, *claim, f"{scope}; {UNCHECKED}", runs_phrase(self.curves), *other_findings(self.curves)]

    def claim_sentence(self) -> str:
        """Return what is known about the claim of all records, in one sentence."""
        number, verdicts = count_records(len(self.curves)), collections.Counter(curve.verdict for curve in self.curves)
        sharper = next(filter(None, (curve.sharper_test() for curve in self.curves if curve.refuted)), "")
        levels = f"each at its own alpha, {len(self.certain)} together (Holm, alpha {format_number(self.alpha)})"
        wordings = {
            Verdict.NO_ANSWER: f"no verdict for {{}} of {number}",
            Verdict.REFUTED: f"refuted for {{}} of {number}{sharper}, {levels}",
            Verdict.CERTIFIED: f"certified for {{}} of {number}",
            Verdict.NOT_REFUTED: f"not refuted for {{}} of {number}, which does not prove that it holds",
        }
        parts = [words.format(verdicts[verdict]) for verdict, words in wordings.items() if verdicts[verdict]]
        return f"{self.rows[0]['claim']}: {'; '.join(parts)}"

    @property
    def state(self) -> str:
        """The verdict about all records: refuted if they are so together."""
        states = {curve.verdict.name for curve in self.curves}
        if states == {"REFUTED"} or not self.refuted:
            states -= {"REFUTED"}
        return min(states or {"REFUTED"}, key=STATES.index)

    @property
    def columns(self) -> list[ResultColumn]:
        """The columns of the text and of the page; the page has the lower bounds of all steps."""

        def at(step: int) -> ResultColumn:
            return ResultColumn(str(step), str(step), lambda row: _text(row["lower"][step], format_lower), True, False)

        verdict = ResultColumn(
            "verdict", "verdict", lambda row: "" if row["verdict"] == "MEASURED" else verdict_text(row)
        )
        return [
            ResultColumn("record", "record", lambda row: row["record"]),
            verdict,
            ResultColumn("start", "loss proved from step", lambda row: _text(row["start"], str), True),
            ResultColumn("half", "half spent at step", lambda row: _text(row["half"], str), True),
            *BOUND_COLUMNS,
            *map(at, range(self.steps)),
        ]

    def drawings(self) -> list[Drawing]:
        """Return the heat map of the lower bounds and, where they are known, that of the exact epsilons."""
        if all(curve.voiding for curve in self.curves):
            return []
        pages, truth, first = load_pages(), self.truth, self.curves[0]
        known = truth is not None and np.isfinite(truth).all()
        largest = max(float(np.nanmax(self.epsilon_lower)), float(truth.max()) if known else 0.0)
        options = {"claim": first.rows[0]["epsilon"], "largest": largest}
        steps = list(map(str, range(self.steps)))
        title = f"{first.name}, lower bounds, δ = {format_number(first.delta)}"
        meaning = "lower bound on ε of the steps up to this one, over all events"
        drawings = [pages.heat_map(self.records, steps, self.epsilon_lower, title, meaning=meaning, **options)]
        if known:
            meaning = "exact ε of the steps up to this one"
            title = "Exact, from the closed form"
            drawings.append(pages.heat_map(self.records, steps, truth, title, meaning=meaning, **options))
        return drawings


UNCHECKED = "the upper bounds hold over the cells, and events that split a cell were not checked"
BOUND_COLUMNS = (
    ResultColumn("epsilon_lower", "proved", lower_text, True),
    ResultColumn("epsilon_upper_on_partition", "over the cells", upper_text, True),
    ResultColumn("epsilon_certified", "all events", lambda row: _text(row["epsilon_certified"], _at_most), True),
)
# What a file may contain.
KINDS = (PrivacyTable, PrivacyOverTime, PrefixLosses, *PREFIX_EVENT_KINDS, Settings, Diagnostic, *CLAIM_KINDS)


def _at_most(bound: float) -> str:
    return "none" if bound == math.inf else f"at most {format_upper(bound)}"


def _text(value: Any, form: Callable[[Any], str]) -> str:
    return "" if value is None else form(value)


def count_records(number: int) -> str:
    """Return a number of records in words."""
    return "1 record" if number == 1 else f"{number} records"


def runs_phrase(curves: Sequence[PrivacyOverTime]) -> str:
    """Return how many test runs were drawn; of several records the fewest and the most."""
    fewest, most = (format_count(choose(curve.runs for curve in curves)) for choose in (min, max))
    number = fewest if fewest == most else f"{fewest} to {most}"
    planned = curves[0].settings.test_runs
    early = any(curve.runs < planned for curve in curves)
    return f"{number}{f' of at most {format_count(planned)}' if early else ''} test runs per dataset"


def other_findings(curves: Sequence[PrivacyOverTime]) -> list[str]:
    """Return the diagnostics that do not void a result, each once."""
    found = dict.fromkeys(diagnostic for curve in curves for diagnostic in curve.diagnostics if not diagnostic.voids)
    return [diagnostic.value for diagnostic in found]


# The settings that only `verify` supports, and the values that are allowed here.
SUPPORTED_SETTINGS = {
    "partition": ("auto",),
    "events": ("auto", "score"),
    "test": ("exact",),
    "selection_epsilon": (None,),
    "nonfinite": ("error",),
}

DECIDED = (Verdict.REFUTED, Verdict.NO_ANSWER)  # verdicts that end the run at an early look


@overload
def privacy_over_time(
    mechanism: Mechanism, first: object, second: object, delta: float = 0.0, **options: Any
) -> PrivacyOverTime: ...
@overload
def privacy_over_time(
    mechanism: Mechanism,
    *,
    delta: float = 0.0,
    pairs: Mapping[str, tuple[object, object]],
    **options: Any,
) -> PrivacyTable: ...
def privacy_over_time(
    mechanism: Mechanism,
    first: object = None,
    second: object = None,
    delta: float = 0.0,
    *,
    epsilon: float | None = None,
    claim: object = None,
    pairs: Mapping[str, tuple[object, object]] | None = None,
    log_density: LogDensity | None = None,
    jointly: bool = False,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    trust_results: bool = False,
    **changes: Unpack[SettingsChanges],
) -> PrivacyOverTime | PrivacyTable:
    """Measure how much every prefix of an output reveals: when a record starts to leak, how fast, and how much.

    The output is a stream of K steps. For every k the result has bounds on the epsilon of the steps 0 to k together.
    All prefixes are counted on the same runs (docs/method.md, section 5.12).

    Parameters
    ----------
    mechanism : callable
        As in `verify`. Its outputs have the shape (runs, K, d) with at least two steps K.
    first, second : object
        The two neighbouring datasets. Leave them out if `pairs` is given.
    delta : float, default 0.0
        The delta at which epsilon is bounded.
    epsilon : float or None, default None
        The claimed epsilon at this delta; None states no claim.
    claim : claim or None, default None
        A claim of another kind, as in `verify`.
    pairs : mapping from str to (first, second), optional
        Several pairs of datasets by the name of the record in which they differ; `dpverify.neighbours` makes them.
        The result is then a table of records and steps.
    log_density : callable or None, default None
        As in `verify`: it gives upper bounds over all events (`epsilon_certified`). If it returns an array of shape
        (runs, K), the log-density of every prefix, each prefix has a bound of its own.
    jointly : bool, default False
        Whether the bounds of all records hold together with confidence 1 - alpha, so that each record has a share of
        alpha. False: the bounds of each record hold for all its steps together.
    settings, executor, folder, progress, trust_results, **changes
        As in `verify`. The settings of the paper's procedure and of other partitions do not apply. With `stop_early`
        and a claim, the test runs end at the first look at which the claim is refuted for the whole output;
        `test_runs` is then the largest number. Each record of `pairs` ends on its own.

    Returns
    -------
    PrivacyOverTime or PrivacyTable
        The bounds of every step; with `pairs` those of every record and step. `print` shows them.

    Raises
    ------
    InputError
        If an argument is invalid, the output has one step only, or the two datasets are equal.
    MechanismError, FolderError, Stopped
        As in `verify`.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def running_sum(data, runs, rng):  # one noise for the whole stream, so later steps add little
    ...     return np.cumsum(data) + rng.laplace(size=(runs, 1))
    >>> def stream(data, runs, rng):
    ...     return running_sum(data, runs, rng)[:, :, None]
    >>> result = dpv.privacy_over_time(stream, np.zeros(3), np.array([0.0, 0.5, 0.0]), select_runs=4000, test_runs=9000)
    >>> result.start
    1
    """
    settings = settings.change(**changes)
    check_settings(settings)
    tested, delta = resolve_claim(epsilon, delta, claim)
    if pairs is None:
        if first is None and second is None:
            raise InputError("there are no datasets; pass first and second, or pairs")
        return measure_pair(
            mechanism,
            first,
            second,
            delta,
            tested,
            "",
            log_density,
            settings,
            executor,
            folder,
            progress,
            trust_results,
        )
    if first is not None or second is not None:
        raise InputError("use first and second, or pairs, not both")
    if not isinstance(pairs, Mapping) or not pairs:
        raise InputError(f"pairs: found {shorten(pairs)}; expected a mapping from names to (first, second)")
    check_pairs(pairs, tuple(pairs.values()))
    if jointly:
        settings = settings.change(alpha=settings.alpha / len(pairs))
    curves: list[PrivacyOverTime] = []
    with open_pool(executor) as pool:
        for number, (record, pair) in enumerate(pairs.items()):
            own, place = settings.spawn(number), None if folder is None else str(Path(folder) / str(number))
            places = pool.executor, place, progress, trust_results
            curves.append(measure_pair(mechanism, *pair, delta, tested, str(record), log_density, own, *places))
            if curves[-1].steps != curves[0].steps:
                raise InputError(
                    f"pairs: found outputs of {curves[0].steps} and {curves[-1].steps} steps for {curves[0].record!r} "
                    f"and {curves[-1].record!r}; expected equal lengths; use datasets of one horizon"
                )
    return PrivacyTable(tuple(curves), jointly)


def check_settings(settings: Settings) -> None:
    """Raise InputError if a setting applies to `verify` only."""
    for name, allowed in SUPPORTED_SETTINGS.items():
        value = getattr(settings, name)
        if value not in allowed:
            raise InputError(
                f"{name}: found {value!r}; privacy_over_time supports {' or '.join(map(repr, allowed))}; "
                "use verify for other settings"
            )


def measure_pair(
    mechanism: Mechanism,
    first: object,
    second: object,
    delta: float,
    claim: Claim | None,
    record: str,
    log_density: LogDensity | None,
    settings: Settings,
    executor: int | Executor | None,
    folder: str | os.PathLike[str] | None,
    progress: bool | None,
    trust_results: bool,
) -> PrivacyOverTime:
    """Measure the privacy of every prefix for one pair of datasets."""
    call: dict[str, object] = {"delta": delta, "over time": True}
    settings, not_stopping = check_stop_early(settings, claim)
    if settings.stop_early:
        call["stop early"] = True
    planned = settings.change(stop_early=False)  # the blocks and the selection do not depend on early stopping
    if is_curve(claim):  # the selection depends on a claim that is a curve
        call["claim"] = fingerprint(to_plain(claim))
    if log_density is not None:
        call["log density"] = fingerprint(log_density)
    about = f" ({record})" if record else ""
    with open_run(mechanism, first, second, planned, executor, progress, folder, call, None, trust_results) as run:
        diagnostics, shape = check_mechanism(run) + not_stopping, run.source.shape
        assert shape is not None
        if getattr(run.source.mechanism, "encoding", None) is not None:
            raise InputError(
                "mechanism: found outputs that are no arrays of one shape; expected shape (runs, steps, coordinates) "
                "with both datasets; use verify"
            )
        if shape[0] < 2:
            raise InputError(
                f"mechanism: found outputs of one step (shape {shape[0]} x {shape[1]}); expected at least two "
                "steps; return an array of shape (runs, steps, coordinates), with per_run one run of shape (steps, "
                "coordinates), for example numpy.array(path)[:, None]; or use verify"
            )
        if Diagnostic.SAME_DATA in diagnostics:
            raise InputError(f"datasets{about}: {Diagnostic.SAME_DATA.value}")
        if any(diagnostic.voids for diagnostic in diagnostics):  # no number of runs gives an answer
            run = shorten_run(run)
            diagnostics += (Diagnostic.SHORTENED,)
        run.progress.skip(len(run.plan.sides) * run.plan.pilot_runs)  # no region is needed
        events, checker, losses = freeze_events(run, delta, claim, stated_log_ratio(log_density, run.source))
        result = PrivacyOverTime(
            name=mechanism_name(mechanism),
            record=record,
            delta=delta,
            claim=claim,
            events=events,
            counts=np.zeros((2, shape[0], events.edges.shape[1] + 1), np.int64),
            shape=shape,
            settings=run.settings.change(stop_early=settings.stop_early),
            seeded=is_seeded(mechanism),
            diagnostics=diagnostics + (() if is_seeded(mechanism) else (Diagnostic.UNSEEDED,)),
            truth=exact_epsilons(run, delta),
            provenance={},
        )
        result = replace(count_until_decided(run, result, checker, losses), provenance=describe_run(run))
    # Closing the run calls the mechanism's method finish, which can fail.
    result.provenance.update(describe_problems(run))
    if not result.seeded:
        warnings.warn(Diagnostic.UNSEEDED.value, DPVerifyWarning, stacklevel=3)
    return result


def freeze_events(
    run: RunContext, delta: float, claim: Claim | None, score: UserScore | None
) -> tuple[PrefixEvents, BlockChecker, LossTable | None]:
    """Select the events of all prefixes with the selection runs and store them; a resumed run reads them.

    With the stated log-ratio as a score, slices of it are placed as well.
    """
    checkpoint, settings = run.checkpoint, run.settings
    frozen = checkpoint.read_choice("prefix-events", PREFIX_EVENT_KINDS, dict)
    if frozen is not None:
        run.progress.skip(2 * settings.select_runs)
    else:
        done_before = run.progress.done
        events, samples = select_prefix_events(run, delta, claim)
        checker = BlockChecker.make((events,), samples)
        run.progress.skip(done_before + 2 * settings.select_runs - run.progress.done)
        frozen = {"events": events, "coordinates": checker.coordinates, "medians": checker.medians, "slices": None}
        if score is not None:
            score.check_row_by_row(samples)
            ratios = np.asarray(score.function.of_prefixes(samples))
            frozen["slices"] = pad_rows([slice_edges(column) for column in ratios.T])
        checkpoint.write("prefix-events", Record(to_plain(frozen)))
        if checkpoint.problem is None:
            checkpoint.forget("train", "propose", "decide")
        run.finished["selection"] = time.perf_counter()
    events = frozen["events"]
    losses = None if score is None else LossTable(score.function, frozen["slices"], events)
    return events, BlockChecker(frozen["coordinates"], frozen["medians"], (events,)), losses


def count_until_decided(
    run: RunContext, result: PrivacyOverTime, checker: BlockChecker, losses: LossTable | None
) -> PrivacyOverTime:
    """Count the test runs, and return the result of the first look at which the claim is decided, or of the last."""
    planned, done_before, before = result.settings.test_runs, run.progress.done, result.diagnostics
    for counts, sliced, found in count_test_runs(run, checker, plan_looks(result.settings), losses):
        own = None if losses is None or sliced is None else PrefixLosses(losses.edges, sliced)
        result = replace(result, counts=counts, losses=own, diagnostics=before if result.voiding else before + found)
        if any(one.misfit for one in result.certificates):
            result = replace(result, diagnostics=(*result.diagnostics, Diagnostic.WRONG_DENSITY))
        if result.runs < planned and result.verdict in DECIDED:
            break
    run.progress.skip(done_before + 2 * planned - run.progress.done)
    run.finished["test"] = time.perf_counter()
    return result


def count_test_runs(
    run: RunContext, checker: BlockChecker, looks: Sequence[PlannedLook], losses: LossTable | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray | None, tuple[Diagnostic, ...]]]:
    """Yield at every look the counts of both datasets in the level sets of every prefix and in slices; diagnostics."""
    statistics: list[Statistic] = [checker, *([] if losses is None else [TableCounter(losses)])]
    block, stages = run.source.block, []
    counted: frozenset[tuple[int, int]] = frozenset()
    for look in looks:
        stages.append(collect_statistics(run.source, "test", look.runs, statistics, run.pool, run.progress, counted))
        counted = frozenset((side, number) for side in (0, 1) for number in range(look.runs // block))
        tables, *slices = zip(*stages, strict=True)
        first, second = (EventTables.merge(side) for side in zip(*tables, strict=True))
        found: tuple[Diagnostic, ...] = ()
        if not threads_agree(run.source, run.pool):
            found = (Diagnostic.NOT_THREAD_SAFE,)
        elif runs_are_dependent([first], [second]):
            found = (Diagnostic.DEPENDENT_RUNS,)
        yield np.stack([first.levels, second.levels]), np.sum(slices, axis=(0, 1)) if slices else None, found


def exact_epsilons(run: RunContext, delta: float) -> np.ndarray | None:
    """Return the exact epsilon of every prefix if the mechanism knows it: `truth(first, second).prefix(k)`."""
    method, shape = getattr(run.source.mechanism, "truth", None), run.source.shape
    if method is None or shape is None:
        return None

    def compute() -> np.ndarray | None:
        truth = method(*run.source.data)
        prefix = getattr(truth, "prefix", None)
        return None if prefix is None else np.array([prefix(k + 1).epsilon(delta) for k in range(shape[0])], float)

    return try_optional_method("truth", compute, run.notes)
