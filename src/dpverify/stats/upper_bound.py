"""Upper bounds over all unions of a partition's cells (docs/method.md, section 5.4).

The union that exceeds the claim most is unknown but fixed, so a limit that is valid for any one union, maximised over
all of them, is valid without a correction. `Limit` is that limit for the excess p1 - e^epsilon p2 of one union; the
frontier says which pairs of counts a union can have at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

from dpverify.stats.binomial import lower_limit, upper_limit
from dpverify.util.checks import check_delta, check_epsilon, check_level, checked_columns, runs_per_side

BERRY_ESSEEN = 0.56  # Shevtsova's constant for sums of independent variables that need not be alike
MAX_NORMAL_ERROR_SHARE = (
    0.5  # of alpha may go to the error of the normal law; an event too rare for that gets limits of its own
)
NUISANCE_SHARE = 1 / 300  # of alpha, three times: for where p1 and p2 may lie at all
MAX_CACHED_RUNS = 1 << 16  # runs, whose limits are kept


class ExcessLimit(NamedTuple):
    """For unions with at most a and from b_low to b_high runs: what bounds p1 - scale p2, for every scale from 1 up.

    A union that is not rare under the second law (`normal`) has the excess of shares plus z standard deviations, both
    at their largest where p1 and p2 may lie, and the error of the normal law taken off alpha beforehand. A rare one
    (`rare`) has Clopper-Pearson limits at half of alpha each. Which it is depends on p2 alone, so nothing is owed for
    the choice; where p2 may be either, the larger counts.
    """

    f1: np.ndarray
    f2: np.ndarray
    spread1: np.ndarray  # z standard deviations of the shares
    spread2: np.ndarray
    high: np.ndarray
    low: np.ndarray
    normal: np.ndarray
    rare: np.ndarray

    def excess(self, scale: float) -> np.ndarray:
        box = self.high - scale * self.low
        if scale < 1:  # the error of the normal law is bounded from 1 up; the larger of the two keeps falling in scale
            return np.maximum(box, self.excess(1.0))
        shares = self.f1 - scale * self.f2 + np.hypot(self.spread1, scale * self.spread2)
        return np.maximum(np.where(self.normal, shares, -np.inf), np.where(self.rare, box, -np.inf))

    def ratio(self) -> np.ndarray:
        """The largest scale at which the excess may still be positive."""
        with np.errstate(divide="ignore", invalid="ignore"):
            box = self.high / self.low
            lead = self.f2**2 - self.spread2**2
            root = np.sqrt(np.maximum((self.f1 * self.f2) ** 2 - lead * (self.f1**2 - self.spread1**2), 0))
            shares = np.where(lead > 0, (self.f1 * self.f2 + root) / lead, np.inf)
        return np.maximum(np.where(self.normal, shares, 0.0), np.where(self.rare, box, 0.0))


def _variances(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest p (1 - p) on [low, high]."""
    ends = low * (1 - low), high * (1 - high)
    return np.minimum(*ends), np.where((low <= 0.5) & (high >= 0.5), 0.25, np.maximum(*ends))


@lru_cache(maxsize=64)
def _table(limit: Callable[..., Any], runs: int, alpha: float) -> np.ndarray:
    return np.full(runs + 1, np.nan)


def _kept(limit: Callable[..., Any], counts: Any, runs: int, alpha: float) -> Any:
    """`limit` of the counts; of few runs the same counts come again and again, so what was found is kept."""
    at = np.asarray(counts).astype(int)
    if runs > MAX_CACHED_RUNS or (at != counts).any():
        return limit(counts, runs, alpha)
    table = _table(limit, runs, alpha)
    found = table[at]
    if np.isnan(found).any():
        new = np.unique(at[np.isnan(found)])
        table[new] = limit(new, runs, alpha)
        found = table[at]
    return found


def excess_limit(a: Any, b_low: Any, b_high: Any, runs: tuple[int, int], alpha: float) -> ExcessLimit:
    m1, m2 = runs
    aside, rest = NUISANCE_SHARE * alpha, (1 - 3 * NUISANCE_SHARE) * alpha
    # The third moment of a side is (1 - 2v) v; written so, the error is largest where the first side has no variance.
    skew = max(1.0, 2 * m2 / (3 * m1))
    # The variance of one run from which on an event is `normal`; at larger levels the limit need not fall in epsilon.
    frequent = (BERRY_ESSEEN * skew / (MAX_NORMAL_ERROR_SHARE * alpha)) ** 2 / m2 if alpha <= 0.25 else np.inf
    if frequent > 0.25:  # no variance is: every event is rare, wherever p1 and p2 lie
        p1, p2 = np.ones(np.shape(a)), (np.zeros(np.shape(a)), np.ones(np.shape(a)))
    else:
        p1 = _kept(upper_limit, a, m1, aside)
        p2 = _kept(lower_limit, b_low, m2, aside), _kept(upper_limit, b_high, m2, aside)
    least, largest = _variances(*p2)
    normal, rare = largest >= frequent, least < frequent
    least = np.clip(np.maximum(least, frequent), None, 0.25)
    error = BERRY_ESSEEN * np.maximum(1 - 2 * least, 2 * m2 / (3 * m1)) / np.sqrt(m2 * least)
    with np.errstate(invalid="ignore"):
        z = np.where(normal, -ndtri(np.maximum(rest - error, 0.0)), 0.0)
    return ExcessLimit(
        np.asarray(a, float) / m1,
        np.asarray(b_low, float) / m2,
        z * np.sqrt(_variances(np.zeros_like(p1), p1)[1] / m1),
        z * np.sqrt(largest / m2),
        _kept(upper_limit, a, m1, rest / 2),
        _kept(lower_limit, b_low, m2, rest / 2),
        normal,
        rare,
    )


