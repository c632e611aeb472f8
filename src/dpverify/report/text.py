"""Every sentence of a report: its plain text, the sentences of its page, and the call that repeats it.

Nothing in these texts is read back by code. A sentence is written once, in plain characters; a page shows its symbols.
"""

from __future__ import annotations

import math
import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING

from dpverify.claims import Approximate
from dpverify.mechanisms.diagnostics import Diagnostic
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
from dpverify.report.sequence import StoppedBy
from dpverify.report.statements import Verdict, Witness
from dpverify.sampling.blocks import FIRST_BLOCK, FIRST_COMPILED_BLOCK, block_size
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

LINE_WIDTH = 88  # of a report that is printed by Python; the command uses the width of the terminal
MIN_WIDTH = 40  # labels and numbers of a line that is not broken further
REPEATED_TEST_MARGIN = 2.0  # more runs for a verification that selects its event again
LABEL_WIDTH = 10
TOO_FREQUENT = "the witness is so frequent with both datasets that it cannot violate the claim"
UNDERSTATED = "a single event shows only a part of a divergence, so the true value can be larger"
UNCHECKED = "events that split a cell were not checked"
COMPARED = frozenset(Relation) - {Relation.EQUAL, Relation.ONE_MORE_ROW, Relation.UNKNOWN}
NAMED = frozenset(Relation) - {Relation.EQUAL, Relation.ONE_NUMBER, Relation.OTHER, Relation.UNKNOWN}
SYMBOLS = (("epsilon", "ε"), ("delta", "δ"), ("alpha", "α"))

Line = tuple[str, str]  # a label and a statement; a statement without a label belongs to the line above


def labelled(label: str, *statements: str) -> list[Line]:
    """Return statements of which the first has a label, and the others belong to it."""
    return [("" if number else label, text) for number, text in enumerate(statements)]


def report_text(report: Report, with_next: bool = True, width: int = LINE_WIDTH) -> str:
    """Return the text of a report: the verdict, then one labelled line for each statement.

    Parameters
    ----------
    report : Report
        The report.
    with_next : bool
        Whether the last line says what to do next. The caller may give other advice.
    width : int
        Longer lines are continued below their statement.
    """
    verdict = f"{refutation(report)}: {report.verdict.value}" if report.refuted else report.verdict.value
    lines = [("cause", diagnostic.value) for diagnostic in report.voiding]
    if Diagnostic.WRONG_DENSITY in report.voiding and report.certificate_counts is not None:
        lines.append(("", report.certificate_counts.describe_misfit()))
    if report.claim is not None:
        lines += [("claimed", report.claim.describe()), *_p_value_lines(report)]
    if report.data_difference is not None:
        scope = () if report.claim is None else ("datasets that differ in another way are not tested",)
        lines += labelled("data", describe_data(report.data_difference), *scope)
    if not report.voiding:
        lines += bound_lines(report) + _witness_lines(report)
    findings = (diagnostic.value for diagnostic in report.diagnostics if not diagnostic.voids)
    lines += [("note", sentence) for sentence in (*findings, *report.remarks)]
    lines += [("power", text) for text in filter(None, [describe_power(report)])]
    lines += [("next", report.next_step)] if with_next else []
    wrapped = [_wrapped(f"  {label:<{LABEL_WIDTH}}", text, width) for label, text in lines]
    return "\n".join([printable(f"{report.name}: {verdict_words(report)}"), _wrapped("  ", verdict, width), *wrapped])


def _wrapped(start: str, text: str, width: int) -> str:
    """Return a line that is continued below its text."""
    options = {"width": width, "break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(printable(text), initial_indent=start, subsequent_indent=" " * len(start), **options)


def terminal_width() -> int:
    """Return the width of the terminal; `LINE_WIDTH` where the output is no terminal."""
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, MIN_WIDTH)
    except (OSError, ValueError, AttributeError):
        return LINE_WIDTH


