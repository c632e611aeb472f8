"""The results of the gallery as rows of a table, and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpverify.gallery.entry import Case, Entry, Truth
from dpverify.report.report import Report
from dpverify.report.statements import Verdict
from dpverify.report.text import describe_shares
from dpverify.stats.claims import Approximate, Gaussian
from dpverify.studies.tables import Row
from dpverify.util.formatting import format_lower, format_number, format_percent, format_upper

LARGEST_MULTIPLE = 4.0  # of the claimed mu, in the search for an upper bound; larger bounds count as infinite
RELATIVE_PRECISION = 0.005  # of this search
SHORT_VERDICTS = {Verdict.REFUTED: "refuted", Verdict.BOUNDED: "stands, bounded", Verdict.NOT_REFUTED: "stands"}
ROLES = {
    "published": "as published",
    "implemented": "as implemented",
    "corrected": "corrected version",
    "control": "control",
}


class Result(NamedTuple):
    """The reports of the cases of one entry; none, and what is missing, if its program is not installed."""

    entry: Entry
    reports: tuple[Report, ...]
    missing: str | None


class CaseResult(NamedTuple):
    """One case with its report, and the numbers that its row shows.

    Attributes
    ----------
    case : Case
        The case.
    report : Report
        Its report.
    quantity : str
        What the numbers are: "epsilon" (at the claimed delta), "mu", or "delta" (at the claimed epsilon).
    claimed, proved, bounded : float
        The claimed value, the lower bound over all events, and the upper bound over unions of cells (may be infinite).
    exact : float or None
        The exact value, or an upper bound that is known; None if there is none.
    truth : Truth or None
        How the exact value was computed.
    """

    case: Case
    report: Report
    quantity: str
    claimed: float
    proved: float
    bounded: float
    exact: float | None
    truth: Truth | None

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return SHORT_VERDICTS.get(self.report.verdict, "no answer")

    @property
    def place(self) -> str:
        """The epsilon or delta to which the numbers belong, in words; empty for mu."""
        claim = self.case.claim
        if not isinstance(claim, Approximate):
            return ""
        if self.quantity == "delta":
            return f" at epsilon {format_number(claim.epsilon)}"
        return f" at delta {format_number(claim.delta)}" if claim.delta else ""


def case_results(result: Result) -> Iterator[CaseResult]:
    """Yield every case of an entry with its numbers."""
    for case, report in zip(result.entry.cases, result.reports, strict=False):
        yield case_result(case, report)


def case_result(case: Case, report: Report) -> CaseResult:
    """Return the numbers of one case."""
    truth, claim, part = case.truth() if case.truth else None, case.claim, report.on_partition
    if isinstance(claim, Approximate) and case.measures_delta:
        proved, bounded = report.delta_lower(claim.epsilon), part.delta_upper(claim.epsilon)
        exact = truth.delta if truth else None
        return CaseResult(case, report, "delta", claim.delta, proved, bounded, exact, truth)
    exact, proved = truth.parameter if truth else None, report.claim_lower or 0.0
    if isinstance(claim, Approximate):
        bounded = part.epsilon_upper(claim.delta)
        return CaseResult(case, report, "epsilon", claim.epsilon, proved, bounded, exact, truth)
    assert isinstance(claim, Gaussian)
    return CaseResult(case, report, "mu", claim.mu, proved, mu_upper(report, claim), exact, truth)


def mu_upper(report: Report, claim: Gaussian) -> float:
    """Return an upper bound on mu over unions of cells; infinite if there is none."""
    part, low, high = report.on_partition, report.claim_lower or 0.0, LARGEST_MULTIPLE * claim.mu
    if not part.meets_claim(claim.with_parameter(high)):
        return math.inf
    while high - low > RELATIVE_PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if part.meets_claim(claim.with_parameter(middle)) else (middle, high)
    return high


def claim_text(found: CaseResult) -> str:
    """Return the claim in a few characters."""
    claim = found.case.claim
    if not isinstance(claim, Approximate):
        return f"mu {format_number(found.claimed)}"
    if claim.delta == 0 and not found.case.measures_delta:
        return f"epsilon {format_number(claim.epsilon)}"
    return f"({format_number(claim.epsilon)}, {format_number(claim.delta)})"


def table_rows(result: Result, found: Sequence[CaseResult]) -> list[Row]:
    """Return one row per case; an entry whose program is not installed has one row that says what is missing."""
    if result.missing is not None:
        return [{"mechanism": result.entry.name, "source": result.entry.source, "verdict": result.missing}]
    return [table_row(result.entry, case) for case in found]


def table_row(entry: Entry, found: CaseResult) -> Row:
    """Return the row of one case."""
    case, report, truth = found.case, found.report, found.truth
    (first, _, _), (second, _, _) = report.witness.probabilities
    return {
        "mechanism": entry.name,
        "case": case.name,
        "title": case.title,
        "role": case.role,
        "source": entry.source,
        "claim": case.claim.describe(),
        "verdict": report.verdict.name,
        "quantity": found.quantity,
        "claimed": found.claimed,
        "proved": found.proved,
        "bounded_on_partition": found.bounded,
        "exact": found.exact if truth and truth.is_exact else None,
        "known_upper_bound": found.exact if truth and not truth.is_exact else None,
        "exact_how": truth.how if truth else None,
        "exact_event_mass": truth.mass if truth else None,
        "exact_delta_at_claim": truth.delta if truth else None,
        "p_value": report.p_value,
        "alpha": report.alpha,
        "select_runs": report.settings.select_runs,
        "test_runs": report.witness.runs,
        "witness": report.witness.text,
        "share_first": first,
        "share_second": second,
        "digest": report.digest,
        "seconds": round(seconds_of(report), 2),
    }


def seconds_of(report: Report) -> float:
    """Return the seconds that a verification took."""
    seconds = report.run.get("seconds", 0.0)
    return float(sum(seconds.values()) if isinstance(seconds, dict) else seconds)


def exact_text(found: CaseResult) -> tuple[str, str]:
    """Return the exact value, or the upper bound that is known, and how it was computed."""
    if found.truth is None or found.exact is None:
        return "not known", ""
    number = "infinite" if found.exact == math.inf else format_number(found.exact)
    return number if found.truth.is_exact else f"at most {number}", found.truth.how


def bound_texts(found: CaseResult) -> tuple[str, str]:
    """Return the lower and the upper bound as text; "none" where there is no bound."""
    proved = format_lower(found.proved) if found.proved > 0 else "none"
    return proved, "none" if found.bounded == math.inf else format_upper(found.bounded)


def verdict_sentence(found: CaseResult) -> str:
    """Return what the samples say about the claim of the mechanism as specified here."""
    claim, (proved, bounded) = found.case.claim.describe(), bound_texts(found)
    lower = f"{found.quantity} is at least {proved}{found.place}" if found.proved > 0 else "no positive lower bound"
    upper = f"at most {bounded}" if math.isfinite(found.bounded) else "no finite bound"
    match found.report.verdict:
        case Verdict.REFUTED:
            return (
                f"{found.case.title}: the claim ({claim}) fails for the mechanism as specified here. Proved: {lower}."
            )
        case Verdict.BOUNDED:
            meaning = "is not refuted for the mechanism as specified here, and unions of cells keep it"
        case Verdict.NOT_REFUTED:
            meaning = "is not refuted for the mechanism as specified here"
        case _:
            return f"{found.case.title}: no answer. {found.report.next_step}"
    return f"{found.case.title}: the claim ({claim}) {meaning}. Proved: {lower}; on the partition: {upper}."


def witness_sentence(found: CaseResult) -> str:
    """Return the event that refutes a claim, with its shares."""
    witness = found.report.witness
    return f"{witness.text}. {describe_shares(witness)}; confidence {format_percent(1 - found.report.alpha)}."
