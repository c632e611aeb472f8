"""Search for the pair of data sets that a mechanism distinguishes best.

The search compares pairs by their expected lower bound, which is computed from selection runs only. The best pair is
then verified with test runs that the search has not used, so the report needs no correction for the search. A list of
pairs is searched by successive halving, a box of parameters by a local search (`studies.box`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np

from dpverify.errors import InputError
from dpverify.mechanisms.protocol import Mechanism
from dpverify.pipeline import find_region, freeze_events
from dpverify.report.report import Report
from dpverify.report.statements import check_claim
from dpverify.sampling.context import open_run
from dpverify.selection.context import QUICK_SEARCH
from dpverify.settings import VerifyOptions
from dpverify.stats.claims import Claim, resolve_claim
from dpverify.studies.box import check_box, search_box
from dpverify.studies.options import RunOptions
from dpverify.studies.tables import format_table
from dpverify.util.dataframes import make_dataframe
from dpverify.util.formatting import format_confidence, format_lower, format_number, one_line

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

ROUND_GROWTH = 2.5  # factor by which the selection runs of a pair grow from one round to the next
MIN_RUNS_PER_PAIR = 4
PRINTED_CANDIDATES = 5

DataPair = tuple[object, object]
Pairs = Iterable[DataPair] | Mapping[str, DataPair] | Callable[[np.ndarray], DataPair]
PairLabel = int | str | tuple[float, ...]  # the index of a pair in its list, its name, or its point in the box


class Candidate(NamedTuple):
    """A pair that was evaluated in the search.

    Attributes
    ----------
    pair : int, str or tuple of float
        The index of the pair in the list, its name in the mapping, or its point in the box.
    expected_lower_bound : float
        The lower bound of epsilon that the test runs are expected to give.
    """

    pair: PairLabel
    expected_lower_bound: float


@dataclass(frozen=True)
class Search:
    """The result of `search_pairs`. `print` shows a short table.

    Attributes
    ----------
    report : Report
        The report of the best pair, from test runs that the search has not used.
    pair : int, str or tuple of float
        The best pair: its index in the list, its name in the mapping, or its point in the box (`pairs[pair]`, or
        `pairs(numpy.array(pair))`).
    tried : tuple of Candidate
        Every evaluation of the search, in order. A pair occurs once for each round that it took part in.
    runs_per_pair : tuple of int
        For each round, how many selection runs per data set a pair has had by the end of the round. Empty for a box.
    """

    report: Report
    pair: PairLabel
    tried: tuple[Candidate, ...]
    runs_per_pair: tuple[int, ...] = ()

    def to_dataframe(self) -> pandas.DataFrame:
        """Return every evaluation of the search as a pandas DataFrame (needs pandas)."""
        return make_dataframe(candidate._asdict() for candidate in self.tried)

    def plot(self, kind: str = "outputs") -> Figure:
        """Return a figure of the report of the best pair, as `Report.plot` (needs `dpverify[report]`)."""
        return self.report.plot(kind)

    def __str__(self) -> str:
        report = self.report
        proved = (
            f"epsilon >= {format_lower(report.epsilon_lower)} at delta {format_number(report.delta)} over all events"
        )
        pair, number = format_label(self.pair), len(self.tried)
        return "\n".join(
            [
                f"{report.name}: pair {pair} after {number} evaluations: {report.verdict.name}",
                f"  proved    {proved}; confidence {format_confidence(report.alpha)}",
                *self._table_lines(),
                f"  next      {self._next_step()}",
            ]
        )

    def _table_lines(self) -> list[str]:
        """Return the pairs, each once: the chosen one, then those that left in the last round, and so on."""
        rounds = Counter(candidate.pair for candidate in self.tried)
        last = {candidate.pair: candidate.expected_lower_bound for candidate in self.tried}
        order = sorted(last, key=lambda pair: (pair != self.pair, -rounds[pair], -last[pair]))
        has_runs = bool(self.runs_per_pair)
        header = ("pair", "left in round", *["runs"] * has_runs, "expected lower bound there")
        rows = []
        for pair in order[:PRINTED_CANDIDATES]:
            left = "chosen" if pair == self.pair else str(rounds[pair])
            runs = [str(self.runs_per_pair[rounds[pair] - 1])] if has_runs else []
            rows.append((format_label(pair), left, *runs, format_number(last[pair])))
        hidden = len(order) - len(rows)
        more = [f"  and {hidden} more in `tried`"] if hidden else []
        return [*format_table(header, rows), *more] if rows else []

    def _next_step(self) -> str:
        """Return what to do with the result."""
        if self.report.voiding:
            return self.report.next_step
        if self.report.refuted:
            return "change the mechanism or the claim, then search again; the other pairs were not tested"
        advice = "only this pair was tested; increase runs if another pair may leak rarely"
        return advice if isinstance(self.pair, tuple) else f"{advice}, or test all pairs with verify_pairs"


def search_pairs(
    mechanism: Mechanism,
    pairs: Pairs,
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    claim: object = None,
    runs: int,
    bounds: Sequence[tuple[float, float]] | None = None,
    **options: Unpack[VerifyOptions],
) -> Search:
    """Find the pair of data sets with the largest expected lower bound, and verify it.

    A list of pairs is searched by successive halving: in each round the better half of the pairs stays and gets more
    runs. A box is searched from several starting points by the Nelder-Mead method. The report of the best pair uses
    test runs that the search has not used.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism, as in `verify`.
    pairs : iterable of (first, second), mapping, or callable
        The pairs; a mapping from names to pairs, as `dpverify.neighbours` returns it; or a function from a point of the
        box to (first, second), for example `dpverify.neighbours.ball`.
    epsilon : float or None
        The claim that is tested on the best pair. None measures without a claim.
    delta : float
        The delta of the claim, at which the lower bounds of epsilon are compared.
    claim : claim, optional
        A claim of another kind, instead of epsilon, as in `verify`. Pairs are then compared by their expected distance
        from its curve.
    runs : int
        Selection runs per data set that the whole search may use. In the first round every pair needs so many of them
        that its leak shows in about 40 runs; otherwise the pair can leave early (docs/studies.md).
    bounds : sequence of (low, high), optional
        The box, one interval for each dimension. Required if `pairs` is a function without an attribute `bounds`.
    **options
        Keyword arguments of `verify`. `select_runs` and `test_runs` apply to the verification of the best pair.

    Returns
    -------
    Search
        The report of the best pair, the pair, and every evaluation.

    Raises
    ------
    InputError
        If there is no pair or no box, `runs` is too small, or `selection_epsilon` is set.

    Examples
    --------
    >>> import dpverify as dpv
    >>> def noisy(data, runs, rng):
    ...     return data + rng.laplace(size=(runs, 1))
    >>> pairs = [(0.0, 0.1), (0.0, 2.0), (0.0, 0.5)]
    >>> found = dpv.search_pairs(noisy, pairs, runs=2000, select_runs=500, test_runs=2000)
    >>> found.pair
    1
    """
    run_options = RunOptions.from_keywords(**options)
    tested, delta = resolve_claim(epsilon, delta, claim)
    check_claim(run_options.settings, None, delta, tested)
    aim = SearchAim(delta, tested)
    if run_options.settings.selection_epsilon is not None:
        raise InputError(
            f"selection_epsilon: found {run_options.settings.selection_epsilon}; expected None, because the selector "
            "of the paper gives no expected lower bound to search by"
        )
    searched = SearchedPairs.of(pairs, bounds)
    with run_options.share_executor() as shared:
        worst = searched.find_worst(mechanism, aim, runs, shared)
        report = shared.verify(mechanism, *worst.data, None, delta, tested)
    assert worst.label is not None
    return Search(report, worst.label, tuple(worst.tried), search_plan(len(searched.listed), runs))


class SearchAim(NamedTuple):
    """What a search maximises: the lower bound on epsilon at this delta, or the distance from a claimed curve."""

    delta: float
    claim: Claim | None


class FoundPair(NamedTuple):
    """A pair, its label (None for a pair that was given), and the evaluations of the search that found it."""

    label: PairLabel | None
    data: DataPair
    tried: list[Candidate]


class SearchedPairs(NamedTuple):
    """The pairs of a search: a list with labels, or a function of the points of a box.

    Attributes
    ----------
    labels : tuple of int or str
        The labels of the listed pairs.
    listed : tuple of pairs
        The pairs; empty for a box.
    pair_at : callable or None
        The function from a point of the box to a pair.
    box : sequence of (low, high) or None
        The box.
    """

    labels: tuple[PairLabel, ...]
    listed: tuple[DataPair, ...]
    pair_at: Callable[[np.ndarray], DataPair] | None
    box: Sequence[tuple[float, float]] | None

    @classmethod
    def of(cls, pairs: Pairs, bounds: Sequence[tuple[float, float]] | None) -> SearchedPairs:
        """Return the pairs that the argument `pairs` of `search_pairs` describes."""
        if callable(pairs):
            return cls((), (), pairs, getattr(pairs, "bounds", None) if bounds is None else bounds)
        return cls(*list_pairs(pairs), None, None)

    def find_worst(self, mechanism: Mechanism, aim: SearchAim, runs: int, options: RunOptions) -> FoundPair:
        """Return the pair with the largest expected lower bound, found with `runs` selection runs per data set."""
        if self.pair_at is not None:
            point, tried = _search_box(mechanism, self.pair_at, self.box, aim, runs, options)
            return FoundPair(point, self.pair_at(np.array(point)), tried)
        index, evaluated = _search_list(mechanism, self.listed, aim, runs, options)
        tried = [Candidate(self.labels[number], bound) for number, bound in evaluated]
        return FoundPair(self.labels[index], self.listed[index], tried)


def list_pairs(
    pairs: Iterable[DataPair] | Mapping[str, DataPair],
) -> tuple[tuple[int | str, ...], tuple[DataPair, ...]]:
    """Return the labels and the pairs of a list or a mapping; raise InputError if one of them is no pair.

    Examples
    --------
    >>> list_pairs({"near": (0.0, 0.5), "far": (0.0, 2.0)})
    (('near', 'far'), ((0.0, 0.5), (0.0, 2.0)))
    """
    if isinstance(pairs, Mapping):
        labels, listed = tuple(str(name) for name in pairs), tuple(pairs.values())
    else:
        listed = tuple(pairs)
        labels = tuple(range(len(listed)))
    for label, pair in zip(labels, listed, strict=True):
        try:
            number = len(pair)
        except TypeError:
            number = None
        if number != 2:
            found = type(pair).__name__ if number is None else f"{number} parts"
            raise InputError(f"pairs: found {found} for pair {one_line(str(label))}; expected (first, second)")
    return labels, listed


def search_plan(pairs: int, runs: int) -> tuple[int, ...]:
    """Return, for each round, how many selection runs per data set a pair has had by the end of the round.

    The runs of all pairs and rounds add up to about `runs`.
    """
    rounds = max(pairs - 1, 0).bit_length()
    remaining = [-(-pairs // 2**number) for number in range(rounds)]
    runs_per_pair = [ROUND_GROWTH**number for number in range(rounds)]
    cost = sum(
        number * (after - before)
        for number, after, before in zip(remaining, runs_per_pair, [0, *runs_per_pair], strict=False)
    )
    return tuple(max(MIN_RUNS_PER_PAIR, int(runs * each / cost)) for each in runs_per_pair)


def expected_lower_bound(mechanism: Mechanism, pair: DataPair, aim: SearchAim, runs: int, options: RunOptions) -> float:
    """Return the lower bound that test runs are expected to give for this pair, from `runs` selection runs."""
    settings = options.settings.change(select_runs=runs, stop_early=False)  # nothing is claimed about a single pair
    with open_run(mechanism, *pair, settings, options.executor, False) as run:
        region, points, _ = find_region(run)
        return freeze_events(run, region, points, aim.delta, QUICK_SEARCH, aim.claim).expected_bound


def _search_list(
    mechanism: Mechanism, pairs: Sequence[DataPair], aim: SearchAim, runs: int, options: RunOptions
) -> tuple[int, list[tuple[int, float]]]:
    """Return the index of the best pair of a list, and the index and value of all evaluations."""
    if not pairs or runs < MIN_RUNS_PER_PAIR * len(pairs):
        raise InputError(
            f"pairs: found {len(pairs)} pairs and runs={runs}; expected at least one pair, and at least "
            f"{MIN_RUNS_PER_PAIR} runs per pair"
        )
    remaining = list(range(len(pairs)))
    tried: list[tuple[int, float]] = []
    for runs_per_pair in search_plan(len(pairs), runs):
        bounds = {
            index: expected_lower_bound(mechanism, pairs[index], aim, runs_per_pair, options) for index in remaining
        }
        tried += bounds.items()
        remaining = sorted(remaining, key=lambda index: -bounds[index])[: (len(remaining) + 1) // 2]
    return remaining[0], tried


def _search_box(
    mechanism: Mechanism,
    pair_at: Callable[[np.ndarray], DataPair],
    bounds: Sequence[tuple[float, float]] | None,
    aim: SearchAim,
    runs: int,
    options: RunOptions,
) -> tuple[tuple[float, ...], list[Candidate]]:
    """Return the best point of a box, and all evaluations."""

    def objective(point: np.ndarray, runs_per_point: int) -> float:
        return expected_lower_bound(mechanism, pair_at(point), aim, runs_per_point, options)

    best, values = search_box(objective, check_box(bounds), runs, options.settings.seed)
    return best, [Candidate(point, value) for point, value in values]


def format_label(pair: PairLabel) -> str:
    """Return the label of a pair as text."""
    if not isinstance(pair, tuple):
        return str(pair)
    return "(" + ", ".join(f"{coordinate:.4g}" for coordinate in pair) + ")"
