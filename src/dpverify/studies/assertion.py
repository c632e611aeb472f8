"""An assertion for test suites: it fails if a privacy claim is refuted, and if the test has too little power.

A test that cannot refute a false claim would pass for the wrong reason. Therefore the detectable epsilon of the witness
is compared with a multiple of the claim.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Unpack

from dpverify.errors import InputError, TooWeak
from dpverify.mechanisms.protocol import Mechanism
from dpverify.report.power import estimate_share, is_too_frequent, planned_runs, reaches, required_runs
from dpverify.report.report import Report
from dpverify.report.statements import Verdict
from dpverify.report.text import report_text
from dpverify.settings import VerifyOptions
from dpverify.stats.claims import Claim, resolve_claim
from dpverify.stats.power import MAX_PLANNED_RUNS
from dpverify.studies.options import RunOptions
from dpverify.util.formatting import format_count, format_number


def assert_private(
    mechanism: Mechanism,
    first: object,
    second: object,
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    claim: object = None,
    alpha: float = 1e-6,
    detects: float = 1.25,
    **options: Unpack[VerifyOptions],  # pyright: ignore[reportGeneralTypeIssues] (alpha has another default here)
) -> Report:
    """Assert in a test that a mechanism does not violate a privacy claim.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism, as in `verify`.
    first, second : object
        The two neighbouring data sets.
    epsilon, delta : float
        The claim. Epsilon must be positive.
    claim : claim, optional
        A claim of another kind, instead of epsilon, as in `verify`.
    alpha : float, default 1e-6
        The level of the test. A true claim fails with probability alpha at most (twice that with the randomised test
        of the paper). With a fixed seed the result is always the same.
    detects : float, default 1.25
        A number above 1. The assertion fails if `epsilon_detectable` of the report is larger than `detects * epsilon`:
        if the true epsilon of the witness were `detects * epsilon`, the runs would then refute the claim with a
        probability below 80%. There are two exceptions. A claim that is bounded on the partition (`BOUNDED`) passes.
        If the witness is so frequent with both data sets that its epsilon cannot be so large, an event of probability
        one half replaces it. This happens where no event distinguishes the data sets. For another claim its parameter
        is multiplied; for a privacy profile or a trade-off function, the epsilons of its points are.
    **options
        Keyword arguments of `verify`: settings, executor, folder, error, log_lipschitz, learn, progress, trust_results,
        single settings.

    Returns
    -------
    Report
        The report of a claim that was not refuted.

    Raises
    ------
    AssertionError
        If the claim is refuted, or if a voiding diagnostic makes the test meaningless. The message contains the
        report.
    TooWeak
        If the claim is not refuted, but the runs are too few. It is an AssertionError too; `needed` is a number of
        test runs that is enough on an event as frequent as the witness.
    InputError
        If `detects` is not above 1, epsilon is 0, or a keyword is unknown.

    Examples
    --------
    >>> import dpverify as dpv
    >>> def noisy(data, runs, rng):
    ...     return data + rng.laplace(size=(runs, 1))
    >>> report = dpv.assert_private(noisy, 0.0, 1.0, epsilon=1.0, detects=2.0, select_runs=1000, test_runs=4000)
    >>> report.refuted
    False
    >>> dpv.assert_private(noisy, 0.0, 1.0, epsilon=0.3, detects=2.0, select_runs=1000, test_runs=4000)
    Traceback (most recent call last):
        ...
    AssertionError: noisy: REFUTED...
    """
    __tracebackhide__ = True  # pytest then shows the line of the test instead of a line of this function
    tested, delta = resolve_claim(epsilon, delta, claim)
    check_detects(detects, tested)
    run_options = RunOptions.from_keywords(**options)
    run_options = dataclasses.replace(run_options, settings=run_options.settings.change(alpha=alpha))
    report = run_options.verify(mechanism, first, second, None, delta, tested)
    if report.voiding:
        raise AssertionError(f"{report.voiding[0].value}\n{report}")
    if report.refuted:
        raise AssertionError(str(report))
    weakness = describe_weakness(report, detects)
    if weakness is not None:
        raise TooWeak(f"{weakness}\n{report_text(report, with_next=False)}", report, needed_runs(report, detects))
    return report


def check_detects(detects: float, claim: Claim | None) -> None:
    """Raise InputError unless `detects` is above 1 and there is a positive parameter of the claim to multiply."""
    if isinstance(detects, str) or not 1 < detects < math.inf:
        raise InputError(f"detects: found {detects!r}; expected a number above 1, a multiple of the claimed epsilon")
    if claim is None or (claim.parameter_name is not None and claim.parameter == 0):
        found = "no claim" if claim is None else f"a claimed {claim.parameter_name} of {claim.parameter}"
        raise InputError(
            f"detects: found {detects} with {found}; expected a claimed epsilon above 0, because detects is a multiple "
            "of it; call verify without detects"
        )


def describe_weakness(report: Report, detects: float) -> str | None:
    """Return one line if the test runs are too few for `detects`, else None (`assert_private` states the rule)."""
    check_detects(detects, report.claim)
    claim, witness = report.claim, report.witness
    assert claim is not None
    if report.verdict is not Verdict.NOT_REFUTED:
        return None
    runs, target, level = witness.runs, claim.scale(detects), witness.share * report.alpha
    if reaches(witness, claim, target, level):
        return None
    event = "of the witness"
    if is_too_frequent(witness, target):
        if runs >= required_runs(estimate_share(witness.ordered[1], runs), claim, target, level):
            return None
        event = "of an event of probability one half (the witness is too frequent for it)"
    needed = needed_runs(report, detects)
    advice = "the witness is too rare to state a number of test runs; use more select_runs"
    if needed is not None:
        advice = f"set test_runs={needed}, which is enough for an event as frequent as this witness"
    name = "epsilon" if target.parameter_name is None else target.parameter_name
    value = f"{detects:g} times the claimed one" if target.parameter_name is None else format_number(target.parameter)
    return (
        f"too weak: if the true {name} {event} were {value}, {format_count(runs)} test runs per data set would refute "
        f"the claim with a probability below 80% at alpha {report.alpha:g}; {advice}"
    )


def needed_runs(report: Report, detects: float) -> int | None:
    """Return test runs per data set that are enough for `detects` on an event that is as frequent as the witness.

    The number has a margin for the errors of the frequencies. It is None if the witness occurred too rarely.
    """
    claim, witness = report.claim, report.witness
    assert claim is not None
    needed = planned_runs(witness, claim, claim.scale(detects), witness.share * report.alpha)
    return needed if needed <= MAX_PLANNED_RUNS else None