class Frontier(NamedTuple):
    """The largest first count that any union of cells has for a given second count: a concave polyline a(b).

    The limits at its corners, and over the stretches between them, do not depend on epsilon.
    """

    b: np.ndarray
    a: np.ndarray
    runs: tuple[int, int]
    alpha: float
    corners: ExcessLimit
    stretches: ExcessLimit

    def height(self, b: np.ndarray) -> np.ndarray:
        return np.floor(np.interp(b, self.b, self.a) * (1 + 1e-14))  # never below a whole number that is met


def frontier(counts1: Any, counts2: Any, runs: Any, alpha: float) -> Frontier:
    """Cells in the order of their ratio, cumulated: no union of cells lies above this line.

    Cells of equal ratio are one stretch of it, so that the order in which cells are named does not matter.
    """
    c1, c2 = checked_columns(counts1, counts2, runs)
    both = runs_per_side(runs)
    seen = c1 + c2 > 0
    c1, c2 = c1[seen], c2[seen]
    _, place = np.unique(-c1 / (c1 + c2), return_inverse=True)
    a, b = (np.append(0.0, np.cumsum(np.bincount(place, c))) for c in (c1, c2))
    last = np.append(b[1:] > b[:-1], True)  # of several points above one b, the highest
    a, b = a[last], b[last]
    corners, stretches = excess_limit(a, b, b, both, alpha), excess_limit(a[1:], b[:-1], b[1:], both, alpha)
    return Frontier(b, a, both, alpha, corners, stretches)


def frontier_bound(line: Frontier, epsilon: float, tolerance: float = 1e-3) -> float:
    """The largest limit of any union: delta on the partition is at most this (one order).

    A stretch between two evaluated b0 < b1 is bounded by its own limit, with a(b1 - 1) and from b0 + 1 to b1 - 1 runs.
    Stretches that could still win are halved until none promises more than `tolerance` standard errors of the first
    count over the best.
    """
    scale = math.exp(min(epsilon, 700.0))  # the bound falls in epsilon: stopping early is safe
    m1 = line.runs[0]
    left, right = line.b[:-1], line.b[1:]
    best = float(line.corners.excess(scale).max())
    bound = line.stretches.excess(scale)
    for _ in range(200):
        fine = tolerance * np.sqrt(np.clip(line.height(right) / m1, 1 / m1, 1) / m1)
        settled = (bound <= best + fine) | (right - left <= 1)
        best = max(best, float(bound[settled & (right - left > 1)].max(initial=-np.inf)))
        left, right = left[~settled], right[~settled]
        if not left.size:
            return best
        middle = np.floor((left + right) / 2)
        here = excess_limit(line.height(middle), middle, middle, line.runs, line.alpha)
        best = max(best, float(here.excess(scale).max()))
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        inner = np.minimum(left + 1, right), np.maximum(right - 1, left)
        low, high = np.minimum(*inner), np.maximum(*inner)
        bound = excess_limit(line.height(inner[1]), low, high, line.runs, line.alpha).excess(scale)
    return max(best, float(bound.max()))


def delta_upper_bound(counts1: Any, counts2: Any, runs: Any, epsilon: float, alpha: float = 0.05) -> float:
    """P1(E) <= e^epsilon P2(E) + this, for all unions E of the cells at once, at confidence 1 - alpha (one order)."""
    check_epsilon(epsilon)
    check_level("alpha", alpha)
    return min(1.0, max(0.0, frontier_bound(frontier(counts1, counts2, runs, alpha), epsilon)))


def epsilon_upper_bound(counts1: Any, counts2: Any, runs: Any, delta: float = 0.0, alpha: float = 0.05) -> float:
    """No union of the cells breaks (this, delta), in either order, at confidence 1 - alpha.

    The worse order is unknown but fixed, so each order's bound at alpha needs no correction. At delta 0 the worst
    single cell decides; a cell with an empty count makes that infinite (all cells must be handed in).
    """
    check_delta(delta)
    check_level("alpha", alpha)
    m1, m2 = runs_per_side(runs)
    if delta == 0:
        c1, c2 = checked_columns(counts1, counts2, (m1, m2))
        forward, backward = excess_limit(c1, c2, c2, (m1, m2), alpha), excess_limit(c2, c1, c1, (m2, m1), alpha)
        worst = np.max(np.maximum(forward.ratio(), backward.ratio()), initial=1.0)
        return float(np.log(worst))
    lines = frontier(counts1, counts2, (m1, m2), alpha), frontier(counts2, counts1, (m2, m1), alpha)
    one = smallest_epsilon(lambda epsilon: frontier_bound(lines[0], epsilon), delta)
    # The other order is only searched where it is the worse one.
    return smallest_epsilon(lambda epsilon: frontier_bound(lines[1], epsilon), delta, one) if one < math.inf else one


def smallest_epsilon(bound: Callable[[float], float], delta: float, least: float = 0.0) -> float:
    """Where a falling bound on delta comes down to this delta, from above; infinite where it does not."""
    low, step = least, 1.0
    if bound(low) <= delta:
        return low
    while bound(high := least + step) > delta:
        low, step = high, 2 * step
        if step > 700:
            return math.inf
    fine = 1e-6 * max(high, 1e-3)
    near: Any = brentq(lambda epsilon: bound(epsilon) - delta, low, high, xtol=fine / 4)
    while near + fine < high:  # from above: where the bound itself says so
        near += fine
        if bound(near) <= delta:
            return near
        fine *= 2
    return high
