"""Certified lower bounds from two counts: the exact unconditional score test in Buehler form (docs/method.md, section 5).

`c1 ~ Bin(m1, p1)` and `c2 ~ Bin(m2, p2)` count one frozen event under the two laws; the claim is `p1 <= R p2 + delta`
with `R = e^epsilon`. Everything here follows four steps:

1. The pairs are ordered by T, the value of the running parameter (epsilon or delta) at which the Farrington-Manning
   score with constrained maximum likelihood equals `z_{1-alpha}`.
2. The region `S = {c1 >= b(c2)}` holds every pair ordered at or above the observed one. It does not depend on the
   claim, so its worst-case probability rises with the claim, and rising until it exceeds alpha is rigorous.
3. That probability is maximised over p2 in a Clopper-Pearson interval at `1 - alpha/1000` (Berger and Boos), by
   Chebyshev interpolation with a proven error bound, which is added.
4. The answer is the largest claim that is rejected.

For maintainers. Validity needs `S` to *contain* every pair at or above the observed one; making S larger (rounding b
down, blocks, the monotone closure) costs tightness only. Never make it smaller, and never let it depend on the claim.
The score falls as the running parameter rises, which is what makes the sets S nested: at delta 0 and for a running
delta both constrained estimates move monotonically; for a running epsilon at delta > 0 this is a numerical finding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, ndtr, ndtri

from .errors import InputError

Array = NDArray[np.float64]

_MOST_RUNS = 10**12  # beyond it double precision cannot tell a proportion near 1 from its neighbours
_SMOOTH = 500.0  # binomial variance from which the uniform expansion is accurate to 1e-9
_ROWS = 1 << 14  # table entries computed at a time: small enough for the processor's cache
_LARGE = 100.0  # from this epsilon on p2 may be 0 in effect while p1 is 1: nothing can be proved
_BLOCKS = 4096  # most values of c2 told apart; 21 standard deviations lie in the window

# Shares of alpha. Their sum is what the certificate costs; the supremum costs 1.4e-4 of its own value besides.
_NUISANCE = 1e-3  # Berger and Boos: p2 lies outside its interval
_SUPREMUM = 4e-4  # interpolation between nodes, and subintervals set aside
_OUTSIDE = 1e-8  # c2 lies outside the window, each side
_ROUNDING = 1e-5  # tails and table sums in double precision

_NODES = 16
_FINE = 1024
_ANGLES = (np.arange(_NODES) + 0.5) * math.pi / _NODES
_TO_COEFFICIENTS = 2.0 / _NODES * np.cos(np.outer(np.arange(_NODES), _ANGLES)) / np.r_[2.0, np.ones(_NODES - 1)][:, None]
_TO_FINE = np.cos(np.outer(np.arange(_FINE + 1) * math.pi / _FINE, np.arange(_NODES))) @ _TO_COEFFICIENTS
# A polynomial of degree n exceeds its values at angles h apart by at most this factor (Ehlich and Zeller), and what
# is bounded here lies in [0, best], so the factor applies to half its range.
_BETWEEN_FINE = 1.0 + 0.5 * (1.0 / math.cos((_NODES - 1) * math.pi / (2 * _FINE)) - 1.0)
_RADII = np.r_[np.geomspace(1.5, 60.0, 12), np.geomspace(200.0, 1e8, 5)][:, None]
_CORNERS = np.linspace(0.0, math.pi, 13)  # of a polygon around the unit circle (its upper half)


@dataclass(frozen=True)
class _Region:
    """`{c1 >= least[j]}` where c2 lies in the block that begins at `first[j]`, and what goes with the observed pair."""

    first: Array
    least: Array
    runs: tuple[int, int]
    low: float  # Clopper-Pearson interval of p2
    high: float
    root: float  # T of the observed pair; -inf where nothing is proved
    scale: float  # a standard error of the running parameter
    alpha: float


# Binomial tails ----------------------------------------------------------------------------------------------------


def _smooth_tail(count: Array, runs: int, p: Array, side: int) -> Array:
    """`_tail` by Temme's uniform expansion of the incomplete beta function, two terms.

    With z the signed root of the deviance and d the standardised distance, integrating by parts twice leaves
    `Phi(z) - phi(z) (1 - beta) [1/d - 1/z + (1/z^2 - w z/d^3 - beta)/z]`. Near z = 0, where that cancels, its series.
    """
    total = runs + 1.0
    rest = total - count
    centre, spread = count / total, count * rest / total
    skew, beta = (rest - count) / (total * np.sqrt(spread)), (1.0 / spread - 1.0 / total) / 12.0
    at_zero = -2.0 / 135.0 * skew * (2.0 * skew**2 + 9.0 / total)
    gap = p - centre
    up, down = np.maximum(gap / centre, -1.0), np.maximum(-gap * total / rest, -1.0)
    with np.errstate(divide="ignore"):
        deviance = -2.0 * (count * (np.log1p(up) - up) + rest * (np.log1p(down) - down))
    z = np.copysign(np.minimum(np.sqrt(np.maximum(deviance, 0.0)), 39.0), gap)
    series = -skew / 3.0 + z * (skew**2 + 3.0 / total) / 12.0 + at_zero * (1.0 + z * z / 2.0)
    direct = np.abs(z) > 0.05 + 1e-4 * spread
    if direct.any():
        spread_, beta_, total_p = (np.broadcast_to(v, z.shape)[direct] for v in (spread, beta, total * p * (1.0 - p)))
        z_, d = z[direct], (gap * total / np.sqrt(spread))[direct]
        series[direct] = 1 / d - 1 / z_ + (1 / z_**2 - total_p / spread_ * z_ / d**3 - beta_) / z_
    return ndtr(side * z) - side * np.exp(-0.5 * z * z) * (1.0 - beta) * series / math.sqrt(2.0 * math.pi)


def _tail(count: Array, runs: int, p: Array, side: int = 1) -> Array:
    """`P[Bin(runs, p) >= count]`, for side -1 `P[... < count]`: a row for each p, a column for each count."""
    p = p[:, None]
    table = np.empty((len(p), len(count)))
    table[:] = (count <= 0) if side > 0 else (count > runs)
    inside = (count > 0) & (count <= runs)
    smooth = inside & (count * (runs + 1.0 - count) >= _SMOOTH * (runs + 1.0))
    exact = inside & ~smooth
    # betainc keeps 1e-12 up to 10^10 runs but takes microseconds there; bdtr is off by 2e-3 at 10^7.
    table[:, exact] = (betainc if side > 0 else betaincc)(count[exact], runs + 1.0 - count[exact], p)
    table[:, smooth] = _smooth_tail(count[smooth], runs, p, side)
    return table


def _clopper_pearson(count: int, runs: int, g: float) -> tuple[float, float]:
    """The interval at `1 - g`, rounded outwards; SciPy's betaincinv is not used, being wrong at (1000, 10^10)."""
    s = math.sqrt(-2.0 * math.log(g / 2.0))
    low, high = [0.0, count / runs], [count / runs, min(1.0, (count + s * s + s * math.sqrt(count)) / runs)]
    for _ in range(6):
        grid = np.linspace(*low, 33)
        i = int((_tail(np.array([count]), runs, grid)[1:-1, 0] <= g / 2.0).sum())
        low = [grid[i], grid[i + 1]]
        grid = np.linspace(*high, 33)
        i = int((_tail(np.array([count + 1]), runs, grid, -1)[1:-1, 0] > g / 2.0).sum())
        high = [grid[i], grid[i + 1]]
    return float(low[0]), float(high[1]) if count < runs else 1.0


