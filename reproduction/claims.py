"""The four claims of the paper, judged on the draws of sensors under every reading of what the paper does not print.

Mechanisms are compared at equal privacy and at equal accuracy. The values there are interpolated along each mechanism's
parameter, linearly in logarithms. The paper's own yardstick, its critical epsilon at the printed parameters, is shown
and decides nothing.

A comparison is confirmed if its 95% interval lies above the required difference (zero, or ln 10 where the claim says
"very"), and contradicted if it lies below. Otherwise, or with fewer than 20 draws, it is undecided. The interval is
that of the sign test, between two order statistics. It is exact for independent draws from any distribution, and
infinite differences are allowed. A difference that must hold on every draw, and that is computed instead of estimated,
is judged by its smallest value.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from reproduction import paper
from reproduction.measure import CurvePoint, SensorDraw
from reproduction.paper import PLAN, PRINTED, TEXTS

MIN_DRAWS = 20
CONFIDENCE_LEVEL = 0.95
SMALLEST_EPSILON = 1e-3  # a smaller epsilon cannot be distinguished from 0
LARGEST_LOG_EPSILON = 7.0  # a larger epsilon counts as infinite
CONSERVATIVE_FACTOR = 10.0  # "very conservative" means this factor at least


class Answer(enum.Enum):
    """The answer to a comparison or to a claim."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"
    DEPENDS = "depends on the reading"


class Comparison(NamedTuple):
    """One way to examine a claim: one difference per draw, positive where the claim is right.

    Attributes
    ----------
    what, unit : str
        What is compared. "ratio": the differences are logarithms of ratios; "difference": they are read as they are.
    median, interval : float, tuple of float
        The median difference, and its confidence interval (or the smallest and the largest difference).
    draws : int
        Number of draws of sensors; one difference may use two of them.
    decides : bool
        Whether the answer to the claim depends on this comparison.
    required : float
        The difference that the claim needs.
    assumptions : dict
        The reading of what the paper does not print, for instance {"covariance": "2 x 2 blocks"}.
    spread : tuple of float
        5% and 95% quantile of the differences over draws.
    wins, loses : float
        Share of draws whose difference is above, and below, the required one.
    every_draw : bool
        Whether `interval` holds the smallest and the largest difference, because the claim must hold on every draw.
    outside_range : float
        Share of draws whose matched parameter lies outside the range that the paper allows, such as s_bar below 0.
    """

    what: str
    unit: str
    median: float
    interval: tuple[float, float]
    draws: int
    decides: bool
    required: float
    assumptions: dict[str, str]
    spread: tuple[float, float]
    wins: float
    loses: float
    every_draw: bool
    outside_range: float

    @property
    def reading(self) -> str:
        """The assumptions about what the paper does not print, in words."""
        return "; ".join(
            f"{name}: {x}" for name, x in self.assumptions.items() if name not in ("compared at", "statement")
        )

    @property
    def answer(self) -> Answer:
        """Whether the interval lies above or below the required difference."""
        low, high = self.interval
        if self.draws < MIN_DRAWS:
            return Answer.UNDECIDED
        if low > self.required:
            return Answer.CONFIRMED
        return Answer.CONTRADICTED if high < self.required else Answer.UNDECIDED


def compare(
    what: str,
    differences: Iterable[float],
    assumptions: dict[str, str],
    *,
    unit: str = "ratio",
    decides: bool = True,
    required: float = 0.0,
    every_draw: bool = False,
    outside: Sequence[bool] = (),
) -> Comparison:
    """Build a comparison from its differences; NaN is left out.

    A "difference" uses two draws. `every_draw` replaces the interval of the median by the smallest and the largest
    difference. `outside` says for each draw whether its matched parameter lies outside the paper's range.
    """
    values = np.array([difference for difference in differences if not math.isnan(difference)])
    some = len(values) > 0
    low, median, high = np.quantile(values, (0.05, 0.5, 0.95), method="inverted_cdf") if some else [math.nan] * 3
    return Comparison(
        what,
        unit,
        float(np.median(values)) if some else float(median),
        (float(values.min()), float(values.max())) if every_draw and some else median_interval(values),
        len(values) * (2 if unit == "difference" else 1),
        decides,
        required,
        assumptions,
        (float(low), float(high)),
        float(np.mean(values > required)) if some else math.nan,
        float(np.mean(values < required)) if some else math.nan,
        every_draw,
        float(np.mean(outside)) if len(outside) else 0.0,
    )


