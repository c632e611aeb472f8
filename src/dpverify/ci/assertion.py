"""An assertion for test suites: it fails if a privacy claim is refuted, and if the test has too little power."""

from __future__ import annotations

from typing import Any, Unpack

from dpverify.claims import resolve_claim
from dpverify.errors import TooWeak
from dpverify.mechanisms.protocol import Mechanism
from dpverify.pipeline import verify
from dpverify.report.power import DETECTS, check_detects, needed_runs
from dpverify.report.report import Report
from dpverify.report.text import describe_weakness, report_text
from dpverify.settings import VerifyOptions


def assert_private(
    mechanism: Mechanism,
    first: object,
    second: object,
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    claim: object = None,
    alpha: float = 1e-6,
    detects: float = DETECTS,
    **options: Unpack[VerifyOptions],  # pyright: ignore[reportGeneralTypeIssues] (alpha has another default here)
) -> Report:
    """Assert in a test that a mechanism does not violate a privacy claim.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism, as in `verify`.
    first, second : object
        The two neighbouring datasets.
    epsilon, delta : float
        The claim. Epsilon must be positive.
    claim : claim, optional
        A claim of another kind, instead of epsilon, as in `verify`.
    alpha : float, default 1e-6
        The level of the test. A true claim fails with probability alpha at most (twice that with the randomised test
        of the paper). With a fixed seed the result is always the same.
    detects : float, default 1.25
        A number above 1. The assertion fails unless these runs notice a violation by this factor: if the witness had
        the largest probability that the claim allows with all its parameters (epsilon and delta, or mu, ...) multiplied
        by `detects`, the runs would refute the claim with a probability of at least 80%, and so they would with an
        event of probability `beta` (0.05). A witness that is so frequent
        with both datasets that it cannot violate the claim is too weak.
    **options
        Keyword arguments of `verify`: settings, executor, folder, error, log_lipschitz, log_density, learn, progress,
        trust_results, single settings.

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
    >>> report = dpv.assert_private(noisy, 0.0, 1.0, epsilon=1.0, detects=2.0, select_runs=1000, test_runs=9000)
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
    call: dict[str, Any] = {**options, "alpha": alpha}
    report = verify(mechanism, first, second, delta=delta, claim=tested, **call)
    if report.voiding:
        raise AssertionError(f"{report.voiding[0].value}\n{report}")
    if report.refuted:
        raise AssertionError(str(report))
    weakness = describe_weakness(report, detects)
    if weakness is not None:
        raise TooWeak(f"{weakness}\n{report_text(report, with_next=False)}", report, needed_runs(report, detects))
    return report
