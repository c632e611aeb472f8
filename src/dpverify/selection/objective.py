"""What the selection maximises, the lower bound that the planned test runs are expected to prove, and its context."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.claims import Claim, is_curve
from dpverify.events.partition import Partition, make_partition
from dpverify.events.region import Region
from dpverify.events.scores import (
    STRUCTURED_FAMILIES,
    Score,
    ScoreFamily,
    UserScore,
)
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.count import Block, Statistic
from dpverify.sampling.executors import WorkerPool
from dpverify.sampling.stages import collect_samples, collect_statistics
from dpverify.settings import Settings
from dpverify.stats.exact import runs_to_refute
from dpverify.util.arrays import Array
from dpverify.util.progress import Progress

BOUNDARY_TABLE_RANGE, BOUNDARY_TABLE_SIZE = (-9.0, 8.0), 1701  # in standard normal quantiles
LAST = 1e6  # subtracted from the bound of an event that cannot violate the claim; larger than every bound
MIN_APPROXIMATED_COUNT = 50
PENALTY_PER_DOUBLING = 0.15  # standard errors per doubling of the number of fitted parameters
PRIOR_COUNT = 0.5  # of the Gamma distribution that describes a probability before any run was counted
QUANTILES = (np.arange(8) + 0.5) / 8  # of the distribution of a probability, given its count
VARIANCE_STEPS = 3  # fixed-point steps of the variance of a frequent event


class SelectionObjective(NamedTuple):
    """What an event is judged by.

    Attributes
    ----------
    planned : int
        The planned test runs per dataset.
    delta : float
        The claimed delta.
    alpha : float
        The level of the test.
    decision_penalty : float
        The penalty of the final comparison, in standard errors at the size of the selection. Without a penalty the
        largest of many noisy estimates would belong to a rare event that was overestimated by chance.
    claim : Claim or None
        The claim. Where it is a curve, events are judged by their expected distance from the curve.
    """

    planned: int
    delta: float
    alpha: float
    decision_penalty: float
    claim: Claim | None = None

    @property
    def is_curve(self) -> bool:
        """Whether the claim is a curve."""
        return is_curve(self.claim)

    @property
    def most_frequent(self) -> float:
        """The largest probability, with the dataset where it is rarer, of an event that can refute the claim."""
        return 1.0 if self.claim is None else _most_frequent(self.claim, self.planned, self.alpha)

    @property
    def claimed_mu(self) -> float:
        """The mu of Gaussian differential privacy that a curve allows where both errors are equal; 0.0 for a line.

        A distance from the curve plus this number is about a bound on mu.
        """
        if not self.is_curve or self.claim is None:
            return 0.0
        quantiles, allowed = _boundary_table(self.claim)
        return 2 * float(np.interp(0.0, quantiles + allowed, allowed))


def cautious_lower_bound(
    c1: ArrayLike,
    c2: ArrayLike,
    runs: float,
    objective: SelectionObjective,
    penalties: ArrayLike,
    n_parameters: int = 0,
) -> np.ndarray:
    """Return the expected lower bound of epsilon in `p1 <= e^epsilon p2 + delta`, minus a penalty.

    Parameters
    ----------
    c1, c2 : array_like
        Counts of the event in selection runs: of the dataset that is expected to exceed, and of the other one.
    runs : float
        The selection runs per dataset behind these counts.
    objective : SelectionObjective
        The planned test.
    penalties : array_like
        One penalty or several, in standard errors at the size of the selection.
    n_parameters : int
        The number of fitted parameters. More parameters increase the penalty, so that of two events with about the
        same bound the simpler one is preferred.

    Returns
    -------
    ndarray
        The penalised bounds, of the shape of the penalties followed by the shape of the counts; minus infinity if no
        positive epsilon can be expected. If there is a claim, every event that can refute it has a larger value than
        every event that cannot. The values are approximate. They affect which event is tested, not the validity of the
        test.
    """
    c1, c2 = np.asarray(c1, float), np.asarray(c2, float)
    p1, p2 = (c1 + 0.5) / (runs + 1), (c2 + 0.5) / (runs + 1)
    levels = scipy.special.ndtr(-np.asarray(penalties, float) - PENALTY_PER_DOUBLING * np.log2(1 + n_parameters))
    # Poisson limits: close to normal standard errors for large counts, and adequate for small counts.
    low = p1 - np.sqrt(1 - p1) * (p1 - _gamma_quantiles(np.maximum(c1, 0.5), levels) / (runs + 1))
    high = p2 + np.sqrt(1 - p2) * (_gamma_quantiles(c2 + 1, 1 - levels) / (runs + 1) - p2)
    if objective.is_curve and objective.claim is not None:
        z = -scipy.special.ndtri(objective.alpha)
        distance = _distance_from_curve(p1, p2, low, high, objective, objective.claim, z)
        return _rank(distance, c1, low, high, objective)
    excess = p1 - objective.delta
    with np.errstate(divide="ignore", invalid="ignore"):
        uncertainty = np.hypot(np.log(excess / (low - objective.delta)), np.log(high / p2))
        test_variance = (p1 * (1 - p1) / excess**2 + (1 - p2) / p2) / objective.planned
        test_error = -scipy.special.ndtri(objective.alpha) * np.sqrt(test_variance)
        bound = np.log(np.maximum(excess, 1e-300) / p2) - test_error - uncertainty
        return _rank(np.where(low > objective.delta, bound, -np.inf), c1, low, high, objective)


def _rank(
    bounds: np.ndarray, c1: np.ndarray, low: np.ndarray, high: np.ndarray, objective: SelectionObjective
) -> np.ndarray:
    """Return the bounds, and much less for events that never occurred or are too frequent to refute the claim.

    Of events that can refute it, those without a bound come after those with one, the frequent ones first.
    """
    if objective.claim is None:
        return bounds
    can_refute = (high <= objective.most_frequent) & (c1 > 0)
    return np.where(can_refute, np.maximum(bounds, low - LAST), bounds - 2 * LAST)


def approximate_bound(
    p1: ArrayLike, p2: ArrayLike, objective: SelectionObjective, share: float | np.ndarray = 1.0, is_rare: bool = False
) -> np.ndarray:
    """Return about the lower bound that the planned test runs prove for an event with these probabilities.

    Parameters
    ----------
    p1, p2 : array_like
        The probabilities of the event under the dataset that is expected to exceed, and under the other one.
    objective : SelectionObjective
        The planned test.
    share : float or ndarray
        The share of alpha that the event is tested with.
    is_rare : bool
        Whether both probabilities are small, so that counts are Poisson distributed.

    Returns
    -------
    ndarray
        For a claimed epsilon, or without a claim: the epsilon at which the score statistic of the expected counts is
        the normal quantile of the level. For a claim that is a curve: the distance from the curve on the probit scale,
        less the error of the test. Never below 0, and 0 for an event that is too frequent to refute the claim.
    """
    p1, p2 = np.asarray(p1, float), np.asarray(p2, float)
    p1 = np.where(p2 <= objective.most_frequent, p1, 0.0)
    z = -scipy.special.ndtri(objective.alpha * np.asarray(share))
    if objective.is_curve and objective.claim is not None:
        return np.maximum(_distance_from_curve(p1, p2, p1, p2, objective, objective.claim, z), 0.0)
    runs = objective.planned
    k2, rest = p2 * runs, objective.delta * runs
    excess = np.maximum(p1 * runs - rest, 0.0)
    ratio, factor = np.ones(np.broadcast_shapes(p1.shape, p2.shape, np.shape(z))), 1.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for _ in range(1 if is_rare else VARIANCE_STEPS):
            # The statistic (excess - R k2)^2 = z^2 (rest + R (excess + k2)) is a quadratic equation for R = e^epsilon.
            # Its variance is that of Poisson counts; the factor corrects it for probabilities that are not small.
            square = z * z * factor
            linear = 2 * excess * k2 + square * (excess + k2)
            constant = np.maximum(excess**2 - square * rest, 0.0)
            ratio = 2 * constant / (linear + np.sqrt(np.maximum(linear**2 - 4 * k2**2 * constant, 0.0)))
            q2 = np.minimum((excess + k2) / (1 + ratio) / runs, 1.0)
            q1 = np.minimum(ratio * q2 + objective.delta, 1.0)
            variance = q1 + ratio**2 * q2
            factor = np.where(variance > 0, 1 - (q1**2 + ratio**2 * q2**2) / np.maximum(variance, 1e-300), 1.0)
        bound = np.where(constant > 0, np.log(np.maximum(ratio, 1e-300)), 0.0)
    return np.maximum(np.nan_to_num(bound, nan=0.0), 0.0)


def posterior_quantiles(counts: ArrayLike, runs: int, prior: ArrayLike = PRIOR_COUNT, prior_runs: ArrayLike = 0.0):
    """Return quantiles of an unknown probability, given its count; the quantiles are the last axis.

    Parameters
    ----------
    counts : array_like
        Runs in the event.
    runs : int
        All runs.
    prior, prior_runs : array_like
        A count and a number of runs that express what is known without these runs.
    """
    shape = np.asarray(counts, float) + prior
    quantiles = np.moveaxis(_gamma_quantiles(shape, QUANTILES), 0, -1)
    return np.minimum(quantiles / (runs + np.asarray(prior_runs, float))[..., None], 1.0)


def _distance_from_curve(
    p1: np.ndarray,
    p2: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    objective: SelectionObjective,
    claim: Claim,
    z: float | np.ndarray,
) -> np.ndarray:
    """Return how far above the boundary of the claim an event is expected to be, on the probit scale, less penalties.

    `low` and `high` are the pessimistic values of p1 and p2 that the selection runs allow, and `z` is the normal
    quantile of the test.
    """
    tested1 = np.maximum(p1 - z * np.sqrt(p1 * (1 - p1) / objective.planned), 1e-300)
    tested2 = np.minimum(p2 + z * np.sqrt(p2 * (1 - p2) / objective.planned), 1.0)
    highest = 1 - 1e-16
    first, first_low, first_tested = (scipy.special.ndtri(np.clip(p, 1e-300, highest)) for p in (p1, low, tested1))
    table = _boundary_table(claim)
    allowed, allowed_high, allowed_tested = (
        np.interp(scipy.special.ndtri(np.clip(q, 1e-300, highest)), *table) for q in (p2, high, tested2)
    )
    uncertainty = np.hypot(first - first_low, allowed_high - allowed)
    test_error = np.hypot(first - first_tested, allowed_tested - allowed)
    return np.where(low > 0, first - allowed - uncertainty - test_error, -np.inf)


@lru_cache(maxsize=8)
def _boundary_table(claim: Claim) -> tuple[np.ndarray, np.ndarray]:
    """Return the boundary of a claim on the probit scale; some boundaries are too slow for thousands of events."""
    quantiles = np.linspace(*BOUNDARY_TABLE_RANGE, BOUNDARY_TABLE_SIZE)
    return quantiles, scipy.special.ndtri(np.clip(claim.boundary(scipy.special.ndtr(quantiles)), 1e-300, 1 - 1e-16))


@lru_cache(maxsize=8)
def _most_frequent(claim: Claim, planned: int, alpha: float) -> float:
    """Return the largest probability q of an event with which so many runs can refute the claim; 0 if none can.

    If the event always happened with the other dataset, the test would refute the claim with probability 80%.
    """
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        can_refute = runs_to_refute(1.0, middle, claim, alpha) <= planned
        low, high = (middle, high) if can_refute else (low, middle)
    return low


def _gamma_quantiles(counts: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the gamma quantile of every count at every level; the levels are the first axis if there are several.

    Large counts use the approximation of Wilson and Hilferty.
    """
    flat, column = np.ravel(counts), np.reshape(levels, (-1, 1))
    root = 1 - 1 / (9 * flat) + scipy.special.ndtri(column) / (3 * np.sqrt(flat))
    quantiles = flat * root**3
    small = np.flatnonzero(flat < MIN_APPROXIMATED_COUNT)
    if small.size:
        distinct, index = np.unique(flat[small], return_inverse=True)  # each distinct count is computed once
        quantiles[:, small] = scipy.special.gammaincinv(distinct, column)[:, index]
    return quantiles.reshape(np.shape(levels) + np.shape(counts))


