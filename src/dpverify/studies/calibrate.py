"""Calibration: the parameter of a mechanism family at which a required privacy is just reached.

A bisection finds the interval in which epsilon crosses the required value. A line that is fitted to the logarithm of
the estimated epsilon gives the parameter. Then a parameter on each side of it is tested with fresh runs, which gives
one parameter that is certainly insufficient and one that is sufficient on the partition (docs/method.md, section 5.9).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np

from dpverify.errors import InputError
from dpverify.mechanisms.protocol import Mechanism
from dpverify.report.report import Report
from dpverify.report.statements import Verdict, check_claim
from dpverify.settings import VerifyOptions
from dpverify.stats.upper_bound import smallest_epsilon
from dpverify.studies.options import RunOptions, type_one_error_factor
from dpverify.studies.plots import plot_bounds
from dpverify.util.dataframes import make_dataframe
from dpverify.util.formatting import format_confidence, format_lower, format_number, format_upper

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Family = Callable[[float], Mechanism]

LINEAR_RANGE = 0.4  # log epsilon is taken as linear in the parameter over a range of this size
FIT_OFFSETS = (-0.15, 0.15, -0.075, 0.075, 0.0)  # of log epsilon, around the required value: where the line is measured
FIRST_OFFSET_IN_GAPS = 2.5  # distance of the first tested parameter, in units of the gap between estimate and bound
MIN_GAP, MAX_GAP = 0.005, 1.0  # limits of this gap, in log epsilon
MAX_ATTEMPTS = 8  # tests on each side of the estimate; each one is twice as far from it as the one before
MAX_BISECTIONS = 40


class Trial(NamedTuple):
    """One verification of a calibration.

    Attributes
    ----------
    parameter : float
        The parameter of the family.
    report : Report
        The report of `family(parameter)`.
    """

    parameter: float
    report: Report


@dataclass(frozen=True)
class Calibration:
    """The result of `calibrate`. `print` shows a short table.

    Attributes
    ----------
    parameter : float
        The estimated parameter at which the family has the required privacy.
    insufficient : float or None
        A parameter at which the claim was refuted, with confidence 1 - alpha. None if no such parameter was found
        within the bounds.
    sufficient : float or None
        A parameter at which the claim was bounded on the partition, with confidence 1 - alpha. None if no such
        parameter was found within the bounds.
    report : Report
        The report of `parameter`, from its own runs.
    tried : tuple of Trial
        Every verification, in order.
    """

    parameter: float
    insufficient: float | None
    sufficient: float | None
    report: Report
    tried: tuple[Trial, ...]

    def to_dataframe(self) -> pandas.DataFrame:
        """Return one row per verification as a pandas DataFrame (needs pandas)."""
        return make_dataframe({"parameter": trial.parameter, **trial.report.row()} for trial in self.tried)

    def plot(self) -> Figure:
        """Return a figure of the bounds against the parameter (needs `dpverify[report]`)."""
        rows = [trial.report.row() for trial in self.tried]
        parameters = [trial.parameter for trial in self.tried]
        title = f"{self.report.name}: estimated parameter {format_number(self.parameter)}"
        return plot_bounds(rows, map(str, parameters), title, self.report.epsilon, "parameter", parameters)

    def __str__(self) -> str:
        report = self.report
        claim = f"epsilon {format_number(report.epsilon or 0.0)} at delta {format_number(report.delta)}"
        confidence = f"confidence {format_confidence(report.alpha)}"
        rows = [
            ("insufficient", self._rounded(self.insufficient), f"refuted over all events; {confidence}"),
            ("estimate", format_number(self.parameter), ""),
            ("sufficient", self._rounded(self.sufficient), f"bounded over unions of cells only; {confidence}"),
        ]
        title = f"{report.name}: parameter for {claim}, from {len(self.tried)} verifications"
        lines = [f"  {name:<12}  {value:<10}  {statement}".rstrip() for name, value, statement in rows]
        return "\n".join([title, *lines])

    def _rounded(self, parameter: float | None) -> str:
        """Return an end of the bracket, rounded away from the estimate."""
        if parameter is None:
            return "none found"
        return format_lower(parameter) if parameter < self.parameter else format_upper(parameter)


def calibrate(
    family: Family,
    bounds: tuple[float, float],
    first: object,
    second: object,
    epsilon: float,
    delta: float,
    **options: Unpack[VerifyOptions],
) -> Calibration:
    """Find the parameter at which a family of mechanisms has a required privacy.

    The epsilon of `family(parameter)` must increase or decrease with the parameter. Every verification has its own
    seed, and its own sub-folder if there is a folder. On each side of the estimate, attempt k is tested with a type I
    error of at most alpha / 2^k, so that each end of the bracket holds with confidence 1 - alpha.

    Parameters
    ----------
    family : callable
        Function from a parameter to a mechanism.
    bounds : (float, float)
        The smallest and the largest parameter. Epsilon must be above the required value at one of them and below it
        at the other.
    first, second : object
        The two neighbouring data sets.
    epsilon, delta : float
        The required privacy. Epsilon must be positive.
    **options
        Keyword arguments of `verify`: settings, executor, folder, error, log_lipschitz, learn, progress, trust_results,
        single settings.

    Returns
    -------
    Calibration
        The estimated parameter, a parameter that is insufficient, and one that is sufficient on the partition.

    Raises
    ------
    InputError
        If the bounds do not enclose the required epsilon, if epsilon jumps over it, or if a voiding diagnostic makes
        a test meaningless.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def randomised_response(truth):
    ...     return lambda data, runs, rng: np.where(rng.random(runs) < truth, data, 1 - data)
    >>> found = dpv.calibrate(
    ...     randomised_response, (0.5, 0.95), 0.0, 1.0, epsilon=1.0, delta=0.01,
    ...     partition="atoms", events="union", select_runs=500, test_runs=4000,
    ... )
    >>> found.sufficient < (np.e + 0.01) / (1 + np.e) < found.insufficient
    True
    """
    run_options = RunOptions.from_keywords(**options)
    settings = run_options.settings
    check_claim(settings, epsilon, delta)
    axis = Axis(*check_bounds(bounds))
    if not epsilon > 0:
        raise InputError(f"epsilon: found {epsilon!r}; expected a positive number, the required privacy")
    target = math.log(epsilon)
    with run_options.share_executor() as shared:
        trials = _Trials(family, axis, first, second, delta, shared)
        ends = _enclose(trials, epsilon)
        for offset in FIT_OFFSETS:
            line = fit_line(trials.points, ends, target)
            trials.verify(min(max(line.position(target + offset), axis.position(axis.low)), axis.position(axis.high)))
        line = fit_line(trials.points, ends, target)
        gap = _median_gap(trials, target, delta)

        def find_end(direction: int, verdict: Verdict, alpha: float) -> float | None:
            """Return the first tested parameter with this verdict, going away from the estimate."""
            for attempt in range(1, MAX_ATTEMPTS + 1):
                offset = direction * FIRST_OFFSET_IN_GAPS * gap * 2 ** (attempt - 1)
                trial = trials.verify(line.position(target + offset), epsilon, alpha / 2**attempt)
                if trial.report.verdict is verdict:
                    return trial.parameter
                if trial.parameter in (axis.low, axis.high):
                    break
            return None

        insufficient = find_end(1, Verdict.REFUTED, settings.alpha / type_one_error_factor(settings))
        sufficient = find_end(-1, Verdict.BOUNDED, settings.alpha)
        estimate = trials.verify(line.position(target), epsilon)
    return Calibration(estimate.parameter, insufficient, sufficient, estimate.report, tuple(trials.trials))


def estimate_epsilon(report: Report, delta: float) -> float:
    """Estimate epsilon at this delta over unions of the cells, with shares of runs in place of probabilities."""
    part = report.on_partition
    if delta == 0:  # a single cell attains the maximum; the root search below needs a delta that is crossed
        with np.errstate(divide="ignore"):
            return float(np.abs(np.log(part.c1) - np.log(part.c2)).max())
    first_shares, second_shares = part.c1 / part.runs, part.c2 / part.runs

    def excess(epsilon: float) -> float:
        factor = math.exp(epsilon)
        directions = ((first_shares, second_shares), (second_shares, first_shares))
        return max(float(part.number @ np.maximum(p - factor * q, 0.0)) for p, q in directions)

    return smallest_epsilon(excess, delta)


def check_bounds(bounds: object) -> tuple[float, float]:
    """Return (low, high) as floats; raise InputError if they are not an interval."""
    try:
        low, high = map(float, bounds)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(high - low) and low < high):
        raise InputError(f"bounds: found {bounds!r}; expected (low, high), two finite numbers, low below high")
    return low, high


class Axis(NamedTuple):
    """The scale on which the line is fitted: logarithmic if all parameters are positive, else linear."""

    low: float
    high: float

    def position(self, parameter: float) -> float:
        """Return the position of a parameter on the axis."""
        return math.log(parameter) if self.low > 0 else float(parameter)

    def parameter(self, position: float) -> float:
        """Return the parameter at a position, limited to the bounds."""
        value = math.exp(position) if self.low > 0 else float(position)
        return min(max(value, self.low), self.high)


class Point(NamedTuple):
    """A measured point of the curve: a position on the axis, and the logarithm of the estimated epsilon there."""

    position: float
    log_epsilon: float


class Line(NamedTuple):
    """A linear model of log epsilon along the axis."""

    slope: float
    offset: float

    def position(self, log_epsilon: float) -> float:
        """Return the position at which the line reaches this value."""
        return (log_epsilon - self.offset) / self.slope


def fit_line(points: list[Point], ends: list[Point], target: float) -> Line:
    """Fit a line to the points near the target.

    If the noise of the points gives a slope of the wrong sign, the slope between the two ends is used.
    """
    near = [point for point in points if abs(point.log_epsilon - target) <= LINEAR_RANGE]
    x, y = np.array(near).T
    slope = (ends[1].log_epsilon - ends[0].log_epsilon) / (ends[1].position - ends[0].position)
    centred = x - x.mean()
    fitted = float(centred @ y / (centred @ centred))
    slope = fitted if fitted * slope > 0 else slope
    return Line(slope, float(y.mean() - slope * x.mean()))


class _Trials:
    """Verifies the family at one parameter after another, and collects reports and points."""

    def __init__(
        self, family: Family, axis: Axis, first: object, second: object, delta: float, options: RunOptions
    ) -> None:
        self.family, self.axis, self.options = family, axis, options
        self.first, self.second, self.delta = first, second, delta
        self.trials: list[Trial] = []
        self.points: list[Point] = []

    def verify(self, position: float, epsilon: float | None = None, alpha: float | None = None) -> Trial:
        """Verify the mechanism at a position, with its own seed; without `alpha`, at the level of the settings."""
        parameter = self.axis.parameter(position)
        level = self.options.settings.alpha if alpha is None else alpha
        options = self.options.child(len(self.trials), alpha=level)
        report = options.verify(self.family(parameter), self.first, self.second, epsilon, self.delta)
        if report.voiding:
            raise InputError(f"family({parameter:g}): {report.voiding[0].value}")
        trial, estimate = Trial(parameter, report), estimate_epsilon(report, self.delta)
        self.trials.append(trial)
        self.points.append(Point(position, math.log(estimate) if estimate > 0 else -math.inf))
        return trial


def _enclose(trials: _Trials, epsilon: float) -> list[Point]:
    """Bisect until log epsilon differs little between two ends that enclose the required value; return the ends."""
    axis, target = trials.axis, math.log(epsilon)
    for parameter in (axis.low, axis.high):
        trials.verify(axis.position(parameter))
    ends = trials.points[:]
    low, high = sorted(end.log_epsilon for end in ends)
    if not low < target < high:
        measured = " and ".join(
            f"{math.exp(end.log_epsilon):.4g} at {trial.parameter:.4g}"
            for end, trial in zip(ends, trials.trials, strict=True)
        )
        raise InputError(f"bounds: found epsilon {measured}; expected one below and one above {epsilon:g}; widen them")
    decreasing = ends[1].log_epsilon < ends[0].log_epsilon
    while not abs(ends[1].log_epsilon - ends[0].log_epsilon) <= LINEAR_RANGE:
        trials.verify((ends[0].position + ends[1].position) / 2)
        middle = trials.points[-1]
        replaced = 1 if (middle.log_epsilon < target) == decreasing else 0
        ends[replaced] = middle
        if len(trials.trials) > MAX_BISECTIONS:
            parameter = trials.trials[-1].parameter
            raise InputError(
                f"family: found a jump of epsilon over {epsilon:g} at {parameter:g}; expected a continuous epsilon"
            )
    return ends


def _median_gap(trials: _Trials, target: float, delta: float) -> float:
    """Return the median distance between estimate and lower bound, in log epsilon, of the trials near the target."""
    gaps = [
        _gap(trial.report, delta)
        for trial, point in zip(trials.trials, trials.points, strict=True)
        if abs(point.log_epsilon - target) <= LINEAR_RANGE
    ]
    return min(max(float(np.median(gaps)), MIN_GAP), MAX_GAP)


def _gap(report: Report, delta: float) -> float:
    """Return the distance, in log epsilon, between the estimate and the lower bound of a report."""
    if report.epsilon_lower <= 0:
        return math.inf
    return math.log(max(estimate_epsilon(report, delta) / report.epsilon_lower, 1.0))
