"""Results over time in words."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

from dpverify.report.statements import Verdict
from dpverify.studies.tables import format_table
from dpverify.timeline.bounds import PrefixBounds
from dpverify.timeline.record_bounds import RecordBounds
from dpverify.util.formatting import (
    format_confidence,
    format_count,
    format_lower,
    format_number,
    format_percent,
    format_upper,
)

MAX_PRINTED_STEPS = 40  # of a table in text; of a longer output evenly spaced steps are printed


def loss_sentence(curve: PrefixBounds) -> str:
    """Return by which step a record is proved to be visible and what it costs in the end, in one sentence."""
    subject = curve.record or "the difference of the data sets"
    is_plural = subject.startswith(("readings ", "records "))
    if curve.voiding:
        return f"{subject}: no answer; {curve.voiding[0].value}"
    if curve.start is None:
        return f"nothing is proved about {subject}: {_no_lower_bound(curve)}"
    cost = f"{'cost' if is_plural else 'costs'} at least {format_lower(curve.final)} in the end"
    return f"{subject} {'are' if is_plural else 'is'} visible at step {curve.start} at the latest and {cost}"


def _no_lower_bound(curve: PrefixBounds) -> str:
    """Return that no loss was proved, and that this proves nothing."""
    return f"no lower bound above 0 in {curve.steps} steps, which does not prove that nothing leaks"


def claim_sentence(curve: PrefixBounds) -> str:
    """Return what is known about the claim, in one sentence."""
    assert curve.claim is not None
    claim = curve.claim.describe()
    if curve.verdict is Verdict.NO_ANSWER:
        return f"{claim}: no conclusion is possible"
    if curve.refuted_from is not None:
        return f"{claim}: refuted from step {curve.refuted_from} on{_test_is_sharper(curve)}"
    if curve.verdict is Verdict.BOUNDED:
        meets = "no union of the cells of any prefix violates it; other events are not bounded"
        return f"{claim}: not refuted in {curve.steps} steps; {meets}"
    return f"{claim}: not refuted in {curve.steps} steps; this does not prove that it holds"


def claim_cell(curve: PrefixBounds) -> str:
    """Return the verdict about the claim in a few words, for a table."""
    if curve.refuted_from is not None:
        return f"refuted from step {curve.refuted_from} on"
    return {Verdict.NO_ANSWER: "no answer", Verdict.BOUNDED: "bounded (cells)"}.get(curve.verdict, "not refuted")


def table_claim(table: RecordBounds) -> str:
    """Return what is known about the claim of all records, in one sentence."""
    first, number = table.curves[0], len(table.curves)
    assert first.claim is not None
    if number == 1:
        return claim_sentence(first)
    verdicts = collections.Counter(curve.verdict for curve in table.curves)
    sharper = next(filter(None, (_test_is_sharper(curve) for curve in table.curves if curve.refuted)), "")
    wordings = {
        Verdict.REFUTED: f"refuted for {{}} of {number} records{sharper}",
        Verdict.NOT_REFUTED: f"not refuted for {{}} of {number} records, which does not prove that it holds for them",
        Verdict.BOUNDED: f"bounded for {{}} of {number} records, over unions of cells; other events are not bounded",
        Verdict.NO_ANSWER: f"no conclusion is possible for {{}} of {number} records",
    }
    parts = [wording.format(verdicts[verdict]) for verdict, wording in wordings.items() if verdicts[verdict]]
    return f"{first.claim.describe()}: {'; '.join(parts)}"


def _test_is_sharper(curve: PrefixBounds) -> str:
    """Return an explanation if the claim is refuted although the lower bounds do not exceed its parameter."""
    claim, lower = curve.claim, curve.claim_lower
    if claim is None or lower is None or lower[-1] > getattr(claim, claim.parameter_name or "", 0.0):
        return ""
    return " (the test of the claim is sharper than the bounds, which hold for all steps together)"


def curve_text(curve: PrefixBounds) -> str:
    """Return the result of one pair as plain text."""
    together = f"confidence {format_confidence(curve.alpha)} for all steps together"
    label = f" ({curve.record})" if curve.record else ""
    lines = [f"{curve.name}{label}: privacy over {curve.steps} steps at delta {format_number(curve.delta)}"]
    if curve.voiding:
        lines += [f"  no answer   {diagnostic.value}" for diagnostic in curve.voiding]
        lines += [] if curve.claim is None else [f"  claim       {claim_sentence(curve)}"]
        return "\n".join(lines)
    header = ["step", "epsilon >=", "epsilon <= (cells)", "added", "spent"]
    header += ["exact"] if curve.truth is not None else []
    lines += format_table(header, [step_cells(curve, step) for step in printed_steps(curve.steps)])
    if curve.start is None:
        lines.append(f"  proved      nothing: {_no_lower_bound(curve)}")
    else:
        lines.append(f"  proved      {loss_sentence(curve)}; over all events; {together}")
    if math.isinf(curve.epsilon_upper[-1]):
        lines.append("  bounded     nothing: no finite upper bound at the last step, over unions of cells")
    else:
        upper = f"epsilon <= {format_upper(float(curve.epsilon_upper[-1]))}"
        lines.append(f"  bounded     {upper} at the last step, over unions of cells only; {together}")
    if curve.claim is not None:
        is_answered = curve.verdict in (Verdict.REFUTED, Verdict.BOUNDED)
        confidence = f"; confidence {format_confidence(curve.alpha)}" if is_answered else ""
        lines.append(f"  claim       {claim_sentence(curve)}{confidence}")
    lines.append(f"  runs        {runs_phrase([curve])}, the same for all steps")
    lines += [f"  note        {diagnostic.value}" for diagnostic in curve.diagnostics]
    return "\n".join(lines)


def runs_phrase(curves: Sequence[PrefixBounds]) -> str:
    """Return how many test runs were drawn; of several records the fewest and the most."""
    fewest, most = (format_count(choose(curve.runs for curve in curves)) for choose in (min, max))
    number = fewest if fewest == most else f"{fewest} to {most}"
    planned = curves[0].settings.test_runs
    early = any(curve.runs < planned for curve in curves)
    return f"{number}{f' of at most {format_count(planned)}' if early else ''} test runs per data set"


def printed_steps(steps: int) -> Sequence[int]:
    """Return the steps that a table in text shows, the last one included."""
    every = -(-steps // MAX_PRINTED_STEPS)
    return sorted({*range(0, steps, every), steps - 1})


def step_cells(curve: PrefixBounds, step: int) -> list[str]:
    """Return the cells of one step: number, lower bound, upper bound, increment, share and, where known, truth."""
    cells = [
        str(step),
        format_lower(float(curve.epsilon_lower[step])),
        format_upper(float(curve.epsilon_upper[step])),
        format_number(float(curve.increments[step])),
        format_percent(float(curve.spent[step])),
    ]
    return cells + ([] if curve.truth is None else [format_number(float(curve.truth[step]))])


def records_phrase(number: int) -> str:
    """Return a number of records in words."""
    return "1 record" if number == 1 else f"{number} records"


def table_scope(table: RecordBounds) -> str:
    """Return whether the table holds jointly or record by record, in one sentence."""
    confidence = format_confidence(table.alpha)
    if table.jointly:
        return f"the bounds of all records and all steps hold together with confidence {confidence}"
    return (
        f"the bounds of each record hold for all its steps together with confidence {confidence}; the bounds of "
        "different records do not hold jointly"
    )


def table_text(table: RecordBounds) -> str:
    """Return the results of many records as plain text."""
    first = table.curves[0]
    title = f"{first.name}: privacy of {records_phrase(len(table.curves))} over {first.steps} steps"
    header = ["record", "loss proved from step", "half spent at step", "epsilon >= at the end", "epsilon <= (cells)"]
    claimed = first.claim is not None
    rows = []
    for curve in table.curves:
        half = "" if curve.start is None else str(int((curve.spent >= 0.5).argmax()))
        cells = [
            "-" if curve.start is None else str(curve.start),
            half,
            format_lower(curve.final),
            format_upper(float(curve.epsilon_upper[-1])),
        ]
        if curve.voiding:
            cells = ["no answer", "", "", ""]
        rows.append([curve.record, *cells, *([claim_cell(curve)] if claimed else [])])
    header += ["claim"] if claimed else []
    lines = [f"{title} at delta {format_number(first.delta)}", *format_table(header, rows)]
    lines.append(f"  scope       {table_scope(table)}")
    if claimed:
        lines.append(f"  claim       {table_claim(table)}")
    diagnostics = dict.fromkeys(diagnostic for curve in table.curves for diagnostic in curve.diagnostics)
    lines += [f"  note        {diagnostic.value}" for diagnostic in diagnostics]
    return "\n".join(lines)
