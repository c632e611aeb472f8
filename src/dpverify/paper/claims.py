"""How a claim is answered: an interval for the median difference over draws of sensors and seeds.

The rule: if the 95% interval lies above zero (above ln 10 where the claim says "very"), the claim is confirmed; below,
contradicted; else, or with fewer than 20 draws, undecided. The interval is that of the sign test, between two of the
ordered differences. It is exact for independent draws from any law, and an infinite difference is a difference like any
other. What must hold on every draw, and is computed rather than estimated, is judged by its smallest value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

LEAST = 20  # draws
LEVEL = 0.95
CAP = 7.0  # of ln epsilon
CONFIRMED, CONTRADICTED, UNDECIDED = "confirmed", "contradicted", "undecided"


def median_interval(values: Sequence[float] | np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """The shortest pair of symmetric order statistics that holds the median with probability `level` at least."""
    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    cut = int(binom.ppf((1 - level) / 2, n, 0.5))  # P[B < cut] <= (1 - level)/2: so many may be left out at each end
    if n == 0 or cut == 0:
        return -math.inf, math.inf
    return float(ordered[cut - 1]), float(ordered[n - cut])


class Comparison(NamedTuple):
    """One way to look at a claim: differences that are positive where the claim is right, one for each draw."""

    what: str
    unit: str  # how to read the median: "ratio" is e^difference, "difference" is itself
    median: float
    interval: tuple[float, float]
    draws: int  # of sensors; a difference may take two of them
    decides: bool
    least: float = 0.0  # the difference that the claim needs

    @property
    def answer(self) -> str:
        if self.draws < LEAST:
            return UNDECIDED
        low, high = self.interval
        return CONFIRMED if low > self.least else CONTRADICTED if high < self.least else UNDECIDED


def compare(
    what: str,
    differences: Iterable[float],
    *,
    unit: str = "ratio",
    decides: bool = True,
    draws_each: int = 1,
    least: float = 0.0,
    always: bool = False,
) -> Comparison:
    """Of the median difference; with `always`, of the smallest and the largest one."""
    values = np.array([d for d in differences if not math.isnan(d)])
    middle = float(np.median(values)) if len(values) else math.nan
    whole = always and len(values) > 0
    interval = (float(values.min()), float(values.max())) if whole else median_interval(values)
    return Comparison(what, unit, middle, interval, len(values) * draws_each, decides, least)


class Claim(NamedTuple):
    """A claim of the paper, and what the comparisons at matched privacy and matched accuracy say of it."""

    name: str
    text: str
    comparisons: tuple[Comparison, ...]

    @property
    def answer(self) -> str:
        """One word, if all comparisons that decide agree on it."""
        words = {one.answer for one in self.comparisons if one.decides}
        return words.pop() if len(words) == 1 else UNDECIDED


def logarithm(value: float, least: float = 1e-3) -> float:
    """Of an epsilon; what is too small to be told from 0 counts as `least`."""
    return math.log(max(value, least))


def apart(a: float, b: float) -> float:
    """a - b, where two infinite values are no difference."""
    return 0.0 if a == b else a - b


def at(points: Sequence[Mapping[str, float]], given: str, target: float, wanted: str) -> float:
    """`wanted` where `given` meets the target: straight between neighbours in logarithms, on from the nearest two.

    An epsilon beyond what the runs can estimate is infinite; between it and a finite neighbour it counts as e^7.
    """
    capped = [[min(logarithm(p[key]), CAP) for key in (given, wanted)] for p in points]
    x, y = np.array(sorted(capped)).T
    k = int(np.clip(np.searchsorted(x, math.log(target)), 1, len(x) - 1))
    slope = 0.0 if x[k] == x[k - 1] else (y[k] - y[k - 1]) / (x[k] - x[k - 1])
    found = y[k - 1] + (math.log(target) - x[k - 1]) * slope
    return math.inf if wanted == "epsilon" and found >= CAP else float(np.exp(found))


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Median and 5 to 95% range, as order statistics: an infinite value stays one."""
    low, middle, high = np.quantile(np.asarray(values, float), (0.05, 0.5, 0.95), method="inverted_cdf")
    return {"median": float(middle), "low": float(low), "high": float(high), "seeds": len(values)}
