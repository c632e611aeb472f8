"""One claim tested on many pairs of datasets.

If the pairs were drawn independently from one population, the results bound the share of the population on which the
claim fails, and the share on which it holds over the cells (docs/method.md, section 5.7).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Unpack

from dpverify.claims import resolve_claim
from dpverify.errors import InputError
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import Mechanism
from dpverify.report.power import DETECTS, check_detects
from dpverify.report.report import Report
from dpverify.settings import VerifyOptions, type_one_error_factor
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.many import benjamini_hochberg, holm
from dpverify.studies.engine import CallOptions, report_row
from dpverify.studies.search import DataPair, list_pairs
from dpverify.studies.tables import ResultTable, Row, count_unanswered
from dpverify.util.formatting import format_confidence, format_lower, format_upper

MAX_NAMED_PAIRS = 20  # in a sentence


@dataclass(frozen=True)
class ManyPairs(ResultTable):
    """The result of `verify_pairs`: one claim tested on many pairs of datasets.

    The statements about shares refer to the population from which the pairs were drawn, and hold if they were drawn
    independently. Each holds with confidence 1 - alpha. `print` shows a short table.

    Attributes
    ----------
    reports : tuple of Report
        One report per pair, in the order of the pairs.
    names : tuple of str or None
        The names of the pairs of a mapping, in the same order. None for a list.
    detects : float
        A pair passes only if its runs notice a violation by this factor, as for `assert_private`.
    """

    reports: tuple[Report, ...]
    names: tuple[str, ...] | None = None
    detects: float = DETECTS
    identity = ("pair",)

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row per pair: its label as "pair", the columns of `Report.row`, and why it is too weak, if it is."""
        return tuple(
            report_row({"pair": self.label(number)}, report, self.detects) for number, report in enumerate(self.reports)
        )

    def label(self, index: int) -> str:
        """Return the name of a pair, or its index in the list."""
        return str(index) if self.names is None else self.names[index]

    @property
    def alpha(self) -> float:
        """The level of each test, and of each statement about shares."""
        return self.reports[0].alpha

    @property
    def answered(self) -> tuple[Report, ...]:
        """The reports with an answer. The others count neither as passed nor as refuted."""
        return tuple(report for report in self.reports if not report.voiding)

    @property
    def passed(self) -> int:
        """The number of pairs on which the claim was tested with enough runs and not refuted."""
        return len(self.answered) - self.refuted - len(self.too_weak)

    @property
    def refuted(self) -> int:
        """The number of pairs on which the claim is refuted."""
        return sum(report.refuted for report in self.answered)

    @property
    def too_weak(self) -> tuple[int, ...]:
        """The pairs on which the claim is not refuted, but the runs are too few to notice a violation."""
        return tuple(number for number, row in enumerate(self.rows) if row["too_weak"] is not None)

    @property
    def share(self) -> float | None:
        """The share of the pairs with an answer that passed (the passing ratio of the paper); None if there is none."""
        return self.passed / len(self.answered) if self.answered else None

    @property
    def share_interval(self) -> tuple[float, float]:
        """Two-sided Clopper-Pearson limits of the share of the population that passes a test like this one.

        They hold whatever the answers of the pairs without an answer would be.
        """
        number, unknown = len(self.reports), len(self.reports) - len(self.answered)
        low, _ = share_interval(self.passed, number, self.alpha)
        return low, share_interval(self.passed + unknown, number, self.alpha)[1]

    @property
    def violating(self) -> float:
        """Lower confidence bound of the share of the population that violates the claim."""
        level = self.alpha * type_one_error_factor(self.reports[0].settings)
        return share_lower_bound(self.refuted, len(self.reports), level, self.alpha)

    @property
    def holds_on_cells(self) -> float:
        """Lower confidence bound of the share on which the claim holds over the cells of the pair's own partition."""
        found = sum(report.holds_on_cells and not report.refuted for report in self.answered)
        return share_lower_bound(found, len(self.reports), self.alpha, self.alpha)

    @property
    def worst(self) -> int | None:
        """The index of the pair with the largest lower bound of epsilon; None if no pair has an answer."""
        bounds = {
            index: report.epsilon_lower for index, report in enumerate(self.reports) if report.epsilon_lower is not None
        }
        return max(bounds, key=bounds.__getitem__, default=None)

    @property
    def epsilon_lower(self) -> float | None:
        """Lower bound of epsilon for the worst pair with confidence 1 - alpha, corrected for the number of pairs.

        Each pair is tested at level alpha divided by the number of pairs. None if no pair has an answer.
        """
        if self.worst is None:
            return None
        report = self.reports[self.worst]
        level = report.settings.change(alpha=self.alpha / len(self.reports))
        return dataclasses.replace(report, settings=level).epsilon_lower

    @property
    def p_values(self) -> tuple[float, ...]:
        """The p-value of the claim on each pair; 1 for a pair without an answer.

        For the test of the paper it is the smaller of its two numbers, times `type_one_error_factor`.
        """
        factor = type_one_error_factor(self.reports[0].settings)
        return tuple(1.0 if report.p_value is None else min(1.0, factor * report.p_value) for report in self.reports)

    @property
    def discoveries(self) -> tuple[int, ...]:
        """The pairs that are named as violating, with a false discovery rate of at most alpha (Benjamini, Hochberg).

        On average, at most the share alpha of the named pairs satisfies the claim.
        """
        return benjamini_hochberg(self.p_values, self.alpha)

    @property
    def certain(self) -> tuple[int, ...]:
        """The pairs that violate the claim, all of them together with confidence 1 - alpha (Holm)."""
        return holm(self.p_values, self.alpha)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The voiding diagnostics of all reports, each once."""
        return tuple(dict.fromkeys(diagnostic for report in self.reports for diagnostic in report.voiding))

    @property
    def over(self) -> str:
        """What was verified."""
        return f"{self.reports[0].name}: {len(self.reports)} pairs of datasets"

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        report, void = self.reports[0], count_unanswered(self.rows, "pairs")
        start = f"{void}; " if void else ""
        claim = "" if report.claim is None else report.claim.describe()
        return f"{report.name}: {start}{self.passed} of {len(self.answered)} pairs passed ({claim})"

    def sentences(self) -> list[str]:
        """Return which pairs have no answer, and what is known about the pairs and their population."""
        found = super().sentences()
        if self.worst is None or self.epsilon_lower is None:
            return found
        confidence, (low, high) = f"(confidence {format_confidence(self.alpha)})", self.share_interval
        cells = "keep the claim, each over the cells of its own partition"
        proved = f"epsilon >= {format_lower(self.epsilon_lower)} over all events"
        return [
            *found,
            f"Passing: {_at_least(low)} to {_at_most(high)} of the population {confidence}.",
            f"Violating: at least {_at_least(self.violating)} of the population {confidence}.",
            f"Bounded: at least {_at_least(self.holds_on_cells)} of the population {cells} {confidence}.",
            f"Too weak: {len(self.too_weak)} of {len(self.reports)} pairs, neither refuted nor passed.",
            f"Named: {self._name_pairs(self.discoveries)}; false discovery rate at most {_at_most(self.alpha)}.",
            f"Certain: {self._name_pairs(self.certain)}, all of them together {confidence}.",
            f"Worst: pair {self.label(self.worst)}, {proved} {confidence}.",
        ]

    def _name_pairs(self, indices: tuple[int, ...]) -> str:
        """Return which pairs violate the claim, in words."""
        if not indices:
            return "no pair"
        shown = ", ".join(map(self.label, indices[:MAX_NAMED_PAIRS]))
        more = f" and {len(indices) - MAX_NAMED_PAIRS} more" if len(indices) > MAX_NAMED_PAIRS else ""
        return f"pair {shown} violates the claim" if len(indices) == 1 else f"pairs {shown}{more} violate the claim"


def verify_pairs(
    mechanism: Mechanism,
    pairs: Iterable[DataPair] | Mapping[str, DataPair],
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    claim: object = None,
    detects: float = DETECTS,
    **options: Unpack[VerifyOptions],
) -> ManyPairs:
    """Test one claim on every pair of datasets.

    Each verification has its own seed.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism, as in `verify`.
    pairs : iterable of (first, second), or mapping
        Pairs of neighbouring datasets, or a mapping from names to pairs, as `dpverify.neighbours` returns it. The
        statements about shares assume that they are independent draws from one population. A pair is a tuple or a list
        of two datasets, never an array. Two tuples of two numbers in a list, [(0.0, 1.0), (1.0, 2.0)], are two pairs
        of numbers. In a tuple, or as lists, they could also be one pair of datasets, so they are refused.
    epsilon, delta : float
        The claim.
    claim : claim, optional
        A claim of another kind, instead of epsilon, as in `verify`.
    detects : float, default 1.25
        A number above 1. A pair passes only if its runs notice a violation by this factor, as for `assert_private`.
    **options
        Keyword arguments of `verify`: settings, executor, folder, error, log_lipschitz, log_density, learn, progress,
        trust_results, single settings.

    Returns
    -------
    ManyPairs
        The reports, and what they state about the population of pairs.

    Raises
    ------
    InputError
        If there is no pair, no claim, or an unknown keyword.

    Examples
    --------
    >>> import dpverify as dpv
    >>> def noisy(data, runs, rng):
    ...     return data + rng.laplace(size=(runs, 1))
    >>> pairs = [(0.0, 1.0), (0.0, 0.5), (0.0, 3.0)]
    >>> many = dpv.verify_pairs(noisy, pairs, epsilon=1.5, select_runs=2000, test_runs=20_000)
    >>> many.passed, many.worst, many.discoveries, many.too_weak
    (2, 2, (2,), ())
    """
    call = CallOptions.of(**options)
    names, listed = list_pairs(pairs)
    if not listed:
        raise InputError("pairs must have at least one (first, second)")
    if epsilon is None and claim is None:
        raise InputError("epsilon: found None; expected the claim that is tested on every pair")
    tested, delta = resolve_claim(epsilon, delta, claim)  # an accountant is evaluated once
    check_detects(detects, tested)
    jobs = [
        call.job(number, f"pair {name}", mechanism, pair, tested, delta, {"pair": str(name)}, detects)
        for number, (name, pair) in enumerate(zip(names, listed, strict=True))
    ]
    with call.open_engine() as engine:
        reports = engine.reports(jobs)
    return ManyPairs(tuple(reports), tuple(map(str, names)) if isinstance(pairs, Mapping) else None, detects)


def share_interval(found: int, number: int, alpha: float) -> tuple[float, float]:
    """Two-sided Clopper-Pearson limits of the share of a population that has a property, with confidence 1 - alpha."""
    lower, upper = (limit(found, number, alpha / 2) for limit in (clopper_pearson_lower, clopper_pearson_upper))
    return float(lower), float(upper)


def share_lower_bound(found: int, number: int, level: float, alpha: float) -> float:
    """Lower bound, with confidence 1 - alpha, of the share of a population that has a property.

    The property is found in `found` of `number` independent draws. A draw without it is reported to have it with
    probability `level` at most. A share v thus gives a positive result with probability at most v + (1 - v) level.
    """
    if level >= 1:
        return 0.0
    limit = float(clopper_pearson_lower(found, number, alpha))
    return max(0.0, (limit - level) / (1 - level))


def _at_least(share: float) -> str:
    """Return a share as a percentage that is rounded down."""
    return f"{format_lower(100 * share)}%"


def _at_most(share: float) -> str:
    """Return a share as a percentage that is rounded up."""
    return f"{format_upper(100 * share)}%"