ScoreLearner = Callable[[np.ndarray, np.ndarray], Score | Callable[[Array], Array]]  # the argument `learn=`
KnownBlocks = Collection[tuple[int, int]]  # (dataset, block)

MAX_KEPT_NUMBERS = 1 << 22  # per dataset: 32 MB


@dataclass(frozen=True)
class SelectionTuning:
    """The numbers that decide what is tried and what is preferred, each with its reason.

    None of them affects validity: the test runs are other runs.
    """

    # Training (learn.py).
    min_split_gain: float = 6.0  # nats; some hundred splits of a tree under equal distributions rarely gain more
    min_structured_runs: int = 2000  # kept training runs per dataset; fewer are not divided into fitting and judging
    held_out_share: int = 4  # one of so many kept runs judges the structured scores; the others fit them
    max_held_out_runs: int = 1 << 12  # which limits their time
    screening_runs: int = 1 << 12  # per dataset, to which all structured scores are fitted
    structured_runs: int = 1 << 16  # per dataset, to which the promising ones are fitted again
    max_structured: int = 4  # structured scores that compete; each is evaluated in all further selection runs
    # Of the largest separation by the other scores. These were fitted to the held-out runs, too, and look better than
    # they are: with 6000 selection runs a ring of points loses its best score if this is .85.
    least_separation: float = 0.7
    # Subtracted from a log-ratio of counts, so that rare thresholds do not win by chance.
    separation_errors: float = 2.0
    # Few cells have little noise, many cells follow the shape of the log-ratio.
    equal_mass_cells: tuple[int, ...] = (64, 512)
    min_runs_per_cell: int = 50  # training runs, on average: the log-ratio of a cell then has an error of about .3
    # Training runs; a leaf is smaller than a cell of equal mass only where the ratio is extreme.
    min_runs_per_leaf: int = 25
    # On average, if all coordinates are binned jointly; the cells are given by repeated values.
    min_runs_per_joint_cell: int = 20
    split_runs_per_cell: int = 32  # runs that place the medians of equal-mass cells
    # The largest number of cells has so many splits at medians; further coordinates are not split.
    max_split_coordinates: int = 9
    max_tree_runs: int = 1 << 17  # runs per dataset that grow a tree, which limits its time
    # Numbers per dataset that grow a tree that competes with scores, which limits its time.
    max_tree_numbers: int = 1 << 19
    min_tree_runs: int = 1 << 12  # runs that grow a tree at least, also of many coordinates
    tree_leaves: int = 256  # leaves of a tree if the settings name no resolution
    level_cells: int = 64  # level sets of a score that serve as cells of unions
    # Shares of runs below the edges of the score that divides the slices of a stated log-ratio: some for differences
    # that most runs show, and two in each tail for rare ones.
    rival_shares: tuple[float, ...] = (1 / 512, 1 / 64, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8, 63 / 64, 511 / 512)
    max_listed_patterns: int = 256  # patterns of discrete values that need no score besides their own ratios

    # Counting (select.py, proposals.py).
    ranking_runs: int = 1 << 18  # proposal runs per dataset that rank the scores; only the best few are counted on all
    max_finalists: int = 4  # scores that are counted on all proposal runs, which limits their time
    edge_runs: int = 1 << 13  # runs per dataset that place the edges of a score
    max_fine_levels: int = 1024  # levels of a score during the selection; extreme values resolve the tails beyond them

    # Proposals of cells and level sets.
    max_union_cells: int = 4096  # a union of more cells is mostly noise and makes a report too long
    # Standard errors; each penalty proposes one event per direction, from rare to frequent ones.
    proposal_penalties: tuple[float, ...] = (0.75, 1.5, 2.5, 4.0)
    # Added to the final penalty: on a claimed curve all events are equally good, so more compete.
    curve_penalty: float = 0.65
    simpler_within: float = 0.25  # standard errors within which a simpler event is preferred, because it has less noise
    # Numbers of level sets that are compared for the upper bound.
    bounding_levels: tuple[int, ...] = (16, 32, 64, 128, 256)
    limit_errors: float = 2.0  # about the distance of an upper limit from an estimate
    compared_limits: int = 8  # level sets whose upper limits are computed: those with the largest approximate ones
    misfit_p_value: float = 0.01  # of a number of runs, given the prediction of a model; below it the model is not used
    ranking_penalty: float = 1.5  # standard errors; ranks the scores. One of the proposal penalties
    min_rare_count: int = 2  # proposal runs of the exceeding dataset in a rare event; one run proves nothing
    max_rare_share: float = 0.1  # of the runs of the exceeding dataset; the cautious rule proposes the frequent events
    max_rare_events: int = 6  # rare events that are proposed per score, tail and direction
    tail_values: int = 64  # extreme values to which an exponential tail is fitted; its mean has an error of an eighth
    min_predicted_count: float = 0.02  # proposal runs; a smaller prediction is an extrapolation that is not believed
    # Between the predictions of a line and of the other dataset's own tail, for a sudden leak.
    leak_ratio: float = 10.0

    # Linear models of tails.
    min_event_runs: int = 8  # proposal runs of the exceeding dataset in a modelled event
    min_tail_runs: int = 50  # proposal runs of the other dataset to which a log-ratio is fitted
    # The other dataset's runs in the tails that are compared. The largest one has this share of all runs, if it is
    # more, and never more than a quarter: a line through the middle of a distribution says little about its tail.
    max_tail_runs: tuple[int, ...] = (400, 600, 150)
    max_tail_share: float = 0.05
    misfit_gain: float = 3.0  # nats; a line that is fitted to a smaller tail is used if it gains more there
    min_fitted_bins: int = 4  # a line through fewer bins leaves nothing to check it with
    checked_count: int = 10  # of the other dataset: the tail in which a prediction is checked
    model_error: float = 0.1  # standard error of a log-ratio because no model is exact
    # Of a log-ratio; the counts of an event are worth more than a model with a larger one.
    max_model_variance: float = 0.25
    min_slope_errors: float = 3.0  # standard errors of the slope; a log-ratio that does not rise needs no model
    tail_ridge: float = 0.1  # runs; keeps the line finite where the datasets do not overlap

    # Events that share alpha (portfolio.py).
    # Compared for a further event; the rest of alpha is divided as before.
    further_shares: tuple[float, ...] = (0.1, 0.3, 0.5)
    large_share: float = 0.9  # of an event whose expected bound is many times as large as that of the events before it
    large_ratio: float = 3.0  # between these expected bounds
    large_chance: float = 0.9  # probability of a positive bound that such an event needs
    min_first_share: float = 0.5  # of the cautious event, unless a further event is clearly better
    min_chance: float = 0.5  # probability of a positive bound that a further event needs
    safe_share: float = 0.1  # of the event that is chosen with a large penalty
    rare_error: float = 0.1  # standard error of a log-ratio above which the cautious event needs a safer one beside it
    size_ratio: float = 4.0  # counts within this ratio belong to events of about the same size, of which one is enough
    min_gain: float = 0.02  # relative gain of the expected bound that justifies a further event
    new_score_cost: float = 0.05  # relative; the test runs need longer for every further score
    min_confirmed_count: float = 0.5  # decision runs; a smaller prediction cannot be confirmed by them
    prior_strength: float = 2.0  # how many counts a predicted probability is worth
    similar_ratio: float = 1.5  # events whose counts are within this ratio are nearly the same event, if ...
    similar_bound_ratio: float = 1.5  # ... their expected bounds are within this ratio, which errors explain
    # Relative: the score of the first event is evaluated anyway, so it serves for delta too.
    same_score_bonus: float = 0.03


