"""The rule that answers a claim: a confidence interval for the median difference over draws of sensors and seeds.

A comparison is confirmed if its 95% interval lies above the required difference (zero, or ln 10 where the claim says
"very"), and contradicted if it lies below. Otherwise, or with fewer than 20 draws, it is undecided. The interval is
that of the sign test, between two order statistics. It is exact for independent draws from any distribution, and
infinite differences are allowed. A difference that must hold on every draw, and that is computed instead of estimated,
is judged by its smallest value.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import binom

MIN_DRAWS = 20
CONFIDENCE_LEVEL = 0.95


class Answer(enum.Enum):
    """The answer to a comparison or to a claim."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"
    DEPENDS = "depends on the reading"


def median_interval(values: Sequence[float] | np.ndarray, level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Return the shortest symmetric pair of order statistics that covers the median with probability >= `level`."""
    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    # P[Binomial(n, 1/2) < excluded] <= (1 - level)/2: so many values may be left out at each end.
    excluded = int(binom.ppf((1 - level) / 2, n, 0.5))
    if n == 0 or excluded == 0:
        return -math.inf, math.inf
    return float(ordered[excluded - 1]), float(ordered[n - excluded])


class Comparison(NamedTuple):
    """One way to examine a claim: one difference per draw, positive where the claim is right.

    Attributes
    ----------
    what : str
        What is compared.
    unit : {"ratio", "difference"}
        "ratio": the differences are logarithms of ratios. "difference": they are read as they are.
    median, interval : float, tuple of float
        The median difference, and its confidence interval (or the smallest and the largest difference).
    draws : int
        Number of draws of sensors; one difference may use two of them.
    decides : bool
        Whether the answer to the claim depends on this comparison.
    required : float
        The difference that the claim needs.
    reading : str
        The reading of what the paper does not print, in words.
    assumptions : tuple of (str, str)
        The same by name and value, for instance ("covariance", "2 x 2 blocks").
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
    unit: Literal["ratio", "difference"]
    median: float
    interval: tuple[float, float]
    draws: int
    decides: bool
    required: float = 0.0
    reading: str = ""
    assumptions: tuple[tuple[str, str], ...] = ()
    spread: tuple[float, float] = (math.nan, math.nan)
    wins: float = math.nan
    loses: float = math.nan
    every_draw: bool = False
    outside_range: float = 0.0

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
    *,
    unit: Literal["ratio", "difference"] = "ratio",
    decides: bool = True,
    draws_per_difference: int = 1,
    required: float = 0.0,
    every_draw: bool = False,
    reading: str = "",
    assumptions: tuple[tuple[str, str], ...] = (),
    outside_range: float = 0.0,
) -> Comparison:
    """Build a comparison from its differences; NaN is left out.

    `every_draw` replaces the interval of the median by the smallest and the largest difference.
    """
    values = np.array([difference for difference in differences if not math.isnan(difference)])
    median = float(np.median(values)) if len(values) else math.nan
    interval = median_interval(values)
    if every_draw and len(values) > 0:
        interval = float(values.min()), float(values.max())
    spread, wins, loses = (math.nan, math.nan), math.nan, math.nan
    if len(values) > 0:
        low, high = np.quantile(values, (0.05, 0.95), method="inverted_cdf")
        spread = float(low), float(high)
        wins, loses = float(np.mean(values > required)), float(np.mean(values < required))
    return Comparison(
        what,
        unit,
        median,
        interval,
        len(values) * draws_per_difference,
        decides,
        required,
        reading,
        assumptions,
        spread,
        wins,
        loses,
        every_draw,
        outside_range,
    )


class Claim(NamedTuple):
    """A claim of the paper with its comparisons.

    Attributes
    ----------
    name, text : str
        Short name, and the claim as a sentence.
    comparisons : tuple of Comparison
        Comparisons at equal privacy and at equal accuracy decide; those at the paper's values do not.
    place : str
        Where the paper makes the claim.
    hedges : tuple of str
        The restrictions that the paper itself states.
    depends_on : tuple of str
        The assumptions that change the answer, where the plausible readings disagree.
    """

    name: str
    text: str
    comparisons: tuple[Comparison, ...]
    place: str = ""
    hedges: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """The answer on which all deciding comparisons agree; if they do not, it depends on the reading."""
        answers = {comparison.answer for comparison in self.comparisons if comparison.decides}
        if len(answers) == 1:
            return answers.pop()
        return Answer.DEPENDS if self.depends_on else Answer.UNDECIDED


def deciding_assumptions(comparisons: Iterable[Comparison]) -> tuple[str, ...]:
    """Return the assumptions that change an answer.

    An assumption changes an answer if two deciding comparisons differ in it alone and have different answers. If no
    such two comparisons exist, these are all assumptions that differ between comparisons with different answers.
    """
    deciding = [comparison for comparison in comparisons if comparison.decides]
    alone: dict[str, None] = {}
    together: dict[str, None] = {}
    for i, first in enumerate(deciding):
        for second in deciding[:i]:
            if first.answer is second.answer:
                continue
            other = dict(second.assumptions)
            differing = [name for name, value in first.assumptions if other.get(name) != value]
            together |= dict.fromkeys(differing)
            if len(differing) == 1:
                alone[differing[0]] = None
    return tuple(alone or together)