def verdict_words(report: Report) -> str:
    """Return the name of the verdict in words, for example "NOT REFUTED"."""
    return report.verdict.name.replace("_", " ")


def refutation(report: Report) -> str:
    """Return at which confidence the claim of a report is refuted, and how strong the evidence is."""
    level = type_one_error_factor(report.settings) * report.alpha
    return f"refuted at {format_confidence(level)} confidence, {format_evidence(report.p_value or 0.0, report.alpha)}"


def confidence_text(report: Report) -> str:
    """Return the confidence of every bound."""
    return f"{format_confidence(report.alpha)} confidence"


def p_value_text(p_value: float, settings: Settings) -> str:
    """Return a p-value as text, as an upper limit if only that is known."""
    limited = settings.test == "exact" and p_value <= P_VALUE_FLOOR * settings.alpha
    return f"{'at most ' if limited else ''}{p_value:.3g}"


def _p_value_lines(report: Report) -> list[Line]:
    if report.p_value is None:
        return []
    events = "of the witness" if len(report.tested) == 1 else f"of the {len(report.tested)} tested events together"
    lines = [("p-value", f"{p_value_text(report.p_value, report.settings)}, {events}; {report.alpha:g} refutes")]
    if report.settings.test != "exact":
        means = "means over all thinnings of " if report.settings.test == "averaged" else ""
        risk = format_percent(type_one_error_factor(report.settings) * report.alpha)
        smaller = f"this is the smaller of {means}the paper's two p-values"
        lines.append(("", f"{smaller}, so a true claim is refuted with probability up to {risk}"))
    return lines


def describe_data(difference: DataDifference) -> str:
    """Return how the datasets differ."""
    text = f"the two datasets differ in {difference.text}" if difference.relation in COMPARED else difference.text
    return text + (f" ({difference.relation.value})" if difference.relation in NAMED else "")


def bound_lines(report: Report) -> list[Line]:
    """Return the statements about privacy loss, each with its scope and its confidence."""
    claim, lower, confidence = report.claim, report.claim_lower, confidence_text(report)
    lines: list[Line] = []
    if claim is not None and report.is_curve and lower is not None:
        proved = [f"no bound on {claim.parameter_words}"]
        if lower:
            bound = f"{claim.parameter_words} >= {format_lower(lower, claim.parameter)} ({confidence})"
            proved = [f"{bound}, for these two datasets", *([UNDERSTATED] if claim.is_divergence else [])]
        lines += labelled("proved", *proved)
    lines += _early_lines(report)
    at_delta = f"at delta {format_number(report.delta)}"
    if not report.is_curve or report.delta > 0:
        bound = f"no positive lower bound on epsilon {at_delta}"
        if report.epsilon_lower:
            bound = f"epsilon >= {format_lower(report.epsilon_lower, report.epsilon)} {at_delta} ({confidence})"
            bound += ", for these two datasets" + (", with an alpha of its own" if report.is_curve else "")
        lines.append(("proved", bound))
    return lines + labelled("cells", *describe_cells(report)) + labelled("certified", *describe_certificate(report))


def describe_certificate(report: Report) -> list[str]:
    """Return the statements over all events; none if nothing is stated about the density."""
    if report.certificate is None:
        return []
    confidence, delta = f"({confidence_text(report)}), over all events", report.certificate.certifiable_delta

    def bound_at(delta: float) -> str:
        bound = report.certificate_counts.epsilon_upper(delta) if report.certificate_counts else math.inf
        limit = f"epsilon <= {format_upper(bound)}" if bound < math.inf else "no finite upper bound on epsilon"
        return f"{limit} at delta {format_number(delta)} {confidence}"

    statements = [bound_at(report.delta)]
    if report.certificate.epsilon_upper(report.delta) == math.inf and report.delta < delta < 1:
        statements += ["runs cannot exclude an event that they never show", bound_at(delta)]
    return [*statements, f"provided that {report.certificate.assumption}"]


