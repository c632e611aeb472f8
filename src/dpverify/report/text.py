"""The plain text of a report: what was claimed, what was found, what it means and what to do next.

Nothing in this text is read back by code.
"""

from __future__ import annotations

import math

from dpverify.mechanisms.data_difference import DataDifference, Relation
from dpverify.report.fields import ReportFields
from dpverify.report.power import describe_power
from dpverify.report.sequence import Sequence, StoppedBy
from dpverify.report.statements import Verdict, Witness
from dpverify.settings import Settings
from dpverify.stats.claim_kinds import ZCDP, Claim, Renyi
from dpverify.stats.profile import P_VALUE_FLOOR
from dpverify.util.formatting import (
    format_cell_count,
    format_count,
    format_lower,
    format_number,
    format_percent,
    format_upper,
    printable,
)

LABEL_WIDTH = 10
UNDERSTATED = "a single event shows only a part of a divergence, so the true value can be larger"
COMPARED = frozenset(Relation) - {Relation.EQUAL, Relation.ONE_MORE_ROW, Relation.UNKNOWN}
NAMED = frozenset(Relation) - {Relation.EQUAL, Relation.ONE_NUMBER, Relation.OTHER, Relation.UNKNOWN}

UNTESTED = "these runs also selected the event; the bound above uses the wealth only"


def report_text(report: ReportFields, with_next: bool = True) -> str:
    """Return the text of a report: the verdict, then one labelled line for each statement.

    Without the line `next` if the caller gives other advice.
    """
    lines = [f"{report.name}: {report.verdict.name.replace('_', ' ')}", f"  {report.verdict.value}"]
    # Voiding diagnostics come first, because no number below them can be used.
    lines += [_line("cause", diagnostic.value) for diagnostic in report.voiding]
    if report.voiding:
        lines.append("  the lines below would be valid only without this cause")
    if report.claim is not None:
        lines.append(_line("claimed", _describe_claim(report)))
    if report.data_difference is not None:
        lines.append(_line("data", describe_data(report.data_difference, report.claim is not None)))
    if report.epsilon is None and report.claim_lower is not None:
        lines.append(_line("proved", _describe_parameter_bound(report, report.claim_lower)))
    if report.sequence is not None:
        lines.append(_line("stopped", describe_stop(report, report.sequence)))
    if not report.is_curve or report.delta > 0:
        lines.append(_line("proved", _describe_lower_bound(report)))
    lines.append(_line("bounded", _describe_partition_bound(report)))
    if report.on_all_events is not None:
        bound = _upper_bound(report.on_all_events.epsilon_upper(report.delta), report.delta)
        scope = "over all events, provided that the stated Lipschitz constant is correct"
        lines.append(_line("certified", f"{bound}; {scope}, {_confidence(report)}"))
    lines.append(_line("witness", report.witness.text))
    lines.append(_line("", describe_shares(report.witness) + ("" if report.is_tested else f"; {UNTESTED}")))
    if report.others:
        lines.append(_line("", describe_events(report)))
    if report.error is not None:
        (mean1, error1), (mean2, error2) = (map(format_number, pair) for pair in report.error)
        with_first = f"{mean1} (standard error {error1}) with the first data set"
        lines.append(_line("error", f"{with_first}, {mean2} ({error2}) with the second"))
    if report.settings.follows_paper:
        lines.append(_line("paper's", _describe_paper(report)))
    findings = [diagnostic.value for diagnostic in report.diagnostics if not diagnostic.voids]
    lines += [_line("note", sentence) for sentence in (*findings, *report.remarks)]
    if (power := power_text(report)) is not None:
        lines.append(_line("power", power))
    if with_next:
        lines.append(_line("next", report.next_step))
    return "\n".join(printable(line) for line in lines)


def power_text(report: ReportFields) -> str | None:
    """Return what these runs would detect on the witness; None if there is nothing to detect."""
    return describe_power(
        report.verdict, report.witness, report.claim, report.delta, report.epsilon_detectable, report.alpha
    )


def describe_stop(report: ReportFields, sequence: Sequence) -> str:
    """Return why a verification that may stop early ended, its wealth, and how alpha was divided."""
    reasons = {
        StoppedBy.REFUTED: "the claim was refuted",
        StoppedBy.BOUNDED: "the claim was bounded",
        StoppedBy.BUDGET: "the budget was spent",
    }
    threshold = format_number(sequence.threshold(report.alpha))
    share, rest = format_number(sequence.early_share), format_number(1 - sequence.early_share)
    wealth = f"wealth {format_number(report.e_value or 0.0)}, and {threshold} refutes"
    return (
        f"{reasons[sequence.stopped]} after {format_count(sequence.runs_used)} runs per data set; {wealth}; "
        f"alpha: {share} of it for the wealth, {rest} for the exact test when the first budget is spent"
    )


