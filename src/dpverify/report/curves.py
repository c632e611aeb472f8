"""The numbers of a report along a grid of epsilons: p-values of claims, and bounds on delta.

The reader of a page may choose any epsilon after seeing the results. All numbers here allow this: the p-values belong
to events that were fixed before the test runs, and each bound on delta holds at all epsilons simultaneously.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpverify.render.content import EpsilonCurves, ErrorTradeoff, SliderData, WealthCourse
from dpverify.report.evaluate import divide_p_value, thinned_p_values
from dpverify.report.fields import ReportFields
from dpverify.report.sequence import Sequence, StoppedBy
from dpverify.stats.claim_curves import allowed_pairs, claimed_delta
from dpverify.stats.profile import MAX_EXPONENT, P_VALUE_FLOOR, small_p_value
from dpverify.stats.supporting_lines import lower_envelope, with_mirror_images

SLIDER_POSITIONS = 150  # about as many
TRADEOFF_POINTS = 401
MAX_DECISIVE_P_VALUE = 0.05  # once a p-value is at most this, events within the claim are not evaluated


def round_up_step(x: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is at least x."""
    power = 10.0 ** math.floor(math.log10(x))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= x * (1 - 1e-9))


def epsilon_grid(report: ReportFields, epsilon_upper: float) -> np.ndarray:
    """Return epsilons from 0 in equal round steps, beyond the claim and all finite bounds.

    `epsilon_upper` is the upper bound over unions of the cells.
    """
    marked = (report.epsilon_lower, report.epsilon_critical, report.epsilon or 0.0, epsilon_upper)
    end = max(1.3 * max(epsilon for epsilon in marked if epsilon < math.inf), 0.2)
    step = round_up_step(end / SLIDER_POSITIONS)
    return np.round(np.arange(math.ceil(end / step) + 1) * step, 12)


def evaluate_increasing(function: Callable[[float], float], grid: np.ndarray) -> np.ndarray:
    """Evaluate an increasing function on a grid.

    Where the values at both ends of an interval agree, the values between them follow without evaluation.
    """
    values = np.full(grid.size, np.nan)
    values[0], values[-1] = function(float(grid[0])), function(float(grid[-1]))
    intervals = [(0, grid.size - 1)]
    while intervals:
        low, high = intervals.pop()
        if high - low < 2:
            continue
        if math.isclose(values[low], values[high], rel_tol=1e-6):
            values[low + 1 : high] = values[high]
            continue
        middle = (low + high) // 2
        values[middle] = function(float(grid[middle]))
        intervals += [(low, middle), (middle, high)]
    return values


def compute_curves(report: ReportFields, epsilon_upper: float) -> EpsilonCurves:
    """Return p-values and bounds on delta along epsilon.

    Parameters
    ----------
    report : ReportFields
        The report.
    epsilon_upper : float
        The upper bound on epsilon over unions of the cells, which the grid includes where it is finite.

    Returns
    -------
    EpsilonCurves
        The upper bound on delta is that of `report.profile`, interpolated between its epsilons.
    """
    witness, settings = report.witness, report.settings
    epsilons = epsilon_grid(report, epsilon_upper)
    randomised = settings.test == "thinned"
    if report.sequence is not None:
        p_first = p_second = _sequential_p_values(report, report.sequence, epsilons)
        p_floor = 0.0
    elif randomised:
        pairs = np.array([thinned_p_values(witness, settings, float(epsilon)) for epsilon in epsilons])
        p_first, p_second, p_floor = pairs[:, 0], pairs[:, 1], 0.0
    else:
        decisive = combined_p_values(report, epsilons)
        larger, smaller = witness.ordered
        other = evaluate_increasing(
            lambda epsilon: _exact_p_value(report, (smaller, larger), witness.share, epsilon), epsilons
        )
        p_first, p_second = (decisive, other) if witness.direction == (1, 2) else (other, decisive)
        p_floor = P_VALUE_FLOOR * report.alpha
    upper = interpolate_delta_upper(report.profile["eps"], report.profile["delta_upper"], epsilons)
    lower = report.delta_lower_curve(epsilons)
    claimed = None
    if report.claim is not None and report.epsilon is None:
        claimed = claimed_delta(report.claim, epsilons)
    return EpsilonCurves(epsilons, p_first, p_second, lower, upper, p_floor, randomised, claimed)


