"""Every sentence of a report: its plain text, the sentences at the top of its page, and the call that repeats it.

Nothing in these texts is read back by code.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpverify.claims import Approximate
from dpverify.mechanisms.neighbours import DataDifference, Relation
from dpverify.report.power import (
    DETECTS,
    DOUBTFUL_FACTOR,
    DOUBTFUL_P_VALUE,
    SEEN_RUNS,
    detectable_factor,
    needed_runs,
    planned_share,
)
from dpverify.report.sequence import Sequence, StoppedBy
from dpverify.report.statements import CellBounds, Verdict, Witness
from dpverify.sampling.blocks import FIRST_BLOCK, FIRST_COMPILED_BLOCK, default_block_size
from dpverify.settings import Settings, type_one_error_factor
from dpverify.stats.exact import MAX_PLANNED_RUNS, P_VALUE_FLOOR
from dpverify.util.formatting import (
    STRONG_EVIDENCE,
    format_cell_count,
    format_confidence,
    format_count,
    format_evidence,
    format_lower,
    format_number,
    format_percent,
    format_upper,
    printable,
)
from dpverify.util.serialization import to_plain

if TYPE_CHECKING:
    from dpverify.report.report import Report

REPEATED_TEST_MARGIN = 2.0  # more runs for a verification that selects its event again
TOO_FREQUENT = "the witness is so frequent with both data sets that it cannot violate the claim"
LABEL_WIDTH = 10
UNDERSTATED = "a single event shows only a part of a divergence, so the true value can be larger"
COMPARED = frozenset(Relation) - {Relation.EQUAL, Relation.ONE_MORE_ROW, Relation.UNKNOWN}
NAMED = frozenset(Relation) - {Relation.EQUAL, Relation.ONE_NUMBER, Relation.OTHER, Relation.UNKNOWN}

UNCHECKED = "events that split a cell were not checked"
OWN_ALPHA = "by a second test of the same counts, with an alpha of its own"
UNTESTED = "these runs also selected the event; the bound above uses the wealth only"


def report_text(report: Report, with_next: bool = True) -> str:
    """Return the text of a report: the verdict, then one labelled line for each statement.

    Without the line `next` if the caller gives other advice.
    """
    verdict = f"{refutation(report)}: {report.verdict.value}" if report.refuted else report.verdict.value
    lines = [f"{report.name}: {report.verdict.name.replace('_', ' ')}", f"  {verdict}"]
    lines += [_line("cause", diagnostic.value) for diagnostic in report.voiding]
    if report.claim is not None:
        lines.append(_line("claimed", _describe_claim(report)))
    if report.data_difference is not None:
        lines.append(_line("data", describe_data(report.data_difference, report.claim is not None)))
    if report.on_partition is not None:
        lines += _result_lines(report, report.on_partition)
    findings = [diagnostic.value for diagnostic in report.diagnostics if not diagnostic.voids]
    lines += [_line("note", sentence) for sentence in (*findings, *report.remarks)]
    if (power := describe_power(report)) is not None:
        lines.append(_line("power", power))
    if with_next:
        lines.append(_line("next", report.next_step))
    return "\n".join(printable(line) for line in lines)


def _result_lines(report: Report, part: CellBounds) -> list[str]:
    """Return the lines of the bounds and of the witness."""
    lines = []
    if report.epsilon is None and report.claim_lower is not None:
        lines.append(_line("proved", _describe_parameter_bound(report, report.claim_lower)))
    if report.sequence is not None:
        lines.append(_line("stopped", describe_stop(report, report.sequence)))
    if not report.is_curve or report.delta > 0:
        lines.append(_line("proved", _describe_lower_bound(report)))
    lines.append(_line("cells", _describe_cell_bound(report, part)))
    if report.certificate is not None:
        bound = report.certificate.epsilon_upper(report.delta)
        at_delta = f"at delta {format_number(report.delta)}"
        limit = f"no finite upper bound on epsilon {at_delta}"
        if bound < math.inf:
            limit = f"epsilon <= {format_upper(bound)} {at_delta}"
        scope = "over all events, provided that the stated Lipschitz constant is correct"
        lines.append(_line("certified", f"{limit}; {scope}, {confidence_text(report)}"))
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
    return lines


def refutation(report: Report) -> str:
    """Return at which confidence the claim of a report is refuted, and how strong the evidence is."""
    level = type_one_error_factor(report.settings) * report.alpha
    return f"refuted at {format_confidence(level)} confidence, {format_evidence(report.p_value or 0.0, report.alpha)}"


def describe_stop(report: Report, sequence: Sequence) -> str:
    """Return why a verification that may stop early ended, its wealth, and how alpha was divided."""
    reasons = {
        StoppedBy.REFUTED: "the claim was refuted",
        StoppedBy.CERTIFIED: "the claim was certified",
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


def describe_events(report: Report) -> str:
    """Return how many events were tested together, and that the results are corrected for it."""
    number = len(report.tested)
    most = "proves the most" if report.claim is None or report.refuted else "says most about the claim"
    fixed = f"{number} events were fixed before the test runs, and this one {most}"
    return f"{fixed}; the results are corrected for testing {number}"


def _line(label: str, text: str) -> str:
    return f"  {label:<{LABEL_WIDTH}}{text}"


def confidence_text(report: Report) -> str:
    """Return the confidence of every bound."""
    return f"confidence {format_percent(1 - report.alpha)}"


def _describe_claim(report: Report) -> str:
    claim = "" if report.claim is None else report.claim.describe()
    if report.p_value is None:
        return claim
    p_value = p_value_text(report.p_value, report.settings)
    level = f"refuted if {format_number(report.alpha)} or less"
    if report.settings.test != "exact":
        means = " means over all thinnings of" if report.settings.test == "averaged" else ""
        level += (
            f"; this is the smaller of two{means} p-values, so that a true claim is refuted with probability up to "
            f"{format_percent(type_one_error_factor(report.settings) * report.alpha)}"
        )
    return f"{claim}; p-value {p_value} ({level})"


def _describe_parameter_bound(report: Report, lower: float) -> str:
    """Return the lower bound on the parameter of a claim that is a curve."""
    name = "" if report.claim is None else report.claim.parameter_words
    if lower <= 0:
        return f"no positive lower bound on {name}"
    bound = format_lower(lower, None if report.claim is None else report.claim.parameter)
    text = f"{name} >= {bound}; for this pair of data sets, {_source(report)}, {confidence_text(report)}"
    return f"{text}; {UNDERSTATED}" if report.claim is not None and report.claim.is_divergence else text


def _describe_lower_bound(report: Report) -> str:
    at_delta = f"at delta {format_number(report.delta)}"
    if not report.epsilon_lower:
        return f"no positive lower bound on epsilon {at_delta}"
    bound = f"epsilon >= {format_lower(report.epsilon_lower, report.epsilon)} {at_delta}"
    source = OWN_ALPHA if report.is_curve else f"for this pair of data sets, {_source(report)}"
    return f"{bound}; {source}, {confidence_text(report)}"


def _source(report: Report) -> str:
    """Return what a lower bound comes from."""
    proves_most = not report.others or report.claim is None or report.refuted
    return "by the witness" if report.is_tested and proves_most else "by all events that were tested"


def _describe_cell_bound(report: Report, part: CellBounds) -> str:
    if not part.runs:
        return "no upper bound: the verification stopped before it was computed"
    if report.is_curve:
        return describe_curve_on_cells(report) + (f", {confidence_text(report)}" if report.holds_on_cells else "")
    upper = part.epsilon_upper(report.delta)
    bound = f"epsilon at most {format_upper(upper)}" if upper < math.inf else "no finite upper bound on epsilon"
    scope = f"over the {format_cell_count(part.cells)} cells; {UNCHECKED}"
    return f"{bound} at delta {format_number(report.delta)}, {scope}; {confidence_text(report)}"


def describe_curve_on_cells(report: Report) -> str:
    """Return whether a claim that is a curve is shown to hold over the cells."""
    cells = f"over the {format_cell_count(report.cell_counts.cells)} cells"
    if report.holds_on_cells:
        return f"the claim holds {cells}; {UNCHECKED}"
    if report.claim is not None and report.claim.is_divergence:
        return f"no bound {cells}, because bounds on events do not bound a divergence"
    return f"the claim is not shown to hold {cells}"


def _describe_paper(report: Report) -> str:
    if report.paper is None or report.epsilon_critical is None:
        return ""
    critical, eta, lambda_ = (
        format_number(number) for number in (report.epsilon_critical, report.paper.eta, report.paper.lambda_)
    )
    averaged = "; averaged over all thinnings" if report.paper.averaged else ""
    return f"critical epsilon {critical}, eta {eta}, lambda {lambda_} (not a guarantee){averaged}"


def next_step(report: Report) -> str:
    """Return one sentence that says what to do next."""
    if report.voiding:
        return "fix the cause that is named above, then verify again"
    advice = _next_step(report)
    strong = report.alpha / STRONG_EVIDENCE
    if report.refuted and (report.p_value or 0.0) > strong:
        return f"verify again with alpha={strong:g} and a new seed, for strong evidence; {advice}"
    return advice


def _next_step(report: Report) -> str:
    claim, witness = report.claim, report.witness
    level = witness.share * report.alpha / 2  # a second test on the same claim shares alpha with the first one
    if report.refuted and witness.ordered[1] == 0:
        return (
            "only one data set produced the outputs of the witness, which is a sign of missing noise or of exact "
            "values; a larger scale of the present noise may not hide them: look for a number that is published "
            "without noise, then verify again"
        )
    if report.refuted:
        weaker = "claim less privacy" if report.is_curve else "claim a larger epsilon"
        return (
            f"the witness shows which outputs distinguish the data sets; increase the noise, or {weaker}, then verify "
            "again"
        )
    if claim is None:
        return "pass epsilon=... to test a claim; more select_runs and test_runs give tighter bounds"
    p1, p2 = witness.estimates
    other = "to search further, use more selection runs (select_runs) or another pair of data sets"
    if p1 <= float(claim.boundary(p2)):
        return other
    needed = math.ceil(min(claim.runs_to_refute(p1, p2, level), 2.0 * MAX_PLANNED_RUNS))
    assumption = "if the observed frequencies are the true ones"
    if not claim.is_curve:
        assumption = f"if the observed epsilon of {format_number(math.log((p1 - report.delta) / p2))} is the true one"
    if needed > MAX_PLANNED_RUNS:
        return other
    # These runs refute the claim with probability 80% by the same event. A new verification selects its event again.
    needed = math.ceil(REPEATED_TEST_MARGIN * needed)
    return f"test again at alpha/2 with test_runs={format_count(needed)}: {assumption}, this probably refutes the claim"


def describe_weakness(report: Report, detects: float = DETECTS) -> str | None:
    """Return one line if a claim was not refuted by runs that are too few to notice `detects` times the claim.

    None if the claim is refuted, if there is no claim or no answer, and if there are enough runs: if the witness had
    the largest probability that the claim allows with all its parameters multiplied by `detects`, the test would refute
    the claim with a probability of at least 80%; and so it would with an event of probability beta.
    A p-value of at most 0.001 that is above alpha is too weak, too.
    """
    claim, witness = report.claim, report.witness
    if claim is None or report.verdict in (Verdict.REFUTED, Verdict.NO_ANSWER):
        return None
    if report.p_value is not None and report.p_value <= DOUBTFUL_P_VALUE:
        return (
            f"too weak: the p-value is {report.p_value:.2g}, which speaks against the claim but is above alpha "
            f"{report.alpha:g}; set test_runs={DOUBTFUL_FACTOR * witness.runs}, which probably decides"
        )
    target, q, level = claim.scale(detects), witness.estimates[1], report.witness.share * report.level
    planned = planned_share(report, target)
    is_too_frequent = float(claim.boundary(q)) >= 1
    if not is_too_frequent and claim.noticed_probability(witness.runs, planned, level) <= target.boundary(planned):
        return None
    needed = needed_runs(report, detects)
    if is_too_frequent:
        advice = "a rarer event"
        if isinstance(claim, Approximate) and q < 1 - claim.delta:
            advice += f", or a claim of epsilon below {format_number(math.log((1 - claim.delta) / q))}, can be tested"
        else:
            advice += " can be tested"
        more = "" if needed is None else f"; set test_runs={needed}, with which the selection can choose one"
        return f"too weak: {TOO_FREQUENT}; {advice}{more}"
    advice = "the witness is too rare to state a number of test runs; use more select_runs"
    if needed is not None:
        advice = f"set test_runs={needed}, which is enough for such events"
    event = "the witness" if planned == q else f"an event of probability {format_percent(report.settings.beta)}"
    return (
        f"too weak: if {claim.describe_violation(detects, event)}, {format_count(witness.runs)} test runs per data "
        f"set would refute the claim with a probability below 80% at alpha {report.alpha:g}; {advice}"
    )


def describe_power(report: Report) -> str | None:
    """Return what the test runs would notice on the witness, and which events are too rare for them.

    None if the claim is refuted, or if there is no claim or no answer.
    """
    claim, witness = report.claim, report.witness
    if claim is None or report.verdict in (Verdict.REFUTED, Verdict.NO_ANSWER):
        return None
    level = report.witness.share * report.level
    if float(claim.boundary(witness.estimates[1])) >= 1:
        return TOO_FREQUENT
    factor = detectable_factor(witness, claim, report.delta, level)
    if factor == math.inf:
        return "these runs are too few to refute the claim with the witness"
    rare = claim.noticed_probability(witness.runs, 0.5 / (witness.runs + 1), level)
    if report.sequence is None:
        rare = max(rare, SEEN_RUNS / report.settings.select_runs)
    text = f"if {claim.describe_violation(factor)}, these runs would refute the claim with probability about 80%"
    if rare < 1:
        text += (
            f"; events less likely than about {format_percent(rare)} with both data sets are too rare for these runs"
        )
    return text


def as_sentence(text: str) -> str:
    """Return the text with a full stop and, unless it starts with a name from code, with a capital letter."""
    first_word = text.partition(" ")[0]
    start = text[:1].upper() if first_word.isalpha() else text[:1]
    return start + text[1:] + ("" if text.endswith(".") else ".")


def claim_words(report: Report) -> str:
    """Return the claim in words, for example "ε = 0.5, δ = 0"; empty without a claim."""
    if report.epsilon is not None:
        return f"ε = {format_number(report.epsilon, 7)}, δ = {format_number(report.delta)}"
    return "" if report.claim is None else report.claim.describe()


def headline(report: Report) -> str:
    """Return the finding in one sentence, with a number where there is one."""
    if report.epsilon_lower is None:
        return f"No answer: {report.voiding[0].cause}."
    lower, claim = format_lower(report.epsilon_lower, report.epsilon), claim_words(report)
    refuted = as_sentence(refutation(report))[:-1] if report.refuted else ""
    proved = report.claim_lower if report.is_curve else None
    name = "" if report.claim is None else report.claim.parameter_words
    parameter = getattr(report.claim, "parameter", 0.0)
    bound = format_lower(proved or 0.0, parameter)
    match report.verdict:
        case Verdict.REFUTED if report.epsilon is not None and report.epsilon_lower > report.epsilon:
            return f"{refuted}: ε is at least {lower}, not {format_number(report.epsilon, 7)}."
        case Verdict.REFUTED if proved is not None and proved > parameter:
            return f"{refuted}: {name} is at least {bound}, not {format_number(parameter, 7)}."
        case Verdict.REFUTED:
            return f"{refuted}: {claim}."
        case Verdict.CERTIFIED:
            return f"Certified: {claim} holds for all events, if the stated Lipschitz constant is correct."
        case Verdict.NOT_REFUTED if proved:
            return f"Not refuted: {name} is at least {bound}, which the claim allows."
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


def summary(report: Report, epsilon_upper: float) -> tuple[tuple[str, str], ...]:
    """Return what was claimed, what was found, what it means, and what to do."""
    claimed = claim_words(report) or "Nothing; the privacy loss was measured"
    if report.data_difference is not None:
        claimed += f", for data sets like these two. {as_sentence(describe_data(report.data_difference, False))[:-1]}"
    advice = [as_sentence(report.next_step)]
    if report.voiding:
        advice = [as_sentence(diagnostic.remedy) for diagnostic in report.voiding] + ["Then verify again."]
    return (
        ("Claimed", f"{claimed}."),
        ("Found", _found(report, epsilon_upper)),
        ("This means", _meaning(report)),
        ("What to do", " ".join(advice)),
    )


def _found(report: Report, epsilon_upper: float) -> str:
    """Return the bounds, or why there are none, in sentences."""
    if report.voiding:
        return " ".join(as_sentence(diagnostic.cause) for diagnostic in report.voiding)
    confidence = confidence_text(report)
    at_delta = f"at δ = {format_number(report.delta)}"
    parts = []
    if report.claim is not None and report.is_curve and report.claim_lower:
        lower = format_lower(report.claim_lower, report.claim.parameter)
        bound = f"{report.claim.parameter_words} is at least {lower} ({confidence})"
        understated = f"; {UNDERSTATED}" if report.claim.is_divergence else ""
        parts.append(f"{bound}{understated}.")
    if report.is_curve:
        parts.append(f"{as_sentence(describe_curve_on_cells(report))[:-1]} ({confidence}).")
    if report.is_curve and report.delta == 0:
        pass  # an epsilon at delta 0 says little about such a claim; the details of the page have it
    elif report.epsilon_lower:
        lower, own = format_lower(report.epsilon_lower, report.epsilon), f", {OWN_ALPHA}" if report.is_curve else ""
        parts.append(f"ε is at least {lower} {at_delta} ({confidence}{own}).")
    else:
        parts.append(f"No positive lower bound on ε {at_delta}.")
    if epsilon_upper < math.inf and not report.is_curve:
        cells = format_cell_count(report.cell_counts.cells)
        parts.append(f"Over the {cells} cells, ε is at most {format_upper(epsilon_upper)} ({confidence}); {UNCHECKED}.")
    if report.p_value is not None:
        p_value = p_value_text(report.p_value, report.settings, "at most ")
        parts.append(f"The p-value of the claim is {p_value}.")
    return " ".join(parts)


def _meaning(report: Report) -> str:
    """Return what the verdict means, and what it does not mean."""
    p_value = type_one_error_factor(report.settings) * (report.p_value or 0.0)
    match report.verdict:
        case Verdict.NO_ANSWER:
            return "This test says nothing about privacy, so this page has no bounds."
        case Verdict.REFUTED:
            return (
                f"If the claim were true, a result like this would have a probability of at most {p_value:.3g}. If it "
                "is false, somebody who sees the output can tell the two data sets apart better than the claim allows."
            )
        case Verdict.CERTIFIED:
            return "No event violates the claim for this pair of data sets. Other pairs are not bounded."
        case Verdict.NOT_REFUTED:
            text = (
                "No event was found that violates the claim. This does not prove the claim: there may be too few runs, "
                "another event, or a worse pair of data sets."
            )
            if report.holds_on_cells:
                text += f" No union of the cells violates it either; {UNCHECKED}."
            power = describe_power(report)
            return text if power is None else f"{text} {as_sentence(power)}"
        case _:
            return f"{_measured(report)} Another event, or another pair of data sets, may have a larger privacy loss."


def _measured(report: Report) -> str:
    """Return what a measured lower bound means for this pair of data sets."""
    if not report.epsilon_lower:
        return "No event was found that distinguishes the two data sets with confidence."
    if report.delta > 0:
        return "Somebody who sees the output can tell the two data sets apart; the true ε is at least this large."
    ratio = format_lower(math.exp(min(report.epsilon_lower, 700.0)))
    return f"Some outputs are at least {ratio} times as likely with one data set as with the other."


def reproduction_command(report: Report) -> str:
    """Return the command that was given, or a call in Python with every setting that is not the default."""
    command = report.provenance.get("command")
    if isinstance(command, str):
        return command
    from_default = _changed_settings(report, Settings())
    from_paper = _changed_settings(report, Settings.paper())
    arguments = ["mechanism", "first", "second"]
    if report.epsilon is not None:
        arguments.append(f"epsilon={report.epsilon!r}")
    elif report.claim is not None:
        arguments.append(f"claim={report.claim.code()}")
    if report.delta:
        arguments.append(f"delta={report.delta!r}")
    changes = from_default
    if len(from_paper) < len(from_default):
        arguments.append("settings=dpv.Settings.paper()")
        changes = from_paper
    arguments += [f"{name}={value!r}" for name, value in changes.items()]
    if report.error is not None:
        arguments.append("error=...")
    if report.grid_counts is not None:
        arguments.append("log_lipschitz=...")
    name = " ".join(report.name.split())
    return f"import dpverify as dpv\n\ndpv.verify({', '.join(arguments)})  # mechanism: {name}"


def _changed_settings(report: Report, base: Settings) -> dict[str, object]:
    """Return the settings of the report that differ from `base`; the block size only where it was given."""
    settings, base_settings = to_plain(report.settings), to_plain(base)
    changed = {name: value for name, value in settings.items() if value != base_settings[name] and name != "block"}
    chosen = (FIRST_BLOCK, FIRST_COMPILED_BLOCK) if report.settings.stop_early else ()
    if settings["block"] not in (None, default_block_size(report.settings.test_runs), *chosen):
        changed["block"] = settings["block"]
    return changed
