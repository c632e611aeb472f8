"""The designer's two questions: how much noise a required privacy takes, and what accuracy that leaves.

docs/studies.md says how to ask them, docs/method.md, section 5.9, why the bracket holds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.mechanisms.protocol import Mechanism
from dpverify.pipeline import verify
from dpverify.report.report import Report
from dpverify.report.statements import Verdict, check_claim
from dpverify.sampling.executors import open_pool
from dpverify.settings import Settings
from dpverify.stats.upper_bound import smallest_epsilon
from dpverify.studies.tables import write_comparison, write_csv

Family = Callable[[float], Mechanism]

LINEAR_RANGE = 0.4  # of log epsilon: a line is straight enough over so much of it
OFFSETS = (-0.15, 0.15, -0.075, 0.075, 0.0)  # of log epsilon: where a line is measured, on both sides of the claim
FIRST_OFFSET_IN_GAPS = (
    2.5  # gaps between an estimate and its certified bound: how far out a parameter is tested at first
)
GAP_LIMITS = 0.005, 1.0  # the least and the largest that such a gap is taken for
MAX_ATTEMPTS = 8  # at a side of the bracket, each twice as far out
MAX_BISECTIONS = 40


@dataclass(frozen=True)
class Calibration:
    """A parameter for a required privacy, and what is certain around it.

    `parameter` is an estimate. `insufficient` is one at which the claim was refuted, `sufficient` one at which it was
    bounded on the partition, each at confidence 1 - alpha; None where the bounds hold no such parameter. `report` is
    that of `parameter`, from runs of its own; `tried` has (parameter, report) of every verification.
    """

    parameter: float
    insufficient: float | None
    sufficient: float | None
    report: Report
    tried: tuple[tuple[float, Report], ...]


def estimate_epsilon(report: Report, delta: float) -> float:
    """Epsilon at this delta over unions of the partition's cells, with shares of runs in place of probabilities."""
    part = report.on_partition
    f1, f2 = part.c1 / part.runs, part.c2 / part.runs

    def excess(epsilon: float) -> float:
        scale = math.exp(epsilon)
        return max(float(part.number @ np.maximum(a - scale * b, 0.0)) for a, b in ((f1, f2), (f2, f1)))

    return smallest_epsilon(excess, delta)


class Line(NamedTuple):
    """log epsilon, nearly straight in the parameter (in its logarithm where it is positive)."""

    slope: float
    offset: float

    def reach(self, log_epsilon: float) -> float:
        return (log_epsilon - self.offset) / self.slope


def fit_line(points: list[tuple[float, float]], ends: list[tuple[float, float]], goal: float) -> Line:
    """Through the points near the goal; where their noise hides the slope, that of the ends."""
    x, y = np.array([(u, e) for u, e in points if abs(e - goal) <= LINEAR_RANGE]).T
    (u0, e0), (u1, e1) = ends
    slope = (e1 - e0) / (u1 - u0)
    spread = x - x.mean()
    fitted = float(spread @ y / (spread @ spread))
    slope = fitted if fitted * slope > 0 else slope
    return Line(slope, float(y.mean() - slope * x.mean()))


