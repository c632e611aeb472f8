"""The four claims of the paper, judged on the draws of sensors.

Mechanisms are compared at equal privacy and at equal accuracy. The values there are interpolated along each mechanism's
parameter, linearly in logarithms. Comparisons at the paper's own parameter values are shown and decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpverify.paper.decision_rule import Claim, Comparison, compare
from dpverify.paper.measurements import CurvePoint, SensorDraw
from dpverify.paper.plan import MatchedValues

SMALLEST_EPSILON = 1e-3  # a smaller epsilon cannot be distinguished from 0
LARGEST_LOG_EPSILON = 7.0  # a larger epsilon counts as infinite
CONSERVATIVE_FACTOR = 10.0  # "very conservative" means this factor at least
DISTRIBUTION_NAMES = {"gibbs": "Gibbs distribution", "blend": "blend distribution"}


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


def judge_claims(draws: Sequence[SensorDraw], matched: MatchedValues, laws: Sequence[str]) -> list[Claim]:
    """Return the four claims with their comparisons."""
    return [
        Claim(
            "theory",
            "The sufficient condition of the theorem holds, and is very conservative.",
            _theorem_comparisons(draws, matched),
        ),
        Claim(
            "output or input",
            "At equal privacy, perturbing the output (W2-MHE) is more accurate than perturbing the input.",
            tuple(c for law in laws for c in _mechanism_comparisons(draws, matched, law, "perturbed")),
        ),
        Claim(
            "sensors",
            "Privacy depends on where the sensors are.",
            _setup_comparisons(draws, matched),
        ),
        Claim(
            "EKF",
            "The W2-MHE beats the private EKF, in privacy and in accuracy.",
            tuple(c for law in laws for c in _mechanism_comparisons(draws, matched, law, "ekf")),
        ),
    ]


def _privacy_text(matched: MatchedValues) -> str:
    return f"ε {matched.epsilon:g} at δ {matched.delta:g}"


def _mechanism_comparisons(
    draws: Sequence[SensorDraw], matched: MatchedValues, law: str, other: str
) -> list[Comparison]:
    """Compare the W2-MHE with another mechanism; only the Gibbs distribution decides."""
    name, decides = DISTRIBUTION_NAMES[law], law == "gibbs"
    error_ratios, epsilon_ratios, paper_epsilon_ratios, paper_error_ratios = [], [], [], []
    for draw in draws:
        curve, other_curve = draw.curve(law), draw.curve(other)
        error_ratios.append(
            math.log(error_at_epsilon(other_curve, matched.epsilon))
            - math.log(error_at_epsilon(curve, matched.epsilon))
        )
        epsilon_ratios.append(
            subtract(
                clamped_log(epsilon_at_error(other_curve, matched.error)),
                clamped_log(epsilon_at_error(curve, matched.error)),
            )
        )
        paper, other_paper = draw.at_paper_value(law), draw.at_paper_value(other)
        paper_epsilon_ratios.append(math.log(other_paper.epsilon_c) - math.log(paper.epsilon_c))
        paper_error_ratios.append(math.log(other_paper.error) - math.log(paper.error))
    at_error = f"error {matched.error:g}, δ {matched.delta:g}"
    return [
        compare(
            f"{name}: error of the other mechanism / error of the W2-MHE, at {_privacy_text(matched)}",
            error_ratios,
            decides=decides,
        ),
        compare(f"{name}: ε of the other mechanism / ε of the W2-MHE, at {at_error}", epsilon_ratios, decides=decides),
        compare(f"{name}, the paper's values: ratio of ε_c", paper_epsilon_ratios, decides=False),
        compare(f"{name}, the paper's values: ratio of errors", paper_error_ratios, decides=False),
    ]


def _theorem_comparisons(draws: Sequence[SensorDraw], matched: MatchedValues) -> tuple[Comparison, ...]:
    """Compare the theorem's epsilon with the one that is proved, and with the one that is estimated."""
    over_proved, over_estimated = [], []
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
        compare("the condition holds: the theorem's ε / the ε that we prove (all draws)", over_proved, every_draw=True),
        compare(
            f"by a factor of ten or more: the theorem's ε / the estimated {_privacy_text(matched)}",
            over_estimated,
            required=math.log(CONSERVATIVE_FACTOR),
        ),
    )


def _setup_comparisons(draws: Sequence[SensorDraw], matched: MatchedValues) -> tuple[Comparison, ...]:
    """Compare the difference between two set-ups with the difference between two recordings of the same set-up."""
    epsilon_differences, error_differences = [], []
    for draw, other in zip(draws[::2], draws[1::2], strict=False):
        curve, repeated, other_curve = draw.curve("gibbs"), draw.repeated, other.curve("gibbs")
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
        ),
        compare(
            f"difference of ln error between set-ups minus that between seeds, at {_privacy_text(matched)}",
            error_differences,
            unit="difference",
            draws_per_difference=2,
        ),
    )
