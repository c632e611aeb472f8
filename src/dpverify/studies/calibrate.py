"""Calibration: the parameter of a mechanism family at which a required privacy is just reached.

A bisection finds the interval in which epsilon crosses the required value. A line that is fitted to the logarithm of
the estimated epsilon gives the parameter. Then a parameter on each side of it is tested with fresh runs, which gives
one parameter that is certainly insufficient and one that is sufficient over the cells (docs/method.md, section 5.9).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from dpverify.claims import approximate
from dpverify.errors import InputError, NoAnswer
from dpverify.mechanisms.protocol import Mechanism, accepts_arguments, mechanism_name, positional_names
from dpverify.report.report import Report, load_pages
from dpverify.report.statements import check_claim
from dpverify.settings import VerifyOptions, type_one_error_factor
from dpverify.stats.upper import smallest_epsilon
from dpverify.studies.engine import CallOptions, Engine, report_row
from dpverify.studies.search import DataPair, FoundPair, PairLabel, Pairs, SearchedPairs, format_label
from dpverify.studies.tables import ResultTable, Row, is_answered
from dpverify.util.formatting import format_confidence, format_lower, format_number, format_upper

if TYPE_CHECKING:
    from dpverify.render import Drawing, Page

Family = Callable[[float], Mechanism]


def check_family(family: object, name: str = "family") -> None:
    """Raise InputError if an object cannot be called with one parameter; a mechanism is recognised.

    Examples
    --------
    >>> check_family(lambda scale: lambda data, runs, rng: data)
    >>> check_family(lambda scale, data, runs, rng: data)
    Traceback (most recent call last):
    dpverify.errors.InputError: family: found a function of (scale, data, runs, rng); expected family(parameter) that \