def error_tradeoff(report: ReportFields) -> ErrorTradeoff:
    """Return the claimed and the bounded trade-off between the errors of tests, and the errors of the tested event."""
    type1 = np.linspace(0.0, 1.0, TRADEOFF_POINTS)
    nodes = with_mirror_images(report.profile["eps"], report.profile["delta_upper"])
    bounded = 1.0 - lower_envelope(*nodes).lowest(type1)
    claim, claimed = report.claim, None
    if claim is not None:
        claimed = 1.0 - np.interp(type1, *allowed_pairs(claim))
    shares = report.witness.probabilities
    if not report.is_tested:  # these runs selected the event, so there are no limits
        shares = tuple((share, share, share) for share, _, _ in shares)
    larger, smaller = (shares[number - 1] for number in report.witness.direction)
    return ErrorTradeoff(
        type1=type1,
        bounded=bounded,
        claimed=claimed,
        claim="" if claim is None else claim.describe(),
        witness=(smaller[0], 1.0 - larger[0]),
        limits=(smaller[1], smaller[2], 1.0 - larger[2], 1.0 - larger[1]),
        alpha=report.alpha,
    )


def _sequential_p_values(report: ReportFields, sequence: Sequence, epsilons: np.ndarray) -> np.ndarray:
    """Return the p-values of a verification that may stop early: of the wealth and the exact test together."""
    p_values = sequence.p_values(epsilons, report.delta) / sequence.early_share
    if report.is_tested:
        exact = combined_p_values(report, epsilons)
        p_values = np.minimum(p_values, exact / (1 - sequence.early_share))
    return np.minimum(p_values, 1.0)


def wealth_course(report: ReportFields) -> WealthCourse | None:
    """Return the wealth over the runs; None if the verification could not stop early."""
    sequence, claim = report.sequence, report.claim
    if sequence is None or claim is None:
        return None
    course = np.append(0.0, sequence.log_wealth(claim))
    runs = np.append(sequence.first_runs, sequence.runs)
    ends = {
        StoppedBy.REFUTED: "It reached the threshold, so the claim is refuted.",
        StoppedBy.BOUNDED: "The verification ended because the upper bound met the claim.",
        StoppedBy.BUDGET: "The verification ended because its budget was spent.",
    }
    threshold = math.log(sequence.threshold(report.alpha))
    return WealthCourse(runs, course, threshold, claim.describe(), ends[sequence.stopped])


def combined_p_values(report: ReportFields, epsilons: np.ndarray) -> np.ndarray:
    """Return the p-values by all tested events together: the smallest one, divided by the event's share of alpha."""
    runs = report.witness.runs

    def p_value(epsilon: float) -> float:
        smallest = 1.0
        allowed = math.exp(min(epsilon, MAX_EXPONENT))
        for one in report.tested:
            larger, smaller = one.ordered
            # An event whose shares are within the claim has a larger p-value; leaving it out is safe in any case.
            if smallest > MAX_DECISIVE_P_VALUE or larger > allowed * smaller + report.delta * runs:
                smallest = min(smallest, _exact_p_value(report, one.ordered, one.share, epsilon))
        return smallest

    return evaluate_increasing(p_value, epsilons)


def _exact_p_value(report: ReportFields, counts: tuple[int, int], share: float, epsilon: float) -> float:
    """Return the p-value of a claim that the first count contradicts if it exceeds the second by too much."""
    level = report.alpha if report.sequence is None else report.sequence.exact_alpha(report.alpha)
    p_value = small_p_value(*counts, report.witness.runs, epsilon, report.delta, share * level)
    return divide_p_value(p_value, share, level)


def interpolate_delta_upper(nodes: np.ndarray, bounds: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    """Interpolate upper bounds on the delta of a partition between the epsilons where they were computed.

    This delta is convex in exp(epsilon) and decreasing. So a chord between two bounds, linear in exp(epsilon), is an
    upper bound too, and so is the last bound for all larger epsilons.
    """
    return np.interp(np.exp(np.minimum(epsilons, nodes[-1])), np.exp(nodes), bounds)


def round_outwards(values: np.ndarray, up: bool) -> list[float]:
    """Round to four digits, up or down, so that a rounded bound still holds."""
    unit = 10.0 ** (np.floor(np.log10(np.maximum(np.abs(values), 1e-12))) - 3)
    # The relative tolerance keeps a value that already has four digits.
    digits = np.ceil(values / unit * (1 - 1e-12)) if up else np.floor(values / unit * (1 + 1e-12))
    return [float(f"{x:.4g}") for x in digits * unit]


def slider_data(report: ReportFields, curves: EpsilonCurves) -> SliderData:
    """Return the curves as rounded numbers for the slider; it starts at the claim or at the lower bound."""
    start = report.epsilon if report.epsilon is not None else report.epsilon_lower
    return SliderData(
        epsilon=curves.epsilon.tolist(),
        p_first=round_outwards(curves.p_first, up=True),
        p_second=round_outwards(curves.p_second, up=True),
        delta_lower=round_outwards(curves.delta_lower, up=False),
        delta_upper=np.minimum(round_outwards(curves.delta_upper, up=True), 1.0).tolist(),
        p_floor=curves.p_floor,
        alpha=report.alpha,
        start=int(np.argmin(np.abs(curves.epsilon - start))),
        tested=0 if curves.randomised else report.witness.direction[0],
    )
