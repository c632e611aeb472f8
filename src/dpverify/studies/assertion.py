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
from dpverify.stats.claims import Approximate, Claim, resolve_claim
from dpverify.stats.curve_power import runs_to_refute
from dpverify.stats.power import MAX_PLANNED_RUNS, plan_runs
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
        The test must be able to refute a true epsilon of `detects * epsilon`, with probability about 80%, on an event
        that is as frequent as the witness. It must be above 1. For another claim its parameter is multiplied; for a
        privacy profile or a trade-off function, the epsilons of its points are.
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
        raise TooWeak(f"{weakness}\n{report}", report, needed_runs(report, detects))
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
    """Return one line if the runs could not have refuted a true epsilon of `detects` times the claim, else None."""
    check_detects(detects, report.claim)
    assert report.claim is not None
    runs, needed, target = report.witness.runs, needed_runs(report, detects), report.claim.scale(detects)
    if needed <= runs or report.on_partition.meets_claim(target):
        return None
    advice = (
        f"set test_runs={format_count(needed)}" if needed <= MAX_PLANNED_RUNS else "no number of test runs is enough"
    )
    name = "epsilon" if target.parameter_name is None else target.parameter_name
    value = f"{detects:g} times the claimed one" if target.parameter_name is None else format_number(target.parameter)
    return (
        f"too weak: {format_count(runs)} test runs per data set do not detect a true {name} of {value} on an event as "
        f"frequent as this witness, with probability about 80% at alpha {report.alpha:g}; {advice}"
    )


def needed_runs(report: Report, detects: float) -> int:
    """Return the test runs per data set that detect a true epsilon of `detects` times the claim.

    The calculation assumes an event that is as probable as a tested one under the data set that makes it more probable,
    with its share of alpha. The tested event that needs the fewest runs counts. If a mechanism is much more private
    than its claim, no event distinguishes the data sets well, and an event can contain nearly all runs; then a
    probability of one half is assumed.
    """
    claim = report.claim
    assert claim is not None
    half, needed = (1 + report.delta) / 2, math.inf
    for one in report.tested:
        measured, level = one.ordered[0] / one.runs, one.share * report.alpha
        probability = measured if report.delta < measured < half else half
        if isinstance(claim, Approximate):
            runs = plan_runs(claim.epsilon, detects * claim.epsilon, probability, report.delta, level)
        else:
            smaller = _probability_below(claim.scale(detects), probability)
            runs = math.ceil(min(runs_to_refute(probability, smaller, claim, level), 10.0 * MAX_PLANNED_RUNS))
        needed = min(needed, runs)
    return int(needed)


def _probability_below(claim: Claim, probability: float) -> float:
    """Return the smaller probability of an event that reaches the boundary of the claim with this larger one."""
    low, high = 0.0, probability
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(claim.boundary(middle)) < probability else (low, middle)
    return max(high, 1e-300)
