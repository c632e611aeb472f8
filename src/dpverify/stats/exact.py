"""The exact test of a claim from two counts, its lower bounds, and its power (docs/method.md, sections 5.2 and 5.10).

`c1 ~ Bin(m1, p1)` and `c2 ~ Bin(m2, p2)` count one frozen event; the claim is `p1 <= R p2 + delta`, `R = e^epsilon`.
Pairs of counts are ordered by T, the value of the free parameter (epsilon or delta) at which the Farrington-Manning
score equals `z_{1-alpha}`. The region `S = {c1 >= b(c2)}` contains every pair at or above the observed one. It does not
depend on the claim. So its largest probability under the claim, over p2 in a Clopper-Pearson interval at confidence
`1 - alpha/1000` (Berger and Boos), rises with the claim, and the lower bound is the largest claim at which it is at
most alpha (Buehler).

The probability of the region is a polynomial in p2 along the boundary of the claim. Its supremum over the nuisance
parameter p2 is bounded by interpolation at Chebyshev nodes on panels. All errors (interpolation, evaluation on a finite
mesh, left-out counts, rounding) are added, so that the result is never too small.

For maintainers. S must *contain* all pairs at or above the observed one, and these sets must be nested. A larger S
(rounding b down, blocks, the monotone closure) only makes the bound less tight. Never make S smaller, and never let it
depend on the claim. The sets are nested because the score falls as its parameter rises. For delta, one constrained
estimate rises and the other falls. For epsilon, with x the constrained p1 and `y = (x - delta)(c1 - m1 x)/(x (1-x))`,
the squared score is `A(x) + G(y)`, where A and `A + y` fall and `0 <= G' <= 1`.

Claims whose boundary G is a curve are tested in the same way; only the order of the pairs differs. The statistic
compares L(c1) with G(U(c2)), where L and U are Wilson limits, so it rises with c1 and falls with c2. With a parameter
the statistic is the parameter whose boundary passes through (U(c2), L(c1)): the region does not depend on the claim, so
the p-value rises with the parameter and the lower bound is valid. Without one it is the distance from the boundary on
the probit scale. The largest probability is reached on the boundary, because the region is monotone.

`plan_runs` counts with binomial distributions and the exact test; the other functions about power are normal
approximations to it. They serve for planning; no certified statement depends on them.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol, overload

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from dpverify.errors import InputError
from dpverify.stats.binomial import (
    FloatArray,
    binomial_pmf,
    binomial_tail,
    binomial_tail_table,
    clopper_pearson_interval,
)
from dpverify.stats.boundaries import Curve
from dpverify.util.checks import (
    BELOW_ONE,
    Runs,
    check_array,
    check_counts,
    check_delta,
    check_epsilon,
    check_probability,
    runs_per_side,
)

BoolArray = NDArray[np.bool_]


class Family(Curve, Protocol):
    """A claim with a parameter. Its boundary is a curve, which rises with the parameter."""

    def with_parameter(self, value: float, /) -> Curve:
        """Return the claim with another value of its parameter."""
        ...


MAX_TABLE_ENTRIES = 1 << 14  # of a table that is computed at once: small enough for the processor's cache
MAX_BLOCKS = 8192  # blocks of values of c2; together they cover about 21 standard deviations
MAX_ORDERING_LEVEL = 0.45  # the score is compared with a positive quantile, whatever alpha is
NUISANCE_SHARE = 1e-3  # of alpha: p2 lies outside its interval (Berger and Boos)
OUTSIDE_SHARE = 1e-8  # of alpha: a count lies outside its window


@dataclass(frozen=True)
class RejectionRegion:
    """The set of all pairs of counts at or above the observed pair, and what depends on the observed pair alone.

    Attributes
    ----------
    first_counts : numpy.ndarray
        The smallest c2 of each block. The blocks cover all values of c2 that matter.
    least_counts : numpy.ndarray
        The region is `{c1 >= least_counts[j]}` where c2 lies in block j. It does not fall along the blocks.
    runs : tuple of int
        The runs of the first and of the second dataset.
    p2_lower, p2_upper : float
        The Clopper-Pearson interval of p2 at confidence `1 - NUISANCE_SHARE * alpha`, rounded outwards.
    score_root : float
        T of the observed pair; -inf where no value of the free parameter is rejected.
    standard_error : float
        The standard error of the free parameter.
    alpha : float
        The level of the test.
    window : float
        By Bernstein's inequality a count lies more than `window` standard deviations and `window^2 / 3` away from its
        mean with a probability of at most `OUTSIDE_SHARE * alpha`.
    """

    first_counts: FloatArray
    least_counts: FloatArray
    runs: tuple[int, int]
    p2_lower: float
    p2_upper: float
    score_root: float
    standard_error: float
    alpha: float
    window: float

    def probability(self, p1: FloatArray, p2: FloatArray) -> FloatArray:
        """Return the probability of the region at each (p1, p2).

        Blocks outside the windows of both counts are left out, so that the result is too small by at most
        `2 * OUTSIDE_SHARE * alpha`.
        """
        (m1, m2), first, least = self.runs, self.first_counts, self.least_counts
        width1, width2 = (
            self.window * np.sqrt(m * p * (1.0 - p)) + self.window * self.window / 3.0 for m, p in ((m1, p1), (m2, p2))
        )
        begin = np.maximum(
            least.searchsorted(m1 * p1 - width1, "right"), first.searchsorted(m2 * p2 - width2, "right") - 1
        )
        end = least.searchsorted(np.minimum(m1 * p1 + width1, m1 + 1.0))
        end = np.minimum(end, first.searchsorted(m2 * p2 + width2, "right"))
        columns = np.arange(max(0, int((end - begin).max())) + 1)
        edges, thresholds = np.r_[first, m2 + 1.0], np.r_[least, m1 + 1.0]  # the last block is empty
        rows = max(1, MAX_TABLE_ENTRIES // len(columns))
        result = np.empty(len(p1))
        for start in range(0, len(p1), rows):
            part = slice(start, start + rows)
            blocks = np.minimum(begin[part, None] + columns, len(first))
            inner = blocks[:, :-1]
            if inner.size and max(m1, m2) <= MAX_BLOCKS:  # every value of c2 is a block of its own
                above = binomial_tail(edges[blocks[:, 0]], m2, p2[part])
                block_mass = binomial_pmf(edges[inner], m2, p2[part, None])
                rejected = binomial_tail_table(thresholds[inner], m1, p1[part])
            else:
                tails = binomial_tail(edges[blocks], m2, p2[part, None])
                above, block_mass = tails[:, 0], tails[:, :-1] - tails[:, 1:]
                rejected = binomial_tail(thresholds[inner], m1, p1[part, None])
            result[part] = 1.0 - above + np.einsum("ij,ij->i", block_mass, rejected)
        return result


def wilson_limit(count: Any, runs: int, z: float) -> Any:
    """Return Wilson's score limit of a proportion: the upper one for z > 0, the lower one for z < 0."""
    return (count + z * z / 2.0 + z * (count * (runs - count) / runs + z * z / 4.0) ** 0.5) / (runs + z * z)