returns a mechanism; define one, for example lambda parameter: ...
    """
    expected = "expected family(parameter) that returns a mechanism"
    if not callable(family):
        raise InputError(f"{name}: found {type(family).__name__}; {expected}")
    if accepts_arguments(family, 1):
        return
    names = ", ".join(positional_names(family))
    if not accepts_arguments(family, 3):
        advice = "define one, for example lambda parameter: ..."
        raise InputError(f"{name}: found a function of ({names}); {expected}; {advice}")
    made = mechanism_name(family)
    made = made if made.isidentifier() else "mechanism"
    raise InputError(
        f"{name}: found a mechanism (its parameters are {names}); {expected}; define one that sets the noise of {made},"
        f" or verify {made} itself: verify({made}, first, second)"
    )


LINEAR_RANGE = 0.4  # log epsilon is taken as linear in the parameter over a range of this size


def estimate_epsilon(report: Report, delta: float) -> float:
    """Estimate epsilon at this delta over the cells, with shares of runs in place of probabilities."""
    part = report.cell_counts
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


FIT_OFFSETS = (-0.15, 0.15, -0.075, 0.075, 0.0)  # of log epsilon, around the required value: where the line is measured
FIRST_OFFSET_IN_GAPS = 2.5  # distance of the first tested parameter, in units of the gap between estimate and bound
MIN_GAP, MAX_GAP = 0.005, 1.0  # limits of this gap, in log epsilon
MAX_ATTEMPTS = 8  # tests on each side of the estimate; each one is twice as far from it as the one before
MAX_BISECTIONS = 40
MAX_SEARCHES = 2  # for the worst pair: at the middle parameter, and at the first estimate
SEARCH_RUNS = 100_000  # selection runs per dataset of one search


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
class Calibration(ResultTable):
    """The result of `calibrate`. `print` shows a short table.

    Attributes
    ----------
    parameter : float
        The estimated parameter at which the family has the required privacy.
    insufficient : float or None
        A parameter at which the claim was refuted, with confidence 1 - alpha. None if no such parameter was found
        within the bounds.
    sufficient : float or None
        A parameter at which the claim holds over the cells, or for all events if the density of the output is stated,
        with confidence 1 - alpha. None if no such parameter was found within the bounds.
    report : Report
        The report of `parameter`, from its own runs.
    tried : tuple of Trial
        Every verification, in order.
    pair : int, str, tuple of float or None
        The worst of several pairs, as in `Search.pair`. `insufficient`, `parameter` and `report` belong to it. None if
        one pair was given.
    bounded_pairs : int
        For how many pairs `sufficient` was shown: all pairs of a list; one pair for a box.
    """

    parameter: float
    insufficient: float | None
    sufficient: float | None
    report: Report
    tried: tuple[Trial, ...]
    pair: PairLabel | None = None
    bounded_pairs: int = 1
    identity = ("parameter",)

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row per verification: its parameter, and the columns of `Report.row`."""
        return tuple(report_row({"parameter": trial.parameter}, trial.report) for trial in self.tried)

    @property
    def over(self) -> str:
        """What was calibrated."""
        claim = f"epsilon {format_number(self.report.epsilon or 0.0)} at delta {format_number(self.report.delta)}"
        return f"{self.report.name}: parameter for {claim}, from {len(self.tried)} verifications"

    @property
    def headline(self) -> str:
        """The finding in one sentence: which parameter to use."""
        if self.sufficient is None:
            return "No parameter is shown to be sufficient; use more test runs, or a wider range of parameters."
        side = "more" if self.sufficient >= self.parameter else "less"
        return f"Use {self._rounded(self.sufficient)} or {side}; the estimate itself may give too little privacy."

    def sentences(self) -> list[str]:
        """Return the three answers and what they mean."""
        confidence = f"(confidence {format_confidence(self.report.alpha)})"
        covered, found = f", for all {self.bounded_pairs} pairs" if self.bounded_pairs > 1 else "", ""
        if self.pair is not None:
            found = f", of the worst pair, {format_label(self.pair)}"
            covered = covered or ", for this pair"
        certificate = self.report.certificate
        scope = "over the cells" if certificate is None else f"for all events, provided that {certificate.assumption}"
        return [
            f"{self.over}.",
            f"Insufficient: {self._rounded(self.insufficient)}, refuted by an event {confidence}.",
            f"Estimate: {format_number(self.parameter)}{found}.",
            f"Sufficient: {self._rounded(self.sufficient)}, the claim holds {scope}{covered} {confidence}.",
        ]

    def page(self, links: Sequence[str] | None = None) -> Page:
        """Return the page. It has no verdict: parameters are refuted on purpose."""
        return replace(super().page(links), badge="", verdict="")

    def drawings(self) -> list[Drawing]:
        """Return the bounds against the parameter, with the three answers marked."""
        pages, rows = load_pages(), [row for row in self.rows if is_answered(row)]
        bounds = [
            pages.Bounds(
                f"parameter {format_number(row['parameter'])}",
                float(row["epsilon_lower"]),
                float(row["epsilon_upper_on_partition"]),
                row["parameter"],
            )
            for row in rows
        ]
        if not bounds:
            return []
        found = {"insufficient": self.insufficient, "estimate": self.parameter, "sufficient": self.sufficient}
        marks = [(value, name) for name, value in found.items() if value is not None]
        axes: dict[str, Any] = {"xscale": "log"} if min(row["parameter"] for row in rows) > 0 else {}
        proved = [one.lower for one in bounds if one.lower > 0]
        if proved:
            high = max(one.upper if one.upper < math.inf else one.lower for one in bounds)
            axes |= {"yscale": "log", "ylim": (min(proved) / 1.5, 1.5 * max(high, self.report.epsilon or 0.0))}
        drawing = pages.draw_bounds(
            bounds, "ε of each parameter", "parameter", self.report.epsilon, marks=marks, **axes
        )
        return [drawing]

    def _rounded(self, parameter: float | None) -> str:
        """Return an end of the bracket, rounded away from the estimate."""
        if parameter is None:
            return "none found"
        return format_lower(parameter) if parameter < self.parameter else format_upper(parameter)


