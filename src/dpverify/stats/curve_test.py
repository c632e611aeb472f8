"""The exact test of a claim whose boundary is a curve, and lower bounds on its parameter (docs/method.md, 5.10).

`c1 ~ Bin(m1, p1)` and `c2 ~ Bin(m2, p2)` count one frozen event; the claim is `p1 <= G(p2)` with a concave boundary G.
Pairs of counts are ordered by a fixed statistic. The p-value is the largest probability, under the claim, of the pairs
at or above the observed one. The largest probability is reached on the boundary, because the region is monotone.

For maintainers. The region must contain all pairs at or above the observed one, and these sets must be nested. The
statistic compares L(c1) with G(U(c2)), where L and U are Wilson limits, so it rises with c1 and falls with c2. With a
parameter the statistic is the parameter whose boundary passes through (U(c2), L(c1)): the region does not depend on the
claim, so the p-value rises with the parameter and the lower bound is valid (Buehler). Without one it is the distance
from the boundary on the probit scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy

from dpverify.stats.binomial import FloatArray, clopper_pearson_interval
from dpverify.stats.claim_kinds import Approximate, Claim, Profile
from dpverify.stats.largest_p_value import (
    CHEBYSHEV_NODES,
    INTERPOLATION_SHARE,
    MAX_UNPRUNED_PANELS,
    add_errors,
    interpolation_error,
    mesh_maximum,
)
from dpverify.stats.lower_bound import MAX_EPSILON, claim_p_value, epsilon_lower_bound, largest_rejected
from dpverify.stats.rejection_region import (
    MAX_ORDERING_LEVEL,
    NUISANCE_SHARE,
    RejectionRegion,
    first_counts_of_blocks,
    wilson_limit,
    window_width,
)

Boundary = Callable[[FloatArray], FloatArray]
Runs = tuple[int, int]

MAX_BOUNDARY_NODES = 512  # second counts at which the boundary is evaluated for the region
MAX_PARAMETER = 1e6  # no larger parameter of a claim can be certified
# On a panel the boundary is replaced by a line above it. The line may be too high by this multiple of a standard error,
# which changes the p-value by less than 0.3 %.
LINE_TOLERANCE = 1e-3
AGREEMENT = 0.02  # relative; a p-value farther from alpha than this agrees with the lower bound about the claim
LINE_ROUNDING = 1e-14  # by which the line is raised for the rounding of the boundary


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


def _observed_parameter(claim: Claim, c1: int, c2: int, runs: Runs, z: float) -> float:
    """Return the parameter whose boundary passes through the Wilson limits of the observed pair, or 0.0."""
    lower, upper = wilson_limit(c1, runs[0], -z), min(1.0, wilson_limit(c2, runs[1], z))
    if isinstance(claim, Profile) or lower <= upper:
        return 0.0
    return _root(lambda value: float(claim.with_parameter(value).boundary(upper)) <= lower)


@lru_cache(maxsize=64)
def curve_region(c1: int, c2: int, runs: Runs, alpha: float, claim: Claim) -> RejectionRegion | None:
    """Return the region of all pairs at or above the observed one, or None if it contains all pairs.

    Only the kind of a claim with a parameter matters; pass it with its parameter set to 0.
    """
    z = float(-scipy.special.ndtri(min(alpha, MAX_ORDERING_LEVEL))) / math.sqrt(2.0)
    (m1, m2), lower, upper = runs, wilson_limit(c1, runs[0], -z), min(1.0, wilson_limit(c2, runs[1], z))
    if isinstance(claim, Profile):
        boundary, allowed, scale = claim.boundary, float(claim.boundary(upper)), 1.0
        if c1 == 0 or allowed >= 1.0:
            return None
        shift = float(scipy.special.ndtri(lower) - scipy.special.ndtri(allowed))
        root = 0.0
    else:
        root = _observed_parameter(claim, c1, c2, runs, z)
        if root <= 0.0:
            return None
        step = root - _observed_parameter(claim, c1, c2, runs, 1.1 * z)
        boundary, shift, scale = claim.with_parameter(root).boundary, 0.0, step / (0.1 * z * math.sqrt(2.0))
    p2_lower, p2_upper = clopper_pearson_interval(c2, m2, NUISANCE_SHARE * alpha)
    window = window_width(alpha)
    first_counts = first_counts_of_blocks(m2, p2_lower, p2_upper, window)
    nodes = first_counts[:: -(-len(first_counts) // MAX_BOUNDARY_NODES)]
    nodes = np.unique(np.r_[nodes, first_counts[-1]])
    # A concave boundary lies above its chords, so interpolation can only add pairs to the region.
    limits = np.minimum(1.0, wilson_limit(nodes, m2, z))
    threshold = np.interp(np.minimum(1.0, wilson_limit(first_counts, m2, z)), limits, boundary(limits))
    if shift != 0.0:
        threshold = scipy.special.ndtr(scipy.special.ndtri(threshold) + shift)
    exact = m1 * threshold + z * np.sqrt(m1 * threshold * (1.0 - threshold))  # Wilson's limit of it is the threshold
    # Rounding down by more than the error of the arithmetic is safe: it can only add pairs to the region.
    least_counts = np.where(threshold < 1.0, np.ceil(exact - 1e-6 - 1e-9 * np.sqrt(m1) - 4e-15 * m1), m1 + 1.0)
    least_counts = np.clip(least_counts, 0.0, m1 + 1.0)
    least_counts = np.where(first_counts <= c2, np.minimum(least_counts, c1), least_counts)
    least_counts = np.minimum.accumulate(least_counts[::-1])[::-1]
    return RejectionRegion(first_counts, least_counts, runs, p2_lower, p2_upper, root, scale, alpha, window)


def largest_p_value_on_curve(region: RejectionRegion, boundary: Boundary) -> float:
    """Return the p-value of `p1 <= boundary(p2)`, the largest over p2 in its interval. It is never too small.

    A concave function exceeds its chord by at most twice as much as in the middle of the interval. On a short panel the
    chord, raised by that, bounds the boundary closely. Along this line the probability of the region is a polynomial,
    whose supremum is bounded by interpolation as in `largest_p_value`.
    """
    m1, tolerance = region.runs[0], max(INTERPOLATION_SHARE * region.alpha, 1e-100)
    left, right = np.array([region.p2_lower]), np.array([region.p2_upper])
    supremum = float(region.probability(boundary(left), left)[0])
    while left.size:
        middle = (left + right) / 2.0
        low, centre, high = boundary(left), boundary(middle), boundary(right)
        if left.size > MAX_UNPRUNED_PANELS:
            # The probability at the corner (p1 at the right end, p2 at the left end) bounds a whole panel.
            supremum = max(supremum, float(region.probability(centre, middle).max()))
            open_ = region.probability(high, left) > supremum + tolerance
            left, middle, right, low, centre, high = (x[open_] for x in (left, middle, right, low, centre, high))
        lift = 2.0 * np.maximum(centre - (low + high) / 2.0, 0.0) + LINE_ROUNDING
        straight = lift <= LINE_TOLERANCE * np.sqrt((centre * (1.0 - centre) + 1.0 / m1) / m1)
        # The line is cut where it reaches 1: beyond, a larger p2 only makes the region less likely.
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
    return add_errors(supremum, region.alpha)


def _supremum_on_lines(
    region: RejectionRegion, left: FloatArray, right: FloatArray, begin: FloatArray, end: FloatArray
) -> float:
    """Return the largest probability of the region on lines from (left, begin) to (right, end); p2 comes first."""
    share = (1.0 + CHEBYSHEV_NODES) / 2.0
    p2 = left[:, None] + (right - left)[:, None] * share
    p1 = np.clip(begin[:, None] + (end - begin)[:, None] * share, 0.0, 1.0)
    return mesh_maximum(region.probability(p1.ravel(), p2.ravel()).reshape(p2.shape))


@lru_cache(maxsize=4096)
def parameter_lower_bound(c1: int, c2: int, runs: Runs, claim: Claim, alpha: float) -> float | None:
    """Return a certified lower bound on the parameter of a claim (epsilon, mu, rho), or None if it has none.

    With probability at least `1 - alpha` the bound is not above the smallest parameter with which the claim holds.

    Parameters
    ----------
    c1, c2 : int
        Runs in the event, under the data set that is expected to have more of them and under the other one.
    runs : pair of int
        The runs of the two data sets.
    claim : Claim
        Its kind decides; the value of its parameter does not matter.
    alpha : float
        The probability of an error.

    Examples
    --------
    >>> from dpverify.stats.claims import gaussian
    >>> round(parameter_lower_bound(700, 300, (1000, 1000), gaussian(0.0), 0.05), 3)
    0.95
    """
    if isinstance(claim, Profile):
        return None
    if isinstance(claim, Approximate):
        return epsilon_lower_bound(c1, c2, runs, claim.delta, alpha)
    region = curve_region(c1, c2, runs, alpha, claim.with_parameter(0.0))
    if region is None:
        return 0.0

    def p_value(value: float) -> float:
        return largest_p_value_on_curve(region, claim.with_parameter(value).boundary)

    return largest_rejected(p_value, alpha, region.score_root, region.standard_error, MAX_PARAMETER)


@lru_cache(maxsize=4096)
def curve_p_value(c1: int, c2: int, runs: Runs, claim: Claim, alpha: float) -> float:
    """Return a valid p-value of a claim.

    For a claim with a parameter it is at most `alpha` exactly where the parameter is below `parameter_lower_bound`. As
    for `claim_p_value`, alpha orders the pairs, and no p-value is smaller than alpha/1000.

    Examples
    --------
    >>> from dpverify.stats.claims import gaussian
    >>> curve_p_value(700, 300, (1000, 1000), gaussian(0.9), 0.05) < 0.05
    True
    """
    if isinstance(claim, Approximate):
        return claim_p_value(c1, c2, runs, min(claim.epsilon, MAX_EPSILON), claim.delta, alpha)
    free = claim if isinstance(claim, Profile) else claim.with_parameter(0.0)
    region = curve_region(c1, c2, runs, alpha, free)
    if region is None:
        return 1.0
    p = largest_p_value_on_curve(region, claim.boundary)
    if isinstance(claim, Profile) or abs(p - alpha) > AGREEMENT * alpha:
        return p
    # The bound and the p-value come from upper bounds on one rising function. Where they disagree about alpha, the
    # difference lies within the error of these upper bounds, and either decision is valid.
    lower = parameter_lower_bound(c1, c2, runs, free, alpha)
    if lower is not None and claim.parameter < lower:
        return min(p, alpha)
    return max(p, math.nextafter(alpha, 1.0))
