"""The four claims of the paper, judged on the draws of sensors under every reading of what the paper does not print.

Mechanisms are compared at equal privacy and at equal accuracy. The values there are interpolated along each mechanism's
parameter, linearly in logarithms. The paper's own yardstick, its critical epsilon at about equal errors, is shown and
decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpverify.paper.claims.decision_rule import Claim, Comparison, compare, deciding_assumptions
from dpverify.paper.measurements import CurvePoint, SensorDraw
from dpverify.paper.plan import MatchedValues

SMALLEST_EPSILON = 1e-3  # a smaller epsilon cannot be distinguished from 0
LARGEST_LOG_EPSILON = 7.0  # a larger epsilon counts as infinite
CONSERVATIVE_FACTOR = 10.0  # "very conservative" means this factor at least
DISTRIBUTION_NAMES = {"gibbs": "Gibbs distribution", "blend": "blend distribution"}
OUTPUT_FAMILIES = {  # the readings of the W2-MHE: assumption by name and value
    "gibbs": (("distribution", "Gibbs"), ("prior", "carried")),
    "gibbs-start": (("distribution", "Gibbs"), ("prior", "not carried")),
    "blend": (("distribution", "blend, constant K_k"), ("prior", "carried")),
    "blend-growing": (("distribution", "blend, growing K_k"), ("prior", "carried")),
}
INPUT_FAMILIES = {
    "perturbed": (("covariance", "2 x 2 blocks"), ("prior", "carried"), ("input noise", "once per run")),
    "perturbed-clipped": (("covariance", "20 x 20, clipped"), ("prior", "carried"), ("input noise", "once per run")),
    "perturbed-shifted": (("covariance", "20 x 20, shifted"), ("prior", "carried"), ("input noise", "once per run")),
    "perturbed-mean": (("covariance", "I + 11'/2"), ("prior", "carried"), ("input noise", "once per run")),
    "perturbed-identity": (("covariance", "I"), ("prior", "carried"), ("input noise", "once per run")),
    "perturbed-start": (("covariance", "2 x 2 blocks"), ("prior", "not carried"), ("input noise", "once per run")),
    "perturbed-window": (("covariance", "2 x 2 blocks"), ("prior", "not carried"), ("input noise", "every window")),
}
FILTER_FAMILIES = {
    "ekf": (("covariances of the EKF", "true"),),
    "ekf-model": (("covariances of the EKF", "trust the model"),),
    "ekf-data": (("covariances of the EKF", "trust the data"),),
}

Assumptions = tuple[tuple[str, str], ...]


def clamped_log(value: float) -> float:
    """Return the logarithm of a value that is at least `SMALLEST_EPSILON`."""
    return math.log(max(value, SMALLEST_EPSILON))


def _bounded_log(value: float) -> float:
    """Return the logarithm of a value, between those of the smallest and of the largest epsilon."""
    return min(clamped_log(value), LARGEST_LOG_EPSILON)


def subtract(a: float, b: float) -> float:
    """Return a - b, where two equal infinities have difference 0."""
    return 0.0 if a == b else a - b


def interpolate(given: Sequence[float], wanted: Sequence[float], target: float) -> float:
    """Return `wanted` where `given` equals the target."""
    return float(np.exp(interpolate_log(given, wanted, target)))


def interpolate_log(given: Sequence[float], wanted: Sequence[float], target: float) -> float:
    """Return the logarithm of `wanted` where `given` equals the target.

    Interpolation is linear in logarithms between neighbouring points; outside the measured range the line through the
    nearest two points is extended. Logarithms above `LARGEST_LOG_EPSILON` are replaced by that value.
    """
    pairs = sorted((_bounded_log(a), _bounded_log(b)) for a, b in zip(given, wanted, strict=True))
    x, y = np.array(pairs).T
    right = int(np.clip(np.searchsorted(x, math.log(target)), 1, len(x) - 1))
    left = right - 1
    slope = 0.0 if x[right] == x[left] else (y[right] - y[left]) / (x[right] - x[left])
    return float(y[left] + (math.log(target) - x[left]) * slope)


def error_at_epsilon(points: Sequence[CurvePoint], epsilon: float) -> float:
    """Return the error of a mechanism where its epsilon has this value."""
    return interpolate([p.epsilon_estimate for p in points], [p.error_first for p in points], epsilon)


def epsilon_at_error(points: Sequence[CurvePoint], error: float) -> float:
    """Return the epsilon of a mechanism where its error has this value; infinite above e^7."""
    logarithm = interpolate_log([p.error_first for p in points], [p.epsilon_estimate for p in points], error)
    return math.inf if logarithm >= LARGEST_LOG_EPSILON else float(np.exp(logarithm))


def judge_claims(draws: Sequence[SensorDraw], matched: MatchedValues, laws: Sequence[str] = ()) -> list[Claim]:
    """Return the four claims with their comparisons under every measured reading.

    `laws` restricts the readings of the W2-MHE to these families.
    """
    measured = {point.mechanism for draw in draws for point in draw.curves}
    outputs = [name for name in OUTPUT_FAMILIES if name in measured and (not laws or name in laws)]
    inputs = [name for name in INPUT_FAMILIES if name in measured]
    filters = [name for name in FILTER_FAMILIES if name in measured]
    by_claim = {
        "theory": _theorem_comparisons(draws, matched),
        "output or input": tuple(
            comparison
            for law in outputs
            for other in inputs
            if _agree(OUTPUT_FAMILIES[law], INPUT_FAMILIES[other])
            for comparison in _mechanism_comparisons(draws, matched, law, other, INPUT_FAMILIES[other])
        ),
        "sensors": tuple(comparison for law in outputs for comparison in _setup_comparisons(draws, matched, law)),
        "EKF": tuple(
            comparison
            for law in outputs
            for other in filters
            for comparison in _mechanism_comparisons(draws, matched, law, other, FILTER_FAMILIES[other])
        ),
    }
    texts = {
        "theory": "The sufficient condition of the theorem holds, and is very conservative.",
        "output or input": "At equal privacy, perturbing the output (W2-MHE) is more accurate than perturbing the "
        "input.",
        "sensors": "Privacy depends on where the sensors are.",
        "EKF": "The W2-MHE beats the private EKF, in privacy and in accuracy.",
    }
    return [
        Claim(name, texts[name], comparisons, depends_on=deciding_assumptions(comparisons))
        for name, comparisons in by_claim.items()
    ]


def _agree(first: Assumptions, second: Assumptions) -> bool:
    """Return whether two mechanisms make the same assumption wherever they share one."""
    known = dict(first)
    return all(known.get(name, value) == value for name, value in second)


def _in_words(assumptions: Assumptions) -> str:
    return "; ".join(f"{name}: {value}" for name, value in assumptions)


def _privacy_text(matched: MatchedValues) -> str:
    return f"ε {matched.epsilon:g}, δ {matched.delta:g}"


def outside_range(points: Sequence[CurvePoint], given: Sequence[float], target: float) -> bool:
    """Return whether the parameter at which `given` equals the target lies below 0, the end of the paper's range.

    The noise 1 - parameter is interpolated; the EKF's parameter is positive by its definition.
    """
    if points[0].mechanism.startswith("ekf"):
        return False
    return interpolate(given, [1 - point.parameter for point in points], target) > 1


def _mechanism_comparisons(
    draws: Sequence[SensorDraw], matched: MatchedValues, law: str, other: str, other_assumptions: Assumptions
) -> list[Comparison]:
    """Compare the W2-MHE with another mechanism under one reading of both."""
    assumptions = tuple(dict((*OUTPUT_FAMILIES[law], *other_assumptions)).items())
    error_ratios, epsilon_ratios, yardstick = [], [], []
    outside_at_epsilon, outside_at_error = [], []
    for draw in draws:
        curves = [draw.curve(law), draw.curve(other)]
        log_errors = [math.log(error_at_epsilon(curve, matched.epsilon)) for curve in curves]
        error_ratios.append(log_errors[1] - log_errors[0])
        log_epsilons = [clamped_log(epsilon_at_error(curve, matched.error)) for curve in curves]
        epsilon_ratios.append(subtract(log_epsilons[1], log_epsilons[0]))
        epsilons = [[point.epsilon_estimate for point in curve] for curve in curves]
        errors = [[point.error_first for point in curve] for curve in curves]
        outside_at_epsilon.append(any(map(outside_range, curves, epsilons, [matched.epsilon] * 2)))
        outside_at_error.append(any(map(outside_range, curves, errors, [matched.error] * 2)))
        own, others = draw.at_paper_value(law), draw.at_paper_value(other)
        yardstick.append(math.log(others.epsilon_c) - math.log(own.epsilon_c))
    at_error = f"error {matched.error:g}, δ {matched.delta:g}"
    name = "private EKF" if other in FILTER_FAMILIES else "input perturbation"
    reading = _in_words(assumptions)

    def comparison(what: str, ratios: list[float], outside: list[bool], compared_at: str, decides: bool) -> Comparison:
        return compare(
            what,
            ratios,
            decides=decides,
            reading=reading,
            assumptions=(*assumptions, ("compared at", compared_at)),
            outside_range=float(np.mean(outside)) if outside else 0.0,
        )

    return [
        comparison(
            f"error of the {name} / error of the W2-MHE, at {_privacy_text(matched)}",
            error_ratios,
            outside_at_epsilon,
            "equal privacy",
            decides=True,
        ),
        comparison(
            f"ε of the {name} / ε of the W2-MHE, at {at_error}",
            epsilon_ratios,
            outside_at_error,
            "equal accuracy",
            decides=True,
        ),
        comparison(
            f"the paper's yardstick: ε_c of the {name} / ε_c of the W2-MHE, at errors near 0.005",
            yardstick,
            [],
            "the paper's yardstick",
            decides=False,
        ),
    ]


def _theorem_comparisons(draws: Sequence[SensorDraw], matched: MatchedValues) -> tuple[Comparison, ...]:
    """Compare the theorem's epsilon with the one that is proved, and with the one that is estimated."""
    over_proved, over_estimated = [], []
    reading = _in_words(OUTPUT_FAMILIES["gibbs"])  # the distribution that the theorem is about
    for draw in draws:
        theorem = draw.theorem
        over_proved.append(math.log(theorem.sufficient / theorem.certified))
        curve = draw.curve("gibbs")
        # Interpolation in the odds s/(1 - s) keeps s inside (0, 1) beyond the measured values.
        odds = [point.parameter / (1 - point.parameter) for point in curve]
        odds_at_epsilon = interpolate([point.epsilon_estimate for point in curve], odds, matched.epsilon)
        # The theorem's epsilon is proportional to the odds.
        growth = odds_at_epsilon * (1 - theorem.s) / theorem.s
        over_estimated.append(math.log(theorem.sufficient * growth / matched.epsilon))
    return (
        compare(
            "the condition holds: the theorem's ε / the ε that we prove (all draws)",
            over_proved,
            every_draw=True,
            reading=reading,
            assumptions=(*OUTPUT_FAMILIES["gibbs"], ("statement", "it holds")),
        ),
        compare(
            f"by a factor of ten or more: the theorem's ε / the estimated ε, at {_privacy_text(matched)}",
            over_estimated,
            required=math.log(CONSERVATIVE_FACTOR),
            reading=reading,
            assumptions=(*OUTPUT_FAMILIES["gibbs"], ("statement", "it is very conservative")),
        ),
    )