def median_interval(values: Sequence[float] | np.ndarray, level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Return the shortest symmetric pair of order statistics that covers the median with probability >= `level`."""
    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    # P[Binomial(n, 1/2) < excluded] <= (1 - level)/2: so many values may be left out at each end.
    excluded = int(binom.ppf((1 - level) / 2, n, 0.5))
    if n == 0 or excluded == 0:
        return -math.inf, math.inf
    return float(ordered[excluded - 1]), float(ordered[n - excluded])


class Claim(NamedTuple):
    """A claim of the paper, by its name in `printed.toml`, with its comparisons."""

    name: str
    comparisons: tuple[Comparison, ...]

    @property
    def words(self) -> dict[str, Any]:
        """Number, statement, place, hedges and yardstick of the claim in the paper."""
        return PRINTED["claims"][self.name]

    @property
    def deciding(self) -> list[Comparison]:
        """The comparisons at equal privacy and at equal accuracy; those at the paper's values do not decide."""
        return [comparison for comparison in self.comparisons if comparison.decides]

    @property
    def answer(self) -> Answer:
        """The answer on which all deciding comparisons agree; if they do not, it depends on the reading."""
        answers = {comparison.answer for comparison in self.deciding}
        if len(answers) == 1:
            return answers.pop()
        return Answer.DEPENDS if self.depends_on else Answer.UNDECIDED

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The assumptions that change the answer.

        An assumption changes an answer if two deciding comparisons differ in it alone and have different answers. If no
        such two comparisons exist, these are all assumptions that differ between comparisons with different answers.
        """
        alone: dict[str, None] = {}
        together: dict[str, None] = {}
        for i, first in enumerate(self.deciding):
            for second in self.deciding[:i]:
                if first.answer is not second.answer:
                    other = second.assumptions
                    differing = [name for name, value in first.assumptions.items() if other.get(name) != value]
                    together |= dict.fromkeys(differing)
                    alone |= dict.fromkeys(differing if len(differing) == 1 else ())
        return tuple(alone or together)


# The values at equal privacy and at equal accuracy


def clamped_log(value: float) -> float:
    """Return the logarithm of a value that is at least `SMALLEST_EPSILON`."""
    return math.log(max(value, SMALLEST_EPSILON))


def subtract(a: float, b: float) -> float:
    """Return a - b, where two equal infinities have difference 0."""
    return 0.0 if a == b else a - b


def interpolate_log(given: Sequence[float], wanted: Sequence[float], target: float) -> float:
    """Return the logarithm of `wanted` where `given` equals the target.

    Interpolation is linear in logarithms between neighbouring points; outside the measured range the line through the
    nearest two points is extended. Logarithms above `LARGEST_LOG_EPSILON` are replaced by that value.
    """
    logarithms = [[min(clamped_log(x), LARGEST_LOG_EPSILON) for x in values] for values in (given, wanted)]
    x, y = np.array(sorted(zip(*logarithms, strict=True))).T
    right = int(np.clip(np.searchsorted(x, math.log(target)), 1, len(x) - 1))
    left = right - 1
    slope = 0.0 if x[right] == x[left] else (y[right] - y[left]) / (x[right] - x[left])
    return float(y[left] + (math.log(target) - x[left]) * slope)


def error_at_epsilon(points: Sequence[CurvePoint], epsilon: float) -> float:
    """Return the error of a mechanism where its epsilon has this value."""
    return float(np.exp(interpolate_log([p.epsilon for p in points], [p.error for p in points], epsilon)))


def epsilon_at_error(points: Sequence[CurvePoint], error: float) -> float:
    """Return the epsilon of a mechanism where its error has this value; infinite above e^7."""
    logarithm = interpolate_log([p.error for p in points], [p.epsilon for p in points], error)
    return math.inf if logarithm >= LARGEST_LOG_EPSILON else float(np.exp(logarithm))


def outside_range(points: Sequence[CurvePoint], name: str, target: float) -> bool:
    """Return whether the parameter at which a value equals the target lies below 0, the end of the paper's range."""
    noises = [1 - point.parameter for point in points]
    return interpolate_log([getattr(point, name) for point in points], noises, target) > 0


# The claims


def judge_claims(draws: Sequence[SensorDraw]) -> list[Claim]:
    """Return the four claims with their comparisons under every measured reading."""
    families: dict[str, dict[str, dict[str, str]]] = {name: {} for name in paper.MECHANISMS}
    for name, plan in PLAN["families"].items():
        if any(name in draw.curves for draw in draws):
            families[plan["mechanism"]][name] = plan["assumptions"]
    outputs = families[paper.W2MHE]

    def against(other: str) -> tuple[Comparison, ...]:
        return tuple(
            comparison
            for law, known in outputs.items()
            for family, assumed in families[other].items()
            if all(known.get(name, value) == value for name, value in assumed.items())
            for comparison in compare_mechanisms(draws, law, family, other, known | assumed)
        )

    return [
        Claim("theory", compare_theorem(draws)),
        Claim("output or input", against(paper.INPUT)),
        Claim("sensors", tuple(c for law, known in outputs.items() for c in compare_setups(draws, law, known))),
        Claim("EKF", against(paper.EKF)),
    ]


def compare_mechanisms(
    draws: Sequence[SensorDraw], law: str, family: str, name: str, known: dict[str, str]
) -> list[Comparison]:
    """Compare the W2-MHE with another mechanism under one reading of both."""
    matched, ratios = PLAN["matched"], np.empty((3, len(draws)))
    outside = np.zeros((2, len(draws)), bool)
    for k, draw in enumerate(draws):
        curves = draw.curves[law], draw.curves[family]
        errors = [math.log(error_at_epsilon(curve, matched["epsilon"])) for curve in curves]
        epsilons = [clamped_log(epsilon_at_error(curve, matched["error"])) for curve in curves]
        yardstick = clamped_log(draw.paper[family][0]) - clamped_log(draw.paper[law][0])
        ratios[:, k] = errors[1] - errors[0], subtract(epsilons[1], epsilons[0]), yardstick
        bounded = curves if name != paper.EKF else curves[:1]  # the EKF's parameter is positive by its definition
        for number, target in enumerate(("epsilon", "error")):
            outside[number, k] = any(outside_range(curve, target, matched[target]) for curve in bounded)
    privacy, at = f"ε {matched['epsilon']:g}, δ {matched['delta']:g}", "compared at"
    accuracy = f"error {matched['error']:g}, δ {matched['delta']:g}"
    what = f"error of the {name} / error of the W2-MHE, at {privacy}"
    by_error = compare(what, ratios[0], known | {at: "equal privacy"}, outside=outside[0].tolist())
    what = f"ε of the {name} / ε of the W2-MHE, at {accuracy}"
    by_epsilon = compare(what, ratios[1], known | {at: "equal accuracy"}, outside=outside[1].tolist())
    what = f"the paper's yardstick: ε_c of the {name} / ε_c of the W2-MHE, at the printed parameters"
    return [by_error, by_epsilon, compare(what, ratios[2], known | {at: "the paper's yardstick"}, decides=False)]


def compare_theorem(draws: Sequence[SensorDraw]) -> tuple[Comparison, ...]:
    """Compare the theorem's epsilon with the one that is proved, and with the one that is estimated."""
    matched, s = PLAN["matched"], PLAN["matched"]["theorem_s"]
    over_proved, over_estimated = [], []
    for draw in draws:
        over_proved.append(math.log(draw.sufficient / draw.certified))
        curve = draw.curves["gibbs"]
        # Interpolation in the odds s/(1 - s) keeps s inside (0, 1) beyond the measured values.
        odds = [point.parameter / (1 - point.parameter) for point in curve]
        odds_at_epsilon = math.exp(interpolate_log([point.epsilon for point in curve], odds, matched["epsilon"]))
        # The theorem's epsilon is proportional to the odds.
        over_estimated.append(math.log(draw.sufficient * odds_at_epsilon * (1 - s) / s / matched["epsilon"]))
    known = PLAN["families"]["gibbs"]["assumptions"]  # the distribution that the theorem is about
    return (
        compare(
            "the condition holds: the theorem's ε / the ε that we prove (all draws)",
            over_proved,
            known | {"statement": "it holds"},
            every_draw=True,
        ),
        compare(
            "by a factor of ten or more: the theorem's ε / the estimated ε, "
            f"at ε {matched['epsilon']:g}, δ {matched['delta']:g}",
            over_estimated,
            known | {"statement": "it is very conservative"},
            required=math.log(CONSERVATIVE_FACTOR),
        ),
    )


def compare_setups(draws: Sequence[SensorDraw], law: str, known: dict[str, str]) -> list[Comparison]:
    """Compare the difference between two set-ups with the difference between two measurements of the same set-up."""
    matched = PLAN["matched"]
    delta, comparisons = f"δ {matched['delta']:g}", []
    pairs = [pair for pair in zip(draws[::2], draws[1::2], strict=False)]
    if not all(law in draw.repeated for draw, _ in pairs):
        return []

    def add(what: str, at: str, value: Callable[[list[CurvePoint]], float]) -> None:
        differences = []
        for draw, other in pairs:
            own, again, others = map(value, (draw.curves[law], draw.repeated[law], other.curves[law]))
            differences.append(abs(subtract(own, others)) - abs(subtract(own, again)))
        comparisons.append(compare(what, differences, known | {"compared at": at}, unit="difference"))

    add(
        f"difference of ln ε between set-ups minus that between seeds, at error {matched['error']:g}, {delta}",
        "equal accuracy",
        lambda points: clamped_log(epsilon_at_error(points, matched["error"])),
    )
    add(
        f"difference of ln error between set-ups minus that between seeds, at ε {matched['epsilon']:g}, {delta}",
        "equal privacy",
        lambda points: math.log(error_at_epsilon(points, matched["epsilon"])),
    )
    return comparisons


# The answers in words


def answer_sentence(claim: Claim) -> str:
    """Return the answer in words: how many comparisons and readings agree, and what the answer depends on."""
    deciding, answers = claim.deciding, [comparison.answer for comparison in claim.deciding]
    told = [f"{answers.count(answer)} {answer.value}" for answer in Answer if answer in answers]
    readings = len({comparison.reading for comparison in deciding})
    text = f"{count(len(deciding), 'comparison')} under {count(readings, 'reading')}: {', '.join(told)}."
    if claim.name == "theory":
        text += f" {TEXTS['theory']}"
    if claim.answer is Answer.DEPENDS:
        parts = [TEXTS["assumptions"][name] for name in claim.depends_on]
        text += f" The answer depends on {'; on '.join(parts)}."
    outside = [comparison.outside_range for comparison in deciding if comparison.outside_range > 0]
    if outside:
        text += (
            f" In {len(outside)} of the {len(deciding)} comparisons the matched parameter lies outside the range "
            f"[0, 1] that the paper allows, in up to {max(outside):.0%} of the draws; there the mechanism is an "
            "extension of the paper's."
        )
    return text


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def yardstick_sentence(claim: Claim) -> str:
    """Return what the paper's own yardstick says on our draws, over all readings."""
    wins = [c.wins for c in claim.comparisons if not c.decides and not math.isnan(c.wins)]
    text = f"The paper's own yardstick is {claim.words['yardstick']}."
    if not wins:
        return text
    share = f"{min(wins):.0%}" if len(wins) == 1 else f"{min(wins):.0%} to {max(wins):.0%}"
    return f"{text} By it, the claim is true in {share} of the draws, depending on the reading."


def claim_records(claims: Iterable[Claim]) -> list[dict[str, object]]:
    """Return the comparisons of the claims as lines of `claims.csv`."""
    return [
        {
            "claim": claim.name,
            "what": comparison.what,
            "median": comparison.median,
            "low": comparison.interval[0],
            "high": comparison.interval[1],
            "unit": "logarithm of a ratio" if comparison.unit == "ratio" else comparison.unit,
            "draws": comparison.draws,
            "reading": comparison.reading,
            "spread_low": comparison.spread[0],
            "spread_high": comparison.spread[1],
            "wins": comparison.wins,
            "loses": comparison.loses,
            "outside_range": comparison.outside_range,
            "answer": comparison.answer.value,
            "decides": comparison.decides,
        }
        for claim in claims
        for comparison in claim.comparisons
    ]