def calibrate(
    family: Family,
    bounds: tuple[float, float],
    first: Any,
    second: Any,
    epsilon: float,
    delta: float,
    *,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    error: Callable[[Any], Any] | None = None,
    log_lipschitz: float | tuple[float, float] | None = None,
    progress: bool = False,
    **changes: Any,
) -> Calibration:
    """The parameter within `bounds` at which `family(parameter)` has just the privacy that is asked for.

    Epsilon has to rise or to fall with the parameter. A bisection finds where it crosses the claim, a line through
    verifications on both sides of it gives the estimate. Then each side of the bracket is tested with fresh runs,
    attempt k at alpha / 2^k and twice as far out as the last. Every verification has a seed of its own.
    """
    settings = settings.change(**changes)
    check_claim(settings, epsilon, delta)
    low, high = check_bounds(bounds)
    if not epsilon > 0:
        raise InputError(f"epsilon: found {epsilon!r}; expected a positive number, the privacy that is asked for")
    goal = math.log(epsilon)
    forward, back = (math.log, math.exp) if low > 0 else (float, float)
    tried: list[tuple[float, Report]] = []
    points: list[tuple[float, float]] = []
    work: dict[str, Any] = {"error": error, "log_lipschitz": log_lipschitz, "progress": progress}

    with open_pool(executor) as workers:

        def look(u: float, claim: float | None = None, attempt: int = 0) -> Report:
            parameter, place = min(max(back(u), low), high), len(tried)
            report = verify(
                family(parameter),
                first,
                second,
                claim,
                delta,
                settings=settings.spawn(place).change(alpha=settings.alpha / 2**attempt),
                executor=workers.executor,
                folder=None if folder is None else Path(folder) / str(place),
                **work,
            )
            if report.voiding:
                raise InputError(f"family({parameter:g}): {report.voiding[0].value}")
            tried.append((parameter, report))
            found = estimate_epsilon(report, delta)
            points.append((u, math.log(found) if found > 0 else -math.inf))
            return report

        for end in (low, high):
            look(forward(end))
        ends = points[:]
        if not min(ends[0][1], ends[1][1]) < goal < max(ends[0][1], ends[1][1]):
            seen = " and ".join(f"{math.exp(e):.4g} at {p:.4g}" for (_, e), (p, _) in zip(ends, tried, strict=True))
            raise InputError(f"bounds: found epsilon {seen}; expected one below and one above {epsilon:g}; widen them")
        while not abs(ends[1][1] - ends[0][1]) <= LINEAR_RANGE:
            look((ends[0][0] + ends[1][0]) / 2)
            ends[(points[-1][1] < goal) == (ends[1][1] < ends[0][1])] = points[-1]
            if len(tried) > MAX_BISECTIONS:
                raise InputError(f"family: found a jump of epsilon over {epsilon:g} at {tried[-1][0]:g}; expected none")
        for offset in OFFSETS:
            look(np.clip(fit_line(points, ends, goal).reach(goal + offset), forward(low), forward(high)).item())
        line = fit_line(points, ends, goal)
        near = [r for (_, r), (_, e) in zip(tried, points, strict=True) if abs(e - goal) <= LINEAR_RANGE]
        gap = float(np.clip(np.median([gap_of(report, delta) for report in near]), *GAP_LIMITS))

        def settle(side: int, wanted: Verdict) -> float | None:
            for attempt in range(1, MAX_ATTEMPTS + 1):
                u = line.reach(goal + side * FIRST_OFFSET_IN_GAPS * gap * 2 ** (attempt - 1))
                if look(u, epsilon, attempt).verdict is wanted:
                    return tried[-1][0]
                if tried[-1][0] in (low, high):
                    break
            return None

        insufficient, sufficient = settle(1, Verdict.REFUTED), settle(-1, Verdict.BOUNDED)
        report = look(line.reach(goal), epsilon)
    return Calibration(tried[-1][0], insufficient, sufficient, report, tuple(tried))


def gap_of(report: Report, delta: float) -> float:
    """How far, in log epsilon, what is proved lies below the estimate."""
    lower = report.epsilon_lower
    return math.log(max(estimate_epsilon(report, delta) / lower, 1.0)) if lower > 0 else math.inf


def check_bounds(bounds: Any) -> tuple[float, float]:
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(high - low) and low < high):
        raise InputError(f"bounds: found {bounds!r}; expected (low, high), two finite numbers, low below high")
    return low, high


@dataclass(frozen=True)
class Tradeoff:
    """Privacy beside accuracy: a row for each parameter of each mechanism, and the reports behind them."""

    rows: tuple[dict[str, Any], ...]
    reports: tuple[Report, ...]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """All rows as a table."""
        write_csv(path, self.rows)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Privacy against accuracy on one page (needs `dpverify[report]`)."""
        write_comparison(path, "Privacy against accuracy", self.rows)


def tradeoff(
    families: Mapping[str, tuple[Family, Iterable[float]]],
    first: Any,
    second: Any,
    delta: float,
    error: Callable[[Any], Any],
    *,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    log_lipschitz: float | tuple[float, float] | None = None,
    progress: bool = False,
    **changes: Any,
) -> Tradeoff:
    """Every mechanism at every parameter, measured at one delta: `{"name": (family, values)}`.

    `error` turns samples into one number a run (`rmse(truth)` makes one). Every verification has a seed of its own.
    """
    settings = settings.change(**changes)
    check_claim(settings, None, delta)
    asked = [(name, value, family) for name, (family, values) in families.items() for value in values]
    if not asked:
        raise InputError('families: found no parameter; expected {"name": (family, values)} with some values')
    rows, reports = [], []
    with open_pool(executor) as workers:
        for place, (name, value, family) in enumerate(asked):
            report = verify(
                family(value),
                first,
                second,
                None,
                delta,
                settings=settings.spawn(place),
                executor=workers.executor,
                folder=None if folder is None else Path(folder) / str(place),
                error=error,
                log_lipschitz=log_lipschitz,
                progress=progress,
            )
            assert report.error is not None
            (e1, s1), (e2, s2) = report.error
            rows.append(
                {
                    "mechanism": name,
                    "parameter": value,
                    "diagnostic": report.voiding[0].name if report.voiding else None,
                    "delta": delta,
                    "epsilon_lower": report.epsilon_lower,
                    "epsilon_estimate": estimate_epsilon(report, delta),
                    "epsilon_upper_on_partition": report.on_partition.epsilon_upper(delta),
                    "error_first": e1,
                    "error_first_se": s1,
                    "error_second": e2,
                    "error_second_se": s2,
                }
            )
            reports.append(report)
    return Tradeoff(tuple(rows), tuple(reports))
