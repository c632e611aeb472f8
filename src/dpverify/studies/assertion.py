"""An assertion for test suites: it fails if a privacy claim is refuted, and if the test has too little power.

A test that cannot refute a false claim would pass for the wrong reason. Therefore the number of runs that a true
epsilon above the claim needs is compared with the number of runs that were made.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Unpack

from dpverify.errors import InputError, TooWeak
from dpverify.mechanisms.protocol import Mechanism
from dpverify.report.report import Report
from dpverify.settings import VerifyOptions
from dpverify.stats.power import MAX_PLANNED_RUNS, plan_runs
from dpverify.studies.options import RunOptions
from dpverify.util.formatting import format_count, format_number


def assert_private(
    mechanism: Mechanism,
    first: object,
    second: object,
    epsilon: float,
    delta: float = 0.0,
    *,
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
    alpha : float, default 1e-6
        The level of the test. A true claim fails with probability alpha at most (twice that with the randomised test
        of the paper). With a fixed seed the result is always the same.
    detects : float, default 1.25
        The test must be able to refute a true epsilon of `detects * epsilon`, with probability about 80%, on an event
        that is as frequent as the witness. It must be above 1.
    **options
        Keyword arguments of `verify`: settings, executor, folder, error, log_lipschitz, progress, trust_results, single
        settings.

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
        If the claim is not refuted, but the runs are too few. It is an AssertionError too; `needed` is the required
        number of test runs.
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
    check_detects(detects, epsilon)
    run_options = RunOptions.from_keywords(**options)
    run_options = dataclasses.replace(run_options, settings=run_options.settings.change(alpha=alpha))
    report = run_options.verify(mechanism, first, second, epsilon, delta)
    if report.voiding:
        raise AssertionError(f"{report.voiding[0].value}\n{report}")
    if report.refuted:
        raise AssertionError(str(report))
    weakness = describe_weakness(report, detects)
    if weakness is not None:
        raise TooWeak(f"{weakness}\n{report}", report, needed_runs(report, detects))
    return report


def check_detects(detects: float, epsilon: float | None) -> None:
    """Raise InputError unless `detects` is above 1 and there is a positive epsilon to multiply."""
    if isinstance(detects, str) or not 1 < detects < math.inf:
        raise InputError(f"detects: found {detects!r}; expected a number above 1, a multiple of the claimed epsilon")
    if not epsilon:
        raise InputError(
            f"detects: found {detects} with a claimed epsilon of {epsilon}; expected a claimed epsilon above 0, "
            "because detects is a multiple of it; call verify without detects"
        )


def describe_weakness(report: Report, detects: float) -> str | None:
    """Return one line if the runs could not have refuted a true epsilon of `detects` times the claim, else None."""
    check_detects(detects, report.epsilon)
    target, runs = detects * (report.epsilon or 0.0), report.witness.runs
    needed = needed_runs(report, detects)
    if needed <= runs or report.on_partition.epsilon_upper(report.delta) <= target:
        return None
    advice = (
        f"set test_runs={format_count(needed)}" if needed <= MAX_PLANNED_RUNS else "no number of test runs is enough"
    )
    return (
        f"too weak: {format_count(runs)} test runs per data set do not detect a true epsilon of "
        f"{format_number(target)} on an event as frequent as this witness, with probability about 80% at alpha "
        f"{report.alpha:g}; {advice}"
    )


def needed_runs(report: Report, detects: float) -> int:
    """Return the test runs per data set that detect a true epsilon of `detects` times the claim.

    The calculation assumes an event that is as probable as the witness under the data set that makes it more probable.
    If a mechanism is much more private than its claim, no event distinguishes the data sets well, and the selected
    event can contain nearly all runs; then a probability of one half is assumed.
    """
    assert report.epsilon is not None
    runs, half = report.witness.runs, (1 + report.delta) / 2
    measured = report.witness.ordered[0] / runs
    probability = measured if report.delta < measured < half else half
    return plan_runs(report.epsilon, detects * report.epsilon, probability, report.delta, report.alpha)
