"""Privacy as a test among others: it fails on proof, and on a run too weak to have found any."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from dpverify.errors import InputError, TooWeak
from dpverify.mechanisms.protocol import Mechanism
from dpverify.pipeline import verify
from dpverify.report.report import Report
from dpverify.settings import Settings
from dpverify.stats.power import MAX_PLANNED_RUNS, plan_runs
from dpverify.util.formatting import format_count, format_number


def assert_private(
    mechanism: Mechanism,
    first: Any,
    second: Any,
    epsilon: float,
    delta: float = 0.0,
    *,
    alpha: float = 1e-6,
    detects: float = 1.25,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    error: Callable[[Any], Any] | None = None,
    log_lipschitz: float | tuple[float, float] | None = None,
    progress: bool = False,
    **changes: Any,
) -> Report:
    """The report where (epsilon, delta) stands, AssertionError with the report's text where it is refuted.

    So it is where nothing was tested: equal data sets, a mechanism that ignores its generator or changes its data.

    A true claim is refuted with probability `alpha` at most (twice that with the paper's randomised test); with a
    fixed seed it fails always or never. `select_runs` and `test_runs` are the budget. A budget that could not have
    refuted a true epsilon of `detects * epsilon`, with probability about 80% and on an event as frequent as the
    witness, is `TooWeak`: an AssertionError too, which says how many runs are needed.
    """
    __tracebackhide__ = True  # pytest shows the line of the test, not ours
    check_detects(detects, epsilon)
    report = verify(
        mechanism,
        first,
        second,
        epsilon,
        delta,
        settings=settings,
        executor=executor,
        folder=folder,
        error=error,
        log_lipschitz=log_lipschitz,
        progress=progress,
        **{**changes, "alpha": alpha},
    )
    if report.voiding:
        raise AssertionError(f"{report.voiding[0].value}\n{report}")
    if report.refuted:
        raise AssertionError(str(report))
    weakness = too_weak(report, detects)
    if weakness is not None:
        raise TooWeak(f"{weakness}\n{report}", report, needed_runs(report, detects))
    return report


def check_detects(detects: float, epsilon: float | None) -> None:
    if isinstance(detects, str) or not 1 < detects < math.inf:
        raise InputError(f"detects: found {detects!r}; expected a number above 1, times the claimed epsilon")
    if not epsilon:
        raise InputError(
            f"detects: found {detects} with a claim of epsilon {epsilon}, which has no multiple; "
            "expected an epsilon above 0; verify tests such a claim as it is"
        )


def too_weak(report: Report, detects: float) -> str | None:
    """One line where these runs could not have seen a true epsilon of `detects` times the claim, else None."""
    check_detects(detects, report.epsilon)
    target, runs = detects * (report.epsilon or 0.0), report.witness.runs
    needed = needed_runs(report, detects)
    if needed <= runs or report.on_partition.epsilon_upper(report.delta) <= target:
        return None
    able = (
        f"about test_runs={format_count(needed)} would"
        if needed <= MAX_PLANNED_RUNS
        else "no number of test_runs would"
    )
    return (
        f"too weak: {format_count(runs)} test runs a side do not detect a true epsilon of {format_number(target)} on an event like "
        f"this witness with probability about 80% at alpha {report.alpha:g}; {able}"
    )


def needed_runs(report: Report, detects: float) -> int:
    """Test runs a side that detect a true epsilon of `detects` times the claim, on an event like the witness.

    Like it: the likelier side falls into it as often. A mechanism that is far more private than it claims has no
    telling event, and what is frozen may be one that nearly all runs fall into; half of them, then.
    """
    assert report.epsilon is not None
    runs, half = report.witness.runs, (1 + report.delta) / 2
    seen = report.witness.ordered[0] / runs
    mass = seen if report.delta < seen < half else half
    return plan_runs(report.epsilon, detects * report.epsilon, mass, report.delta, report.alpha)