def p_value_text(p_value: float, settings: Settings, below: str = "<= ") -> str:
    """Return a p-value as text, with `below` in front if only an upper limit of it is known."""
    limited = settings.test == "exact" and p_value <= P_VALUE_FLOOR * settings.alpha
    return f"{below if limited else ''}{p_value:.3g}"


def describe_data(difference: DataDifference, claimed: bool) -> str:
    """Return how the data sets differ, and that data sets that differ in another way are not tested."""
    text = f"the two data sets differ in {difference.text}" if difference.relation in COMPARED else difference.text
    if difference.relation in NAMED:
        text += f" ({difference.relation.value})"
    return f"{text}; data sets that differ in another way are not tested" if claimed else text


def describe_shares(witness: Witness) -> str:
    """Return the share of test runs in the event, for both data sets."""
    first, second = (format_percent(share) for share, _, _ in witness.probabilities)
    return f"{first} of runs with the first data set, {second} with the second"


def describe_events(report: ReportFields) -> str:
    """Return how many events were tested together, and that the results are corrected for it."""
    number = len(report.tested)
    fixed = f"{number} events were fixed before the test runs, and this one proves the most"
    return f"{fixed}; the results are corrected for testing {number}"


def _line(label: str, text: str) -> str:
    return f"  {label:<{LABEL_WIDTH}}{text}"


def _confidence(report: ReportFields) -> str:
    return f"confidence {format_percent(1 - report.alpha)}"


def _describe_claim(report: ReportFields) -> str:
    claim = "" if report.claim is None else report.claim.describe()
    p_value = p_value_text(report.p_value or 0.0, report.settings)
    level = f"refuted if {format_number(report.alpha)} or less"
    if report.settings.test == "thinned":
        level += (
            "; this is the smaller of two p-values, so that a true claim is refuted with probability up to "
            f"{format_percent(2 * report.alpha)}"
        )
    return f"{claim}; p-value {p_value} ({level})"


def _describe_parameter_bound(report: ReportFields, lower: float) -> str:
    """Return the lower bound on the parameter of a claim that is a curve."""
    name = "" if report.claim is None else parameter_words(report.claim)
    if lower <= 0:
        return f"no positive lower bound on {name}"
    text = f"{name} >= {format_lower(lower)}; for this pair of data sets, {_source(report)}, {_confidence(report)}"
    return f"{text}; {UNDERSTATED}" if isinstance(report.claim, (Renyi, ZCDP)) else text


def _describe_lower_bound(report: ReportFields) -> str:
    at_delta = f"at delta {format_number(report.delta)}"
    if report.epsilon_lower <= 0:
        return f"no positive lower bound on epsilon {at_delta}"
    bound = f"epsilon >= {format_lower(report.epsilon_lower)} {at_delta}"
    return f"{bound}; for this pair of data sets, {_source(report)}, {_confidence(report)}"


def _source(report: ReportFields) -> str:
    """Return what a lower bound comes from."""
    return "by the witness" if report.is_tested else "by all events that were tested"


def _describe_partition_bound(report: ReportFields) -> str:
    if not report.on_partition.runs:
        return "nothing: the verification stopped before its first upper bound"
    if report.is_curve:
        confidence = f", {_confidence(report)}" if report.verdict is Verdict.BOUNDED else ""
        return describe_bounded_curve(report) + confidence
    bound = _upper_bound(report.on_partition.epsilon_upper(report.delta), report.delta)
    cells = format_cell_count(report.on_partition.cells)
    return f"{bound}; only for events made of the partition's {cells} cells, {_confidence(report)}"


def parameter_words(claim: Claim) -> str:
    """Return the name of the parameter of a claim that is a curve; the epsilon of a Renyi divergence is named so."""
    if isinstance(claim, Renyi):
        return f"Renyi epsilon of order {format_number(claim.order)}"
    return claim.parameter_name or "the claim"


def describe_bounded_curve(report: ReportFields) -> str:
    """Return whether a claim that is a curve was bounded on unions of the cells."""
    events = f"events made of the partition's {format_cell_count(report.on_partition.cells)} cells"
    if report.verdict is Verdict.BOUNDED:
        return f"the claim holds for {events}; other events are not bounded"
    if isinstance(report.claim, (Renyi, ZCDP)):
        return f"the claim is not bounded for {events}, because bounds on events do not bound a divergence"
    return f"the claim is not bounded for {events}"


def _upper_bound(epsilon: float, delta: float) -> str:
    at_delta = f"at delta {format_number(delta)}"
    if epsilon == math.inf:
        return f"no finite upper bound on epsilon {at_delta}"
    return f"epsilon <= {format_upper(epsilon)} {at_delta}"


def _describe_paper(report: ReportFields) -> str:
    critical, eta, lambda_ = (
        format_number(number) for number in (report.epsilon_critical, report.paper.eta, report.paper.lambda_)
    )
    return f"critical epsilon {critical}, eta {eta}, lambda {lambda_} (not a guarantee)"