def _early_lines(report: Report) -> list[Line]:
    """Return why a verification that may stop early ended, its evidence, and how alpha was divided."""
    sequence = report.sequence
    if sequence is None:
        return []
    reason = {
        StoppedBy.REFUTED: "the claim was refuted",
        StoppedBy.CERTIFIED: "the claim was certified",
        StoppedBy.BUDGET: "the budget was spent",
    }[sequence.stopped]
    threshold, evidence = format_number(sequence.threshold(report.alpha)), format_number(report.e_value or 0.0)
    share = format_percent(sequence.early_share)
    return labelled(
        "stopped",
        f"{reason} after {format_count(sequence.runs_used)} runs per dataset",
        f"evidence {evidence} (refuted at {threshold})",
        f"this test uses {share} of alpha, the exact test at the end of the first budget the rest",
    )


def describe_cells(report: Report) -> list[str]:
    """Return the statements about unions of the cells."""
    part, claim = report.cell_counts, report.claim
    cells = f"over the {format_cell_count(part.cells)} cells"
    if not part.runs:
        return ["no upper bound: the verification stopped before it was computed"]
    if claim is not None and report.is_curve:
        if report.holds_on_cells:
            return [f"the claim holds {cells} ({confidence_text(report)})", UNCHECKED]
        if claim.is_divergence:
            return [f"no bound {cells}, because bounds on events do not bound a divergence"]
        return [f"the claim is not shown to hold {cells}"]
    upper = part.epsilon_upper(report.delta)
    bound = f"epsilon at most {format_upper(upper)}" if upper < math.inf else "no finite upper bound on epsilon"
    holds = ["no union of the cells violates the claim"] if report.holds_on_cells else []
    if upper == math.inf:
        empty = "in some cell one dataset has no run"
        holds = [
            f"{empty}; a delta above 0 may give a bound" if report.delta == 0 else f"{empty}, or the runs are too few"
        ]
    return [f"{bound} at delta {format_number(report.delta)} {cells} ({confidence_text(report)})", *holds, UNCHECKED]


def describe_shares(witness: Witness) -> str:
    """Return the share of test runs in the event, for both datasets."""
    first, second = (format_percent(share) for share, _, _ in witness.probabilities)
    return f"{first} of runs with the first dataset, {second} with the second"


def describe_choice(report: Report) -> str:
    """Return when the events were chosen, and that the results allow for all of them."""
    if not report.is_tested:
        return "these runs also selected the event; the bound uses the evidence of all batches"
    number = len(report.tested)
    chosen = f"best of {number} events chosen" if number > 1 else "chosen"
    return f"{chosen} in advance" + (f"; the results allow for all {number}" if number > 1 else "")


def _witness_lines(report: Report) -> list[Line]:
    lines = labelled("witness", report.witness.text, describe_shares(report.witness), describe_choice(report))
    lines += [("means", text)] if (text := describe_observer(report)) else []
    if report.error is not None:
        (mean1, error1), (mean2, error2) = (map(format_number, pair) for pair in report.error)
        with_first = f"{mean1} (standard error {error1}) with the first dataset"
        lines.append(("error", f"{with_first}, {mean2} ({error2}) with the second"))
    paper = report.paper if report.settings.follows_paper else None
    if paper is not None and report.epsilon_critical is not None:
        numbers = map(format_number, (report.epsilon_critical, paper.eta, paper.lambda_))
        averaged = "; averaged over all thinnings" if paper.averaged else ""
        lines.append(
            ("paper's", "critical epsilon {}, eta {}, lambda {} (not a guarantee)".format(*numbers) + averaged)
        )
    return lines


def describe_observer(report: Report) -> str:
    """Return what the witness tells an observer who was undecided; nothing where no loss is proved."""
    if report.observer_certainty is None:
        return ""
    at_least, allowed = report.observer_certainty
    limit = "" if allowed is None else f"; the claim allows {percent_down(allowed)}"
    sure = f"at least {percent_down(at_least)} sure after seeing the witness"
    return f"an observer who was undecided, 50:50, is {sure}{limit}"