TUNING = SelectionTuning()


class SearchBudget(NamedTuple):
    """How much the selection tries.

    Attributes
    ----------
    max_kept_runs : int
        Training runs per dataset that are kept in memory.
    structured : tuple of ScoreFamily
        The scores that compete if held-out runs find that they do about as well as the best of the others.
    partitions : bool
        Whether partitions by equal mass and by a tree compete.
    decision_penalty : float
        The penalty of the final comparison in standard errors.
    max_events : int
        The largest number of events that are tested together.
    general : bool
        Whether the general learner competes.
    """

    max_kept_runs: int
    structured: tuple[ScoreFamily, ...]
    partitions: bool
    decision_penalty: float
    max_events: int = 1
    general: bool = False


USUAL_SEARCH = SearchBudget(1 << 19, STRUCTURED_FAMILIES, True, 1.85, 3)
# For comparing many pairs. Rare events become visible late, so the penalty is smaller.
QUICK_SEARCH = SearchBudget(1 << 16, (), False, 1.0)
# The values of the setting `search`.
SEARCHES = {
    "auto": USUAL_SEARCH,
    "quick": QUICK_SEARCH._replace(max_events=USUAL_SEARCH.max_events),
    "thorough": USUAL_SEARCH._replace(general=True),
}


class SelectionContext(NamedTuple):
    """What every part of the selection needs."""

    source: SampleSource
    settings: Settings
    region: Region
    objective: SelectionObjective
    workers: WorkerPool
    progress: Progress
    budget: SearchBudget = USUAL_SEARCH
    recorded: tuple[np.ndarray, np.ndarray] | None = None  # runs to select from; None: the selection draws its own
    learn: ScoreLearner | None = None  # fits a score of the user to training runs
    log_ratio: UserScore | None = None  # of the stated density; it competes like every other score

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and dimensions of one output."""
        assert self.source.shape is not None
        return self.source.shape

    @property
    def max_events(self) -> int:
        """The largest number of events that are tested together. The paper's test has one event."""
        return self.budget.max_events if self.settings.test == "exact" else 1

    @property
    def nonfinite_event(self) -> bool:
        """Whether outputs may be NaN or infinite, which scores cannot use."""
        return self.settings.nonfinite == "event"

    @property
    def runs(self) -> dict[str, int]:
        """The runs of every stage: half of the selection runs train, a quarter proposes events, a quarter decides."""
        n = self.settings.select_runs
        train, decide = n // 2, max(1, n // 4)
        return {"train": train, "propose": max(1, n - train - decide), "decide": decide}

    def count(
        self, stage: str, statistics: Sequence[Statistic], runs: int | None = None, known: KnownBlocks = ()
    ) -> list[tuple[Any, Any]]:
        """Return the sums of each statistic over a stage, as pairs (first dataset, second dataset).

        Parameters
        ----------
        stage : {"train", "propose", "decide"}
            The stage.
        statistics : sequence of Statistic
            What is measured of every block.
        runs : int, optional
            The runs per dataset; by default those of the stage.
        known : collection of (dataset, block)
            Blocks that are left out, because they were counted before.
        """
        runs = self.runs[stage] if runs is None else runs
        if self.recorded is not None:
            first, second = (x[len(known) // 2 * self.source.block : runs] for x in self._recorded_runs(stage))
            return [(one.measure(Block(first)), one.measure(Block(second))) for one in statistics]
        return collect_statistics(self.source, stage, runs, statistics, self.workers, self.progress, known)

    def draw_training_runs(self) -> tuple[list[np.ndarray], set[tuple[int, int]]]:
        """Return as many whole blocks of training runs as fit into memory, and which blocks they are."""
        block = self.source.block
        if self.recorded is not None:
            blocks = -(-self.runs["train"] // block)
            return list(self._recorded_runs("train")), {(side, b) for side in (0, 1) for b in range(blocks)}
        most = min(self.budget.max_kept_runs, MAX_KEPT_NUMBERS // (self.shape[0] * self.shape[1]))
        runs = min(self.runs["train"], max(block, most // block * block))
        samples = collect_samples(self.source, "train", runs, self.workers, self.progress)
        return samples, {(side, b) for side in (0, 1) for b in range(-(-runs // block))}

    def _recorded_runs(self, stage: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the recorded runs of a stage: the training runs come first, then those that propose and decide."""
        assert self.recorded is not None
        start = 0
        for name, runs in self.runs.items():
            if name == stage:
                first, second = self.recorded
                return first[start : start + runs], second[start : start + runs]
            start += runs
        raise AssertionError(stage)


def merge_results(
    statistics: Sequence[Statistic], first: Sequence[tuple[Any, Any]], second: Sequence[tuple[Any, Any]]
) -> list[tuple[Any, Any]]:
    """Merge the results of two sets of blocks.

    Each set has one pair of results (first dataset, second dataset) for every statistic.
    """
    merged = []
    for statistic, results, more in zip(statistics, first, second, strict=True):
        first_pair, second_pair = zip(results, more, strict=True)
        merged.append((statistic.merge(first_pair), statistic.merge(second_pair)))
    return merged


def named_partition(settings: Settings, region: Region, points: np.ndarray) -> Partition | None:
    """Return the partition that the settings name, or None if the selection makes the partition.

    The selection makes a tree, and it uses the level sets of the selected score if no partition is named.
    """
    cells_only = settings.selection_epsilon is not None or settings.events == "cell"
    if settings.partition == "tree" or (settings.partition == "auto" and not cells_only):
        return None
    return make_partition(settings.partition, region, points, settings.resolution)