def _setup_comparisons(draws: Sequence[SensorDraw], matched: MatchedValues, law: str) -> tuple[Comparison, ...]:
    """Compare the difference between two set-ups with the difference between two recordings of the same set-up."""
    epsilon_differences, error_differences = [], []
    reading = _in_words(OUTPUT_FAMILIES[law])
    for draw, other in zip(draws[::2], draws[1::2], strict=False):
        repeated = [point for point in draw.repeated if point.mechanism == law]
        if not repeated:
            return ()
        curve, other_curve = draw.curve(law), other.curve(law)
        log_epsilon, log_epsilon_repeated, log_epsilon_other = (
            clamped_log(epsilon_at_error(points, matched.error)) for points in (curve, repeated, other_curve)
        )
        between_setups = abs(subtract(log_epsilon, log_epsilon_other))
        between_seeds = abs(subtract(log_epsilon, log_epsilon_repeated))
        epsilon_differences.append(between_setups - between_seeds)
        log_error, log_error_repeated, log_error_other = (
            math.log(error_at_epsilon(points, matched.epsilon)) for points in (curve, repeated, other_curve)
        )
        error_differences.append(abs(log_error - log_error_other) - abs(log_error - log_error_repeated))
    return (
        compare(
            "difference of ln ε between set-ups minus that between seeds, "
            f"at error {matched.error:g}, δ {matched.delta:g}",
            epsilon_differences,
            unit="difference",
            draws_per_difference=2,
            reading=reading,
            assumptions=(*OUTPUT_FAMILIES[law], ("compared at", "equal accuracy")),
        ),
        compare(
            f"difference of ln error between set-ups minus that between seeds, at {_privacy_text(matched)}",
            error_differences,
            unit="difference",
            draws_per_difference=2,
            reading=reading,
            assumptions=(*OUTPUT_FAMILIES[law], ("compared at", "equal privacy")),
        ),
    )