def calibrate(
    family: Family,
    bounds: tuple[float, float],
    first: object = None,
    second: object = None,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    pairs: Pairs | None = None,
    box: Sequence[tuple[float, float]] | None = None,
    runs: int = SEARCH_RUNS,
    **options: Unpack[VerifyOptions],
) -> Calibration:
    """Find the parameter at which a family of mechanisms has a required privacy.

    The epsilon of `family(parameter)` must increase or decrease with the parameter. Every verification has its own
    seed. On each side of the estimate, attempt k is tested with a type I
    error of at most alpha / 2^k, so that each end of the bracket holds with confidence 1 - alpha.

    With several pairs, `search_pairs` finds the worst pair at the middle of the bounds, and again at the first estimate
    of the parameter. The parameter of this pair is estimated. A sufficient parameter is bounded for every pair of a
    list; the pairs share the level.

    Parameters
    ----------
    family : callable
        Function from a parameter to a mechanism.
    bounds : (float, float)
        The smallest and the largest parameter. Epsilon must be above the required value at one of them and below it
        at the other.
    first, second : object
        The two neighbouring datasets. Leave them out if `pairs` are given.
    epsilon, delta : float
        The required privacy; both are necessary. Epsilon must be positive.
    pairs : iterable of (first, second), mapping, or callable, optional
        Several pairs, as in `search_pairs`.
    box : sequence of (low, high), optional
        The box of `pairs`, if it is a function without an attribute `bounds`.
    runs : int
        Selection runs per dataset that each search for the worst pair may use.
    **options
        Keyword arguments of `verify`: settings, executor, folder, error, log_lipschitz, log_density, learn, progress,
        trust_results, single settings.

    Returns
    -------
    Calibration
        The estimated parameter, a parameter that is insufficient, and one that is sufficient over the cells.

    Raises
    ------
    InputError
        If the bounds do not enclose the required epsilon, if epsilon jumps over it, or if neither or both of a pair and
        `pairs` are given.
    NoAnswer
        If a voiding diagnostic makes a test meaningless. It is an InputError, too.

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
    call = CallOptions.of(**options)
    check_family(family)
    if epsilon is None or delta is None:
        raise InputError(f"found epsilon {epsilon} and delta {delta}; expected the required privacy, both numbers")
    check_claim(call.settings, epsilon, delta)
    axis = Axis(*check_bounds(bounds))
    if not epsilon > 0:
        raise InputError(f"epsilon: found {epsilon!r}; expected a positive number, the required privacy")
    searched = None if pairs is None else SearchedPairs.of(pairs, box)
    missing = [name for name, data in (("first", first), ("second", second)) if data is None]
    if searched is None and missing:
        raise InputError(f"found neither {' and '.join(missing)} nor pairs; expected first and second, or pairs")
    if searched is not None and len(missing) < 2:
        raise InputError("use first and second, or pairs, not both")
    with call.open_engine() as engine:
        trials = _Trials(family, axis, delta, call, engine)
        worst = FoundPair(None, (first, second), [])
        middle = (axis.position(axis.low) + axis.position(axis.high)) / 2
        for search in range(1 if searched is None else MAX_SEARCHES):
            if searched is not None:
                mechanism = family(axis.parameter(middle))
                found_pair = searched.find_worst(mechanism, delta, None, runs, call.settings, engine.executor)
                if search and found_pair.label == worst.label:
                    break
                worst = found_pair
            line = _measure_line(trials, worst.data, epsilon)
            middle = line.position(math.log(epsilon))
        bracket = _find_bracket(trials, line, epsilon, worst.data, () if searched is None else searched.listed)
        estimate = trials.verify(line.position(math.log(epsilon)), epsilon)
    bounded_pairs = 1 if searched is None else max(1, len(searched.listed))
    return Calibration(estimate.parameter, *bracket, estimate.report, tuple(trials.trials), worst.label, bounded_pairs)


def _measure_line(trials: _Trials, pair: DataPair, epsilon: float) -> Line:
    """Return the line of log epsilon near the required value, for one pair."""
    axis, target = trials.axis, math.log(epsilon)
    trials.start(pair)
    ends = _enclose(trials, epsilon)
    for offset in FIT_OFFSETS:
        line = fit_line(trials.points, ends, target)
        trials.verify(min(max(line.position(target + offset), axis.position(axis.low)), axis.position(axis.high)))
    return fit_line(trials.points, ends, target)


def _find_bracket(
    trials: _Trials, line: Line, epsilon: float, worst: DataPair, listed: Sequence[DataPair]
) -> tuple[float | None, float | None]:
    """Return an insufficient and a sufficient parameter, each with confidence 1 - alpha; None where none is found.

    Attempt k is tested at alpha / 2^k. The pairs of a list share this level.
    """
    axis, settings, target = trials.axis, trials.call.settings, math.log(epsilon)
    gap = _median_gap(trials, target)

    def find_end(
        direction: int, is_end: Callable[[Report], bool], alpha: float, pairs: Sequence[DataPair]
    ) -> float | None:
        """Return the first parameter at which all pairs have this property, going away from the estimate."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            offset = direction * FIRST_OFFSET_IN_GAPS * gap * 2 ** (attempt - 1)
            position = line.position(target + offset)
            level = alpha / 2**attempt / len(pairs)
            if all(is_end(trials.verify(position, epsilon, level, pair).report) for pair in pairs):
                return axis.parameter(position)
            if axis.parameter(position) in (axis.low, axis.high):
                break
        return None

    others = [pair for pair in listed if pair is not worst]
    refuting = settings.alpha / type_one_error_factor(settings)
    insufficient = find_end(1, lambda report: report.refuted, refuting, [worst])
    sufficient = find_end(
        -1, lambda report: _keeps_claim(report) and not report.refuted, settings.alpha, [worst, *others]
    )
    return insufficient, sufficient