def score_root(
    c1: int, c2: int, runs: tuple[int, int], z: float, ratio: float | None, delta: float
) -> tuple[float, float]:
    """Return T of a pair of counts and its standard error.

    T is an epsilon if `ratio` is None, else a delta. The squared score is Pearson's statistic, so where the score
    equals z the constrained p1 and p2 are Wilson limits at `z cos(angle)` and `z sin(angle)`. The likelihood equation
    `tan(angle) = R sd2/sd1` determines the angle.
    """

    def fit(angle: float) -> tuple[float, float, float, float, float]:
        """Return the two probabilities, their ratio, and the standard errors of p1 and of ratio p2."""
        p1 = max(0.0, wilson_limit(c1, runs[0], -z * math.cos(angle)))
        p2 = min(1.0, wilson_limit(c2, runs[1], z * math.sin(angle)))
        r = (p1 - delta) / max(p2, 1e-300) if ratio is None else ratio
        error1 = math.sqrt(p1 * (1.0 - p1) / runs[0])
        error2 = r * math.sqrt(p2 * (1.0 - p2) / runs[1])
        return p1, p2, r, error1, error2

    if c1 == 0 or (ratio is None and fit(0.0)[0] <= delta):
        return -math.inf, 1.0
    left, right = 0.0, math.pi / 2.0
    for _ in range(60):
        angle = (left + right) / 2.0
        _, _, _, error1, error2 = fit(angle)
        is_below = error2 * math.cos(angle) > error1 * math.sin(angle)
        left, right = (angle, right) if is_below else (left, angle)
    p1, p2, r, error1, error2 = fit(right)
    error = math.hypot(error1, error2)
    return (math.log(r), error / (p1 - delta)) if ratio is None else (p1 - r * p2, error)


def _first_point(condition: Callable[[FloatArray], BoolArray], left: FloatArray, right: FloatArray) -> FloatArray:
    """Return, elementwise, the point of [left, right] from which on the condition holds (`right` if it never does)."""
    for _ in range(48):
        middle = (left + right) / 2.0
        holds = condition(middle)
        left, right = np.where(holds, left, middle), np.where(holds, middle, right)
    return right


def least_first_count(c2: FloatArray, runs: tuple[int, int], z: float, ratio: float, delta: float) -> FloatArray:
    """Return `b`: for each c2 the least c1 whose score for `p1 <= ratio p2 + delta` reaches z, `m1 + 1` if none does.

    With c2 fixed, the constrained estimate p of p2 rises with c1, and the score is `s sqrt(V)`,
    `s = m2 (p - c2/m2) / (ratio p (1-p))`, `V = p1 (1-p1)/m1 + ratio^2 p (1-p)/m2`. So it suffices to find one root in
    p.
    """
    (m1, m2), share, cap = runs, c2 / runs[1], min(1.0, (1.0 - delta) / ratio)
    z *= 1.0 - 1e-9  # pairs tied with the observed one (its mirror image, for example) stay in despite rounding

    def variance(p: FloatArray) -> FloatArray:
        p1 = np.clip(ratio * p + delta, 0.0, 1.0)
        return p1 * (1.0 - p1) / m1 + ratio**2 * p * (1.0 - p) / m2

    def score_reaches_z(p: FloatArray) -> BoolArray:
        return m2 * (p - share) * np.sqrt(variance(p)) >= z * ratio * p * (1.0 - p)

    def score_falls(p: FloatArray) -> BoolArray:
        slope = ratio * (1.0 - 2.0 * (ratio * p + delta)) / m1 + ratio**2 * (1.0 - 2.0 * p) / m2
        rise = 2.0 * variance(p) * ((p - share) ** 2 + share * (1.0 - share))
        return rise + (p - share) * p * (1.0 - p) * slope < -1e-12 * rise

    possible = (share <= cap) & (-delta / ratio <= cap)
    left = np.minimum(np.maximum(share, -delta / ratio), cap)
    right = np.maximum(left, np.minimum(cap, wilson_limit(c2, m2, z)))  # here the second sample alone reaches z
    if m2 > ratio * m1:  # only then may the score fall again, towards c1 = m1: search only up to its single peak
        right = _first_point(score_falls, left, right)
    possible &= score_reaches_z(right)
    exact = m1 * (ratio * share + delta + z * np.sqrt(variance(_first_point(score_reaches_z, left, right))))
    # Rounding down by more than the error of the arithmetic is safe: it can only add pairs to the region.
    return np.where(possible, np.clip(np.ceil(exact - 1e-9 - 4e-15 * m1), 0.0, m1 + 1.0), m1 + 1.0)


