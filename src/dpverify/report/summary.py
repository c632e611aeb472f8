"""The first screen of a report page: the finding in one sentence, then the claim, the bounds, their meaning, advice."""

from __future__ import annotations

import math

from dpverify.render.content import SummaryLine
from dpverify.report.fields import ReportFields
from dpverify.report.statements import Verdict
from dpverify.report.text import (
    UNDERSTATED,
    describe_bounded_curve,
    describe_data,
    p_value_text,
    parameter_words,
    power_text,
)
from dpverify.stats.claim_kinds import ZCDP, Profile, Renyi
from dpverify.util.formatting import format_cell_count, format_lower, format_number, format_percent, format_upper


def as_sentence(text: str) -> str:
    """Return the text with a full stop and, unless it starts with a name from code, with a capital letter."""
    first_word = text.partition(" ")[0]
    start = text[:1].upper() if first_word.isalpha() else text[:1]
    return start + text[1:] + ("" if text.endswith(".") else ".")


def claim_words(report: ReportFields) -> str:
    """Return the claim in words, for example "ε = 0.5, δ = 0"; empty without a claim."""
    if report.epsilon is not None:
        return f"ε = {format_number(report.epsilon)}, δ = {format_number(report.delta)}"
    return "" if report.claim is None else report.claim.describe()


def headline(report: ReportFields, epsilon_upper: float) -> str:
    """Return the finding in one sentence, with a number where there is one."""
    lower, claim = format_lower(report.epsilon_lower), claim_words(report)
    cells = format_cell_count(report.on_partition.cells)
    proved = report.claim_lower if report.is_curve else None
    name = "" if report.claim is None else parameter_words(report.claim)
    parameter = 0.0 if report.claim is None or isinstance(report.claim, Profile) else report.claim.parameter
    match report.verdict:
        case Verdict.NO_ANSWER:
            return "No answer: this test is not valid."
        case Verdict.REFUTED if report.epsilon is not None and report.epsilon_lower > report.epsilon:
            return f"The claim is false: ε is at least {lower}, not {format_number(report.epsilon)}."
        case Verdict.REFUTED if proved is not None and proved > parameter:
            return f"The claim is false: {name} is at least {format_lower(proved)}, not {format_number(parameter)}."
        case Verdict.REFUTED:
            return f"The claim is false: {claim} does not hold."
        case Verdict.BOUNDED if report.epsilon is not None:
            return f"Within the claim: ε is at most {format_upper(epsilon_upper)} for unions of the {cells} cells."
        case Verdict.BOUNDED:
            return f"Within the claim: {claim} holds for unions of the {cells} cells."
        case Verdict.NOT_REFUTED if proved:
            return f"Not refuted: {name} is at least {format_lower(proved)}, which the claim allows."
        case Verdict.NOT_REFUTED if report.is_curve:
            return "Not refuted: no event was found that violates the claim."
        case Verdict.NOT_REFUTED if report.epsilon_lower > 0:
            return f"Not refuted: ε is at least {lower}, which the claim allows."
        case Verdict.NOT_REFUTED:
            return "Not refuted: these runs show no privacy loss."
        case _ if report.epsilon_lower > 0:
            return f"Measured: ε is at least {lower}."
        case _:
            return "Measured: these runs show no privacy loss."


def summary(report: ReportFields, epsilon_upper: float) -> tuple[SummaryLine, ...]:
    """Return what was claimed, what was found, what it means, and what to do."""
    claimed = claim_words(report) or "Nothing; the privacy loss was measured"
    if report.data_difference is not None:
        claimed += f", for data sets like these two. {as_sentence(describe_data(report.data_difference, False))[:-1]}"
    advice = [as_sentence(report.next_step)]
    if report.voiding:
        advice = [as_sentence(diagnostic.remedy) for diagnostic in report.voiding] + ["Then verify again."]
    return (
        SummaryLine("Claimed", f"{claimed}."),
        SummaryLine("Found", _found(report, epsilon_upper)),
        SummaryLine("This means", _meaning(report)),
        SummaryLine("What to do", " ".join(advice)),
    )


def _found(report: ReportFields, epsilon_upper: float) -> str:
    """Return the bounds, or why there are none, in sentences."""
    if report.voiding:
        return " ".join(as_sentence(diagnostic.cause) for diagnostic in report.voiding)
    confidence = f"confidence {format_percent(1 - report.alpha)}"
    at_delta = f"at δ = {format_number(report.delta)}"
    parts = []
    if report.claim is not None and report.is_curve and report.claim_lower:
        bound = f"{parameter_words(report.claim)} is at least {format_lower(report.claim_lower)} ({confidence})"
        understated = f"; {UNDERSTATED}" if isinstance(report.claim, (Renyi, ZCDP)) else ""
        parts.append(f"{bound}{understated}.")
    if report.is_curve:
        parts.append(f"{as_sentence(describe_bounded_curve(report))[:-1]} ({confidence}).")
    if report.is_curve and report.delta == 0:
        pass  # an epsilon at delta 0 says little about such a claim; the details of the page have it
    elif report.epsilon_lower > 0:
        parts.append(f"ε is at least {format_lower(report.epsilon_lower)} {at_delta} ({confidence}).")
    else:
        parts.append(f"No positive lower bound on ε {at_delta}.")
    if epsilon_upper < math.inf and not report.is_curve:
        cells = format_cell_count(report.on_partition.cells)
        parts.append(f"Over unions of {cells} cells, ε is at most {format_upper(epsilon_upper)} ({confidence}).")
    if report.p_value is not None and report.verdict is not Verdict.BOUNDED:
        p_value = p_value_text(report.p_value, report.settings, "at most ")
        parts.append(f"The p-value of the claim is {p_value}.")
    return " ".join(parts)


def _meaning(report: ReportFields) -> str:
    """Return what the verdict means, and what it does not mean."""
    match report.verdict:
        case Verdict.NO_ANSWER:
            return (
                "This test says nothing about privacy. The numbers below are computed as if the problem did not exist. "
                "Do not rely on them."
            )
        case Verdict.REFUTED:
            return (
                "Somebody who sees the output can tell the two data sets apart better than the claim allows. One pair "
                "of data sets is enough to show this."
            )
        case Verdict.BOUNDED:
            return (
                "No event made of the cells violates the claim. This does not prove the claim: other events, and other "
                "pairs of data sets, are not bounded."
            )
        case Verdict.NOT_REFUTED:
            text = (
                "No event was found that violates the claim. This does not prove the claim: there may be too few runs, "
                "another event, or a worse pair of data sets."
            )
            power = power_text(report)
            return text if power is None else f"{text} {as_sentence(power)}"
        case _:
            return f"{_measured(report)} Another event, or another pair of data sets, may have a larger privacy loss."


def _measured(report: ReportFields) -> str:
    """Return what a measured lower bound means for this pair of data sets."""
    if report.epsilon_lower <= 0:
        return "No event was found that distinguishes the two data sets with confidence."
    if report.delta > 0:
        return "Somebody who sees the output can tell the two data sets apart; the true ε is at least this large."
    ratio = format_lower(math.exp(min(report.epsilon_lower, 700.0)))
    return f"Some outputs are at least {ratio} times as likely with one data set as with the other."
