"""Recomputation of a report that was read from a file.

Everything that a report concludes follows from its counts. The reader computes it again and refuses a report whose
stored numbers differ, so that an edited verdict or bound is never shown. This does not detect a report whose counts
were invented.
"""

from __future__ import annotations

import math

import numpy as np

from dpverify.report.evaluate import REGION_SHARE, Etas, Evaluation, evaluate_claim
from dpverify.report.fields import ReportFields
from dpverify.report.sequence import EARLY_SHARE
from dpverify.report.statements import Verdict
from dpverify.stats.paper_test import eta_upper_bound

TOLERANCE = 1e-6  # relative; versions of NumPy and SciPy differ in late digits
MAX_RECOMPUTED_CELLS = 50_000  # occupied cells, for about two seconds

Number = float | None


def is_recomputable(report: ReportFields) -> bool:
    """Return whether the recomputation takes at most about two seconds."""
    return int(report.on_partition.number.sum()) <= MAX_RECOMPUTED_CELLS


def find_difference(report: ReportFields) -> str | None:
    """Return the first number that does not follow from the counts: "found X; expected Y"; None if all follow."""
    settings, partition = report.settings, report.on_partition
    columns = [np.repeat(counts, partition.number) for counts in (partition.c1, partition.c2)]
    expected: list[tuple[str, Number, Number]] = [("alpha", report.alpha, settings.alpha)]
    if report.sequence is None:
        eta_upper = eta_upper_bound(np.concatenate(columns), settings.test_runs, settings.alpha)
        expected += [
            ("witness.alpha", report.witness.alpha, settings.alpha),
            ("witness.runs", report.witness.runs, settings.test_runs),
            ("on_partition.alpha", partition.alpha, (1 - REGION_SHARE) * settings.alpha),
            ("paper.eta", report.paper.eta, _nearest_eta(report, eta_upper)),
            ("paper.eta_upper", report.paper.eta_upper, None if report.paper.eta_upper is None else eta_upper),
        ]
        if report.on_all_events is not None:
            expected.append(("on_all_events.alpha", report.on_all_events.alpha, (1 - REGION_SHARE) * settings.alpha))
    else:
        expected += [
            ("sequence.early_share", report.sequence.early_share, EARLY_SHARE),
            ("witness.alpha", report.witness.alpha, report.sequence.exact_alpha(settings.alpha)),
            ("paper.eta", report.paper.eta, 1.0),
        ]
    expected += [("others.alpha", one.alpha, report.witness.alpha) for one in report.others]
    difference = _first_difference(expected)
    if difference is not None:
        return difference
    etas = Etas(report.paper.eta, report.paper.eta_upper)
    evaluation = evaluate_claim(
        report.tested,
        partition,
        etas,
        settings,
        report.claim,
        report.delta,
        report.diagnostics,
        report.sequence,
    )
    difference = _first_difference(_compared_numbers(report, evaluation))
    if difference is not None:
        return difference
    verdict = evaluation["verdict"]
    if report.verdict is verdict or _is_borderline(report, verdict) or _is_of_earlier_version(report, verdict):
        return None
    return f"found verdict {report.verdict.name}; expected {verdict.name}"


def _nearest_eta(report: ReportFields, eta_upper: float) -> float:
    """Return the possible eta that is nearest to the stored one: a share of the selection runs, or the upper bound.

    It is the upper bound without the paper's selector, and in reports of earlier versions.
    """
    if report.settings.selection_epsilon is None or report.paper.eta_upper is None:
        return eta_upper
    return round(report.paper.eta * report.settings.select_runs) / report.settings.select_runs


def _compared_numbers(report: ReportFields, evaluation: Evaluation) -> list[tuple[str, Number, Number]]:
    """Return the name, the stored value and the recomputed value of each number of the evaluation.

    The paper's randomised numbers depend on the random streams of NumPy, which may change with its version.
    """
    numbers: list[tuple[str, Number, Number]] = [
        ("epsilon_lower", report.epsilon_lower, evaluation["epsilon_lower"]),
        ("claim_lower", report.claim_lower, evaluation["claim_lower"]),
        ("epsilon", report.epsilon, evaluation["epsilon"]),
        ("epsilon_detectable", report.epsilon_detectable, evaluation["epsilon_detectable"]),
    ]
    versions = report.run.get("versions")
    same_streams = isinstance(versions, dict) and versions.get("numpy") == np.__version__
    if report.settings.test != "thinned" or same_streams:
        numbers += [
            ("p_value", report.p_value, evaluation["p_value"]),
            ("epsilon_critical", report.epsilon_critical, evaluation["epsilon_critical"]),
            ("paper.lambda_", report.paper.lambda_, evaluation["paper"].lambda_),
        ]
    stored, recomputed = report.paper.p_values, evaluation["paper"].p_values
    if same_streams:
        pairs = zip(stored or (None, None), recomputed or (None, None), strict=True)
        numbers += [("paper.p_values", first, second) for first, second in pairs]
    return numbers


def _first_difference(numbers: list[tuple[str, Number, Number]]) -> str | None:
    """Return the first stored number that differs from the recomputed one, in words."""
    for name, stored, recomputed in numbers:
        if stored is None or recomputed is None:
            agrees = stored is recomputed
        else:
            agrees = math.isclose(stored, recomputed, rel_tol=TOLERANCE)
        if not agrees:
            return f"found {name} {_show(stored)}; expected {_show(recomputed)}"
    return None


def _show(number: Number) -> str:
    """Return a number with enough digits to show a difference."""
    return "none" if number is None else f"{number:.8g}"


def _is_borderline(report: ReportFields, verdict: Verdict) -> bool:
    """Return whether late digits decide between the stored verdict and the recomputed one."""
    verdicts = {report.verdict, verdict}
    if report.claim is None or report.p_value is None or not verdicts <= set(Verdict) - {Verdict.NO_ANSWER}:
        return False
    if Verdict.REFUTED in verdicts:
        return math.isclose(report.p_value, report.alpha, rel_tol=TOLERANCE)
    smaller, larger = report.claim.scale(1 - TOLERANCE), report.claim.scale(1 + TOLERANCE)
    return report.on_partition.meets_claim(larger) and not report.on_partition.meets_claim(smaller)


def _is_of_earlier_version(report: ReportFields, verdict: Verdict) -> bool:
    """Return whether the stored verdict only lacks the bound at a small delta, which earlier versions did not have."""
    is_weaker = (report.verdict, verdict) == (Verdict.NOT_REFUTED, Verdict.BOUNDED)
    return is_weaker and report.on_partition.uses_delta_zero(report.delta)