def _keeps_claim(report: Report) -> bool:
    """Return whether the claim holds over all events if there is a certificate, otherwise over the cells."""
    certificate = report.certificate
    return report.holds_on_cells if certificate is None else certificate.meets_claim(report.claim)


class _Trials:
    """Verifies the family at one parameter after another, and collects reports, and the points of one pair."""

    def __init__(self, family: Family, axis: Axis, delta: float, call: CallOptions, engine: Engine) -> None:
        self.family, self.axis, self.delta, self.call, self.engine = family, axis, delta, call, engine
        self.trials: list[Trial] = []

    def start(self, pair: DataPair) -> None:
        """Begin to collect the points of a pair."""
        self.pair = pair
        self.points: list[Point] = []
        self.reports: list[Report] = []  # one for each point

    def verify(
        self, position: float, epsilon: float | None = None, alpha: float | None = None, pair: DataPair | None = None
    ) -> Trial:
        """Verify the mechanism at a position, with its own seed; without `alpha`, at the level of the settings."""
        parameter, number = self.axis.parameter(position), len(self.trials)
        level = self.call.settings.alpha if alpha is None else alpha
        data = self.pair if pair is None else pair
        claim = None if epsilon is None else approximate(epsilon, self.delta)
        columns = {"parameter": parameter}
        mechanism = self.family(parameter)
        job = self.call.job(number, f"trial {number}", mechanism, data, claim, self.delta, columns, alpha=level)
        (report,) = self.engine.reports([job])
        if report.voiding:
            raise NoAnswer(f"family({parameter:g}): {report.voiding[0].value}")
        trial, estimate = Trial(parameter, report), estimate_epsilon(report, self.delta)
        self.trials.append(trial)
        if data is self.pair:
            self.points.append(Point(position, math.log(estimate) if estimate > 0 else -math.inf))
            self.reports.append(report)
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
            f"{math.exp(end.log_epsilon):.4g} at {axis.parameter(end.position):.4g}" for end in ends
        )
        raise InputError(f"bounds: found epsilon {measured}; expected one below and one above {epsilon:g}; widen them")
    decreasing = ends[1].log_epsilon < ends[0].log_epsilon
    while not abs(ends[1].log_epsilon - ends[0].log_epsilon) <= LINEAR_RANGE:
        trials.verify((ends[0].position + ends[1].position) / 2)
        middle = trials.points[-1]
        replaced = 1 if (middle.log_epsilon < target) == decreasing else 0
        ends[replaced] = middle
        if len(trials.points) > MAX_BISECTIONS:
            parameter = trials.trials[-1].parameter
            raise InputError(
                f"family: found a jump of epsilon over {epsilon:g} at {parameter:g}; expected a continuous epsilon"
            )
    return ends


def _median_gap(trials: _Trials, target: float) -> float:
    """Return the median distance between estimate and lower bound, in log epsilon, of the points near the target."""
    gaps = [
        _gap(report, trials.delta)
        for report, point in zip(trials.reports, trials.points, strict=True)
        if abs(point.log_epsilon - target) <= LINEAR_RANGE
    ]
    return min(max(float(np.median(gaps)), MIN_GAP), MAX_GAP)


def _gap(report: Report, delta: float) -> float:
    """Return the distance, in log epsilon, between the estimate and the lower bound of a report."""
    if not report.epsilon_lower:
        return math.inf
    return math.log(max(estimate_epsilon(report, delta) / report.epsilon_lower, 1.0))
