"""Search for the pair of data sets that a mechanism distinguishes best.

The search compares pairs by their expected lower bound, which is computed from selection runs only (`pair_value`). The
best pair is then verified with test runs that the search has not used, so that the report needs no correction for the
search. A list of pairs is searched in rounds (`rounds`), a box of parameters by a local search (`simplex_search`,
`gradient_search`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from dpverify.claims import is_curve, resolve_claim
from dpverify.errors import InputError
from dpverify.mechanisms.protocol import Mechanism, check_callable
from dpverify.report.report import Report
from dpverify.report.statements import check_claim
from dpverify.settings import VerifyOptions
from dpverify.studies.options import RunOptions
from dpverify.studies.pair_search.pair_value import SearchAim
from dpverify.studies.searched_pairs import Candidate, PairLabel, Pairs, SearchedPairs
from dpverify.studies.tables import format_table
from dpverify.util.dataframes import make_dataframe
from dpverify.util.formatting import format_confidence, format_lower, format_number

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

PRINTED_CANDIDATES = 5


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
        For each round, how many runs per data set a pair was evaluated with. Empty for a box.
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
        pair, number = format_label(self.pair), len(self.tried)
        lines = [f"{report.name}: pair {pair} after {number} evaluations: {report.verdict.name.replace('_', ' ')}"]
        lines += [f"  cause     {diagnostic.value}" for diagnostic in report.voiding]
        if report.epsilon_lower is not None:
            bound = f"epsilon >= {format_lower(report.epsilon_lower)} at delta {format_number(report.delta)}"
            scope = f"for this pair of data sets, by the witness, confidence {format_confidence(report.alpha)}"
            lines += [f"  proved    {bound}; {scope}", *self._table_lines()]
        return "\n".join([*lines, f"  next      {self._next_step()}"])

    def _table_lines(self) -> list[str]:
        """Return the pairs, each once: the chosen one, then those that left in the last round, and so on."""
        rounds = Counter(candidate.pair for candidate in self.tried)
        last = {candidate.pair: candidate.expected_lower_bound for candidate in self.tried}
        order = sorted(last, key=lambda pair: (pair != self.pair, -rounds[pair], -last[pair]))
        has_runs = bool(self.runs_per_pair)
        header = ("pair", "left in round", *["runs"] * has_runs, "cautious estimate of the bound")
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
    runs: int = 100_000,
    bounds: Sequence[tuple[float, float]] | None = None,
    **options: Unpack[VerifyOptions],
) -> Search:
    """Find the pair of data sets with the largest expected lower bound, and verify it.

    A list of pairs is searched in rounds: the pairs that may still be the worst one keep their runs and get at least as
    many again. A box is searched from several starting points: by the Nelder-Mead method, and along estimated gradients
    if it has more than four dimensions. The report of the best pair uses test runs that the search has not used.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism, as in `verify`.
    pairs : iterable of (first, second), mapping, or callable
        The pairs; a mapping from names to pairs, as `dpverify.neighbours` returns it; or a function from a point of the
        box to (first, second), for example `dpverify.neighbours.ball`. What counts as a pair is the same as in
        `verify_pairs`.
    epsilon : float or None
        The claim that is tested on the best pair. None measures without a claim.
    delta : float
        The delta of the claim, at which the lower bounds of epsilon are compared.
    claim : claim, optional
        A claim of another kind, instead of epsilon, as in `verify`. Pairs are then compared by their expected distance
        from its curve.
    runs : int
        Runs per data set that the whole search may use. If the worst pair of a list is clear earlier, the runs that
        are left are added to `select_runs` (docs/studies.md).
    bounds : sequence of (low, high), optional
        The box, one interval for each dimension. Required if `pairs` is a function without an attribute `bounds`.
    **options
        Keyword arguments of `verify`. `select_runs` and `test_runs` apply to the verification of the best pair, and
        `coupled_selection` is True for it unless `stop_early` is set.

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
    check_callable(mechanism)
    run_options = RunOptions.from_keywords(**options)
    tested, delta = resolve_claim(epsilon, delta, claim)
    check_claim(run_options.settings, None, delta, tested)
    aim = SearchAim(delta, tested if is_curve(tested) else None)
    if run_options.settings.selection_epsilon is not None:
        raise InputError(
            f"selection_epsilon: found {run_options.settings.selection_epsilon}; expected None, because the selector "
            "of the paper gives no expected lower bound to search by"
        )
    searched = SearchedPairs.of(pairs, bounds)
    with run_options.share_executor() as shared:
        worst = searched.find_worst(mechanism, aim, runs, shared)
        settings = shared.settings
        settings = settings.change(
            select_runs=settings.select_runs + worst.unused_runs, coupled_selection=not settings.stop_early
        )
        report = dataclasses.replace(shared, settings=settings).verify(mechanism, *worst.data, None, delta, tested)
    assert worst.label is not None
    return Search(report, worst.label, tuple(worst.tried), worst.runs_per_pair)


def format_label(pair: PairLabel) -> str:
    """Return the label of a pair as text."""
    if not isinstance(pair, tuple):
        return str(pair)
    return "(" + ", ".join(f"{coordinate:.4g}" for coordinate in pair) + ")"