def percent_down(share: float) -> str:
    """Return a share in per cent with one decimal, rounded down.

    Examples
    --------
    >>> percent_down(0.72889)
    '72.8%'
    """
    return f"{math.floor(1000 * share * (1 + 1e-12)) / 10:g}%"


def next_step(report: Report) -> str:
    """Return what to do next."""
    if report.voiding:
        return "fix the cause that is named above, then verify again"
    advice, strong = _advice(report), report.alpha / STRONG_EVIDENCE
    if report.refuted and (report.p_value or 0.0) > strong:
        return f"verify again with alpha={strong:g} and a new seed, for strong evidence; {advice}"
    return advice


def _advice(report: Report) -> str:
    claim, witness = report.claim, report.witness
    if report.refuted and witness.ordered[1] == 0:
        return (
            "only one dataset produced the outputs of the witness, which suggests missing noise or exact values: look "
            "for a number that is published without noise (more noise elsewhere may not hide it)"
        )
    if report.refuted:
        weaker = "claim less privacy" if report.is_curve else "claim a larger epsilon"
        return f"add noise to the outputs that the witness names, or {weaker}, then verify again"
    if claim is None:
        return "pass epsilon=... to test a claim; more select_runs and test_runs give tighter bounds"
    other = "to search further, use more selection runs (select_runs) or another pair of datasets"
    p1, p2 = witness.estimates
    if p1 <= float(claim.boundary(p2)):
        return other
    level = witness.share * report.alpha / 2  # a second test on the same claim shares alpha with the first one
    needed = math.ceil(min(claim.runs_to_refute(p1, p2, level), 2.0 * MAX_PLANNED_RUNS))
    if needed > MAX_PLANNED_RUNS:
        return other
    assumption = "if the observed frequencies are the true ones"
    if not claim.is_curve:
        assumption = f"if the observed epsilon of {format_number(math.log((p1 - report.delta) / p2))} is the true one"
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
            advice += f", or a claim of epsilon below {format_number(math.log((1 - claim.delta) / q))}"
        more = "" if needed is None else f"; set test_runs={needed}, with which the selection can choose one"
        return f"too weak: {TOO_FREQUENT}; {advice}, can be tested{more}"
    advice = "the witness is too rare to state a number of test runs; use more select_runs"
    if needed is not None:
        advice = f"set test_runs={needed}, which is enough for such events"
    event = "the witness" if planned == q else f"an event of probability {format_percent(report.settings.beta)}"
    return (
        f"too weak: if {claim.describe_violation(detects, event)}, {format_count(witness.runs)} test runs per dataset "
        f"would refute the claim with a probability below 80% at alpha {report.alpha:g}; {advice}"
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
    text = f"these runs would refute the claim about 80% of the time if {claim.describe_violation(factor)}"
    if rare < 1:
        text += f"; events less likely than about {format_percent(rare)} with both datasets are too rare for these runs"
    return text


def as_sentence(text: str) -> str:
    """Return a statement with its symbols, a full stop and, unless it starts with a name from code, a capital letter.

    Examples
    --------
    >>> as_sentence("no bound: epsilon >= 0.5"), as_sentence("epsilon >= 0.5")
    ('No bound: ε ≥ 0.5.', 'ε ≥ 0.5.')
    """
    for word, symbol in SYMBOLS:
        text = re.sub(rf"\b{word}\b(?![=/_])", symbol, text)
    text = re.sub(r"([δα]) (?=\d)", r"\1 = ", text.replace(" >= ", " ≥ ").replace(" <= ", " ≤ "))
    first_word = re.split(r"\W", text)[0]
    start = text[:1].upper() if first_word.isalpha() and first_word.isascii() else text[:1]
    return start + text[1:] + ("" if text.endswith(".") else ".")


def headline(report: Report) -> str:
    """Return the finding in one sentence, with a number where there is one."""
    if report.voiding:
        return f"No answer: {report.voiding[0].cause}."
    claim, name, lower, claimed = report.claim, "ε", report.epsilon_lower or 0.0, report.epsilon
    if claim is not None and report.is_curve:
        name, lower, claimed = claim.parameter_words, report.claim_lower or 0.0, claim.parameter
    bound = f"{name} is at least {format_lower(lower, claimed)}"
    if report.refuted:
        refuted = as_sentence(refutation(report))[:-1]
        if claimed is not None and lower > claimed:
            return f"{refuted}: {bound}, not {format_number(claimed, 7)}."
        return f"{refuted}: {claim_words(report)}."
    if report.verdict is Verdict.CERTIFIED and report.certificate is not None:
        return f"Certified: {claim_words(report)} holds for all events, if {report.certificate.assumption}."
    if claim is None:
        return f"Measured: {bound}." if lower else "Measured: these runs show no privacy loss."
    if lower:
        return f"Not refuted: {bound}, which the claim allows."
    return "Not refuted: no event was found that violates the claim."


def claim_words(report: Report) -> str:
    """Return the claim in words, for example "ε = 0.5, δ = 0"; empty without a claim."""
    if report.epsilon is not None:
        return f"ε = {format_number(report.epsilon, 7)}, δ = {format_number(report.delta)}"
    return "" if report.claim is None else report.claim.describe()


def summary(report: Report) -> list[Line]:
    """Return what was claimed, what the finding means, and what to do, as labelled sentences."""
    claimed = [f"{claim_words(report)}." if report.claim is not None else "No claim was given."]
    if report.data_difference is not None:
        claimed.append(as_sentence(describe_data(report.data_difference)))
    meaning = [report.verdict.value, *filter(None, [describe_power(report)])]
    if not report.voiding:
        advice = [as_sentence(report.next_step)]
    else:
        meaning = [*(diagnostic.cause for diagnostic in report.voiding), *meaning]
        advice = [as_sentence(diagnostic.remedy) for diagnostic in report.voiding] + ["Then verify again."]
    means = " ".join(map(as_sentence, meaning))
    return [("Claimed", " ".join(claimed)), ("This means", means), ("What to do", " ".join(advice))]


def facts(report: Report) -> list[str]:
    """Return the statements about privacy loss as sentences of the page."""
    sentences: list[str] = []
    for label, text in bound_lines(report):
        if label:
            sentences.append(as_sentence(text))
        else:
            sentences[-1] += f" {as_sentence(text)}"
    return sentences


def describe_event(report: Report) -> list[str]:
    """Return how the shares of the witness compare, and when it was fixed, as sentences of the page."""
    larger, smaller = report.witness.ordered
    first, second = (("first", "second")[number - 1] for number in report.witness.direction)
    times = f"{larger / smaller:.3g} times as often" if smaller else "and never with the other"
    if smaller and larger:
        comparison = f"The witness occurred {times} with the {first} dataset as with the {second}."
    else:
        comparison = f"The witness never occurred with the {second if larger else first} dataset."
    return [f"{comparison} {as_sentence(describe_choice(report))}"]


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
    arguments += ["error=..."] if report.error is not None else []
    arguments += [] if report.certificate_counts is None else [f"{report.certificate_counts.argument}=..."]
    name = " ".join(report.name.split())
    return f"import dpverify as dpv\n\ndpv.verify({', '.join(arguments)})  # mechanism: {name}"


def _changed_settings(report: Report, base: Settings) -> dict[str, object]:
    """Return the settings of the report that differ from `base`; the block size only where it was given."""
    settings, base_settings = to_plain(report.settings), to_plain(base)
    changed = {name: value for name, value in settings.items() if value != base_settings[name] and name != "block"}
    chosen = (FIRST_BLOCK, FIRST_COMPILED_BLOCK) if report.settings.stop_early else ()
    if settings["block"] not in (None, block_size(None, None, report.settings.test_runs), *chosen):
        changed["block"] = settings["block"]
    return changed