def _monotone_region(
    c1: int,
    c2: int,
    runs: tuple[int, int],
    alpha: float,
    least_first: Callable[[FloatArray], FloatArray],
    root: float,
    standard_error: float,
) -> RejectionRegion:
    """Return the region of all pairs at or above the least first counts, made monotone; the observed pair is inside."""
    m2 = runs[1]
    p2_lower, p2_upper = clopper_pearson_interval(c2, m2, NUISANCE_SHARE * alpha)
    window = math.sqrt(-2.0 * (math.log(OUTSIDE_SHARE) + math.log(alpha)))
    # The blocks cover the windows of all p2 in the interval.
    lower_width = window * math.sqrt(m2 * p2_lower * (1.0 - p2_lower))
    upper_width = window * math.sqrt(m2 * p2_upper * (1.0 - p2_upper))
    start = max(0, math.floor(m2 * p2_lower - lower_width - window * window / 3.0))
    stop = min(m2, math.ceil(m2 * p2_upper + upper_width + window * window / 3.0))
    first_counts = np.arange(start, stop + 1, -(-(stop - start + 1) // MAX_BLOCKS), dtype=float)
    least_counts = least_first(first_counts)
    least_counts = np.where(first_counts <= c2, np.minimum(least_counts, c1), least_counts)
    least_counts = np.minimum.accumulate(least_counts[::-1])[::-1]
    return RejectionRegion(first_counts, least_counts, runs, p2_lower, p2_upper, root, standard_error, alpha, window)


@lru_cache(maxsize=16)  # a bound and its p-value use the same region
def rejection_region(
    c1: int, c2: int, runs: tuple[int, int], alpha: float, ratio: float | None, delta: float
) -> RejectionRegion:
    """Return the region of the observed pair; the free parameter is epsilon if `ratio` is None, else delta."""
    z = float(-scipy.special.ndtri(min(alpha, MAX_ORDERING_LEVEL)))  # z only orders the pairs: any z > 0 is valid
    root, standard_error = score_root(c1, c2, runs, z, ratio, delta)
    least_first: Callable[[FloatArray], FloatArray] = np.zeros_like
    if root > -math.inf:
        claim = {"ratio": math.exp(root), "delta": delta} if ratio is None else {"ratio": ratio, "delta": root}
        least_first = functools.partial(least_first_count, runs=runs, z=z, **claim)
    return _monotone_region(c1, c2, runs, alpha, least_first, root, standard_error)


# Shares of alpha that the certificate costs, besides those of the region. The factor MESH_FACTOR costs 3e-5 of the
# supremum in addition.
INTERPOLATION_SHARE = 4e-4  # the error of interpolation between the nodes
ROUNDING_SHARE = 1e-5  # tails and their sums in double precision
ROUNDING_ERROR = 1e-15  # absolute; no smaller p-value can be certified

# On a panel the boundary is replaced by a line above it. The line may be too high by this multiple of a standard error,
# which changes the p-value by less than 0.3 %.
LINE_TOLERANCE = 1e-3
LINE_ROUNDING = 1e-14  # relative, by which the line is raised for the rounding of the boundary
MAX_UNPRUNED_PANELS = 32  # more panels are first reduced to those that may contain the supremum
NODES = 16  # Chebyshev nodes of a panel
MESH_INTERVALS = 2048  # of the mesh, equidistant in the angle, on which the interpolant is evaluated
_DEGREES = np.arange(NODES)
_ANGLES = (_DEGREES + 0.5) * math.pi / NODES
CHEBYSHEV_NODES = np.cos(_ANGLES)
_COEFFICIENTS = np.cos(np.outer(_DEGREES, _ANGLES)) * np.where(_DEGREES > 0, 2.0, 1.0)[:, None] / NODES
_NODES_TO_MESH = np.cos(np.outer(_DEGREES, np.arange(MESH_INTERVALS + 1) * math.pi / MESH_INTERVALS)).T @ _COEFFICIENTS
# Between the points of so fine a mesh a polynomial exceeds its values there by this factor at most (Ehlich and Zeller).
# The values lie in [0, supremum], so the factor applies to half of the supremum.
MESH_FACTOR = 1.0 + 0.5 * (1.0 / math.cos((NODES - 1) * math.pi / (2 * MESH_INTERVALS)) - 1.0)
_RADII = np.r_[np.geomspace(1.5, 60.0, 10), np.geomspace(300.0, 1e8, 4)]
# The corners of a polygon around the upper half of the unit circle, and their images around Bernstein ellipses.
_CORNERS = np.exp(1j * np.linspace(0.0, math.pi, 9)) / math.cos(math.pi / 16)
_ELLIPSES = (np.outer(_RADII, _CORNERS) + np.outer(1.0 / _RADII, _CORNERS.conj())) / 2.0


def interpolation_error(runs: tuple[int, int], *panels: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Return, for each panel, an upper bound on the error of interpolation at Chebyshev nodes, for any event.

    `panels` holds the left and right ends in p1, then those in p2. At complex p the probability of an event, less 1/2,
    is at most `M = 1/2 prod (|p_i| + |1 - p_i|)^m_i`, and the interpolation error is at most `4 M rho^(1-n) / (rho-1)`
    for the maximum of M on the ellipse of radius rho. Sums of distances are convex, so the corners of a polygon around
    the ellipse bound them. Unlike the Fisher information this stays finite at 0 and 1.
    """
    logs = np.log(2.0 / (_RADII - 1.0)) - (NODES - 1) * np.log(_RADII)
    for m, (left, right) in zip(runs, panels, strict=True):
        points = ((left + right) / 2.0)[:, None, None] + ((right - left) / 2.0)[:, None, None] * _ELLIPSES
        sums = (np.abs(points) + np.abs(1.0 - points)).max(axis=2)
        logs = logs + m * (np.log(np.maximum(sums, 1.0)) + 4e-16)
    return np.exp(np.minimum(logs.min(axis=1), 0.0))


def largest_p_value(region: RejectionRegion, ratio: float, delta: float, level: float = 1.0) -> float:
    """Return the p-value of `p1 <= ratio p2 + delta`, as `largest_p_value_below` of this line."""
    cap = min(1.0, (1.0 - delta) / ratio)
    return largest_p_value_below(
        region, lambda p2: np.where(p2 >= cap, 1.0, np.minimum(1.0, ratio * p2 + delta)), cap, level
    )


@np.errstate(all="ignore")  # tails underflow to 0, whatever the caller has set
def largest_p_value_below(
    region: RejectionRegion, boundary: Callable[[FloatArray], FloatArray], cap: float = 1.0, level: float = 1.0
) -> float:
    """Return the p-value of `p1 <= boundary(p2)`, the largest over p2 in its interval. It is never too small.

    Near alpha it is too large by less than 5e-4 alpha for a line, and by less than 0.3% for a curve. A p-value above
    `level` is not computed further: the result is then some number above it.

    A concave function exceeds its chord by at most twice as much as in the middle of the interval. On a short panel the
    chord, raised by that, bounds the boundary closely. Along this line the probability of the region is a polynomial,
    whose supremum is bounded by interpolation at Chebyshev nodes. From `cap` on the boundary is 1: there, a larger p2
    only makes the region less likely (b rises), so no p2 above it is evaluated.
    """
    (m1, _), alpha, tolerance = region.runs, region.alpha, max(INTERPOLATION_SHARE * region.alpha, 1e-100)
    left, right = np.array([region.p2_lower]), np.array([min(region.p2_upper, cap)])
    supremum = float(region.probability(boundary(left), left)[0])
    left, right = left[left < right], right[left < right]
    if level < 1.0 and left.size:
        # The maximum on the mesh cannot lie below the probability at one point by more than the tolerance.
        middle = (left + right) / 2.0
        at_middle = float(region.probability(boundary(middle), middle)[0])
        if at_middle - tolerance > level:
            return add_errors(at_middle, alpha)
    while left.size and add_errors(supremum, alpha) <= level:
        middle = (left + right) / 2.0
        low, centre, high = boundary(left), boundary(middle), boundary(right)
        if left.size > MAX_UNPRUNED_PANELS:
            # This happens where one sample is far more precise than the other. The probability at the corner (p1 at the
            # right end, p2 at the left end) bounds a whole panel: panels that cannot exceed the supremum are dropped.
            supremum = max(supremum, float(region.probability(centre, middle).max()))
            open_ = region.probability(high, left) > supremum + tolerance
            left, middle, right, low, centre, high = (x[open_] for x in (left, middle, right, low, centre, high))
        lift = 2.0 * np.maximum(centre - (low + high) / 2.0, 0.0) + LINE_ROUNDING * high
        straight = lift <= LINE_TOLERANCE * np.sqrt((centre * (1.0 - centre) + 1.0 / m1) / m1)
        # The line is cut where it reaches 1.
        begin, end = np.minimum(low + lift, 1.0), high + lift
        cut = np.where(end > 1.0, left + (right - left) * (1.0 - begin) / np.maximum(end - begin, 1e-300), right)
        cut, end = np.clip(cut, left, right), np.minimum(end, 1.0)
        accurate = straight & (interpolation_error(region.runs, (begin, end), (left, cut)) <= tolerance)
        if accurate.any():
            supremum = max(supremum, _supremum_on_lines(region, *(x[accurate] for x in (left, cut, begin, end))))
        short = ~accurate & (right - left <= 1e-14 * right)
        if short.any():
            supremum = max(supremum, float(region.probability(high[short], left[short]).max()))
        again = ~(accurate | short)
        left, right = np.r_[left[again], middle[again]], np.r_[middle[again], right[again]]
    return add_errors(supremum, alpha)


def _supremum_on_lines(
    region: RejectionRegion, left: FloatArray, right: FloatArray, begin: FloatArray, end: FloatArray
) -> float:
    """Return the largest probability of the region on lines from (left, begin) to (right, end); p2 comes first."""
    share = (1.0 + CHEBYSHEV_NODES) / 2.0
    p2 = left[:, None] + (right - left)[:, None] * share
    p1 = np.clip(begin[:, None] + (end - begin)[:, None] * share, 0.0, 1.0)
    values = region.probability(p1.ravel(), p2.ravel()).reshape(p2.shape)
    # Products of few rows stay in the processor's cache, and BLAS starts no threads for them.
    rows = MAX_TABLE_ENTRIES // (MESH_INTERVALS + 1)
    return max(float((values[i : i + rows] @ _NODES_TO_MESH.T).max()) for i in range(0, len(values), rows))


def add_errors(supremum: float, alpha: float) -> float:
    """Return the p-value: the supremum on the mesh plus all errors of its computation."""
    share = NUISANCE_SHARE + INTERPOLATION_SHARE + 2.0 * OUTSIDE_SHARE + ROUNDING_SHARE
    return min(1.0, supremum * MESH_FACTOR + alpha * share + ROUNDING_ERROR)


MAX_RUNS = 10**12  # beyond it double precision cannot distinguish a proportion near 1 from its neighbours
MAX_EPSILON = 100.0  # no larger epsilon can be certified: p1 may be 1 and p2 practically 0
MAX_SECANT_STEPS = 20  # of a search; after them it bisects
LEVEL_TOLERANCE = 1e-5  # relative; the p-value at the bound lies below alpha by at most this
PointFunction = Callable[[int, int, tuple[int, int], float, float, float], float]


@lru_cache(maxsize=4096)
def _lower_bound(c1: int, c2: int, runs: tuple[int, int], alpha: float, epsilon: float | None, delta: float) -> float:
    """Return the largest rejected value of the free parameter, 0.0 if there is none.

    The free parameter is epsilon if `epsilon` is None, else delta.
    """
    ratio = None if epsilon is None else math.exp(epsilon)
    region = rejection_region(c1, c2, runs, alpha, ratio, delta)

    highest = MAX_EPSILON if ratio is None else 1.0
    start = min(max(region.score_root, 0.0), highest)
    return largest_rejected(
        lambda value: largest_p_value(region, *((math.exp(value), delta) if ratio is None else (ratio, value))),
        alpha,
        start,
        min(region.standard_error, highest),
        highest,
    )


def largest_rejected(
    p_value: Callable[[float], float], alpha: float, start: float, scale: float, high: float = math.inf
) -> float:
    """Return the largest value, from 0 up, at which a rising p-value is at most alpha; 0.0 if there is none.

    The p-value at the result is at least `(1 - 1e-5) alpha`. The search uses secants on the normal scale, where the
    p-value is nearly linear.

    Parameters
    ----------
    p_value : callable
        The p-value of a parameter, which does not fall.
    alpha : float
        The level.
    start : float
        The first value that is tried.
    scale : float
        The standard error of the parameter, roughly.
    high : float
        No larger value is rejected.

    Examples
    --------
    >>> largest = largest_rejected(lambda value: float(scipy.special.ndtr(value - 3.0)), 0.05, start=1.0, scale=1.0)
    >>> round(largest, 3)
    1.355
    """
    goal = float(scipy.special.ndtri(alpha * (1.0 - LEVEL_TOLERANCE / 2)))
    low = 0.0  # the largest rejected value so far
    value, slope = start, scale
    previous: tuple[float, float] | None = None
    for step in range(10 * MAX_SECANT_STEPS):
        p = p_value(value)
        if p > alpha:
            high = value
        else:
            low = value
        if high == 0.0 or alpha * (1.0 - LEVEL_TOLERANCE) <= p <= alpha or high - low <= 1e-7 * scale:
            break
        quantile = float(scipy.special.ndtri(min(max(p, 1e-300), 1.0 - 1e-15)))
        if previous is not None and (value - previous[0]) * (quantile - previous[1]) > 0.0:
            slope = (value - previous[0]) / (quantile - previous[1])
        previous = (value, quantile)
        value = value + min(max((goal - quantile) * slope, -8.0 * scale), 8.0 * scale)
        if not low < value < high or step > MAX_SECANT_STEPS:
            value = 0.0 if value <= low == 0.0 else (low + min(high, 2.0 * low + 1.0)) / 2.0
    return low


def _p_value(
    limit: float, c1: int, c2: int, runs: tuple[int, int], alpha: float, epsilon: float, delta: float
) -> float:
    """Return the p-value of one claim, which is at most alpha exactly where epsilon lies below the lower bound."""
    region = rejection_region(c1, c2, runs, alpha, None, delta)
    p = largest_p_value(region, math.exp(epsilon), delta, max(limit, 2 * alpha))
    return _agreed(p, alpha, lambda: epsilon < _lower_bound(c1, c2, runs, alpha, None, delta))


def _agreed(p: float, alpha: float, is_below_bound: Callable[[], bool]) -> float:
    """Return the p-value of a claim, moved to the side of alpha on which the lower bound decides about the claim.

    The bound and the p-value both come from upper bounds on one rising function. Where they disagree about alpha, the
    difference lies within the error of these upper bounds, and either decision is valid. Far from alpha they agree.
    """
    if not alpha / 2 < p < 2 * alpha:
        return p
    return min(p, alpha) if is_below_bound() else max(p, math.nextafter(alpha, 1.0))


def is_rejected(c1: int, c2: int, runs: int, epsilon: float, delta: float, alpha: float) -> bool:
    """Return whether the test at level alpha rejects the claim `p1 <= e^epsilon p2 + delta`.

    It needs one evaluation of the test. Near alpha, `claim_p_value` also searches the lower bound.

    Examples
    --------
    >>> is_rejected(300, 100, 1000, 0.5, 0.0, 1e-3), is_rejected(300, 100, 1000, 1.0, 0.0, 1e-3)
    (True, False)
    """
    region = rejection_region(c1, c2, (runs, runs), alpha, None, delta)
    return largest_p_value(region, math.exp(min(epsilon, MAX_EPSILON)), delta, alpha) <= alpha


def _vectorise(
    function: PointFunction,
    c1: ArrayLike,
    c2: ArrayLike,
    runs: Runs,
    alpha: float,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> float | np.ndarray:
    """Check the arguments, then apply a function of one pair of counts and one claim to all of them."""
    m1, m2 = runs_per_side(runs, MAX_RUNS)
    check_probability("alpha", alpha)
    first_counts, second_counts = check_counts("c1", c1, m1), check_counts("c2", c2, m2)
    deltas = check_array("delta", delta, 0.0, BELOW_ONE, "0 or more and below 1")
    epsilons = check_array("epsilon", epsilon, 0.0, 1.7e308, "0 or more and finite")
    try:
        cases = np.broadcast(first_counts, second_counts, np.minimum(epsilons, MAX_EPSILON), deltas)
    except ValueError:
        shapes = ", ".join(str(np.shape(values)) for values in (c1, c2, epsilon, delta))
        raise InputError(
            f"c1, c2, epsilon, delta: found shapes {shapes}; expected shapes that broadcast against each other"
        ) from None
    level = float(alpha)
    results = [function(int(a), int(b), (m1, m2), level, float(e), float(d)) for a, b, e, d in cases]
    return np.array(results, dtype=float).reshape(cases.shape) if cases.ndim else results[0]


@overload
def epsilon_lower_bound(c1: float, c2: float, runs: Runs, delta: float = 0.0, alpha: float = 0.05) -> float: ...
@overload
def epsilon_lower_bound(
    c1: ArrayLike, c2: ArrayLike, runs: Runs, delta: ArrayLike = 0.0, alpha: float = 0.05
) -> np.ndarray: ...
def epsilon_lower_bound(
    c1: ArrayLike, c2: ArrayLike, runs: Runs, delta: ArrayLike = 0.0, alpha: float = 0.05
) -> float | np.ndarray:
    """Return a certified lower bound on epsilon in `p1 <= e^epsilon p2 + delta`.

    With probability at least `1 - alpha` the bound is not above the true epsilon (docs/method.md, section 5.2).

    Parameters
    ----------
    c1, c2 : array_like of int
        How many runs of the first and of the second dataset were in the event. The event must be fixed before the
        runs.
    runs : number, or pair of numbers
        The runs per dataset, or those of the first and of the second dataset, at most 10^12.
    delta : array_like
        The delta of the claim, at least 0 and below 1. `c1`, `c2` and `delta` broadcast.
    alpha : float
        The probability of an error.

    Returns
    -------
    float or numpy.ndarray
        The bound, always finite; 0.0 where nothing is proved. Scalar arguments give a float.

    Raises
    ------
    InputError
        If an argument is out of its range, or the shapes do not broadcast.

    Examples
    --------
    >>> round(epsilon_lower_bound(300, 100, 1000), 3)
    0.926
    >>> epsilon_lower_bound([300, 100], 100, 1000, delta=0.1).round(3).tolist()
    [0.497, 0.0]
    """
    return _vectorise(
        lambda a, b, m, level, _, d: _lower_bound(a, b, m, level, None, d), c1, c2, runs, alpha, 0.0, delta
    )


@overload
def delta_lower_bound(c1: float, c2: float, runs: Runs, epsilon: float, alpha: float = 0.05) -> float: ...
@overload
def delta_lower_bound(
    c1: ArrayLike, c2: ArrayLike, runs: Runs, epsilon: ArrayLike, alpha: float = 0.05
) -> np.ndarray: ...
def delta_lower_bound(
    c1: ArrayLike, c2: ArrayLike, runs: Runs, epsilon: ArrayLike, alpha: float = 0.05
) -> float | np.ndarray:
    """Return a certified lower bound on delta in `p1 <= e^epsilon p2 + delta`, at a given epsilon.

    Each value holds at confidence `1 - alpha` on its own. Pairs of counts are ordered by delta here and by epsilon in
    `epsilon_lower_bound`, so the two may disagree about a claim that is only just refuted (docs/method.md, section
    5.2).

    Parameters
    ----------
    c1, c2 : array_like of int
        How many runs of the first and of the second dataset were in the event. The event must be fixed before the
        runs.
    runs : number, or pair of numbers
        The runs per dataset, or those of the first and of the second dataset, at most 10^12.
    epsilon : array_like
        The epsilon of the claim, at least 0. `c1`, `c2` and `epsilon` broadcast.
    alpha : float
        The probability of an error.

    Returns
    -------
    float or numpy.ndarray
        The bound; 0.0 where nothing is proved. Scalar arguments give a float.

    Raises
    ------
    InputError
        If an argument is out of its range, or the shapes do not broadcast.

    Examples
    --------
    >>> round(delta_lower_bound(300, 100, 1000, epsilon=0.5), 3)
    0.099
    """
    return _vectorise(_lower_bound, c1, c2, runs, alpha, epsilon, 0.0)


def claim_p_value(
    c1: ArrayLike,
    c2: ArrayLike,
    runs: Runs,
    epsilon: ArrayLike,
    delta: ArrayLike = 0.0,
    alpha: float = 0.05,
    limit: float = 1.0,
) -> float | np.ndarray:
    """Return a valid p-value of the claim `p1 <= e^epsilon p2 + delta`.

    It is at most `alpha` exactly where `epsilon < epsilon_lower_bound(c1, c2, runs, delta, alpha)`. The p-value depends
    on `alpha`, which orders the pairs of counts (through `z_{1-alpha}`). A share of alpha/1000 goes to the interval of
    the nuisance parameter, so no p-value is smaller than that. For an alpha that is fixed beforehand the p-value is
    valid at every level (docs/method.md, section 5.2).

    Parameters
    ----------
    c1, c2 : array_like of int
        How many runs of the first and of the second dataset were in the event. The event must be fixed before the
        runs.
    runs : number, or pair of numbers
        The runs per dataset, or those of the first and of the second dataset, at most 10^12.
    epsilon, delta : array_like
        The claim. `c1`, `c2`, `epsilon` and `delta` broadcast.
    alpha : float
        The level for which the test is optimised.
    limit : float
        A p-value above it and above `2 * alpha` is not computed further: the result is then some number above both.

    Returns
    -------
    float or numpy.ndarray
        The p-value, above 0 and at most 1. Scalar arguments give a float.

    Raises
    ------
    InputError
        If an argument is out of its range, or the shapes do not broadcast.

    Examples
    --------
    >>> claim_p_value(300, 100, 1000, epsilon=0.5) < 0.05 < claim_p_value(300, 100, 1000, epsilon=1.0)
    True
    """
    return _vectorise(partial(_p_value, limit), c1, c2, runs, alpha, epsilon, delta)


# The p-value of the test at level alpha is never much smaller than this multiple of alpha.
P_VALUE_FLOOR = 2e-3
SMALLEST_TEST_LEVEL = 1e-12  # smaller p-values add nothing to the evidence, and cost a test each


def small_p_value(c1: int, c2: int, runs: int, epsilon: float, delta: float, alpha: float, limit: float = 1.0) -> float:
    """Return a p-value of the claim `p1 <= e^epsilon p2 + delta` that can be much smaller than alpha.

    A p-value of the exact test at level alpha is at least about alpha / 700. If it reaches `P_VALUE_FLOOR * alpha`, the
    test is repeated at smaller and smaller levels while it rejects, and the last level at which it rejects is returned.
    The result is at most a level only if the test at this level rejects, so it is a valid p-value.

    Parameters
    ----------
    c1, c2 : int
        Runs in the event, under the dataset that is expected to have more of them and under the other one.
    runs : int
        Runs per dataset.
    epsilon, delta : float
        The claim.
    alpha : float
        Level of the test.
    limit : float
        A p-value above it and above `2 * alpha` is not computed further: the result is then some number above both.
    """
    p_value = _p_value(limit, c1, c2, (runs, runs), alpha, min(epsilon, MAX_EPSILON), delta)
    return repeat_at_smaller_levels(p_value, alpha, lambda level: is_rejected(c1, c2, runs, epsilon, delta, level))


def repeat_at_smaller_levels(p_value: float, alpha: float, rejects: Callable[[float], bool]) -> float:
    """Return the p-value of a test at level alpha, or the smallest of some fixed levels at which the test rejects."""
    if p_value > P_VALUE_FLOOR * alpha:
        return p_value
    p_value = P_VALUE_FLOOR * alpha
    level = alpha / 1000
    while level >= SMALLEST_TEST_LEVEL and rejects(level):  # few levels, because each costs a test
        p_value, level = level, level / 10**6
    return p_value


MAX_BOUNDARY_NODES = 512  # second counts at which the boundary is evaluated for the region
MAX_PARAMETER = 1e6  # no larger parameter of a claim can be certified


def _root(condition: Callable[[float], bool]) -> float:
    """Return the largest parameter at which a condition holds that holds up to some parameter; 0.0 if nowhere."""
    if not condition(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while condition(high):
        low, high = high, 2.0 * high
        if high > MAX_PARAMETER:
            return MAX_PARAMETER
    while high - low > 1e-13 * high:
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if condition(middle) else (low, middle)
    return low


def _observed_parameter(family: Family, c1: int, c2: int, runs: tuple[int, int], z: float) -> float:
    """Return the parameter whose boundary passes through the Wilson limits of the observed pair, or 0.0."""
    lower, upper = wilson_limit(c1, runs[0], -z), min(1.0, wilson_limit(c2, runs[1], z))
    if lower <= upper:
        return 0.0
    return _root(lambda value: float(family.with_parameter(value).boundary(upper)) <= lower)


def _curve_quantile(alpha: float) -> float:
    """Return the normal quantile of the two Wilson limits that together have the level of the test."""
    return float(-scipy.special.ndtri(min(alpha, MAX_ORDERING_LEVEL))) / math.sqrt(2.0)


@lru_cache(maxsize=64)
def _family_region(c1: int, c2: int, runs: tuple[int, int], alpha: float, family: Family) -> RejectionRegion | None:
    """Return the region of all pairs whose parameter is at least the observed one, or None if it contains all pairs."""
    z = _curve_quantile(alpha)
    root = _observed_parameter(family, c1, c2, runs, z)
    if root <= 0.0:
        return None
    step = root - _observed_parameter(family, c1, c2, runs, 1.1 * z)
    boundary = family.with_parameter(root).boundary
    return _curve_region(c1, c2, runs, alpha, boundary, 0.0, root, step / (0.1 * z * math.sqrt(2.0)))


@lru_cache(maxsize=64)
def _distance_region(c1: int, c2: int, runs: tuple[int, int], alpha: float, curve: Curve) -> RejectionRegion | None:
    """Return the region of all pairs at least as far from the curve as observed, or None if it contains all pairs."""
    z = _curve_quantile(alpha)
    allowed = float(curve.boundary(min(1.0, wilson_limit(c2, runs[1], z))))
    if c1 == 0 or allowed >= 1.0:
        return None
    shift = float(scipy.special.ndtri(wilson_limit(c1, runs[0], -z)) - scipy.special.ndtri(allowed))
    return _curve_region(c1, c2, runs, alpha, curve.boundary, shift, 0.0, 1.0)


def _curve_region(
    c1: int,
    c2: int,
    runs: tuple[int, int],
    alpha: float,
    boundary: Callable[[FloatArray], FloatArray],
    shift: float,
    root: float,
    scale: float,
) -> RejectionRegion:
    """Return the region of all pairs whose Wilson limits lie above the boundary, moved by `shift` probits."""
    (m1, m2), z = runs, _curve_quantile(alpha)

    def least_first(first_counts: FloatArray) -> FloatArray:
        nodes = first_counts[:: -(-len(first_counts) // MAX_BOUNDARY_NODES)]
        nodes = np.unique(np.r_[nodes, first_counts[-1]])
        # A concave boundary lies above its chords, so interpolation can only add pairs to the region.
        limits = np.minimum(1.0, wilson_limit(nodes, m2, z))
        threshold = np.interp(np.minimum(1.0, wilson_limit(first_counts, m2, z)), limits, boundary(limits))
        if shift != 0.0:
            threshold = scipy.special.ndtr(scipy.special.ndtri(threshold) + shift)
        exact = m1 * threshold + z * np.sqrt(m1 * threshold * (1.0 - threshold))  # Wilson's limit of it: the threshold
        # Rounding down by more than the error of the arithmetic is safe: it can only add pairs to the region.
        least_counts = np.where(threshold < 1.0, np.ceil(exact - 1e-6 - 1e-9 * np.sqrt(m1) - 4e-15 * m1), m1 + 1.0)
        return np.clip(least_counts, 0.0, m1 + 1.0)

    return _monotone_region(c1, c2, runs, alpha, least_first, root, scale)


@lru_cache(maxsize=4096)
def parameter_lower_bound(c1: int, c2: int, runs: tuple[int, int], alpha: float, family: Family) -> float:
    """Return a certified lower bound on the parameter of a claim whose boundary is a curve.

    With probability at least `1 - alpha` the bound is not above the smallest parameter with which the claim holds.

    Parameters
    ----------
    c1, c2 : int
        Runs in the event, under the dataset that is expected to have more of them and under the other one.
    runs : pair of int
        The runs of the two datasets.
    alpha : float
        The probability of an error.
    family : Family
        The claim with its parameter set to 0: only its kind matters.
    """
    region = _family_region(c1, c2, runs, alpha, family)
    if region is None:
        return 0.0
    return largest_rejected(
        lambda value: largest_p_value_below(region, family.with_parameter(value).boundary),
        alpha,
        region.score_root,
        region.standard_error,
        MAX_PARAMETER,
    )


@lru_cache(maxsize=4096)
def parameter_p_value(c1: int, c2: int, runs: tuple[int, int], alpha: float, family: Family, parameter: float) -> float:
    """Return a valid p-value of a claim, at most alpha exactly where its parameter is below `parameter_lower_bound`.

    As for `claim_p_value`, alpha orders the pairs, and no p-value is smaller than alpha/1000.
    """
    region = _family_region(c1, c2, runs, alpha, family)
    if region is None:
        return 1.0
    p = largest_p_value_below(region, family.with_parameter(parameter).boundary)
    return _agreed(p, alpha, lambda: parameter < parameter_lower_bound(c1, c2, runs, alpha, family))


@lru_cache(maxsize=4096)
def curve_p_value(c1: int, c2: int, runs: tuple[int, int], alpha: float, curve: Curve) -> float:
    """Return a valid p-value of a claim without a parameter, like `parameter_p_value`."""
    region = _distance_region(c1, c2, runs, alpha, curve)
    return 1.0 if region is None else largest_p_value_below(region, curve.boundary)


MAX_PLANNED_RUNS = 10**18  # more runs than this cannot be drawn in practice
QUANTILES = (np.arange(512) + 0.5) / 512  # of the rarer count; a mean over them errs by at most 1/512
SEARCHED_COUNTS = 32  # of the rarer dataset; where there are more, they are so large that the exact test varies little
PLAN_STEPS = 100  # a plan exceeds the runs that just suffice by at most a fiftieth


def _excess_moments(p1: float, p2: float, epsilon: float, delta: float) -> tuple[float, float, float]:
    """Return the mean of `f1 - e^epsilon f2 - delta` for one run per dataset, and two standard deviations of it.

    The first standard deviation is that at the constrained estimates, the second one that at (p1, p2).
    """
    scale = math.exp(epsilon)
    cap = min(1.0, (1 - delta) / scale)

    def likelihood_slope(q2: float) -> float:  # of the expected log-likelihood along q1 = e^epsilon q2 + delta
        q1 = scale * q2 + delta
        return scale * (p1 - q1) / (q1 * (1 - q1)) + (p2 - q2) / (q2 * (1 - q2))

    margin = 1e-12 * cap
    low, high = margin, cap - margin
    if likelihood_slope(low) <= 0:
        q2 = low
    elif likelihood_slope(high) >= 0:
        q2 = high
    else:
        q2 = float(scipy.optimize.brentq(likelihood_slope, low, high, xtol=1e-15))  # type: ignore[arg-type]
    at_claim, true = (
        math.sqrt(first * (1 - first) + scale**2 * second * (1 - second))
        for first, second in ((scale * q2 + delta, q2), (p1, p2))
    )
    return p1 - scale * p2 - delta, at_claim, true


def power(runs: int, p1: float, p2: float, epsilon: float, delta: float = 0.0, alpha: float = 0.05) -> float:
    """Return about the probability that a test with so many runs per dataset refutes `p1 <= e^epsilon p2 + delta`.

    Examples
    --------
    >>> round(power(1000, 0.3, 0.1, epsilon=0.9), 2)
    0.6
    """
    mean, under_claim, true = _excess_moments(p1, p2, epsilon, delta)
    if true == 0:
        return float(mean > 0)
    return float(scipy.special.ndtr((mean * math.sqrt(runs) + scipy.special.ndtri(alpha) * under_claim) / true))


def plan_runs(
    epsilon: float, true_epsilon: float, event_mass: float, delta: float = 0.0, alpha: float = 0.05, power: float = 0.8
) -> int:
    """Return how many test runs per dataset refute a false claim with a given probability.

    Parameters
    ----------
    epsilon : float
        The claimed epsilon, at least 0.
    true_epsilon : float
        The true epsilon on the event, above the claimed one.
    event_mass : float
        The probability of the event under the dataset for which it is more likely.
    delta : float
        The delta of the claim, and of the truth.
    alpha : float
        The level of the test.
    power : float
        The probability with which the claim is refuted.

    Returns
    -------
    int
        The number of test runs per dataset. With them the exact test of one event refutes the claim with this
        probability; from 10^11 runs on, where the counts are large or no machine draws them, a normal approximation.

    Raises
    ------
    InputError
        If an argument is out of its range, or if the claim is true: no number of runs refutes a true claim.

    Examples
    --------
    >>> plan_runs(epsilon=0.5, true_epsilon=1.0, event_mass=0.3)
    231
    """
    check_epsilon(epsilon)
    check_epsilon(true_epsilon, "true_epsilon")
    check_delta(delta)
    for name, value in (("alpha", alpha), ("power", power), ("event_mass", event_mass)):
        check_probability(name, value)
    if true_epsilon <= epsilon or event_mass <= delta:
        raise InputError(
            f"true_epsilon: found {true_epsilon} for a claim of {epsilon}, event_mass {event_mass} and delta {delta}; "
            "expected true_epsilon above epsilon and event_mass above delta; no number of runs refutes a true claim"
        )
    p2 = (event_mass - delta) * math.exp(-true_epsilon)
    runs = approximate_runs(epsilon, true_epsilon, event_mass, delta, alpha, power)
    if runs > MAX_RUNS // 10:
        return runs

    def is_enough(runs: int) -> bool:
        return exact_power(runs, event_mass, p2, epsilon, delta, alpha) >= power

    while not is_enough(runs):
        runs *= 2
    step = 1 + runs // PLAN_STEPS
    candidates = range(runs % step or step, runs + 1, step)
    return candidates[bisect.bisect_left(candidates, True, key=is_enough)]


def approximate_runs(
    epsilon: float, true_epsilon: float, event_mass: float, delta: float, alpha: float, power: float = 0.8
) -> int:
    """Return about the result of `plan_runs`, by a normal approximation, in microseconds and without its checks.

    Examples
    --------
    >>> approximate_runs(0.5, 1.0, 0.3, 0.0, 0.05)
    234
    """
    p2, ndtri = (event_mass - delta) * math.exp(-true_epsilon), scipy.special.ndtri
    mean, under_claim, true = _excess_moments(event_mass, p2, epsilon, delta)
    deviation = -ndtri(alpha) * under_claim + ndtri(power) * true
    return max(1, math.ceil((max(0.0, deviation) / mean) ** 2))


def exact_power(runs: int, p1: float, p2: float, epsilon: float, delta: float, alpha: float) -> float:
    """Return the probability that the exact test refutes `p1 <= e^epsilon p2 + delta`.

    The counts are binomial. The least count that is rejected is searched near that of the score test. Between the
    counts of the rarer dataset where it is searched, its distance from that of the score test is interpolated.

    Examples
    --------
    >>> round(exact_power(1000, 0.3, 0.1, 0.9, 0.0, 0.05), 2)
    0.6
    """
    c2, number = np.unique(np.ceil(scipy.special.bdtrik(QUANTILES, runs, p2)).clip(0), return_counts=True)
    z = float(-scipy.special.ndtri(min(alpha, MAX_ORDERING_LEVEL)))
    least = least_first_count(c2, (runs, runs), z, math.exp(epsilon), delta)
    places, distances = np.linspace(0, c2.size - 1, min(c2.size, SEARCHED_COUNTS)).astype(int), []
    for count, start in zip(c2[places].astype(int).tolist(), least[places].astype(int).tolist(), strict=True):
        width = 4 + 3 * math.isqrt(start)  # about three standard errors, and the two tests differ by less
        near = range(max(0, start - width), min(runs, start + width) + 1)
        rejects = functools.partial(is_rejected, c2=count, runs=runs, epsilon=epsilon, delta=delta, alpha=alpha)
        distances.append(near.start + bisect.bisect_left(near, True, key=rejects) - start)
    least += np.interp(c2, c2[places], distances).round()
    return float(number @ binomial_tail(least, runs, np.full(c2.size, p1))) / QUANTILES.size


def detectable_epsilon(runs: int, p2: float, epsilon: float, delta: float, alpha: float, target: float = 0.8) -> float:
    """Return the smallest true epsilon that so many runs per dataset refute with probability `target`.

    `p2` is the probability of the event under the dataset for which it is less likely. The result is infinite where no
    epsilon reaches the target, and the claimed epsilon where a true claim does, which needs a level above the target.

    Examples
    --------
    >>> round(detectable_epsilon(5000, 0.1, epsilon=0.5, delta=0.0, alpha=0.05), 3)
    0.627
    """
    highest = math.log((1 - delta) / p2)
    if highest <= epsilon or power(runs, 1.0, p2, epsilon, delta, alpha) < target:
        return math.inf

    def missing_power(true_epsilon: float) -> float:
        p1 = min(1.0, math.exp(true_epsilon) * p2 + delta)
        return power(runs, p1, p2, epsilon, delta, alpha) - target

    if missing_power(epsilon) >= 0:
        return epsilon
    return float(scipy.optimize.brentq(missing_power, epsilon, highest, xtol=1e-15))  # type: ignore[arg-type]


def runs_to_refute(p1: float, p2: float, claim: Curve, alpha: float, power: float = 0.8) -> float:
    """Return how many runs per dataset refute `p1 <= boundary(p2)` with a given probability; infinite if it holds.

    Examples
    --------
    >>> from dpverify.claims import gaussian
    >>> round(runs_to_refute(0.7, 0.3, gaussian(0.9), 0.05))
    995
    """
    allowed = float(claim.boundary(p2))
    if p1 <= allowed:
        return math.inf
    step = 1e-3 * min(p2, 1 - p2)
    slope = float(claim.boundary(p2 + step) - claim.boundary(p2 - step)) / (2 * step)
    under_claim = math.sqrt(allowed * (1 - allowed) + slope**2 * p2 * (1 - p2))
    true = math.sqrt(p1 * (1 - p1) + slope**2 * p2 * (1 - p2))
    return max(
        1.0, ((-scipy.special.ndtri(alpha) * under_claim + scipy.special.ndtri(power) * true) / (p1 - allowed)) ** 2
    )


def detectable_probability(runs: int, p2: float, claim: Curve, alpha: float) -> float:
    """Return the smallest p1 that so many runs refute with probability 80%; infinite where none does.

    Examples
    --------
    >>> from dpverify.claims import gaussian
    >>> round(detectable_probability(995, 0.3, gaussian(0.9), 0.05), 3)
    0.7
    """
    allowed = float(claim.boundary(p2))
    if allowed >= 1 or runs_to_refute(1.0, p2, claim, alpha) > runs:
        return math.inf
    smallest = allowed + 1e-12 * (1 - allowed)

    def missing(p1: float) -> float:
        return math.log(runs_to_refute(p1, p2, claim, alpha) / runs)

    if missing(smallest) <= 0:
        return smallest
    return float(scipy.optimize.brentq(missing, smallest, 1.0, xtol=1e-15))  # type: ignore[arg-type]