def _block_masses(region: _Region, p: Array) -> Array:
    """Probability of every block of c2, a row for each p2, scaled up to sum to one over the window."""
    first, runs = region.first, region.runs[1]
    if first[-1] - first[0] == len(first) - 1:  # one value a block: neighbouring ratios, which lose no digits
        k = first[:-1]
        steps = np.r_[0.0, np.cumsum(np.log((runs - k) / (k + 1.0)))]
        odds = np.log(np.maximum(p, 1e-300)) - np.log(np.maximum(1.0 - p, 1e-300))
        logs = steps + (first - first[0]) * odds[:, None]
        masses = np.exp(logs - logs.max(axis=1, keepdims=True))
    else:
        above = _tail(first, runs, p)
        masses = np.maximum(above - np.c_[above[:, 1:], np.zeros(len(p))], 0.0)
    return masses / masses.sum(axis=1, keepdims=True)


def _rejection(region: _Region, p1: Array, p2: Array) -> Array:
    """Probability of the region at each (p1, p2), but for what lies outside the window of c2."""
    rows = max(1, _ROWS // len(region.first))
    parts = [slice(i, i + rows) for i in range(0, len(p1), rows)]
    return np.concatenate([
        np.einsum("ij,ij->i", _block_masses(region, p2[s]), _tail(region.least, region.runs[0], p1[s])) for s in parts
    ])  # fmt: skip


# The ordering and its region ---------------------------------------------------------------------------------------


def _wilson(count: float, runs: int, z: float) -> float:
    """Wilson's score limit for a proportion: the upper one for z > 0, the lower one for z < 0."""
    share = z * z / runs
    centre = count / runs + share / 2.0
    return min(1.0, max(0.0, (centre + z * math.sqrt((count * (runs - count) / runs + z * z / 4.0)) / runs) / (1.0 + share)))


def _order(c1: int, c2: int, runs: tuple[int, int], z: float, ratio: float | None, delta: float) -> tuple[float, float]:
    """`(T, standard error)`: T is the epsilon (`ratio` None) or the delta at which the score of the pair equals z.

    The squared score is Pearson's, so at the root `p1` and `p2` are Wilson limits at `z cos(angle)` and
    `z sin(angle)`; the likelihood equation `tan(angle) = R sd2/sd1` fixes the angle.
    """

    def at(angle: float) -> tuple[float, float, float, float, float]:
        p1, p2 = _wilson(c1, runs[0], -z * math.cos(angle)), _wilson(c2, runs[1], z * math.sin(angle))
        r = (p1 - delta) / max(p2, 1e-300) if ratio is None else ratio
        return p1, p2, r, math.sqrt(p1 * (1.0 - p1) / runs[0]), r * math.sqrt(p2 * (1.0 - p2) / runs[1])

    if c1 == 0 or (ratio is None and at(0.0)[0] <= delta):
        return -math.inf, 1.0
    left, right = 0.0, math.pi / 2.0
    for _ in range(60):
        angle = (left + right) / 2.0
        _, _, _, sd1, sd2 = at(angle)
        left, right = (angle, right) if sd2 * math.cos(angle) > sd1 * math.sin(angle) else (left, angle)
    p1, p2, r, sd1, sd2 = at(right)
    if ratio is not None:
        return p1 - ratio * p2, math.hypot(sd1, sd2)
    return math.log(r), math.hypot(sd1, sd2) / (p1 - delta)


def _least_count(c2: Array, runs: tuple[int, int], z: float, ratio: float, delta: float) -> Array:
    """`b`: for each c2 the least c1 whose score for `p1 <= ratio p2 + delta` reaches z (never more than that).

    With c2 fixed, the constrained estimate `p` of p2 rises with c1, and the score is `s sqrt(V)`,
    `s = m2 (p - c2/m2) / (ratio p (1-p))`, `V = p1 (1-p1)/m1 + ratio^2 p (1-p)/m2`. So one root in p is sought.
    """
    m1, m2 = runs
    share = c2 / m2
    cap = min(1.0, (1.0 - delta) / ratio)
    vertex = (ratio + (1.0 - 2.0 * delta) * m2 / m1) / (2.0 * ratio * (1.0 + m2 / m1))
    # The score rises with c1 except, for m2 > ratio m1, towards c1 = m1; V held at its peak is then an upper bound.
    falls = (cap < 1.0) & (2.0 * share * (1.0 - share) + (cap - share) * (1.0 - 2.0 * share - m2 / (m1 * ratio)) < 0.0)

    def variance(p: Array) -> Array:
        p1 = np.clip(ratio * p + delta, 0.0, 1.0)
        return p1 * (1.0 - p1) / m1 + ratio**2 * p * (1.0 - p) / m2

    def bound(p: Array) -> Array:
        return variance(np.where(falls, np.minimum(p, vertex), p))

    def reached(p: Array) -> Array:
        return m2 * (p - share) * np.sqrt(bound(p)) >= z * ratio * p * (1.0 - p)

    wilson = (share + z * z / (2 * m2) + z * np.sqrt(share * (1 - share) / m2 + (z / (2 * m2)) ** 2)) / (1 + z * z / m2)
    left = np.maximum(share, -delta / ratio)
    right = np.minimum(cap, wilson)  # the second sample alone reaches z at its Wilson limit
    possible = (left <= cap) & ((wilson < cap) | reached(np.full_like(share, cap)))
    left, right = np.minimum(left, right), np.maximum(left, right)
    for _ in range(48):
        p = (left + right) / 2.0
        yes = reached(p)
        left, right = np.where(yes, left, p), np.where(yes, p, right)
    step = z * variance(right) / np.sqrt(np.maximum(bound(right), 1e-300))
    exact = m1 * (ratio * share + delta + step)
    # Rounded down by more than the arithmetic can be wrong: a pair let in by mistake does no harm.
    return np.where(possible, np.clip(np.ceil(exact - 1e-9 - 4e-15 * m1), 0.0, m1 + 1.0), m1 + 1.0)


def _region(c1: int, c2: int, runs: tuple[int, int], alpha: float, ratio: float | None, delta: float) -> _Region:
    """The region of the observed pair; epsilon runs if `ratio` is None, else delta does."""
    m2 = runs[1]
    low, high = _clopper_pearson(c2, m2, _NUISANCE * alpha)
    z = float(-ndtri(min(alpha, 0.45)))  # the order, not the level: any z > 0 is valid
    root, scale = _order(c1, c2, runs, z, ratio, delta)

    # Bernstein: beyond s standard deviations and s^2/3 counts lies at most exp(-s^2/2).
    s = math.sqrt(-2.0 * (math.log(_OUTSIDE) + math.log(alpha)))
    start = max(0, math.floor(m2 * low - s * math.sqrt(m2 * low * (1.0 - low)) - s * s / 3.0))
    stop = min(m2, math.ceil(m2 * high + s * math.sqrt(m2 * high * (1.0 - high)) + s * s / 3.0))
    width = -(-(stop - start + 1) // _BLOCKS)
    first = np.arange(start, stop + 1, width, dtype=float)
    if root == -math.inf:
        least = np.zeros_like(first)
    else:
        least = _least_count(first, runs, z, *((math.exp(root), delta) if ratio is None else (ratio, root)))
        least = np.where(first <= c2, np.minimum(least, c1), least)
        least = np.minimum.accumulate(least[::-1])[::-1]
    return _Region(first, least, runs, low, high, root, scale, alpha)


# The supremum over the nuisance parameter --------------------------------------------------------------------------


def _interpolation_error(region: _Region, ends1: tuple[Array, Array], ends2: tuple[Array, Array]) -> Array:
    """What interpolation at Chebyshev nodes between the ends errs by at most, for any event.

    The probability of an event, less 1/2, is in modulus at most `1/2 prod (|p_i| + |1 - p_i|)^m_i` at complex p, and
    a function bounded by M on the ellipse of radius rho is interpolated to within `4 M rho^(1-n) / (rho-1)`. Distance
    sums are convex, so a polygon around the ellipse bounds them at its corners; no end of [0, 1] is singular.
    """
    circle = np.exp(1j * _CORNERS) / math.cos(math.pi / (2 * (len(_CORNERS) - 1)))
    ellipse = ((_RADII + 1.0 / _RADII) * circle.real + 1j * (_RADII - 1.0 / _RADII) * circle.imag) / 2.0
    logs = np.log(2.0 / (_RADII[:, 0] - 1.0)) - (_NODES - 1) * np.log(_RADII[:, 0])
    for (a, c), runs in zip((ends1, ends2), region.runs, strict=True):
        points = ((a + c) / 2.0)[:, None, None] + ((c - a) / 2.0)[:, None, None] * ellipse
        sums = (np.abs(points) + np.abs(1.0 - points)).max(axis=2)
        logs = logs + runs * (np.log(np.maximum(sums, 1.0)) + 4e-16)
    return np.exp(np.minimum(logs.min(axis=1), 0.0))


def _worst(region: _Region, ratio: float, delta: float) -> float:
    """An upper bound on the p-value of the claim `p1 <= ratio p2 + delta`, slack at most 1.5e-3 alpha."""
    if region.root == -math.inf:
        return 1.0
    alpha = region.alpha
    cap = min(1.0, (1.0 - delta) / ratio)
    tolerance = max(_SUPREMUM * alpha, 1e-100)

    def first_law(p2: Array) -> Array:
        return np.where(p2 >= cap, 1.0, np.minimum(1.0, ratio * p2 + delta))

    # Where p1 is 1 the region, lower-closed in c2, only loses by a larger p2: the cap stands for all beyond it.
    start, stop = region.low, min(region.high, cap)
    best = float(_rejection(region, first_law(np.array([start])), np.array([start]))[0])
    panels = np.array([[start], [stop]]) if start < stop else np.empty((2, 0))
    while panels.size:
        a, c = panels
        fine = _interpolation_error(region, (first_law(a), first_law(c)), (a, c)) <= tolerance
        if fine.any():
            nodes = ((a + c)[fine, None] + (c - a)[fine, None] * np.cos(_ANGLES)) / 2.0
            values = _rejection(region, first_law(nodes.ravel()), nodes.ravel()).reshape(nodes.shape)
            best = max(best, _highest(values @ _TO_FINE.T))
        a, c = a[~fine], c[~fine]
        if len(a) > 32:  # R is huge: drop what the corner (p1 at c, p2 at a) proves to be no higher
            middle = (a + c) / 2.0
            best = max(best, float(_rejection(region, first_law(middle), middle).max()))
            keep = _rejection(region, first_law(c), a) > best + tolerance
            a, c = a[keep], c[keep]
        middle = (a + c) / 2.0
        panels = np.array([np.r_[a, middle], np.r_[middle, c]])
    return min(1.0, best * _BETWEEN_FINE + alpha * (_NUISANCE + _SUPREMUM + 2.0 * _OUTSIDE + _ROUNDING))


def _highest(values: Array) -> float:
    """The maximum over all rows, improved by the parabola through it and its neighbours."""
    row, column = np.unravel_index(int(values.argmax()), values.shape)
    top = float(values[row, column])
    if not 0 < column < values.shape[1] - 1:
        return top
    before, after = float(values[row, column - 1]), float(values[row, column + 1])
    bend = 2.0 * top - before - after
    return top + (after - before) ** 2 / (8.0 * bend) if bend > 0.0 else top


def _largest_rejected(p_value: Callable[[float], float], region: _Region, top: float) -> float:
    """The largest x in [0, top) with `p_value(x) <= alpha`, met to 1e-5 alpha; 0.0 where there is none.

    p_value rises, so whatever x ends up proved, every smaller one is. The secant runs on the normal scale, where the
    p-value is all but a straight line.
    """
    alpha, slope = region.alpha, region.scale
    goal = float(ndtri(alpha * (1.0 - 5e-6)))
    low, high = 0.0, top
    x, last = max(region.root, 0.0), None
    for trial in range(200):
        p = p_value(x)
        here = float(ndtri(min(max(p, 1e-300), 1.0 - 1e-15)))
        if p > alpha:
            high = x
        else:
            low = x
        if x == high == 0.0 or alpha * (1.0 - 1e-5) <= p <= alpha or high - low <= 1e-7 * region.scale:
            break
        if last is not None and here != last[1] and (x - last[0]) / (here - last[1]) > 0.0:
            slope = (x - last[0]) / (here - last[1])
        last = x, here
        x += min(max((goal - here) * slope, -8.0 * region.scale), 8.0 * region.scale)
        if not low < x < high or trial > 20:
            x = 0.0 if x <= 0.0 == low else (low + min(high, 2.0 * low + 1.0)) / 2.0
    return low


# The three questions -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _epsilon_bound(c1: int, c2: int, runs: tuple[int, int], alpha: float, delta: float) -> float:
    region = _region(c1, c2, runs, alpha, None, delta)
    return _largest_rejected(lambda epsilon: _worst(region, math.exp(epsilon), delta), region, math.inf)


@lru_cache(maxsize=4096)
def _delta_bound(c1: int, c2: int, runs: tuple[int, int], alpha: float, epsilon: float) -> float:
    if epsilon > _LARGE:
        return 0.0
    region = _region(c1, c2, runs, alpha, math.exp(epsilon), 0.0)
    return _largest_rejected(lambda delta: _worst(region, math.exp(epsilon), delta), region, 1.0)


@lru_cache(maxsize=4096)
def _p_value(c1: int, c2: int, runs: tuple[int, int], alpha: float, epsilon: float, delta: float) -> float:
    if epsilon > _LARGE:
        return 1.0
    p = _worst(_region(c1, c2, runs, alpha, None, delta), math.exp(epsilon), delta)
    # Both numbers are upper bounds on one rising function; where they disagree about alpha, within the slack, the
    # bound decides, and its decision is itself an upper bound.
    if epsilon < _epsilon_bound(c1, c2, runs, alpha, delta):
        return min(p, alpha)
    return max(p, math.nextafter(alpha, 1.0))


def epsilon_lower_bound(
    c1: ArrayLike, c2: ArrayLike, runs: float | tuple[float, float], delta: ArrayLike = 0.0, alpha: float = 0.05
) -> Any:
    """Certified lower bound on epsilon from one event's counts, `p1 <= e^epsilon p2 + delta` (docs/method.md, section 5).

    With probability at least `1 - alpha` over the runs it is no larger than the true epsilon of that event. Always
    finite; 0.0 where nothing is proved. `c1`, `c2` and `delta` broadcast, and scalars give a float; `runs` is one
    number, or a pair with one number a side.
    """
    return _each(_epsilon_bound, c1, c2, runs, alpha, delta=delta)


def delta_lower_bound(
    c1: ArrayLike, c2: ArrayLike, runs: float | tuple[float, float], epsilon: ArrayLike, alpha: float = 0.05
) -> Any:
    """Certified lower bound on delta at this epsilon: the same event read the other way (docs/method.md, section 5).

    Every value holds at `1 - alpha` on its own. The pairs are ordered by delta here and by epsilon in
    `epsilon_lower_bound`, so the two may disagree by a hair about a claim that lies on the boundary.
    """
    return _each(_delta_bound, c1, c2, runs, alpha, epsilon=epsilon)


def claim_p_value(
    c1: ArrayLike,
    c2: ArrayLike,
    runs: float | tuple[float, float],
    epsilon: ArrayLike,
    delta: ArrayLike = 0.0,
    alpha: float = 0.05,
) -> Any:
    """Valid p-value of the claim `p1 <= e^epsilon p2 + delta` (docs/method.md, section 5).

    It is at most `alpha` exactly where `epsilon < epsilon_lower_bound(..., delta, alpha)`. `alpha` takes part because
    the order of the pairs depends on it (through `z_{1-alpha}`) and because the nuisance interval costs `alpha/1000`,
    which is also about the smallest value given; at any fixed alpha the p-value is valid at every level.
    """
    return _each(_p_value, c1, c2, runs, alpha, epsilon=epsilon, delta=delta)


def _each(one: Callable[..., float], c1: Any, c2: Any, runs: Any, alpha: Any, **claim: Any) -> Any:
    """Checks what came in, then asks `one` about each pair of counts."""
    sizes = np.asarray(runs)
    if sizes.shape not in ((), (2,)) or not _whole(sizes) or sizes.min() < 1 or sizes.max() > _MOST_RUNS:
        raise InputError(f"runs is {runs!r}: it must be a whole number from 1 to 10^12, or a pair of them, one a side.")
    m1, m2 = (int(m) for m in np.broadcast_to(sizes, 2))
    if not (np.ndim(alpha) == 0 and np.asarray(alpha).dtype.kind in "fiu" and 0.0 < alpha < 1.0):
        raise InputError(f"alpha is {alpha!r}: it must be a number between 0 and 1, both excluded.")
    for name, counts, most in (("c1", c1, m1), ("c2", c2, m2)):
        array = np.asarray(counts)
        if not _whole(array) or (array.size and (array.min() < 0 or array.max() > most)):
            raise InputError(f"{name} holds {_short(counts)}: counts must be whole numbers from 0 to runs, here {most}.")
    for name, value in claim.items():
        array = np.asarray(value)
        good = array.dtype.kind in "fiu" and bool(np.all(np.isfinite(array) & (array >= 0)))
        if not good or (name == "delta" and array.size and array.max() >= 1.0):
            wanted = "from 0 up to, not including, 1" if name == "delta" else "finite and at least 0"
            raise InputError(f"{name} is {_short(value)}: it must be {wanted}.")
    try:
        arrays = np.broadcast_arrays(c1, c2, *claim.values())
    except ValueError:
        shapes = ", ".join(str(np.shape(v)) for v in (c1, c2, *claim.values()))
        raise InputError(f"the shapes {shapes} of c1, c2, {', '.join(claim)} do not fit together.") from None
    rows = zip(*(array.ravel().tolist() for array in arrays), strict=True)
    answers = [one(int(a), int(b), (m1, m2), float(alpha), *map(float, rest)) for a, b, *rest in rows]
    return np.array(answers).reshape(arrays[0].shape) if arrays[0].ndim else answers[0]


def _whole(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iu" or (array.dtype.kind == "f" and bool(np.all(np.floor(array) == array)))


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
