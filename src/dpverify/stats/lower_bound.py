"""Certified lower bounds from two counts: the exact unconditional score test (docs/method.md, section 5).

`c1 ~ Bin(m1, p1)` and `c2 ~ Bin(m2, p2)` count one frozen event; the claim is `p1 <= R p2 + delta`, `R = e^epsilon`.
Pairs are ordered by T, the value of the running parameter (epsilon or delta) at which the Farrington-Manning score
equals `z_{1-alpha}`. The region `S = {c1 >= b(c2)}` holds every pair at or above the observed one. It does not depend
on the claim, so its largest probability under the claim, over p2 in a Clopper-Pearson interval at `1 - alpha/1000`
(Berger and Boos), rises with the claim; the answer is the largest claim at which it is at most alpha (Buehler).

For maintainers. S must *contain* all pairs at or above the observed one, and these sets must be nested. A larger S
(rounding b down, blocks, the monotone closure) costs tightness only; never make it smaller or let it see the claim.
Nested, because the score falls as its parameter rises: for delta, one constrained estimate rises, the other falls; for
epsilon, with x the constrained p1 and `y = (x - delta)(c1 - m1 x)/(x (1-x))`, the squared score is `A(x) + G(y)` where
A and `A + y` fall and `0 <= G' <= 1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from dpverify.errors import InputError
from dpverify.stats.binomial import binomial_pmf, binomial_tail, binomial_tail_table

Array = NDArray[np.float64]
Many = ArrayLike
Pair = tuple[int, int]
Runs = float | tuple[float, float]

_MOST_RUNS = 10**12  # beyond it double precision cannot tell a proportion near 1 from its neighbours
_ENTRIES = 1 << 14  # of a table, computed at a time: small enough for the processor's cache
_BLOCKS = 8192  # values of c2 told apart at most, within about 21 standard deviations
# Shares of alpha that the certificate costs; the supremum costs 3e-5 of its own value besides.
_NUISANCE = 1e-3  # Berger and Boos: p2 lies outside its interval
_SUPREMUM = 4e-4  # interpolation between nodes
_OUTSIDE = 1e-8  # a count lies outside its window
_ROUNDING = 1e-5  # tails and their sums in double precision (and 1e-15, which ends what can be proved)

_NODES, _FINE = 16, 2048
_DEGREES = np.arange(_NODES)
_ANGLES = (_DEGREES + 0.5) * math.pi / _NODES
_COEFFICIENTS = np.cos(np.outer(_DEGREES, _ANGLES)) * np.where(_DEGREES > 0, 2.0, 1.0)[:, None] / _NODES
_TO_FINE = np.cos(np.outer(_DEGREES, np.arange(_FINE + 1) * math.pi / _FINE)).T @ _COEFFICIENTS
# Between angles that close a polynomial exceeds its values by this factor at most (Ehlich and Zeller); the values lie
# in [0, best], so it applies to half of best.
_BETWEEN = 1.0 + 0.5 * (1.0 / math.cos((_NODES - 1) * math.pi / (2 * _FINE)) - 1.0)
_RADII = np.r_[np.geomspace(1.5, 60.0, 10), np.geomspace(300.0, 1e8, 4)]
_CORNERS = np.exp(1j * np.linspace(0.0, math.pi, 9)) / math.cos(math.pi / 16)  # around the unit circle, upper half
_ELLIPSES = (np.outer(_RADII, _CORNERS) + np.outer(1.0 / _RADII, _CORNERS.conj())) / 2.0


@dataclass(frozen=True)
class _Region:
    """`{c1 >= least[j]}` where c2 lies in the block that begins at `first[j]`, and what belongs to the pair seen."""

    first: Array
    least: Array
    runs: Pair
    low: float  # Clopper-Pearson limits of p2
    high: float
    root: float  # T; -inf where no value of the parameter is refuted
    scale: float  # a standard error of the running parameter
    alpha: float
    reach: float  # this many standard deviations and reach^2/3 counts away lies at most `_OUTSIDE` alpha (Bernstein)


def _clopper_pearson(count: int, runs: int, g: float) -> tuple[float, float]:
    """The interval at `1 - g`, rounded outwards. (SciPy 1.17's betaincinv is plainly wrong for 1000 of 10^10.)"""

    def limit(least: int, side: int, inner: float, outer: float) -> float:
        for _ in range(5):
            grid = np.linspace(outer, inner, 65)
            i = int((binomial_tail(least, runs, grid[1:-1], side) <= g / 2.0).sum())
            outer, inner = float(grid[i]), float(grid[i + 1])
        return outer

    s, rest = math.sqrt(-2.0 * math.log(g / 2.0)), runs - count  # Chernoff's limits enclose these
    low = max(0.0, count - s * math.sqrt(count), count - s * s - s * math.sqrt(rest)) / runs
    high = min(runs, count + s * math.sqrt(rest), count + s * s + s * math.sqrt(count)) / runs
    return limit(count, 1, count / runs, low), limit(count + 1, -1, count / runs, high)


def _rejection(region: _Region, p1: Array, p2: Array) -> Array:
    """Probability of the region at each (p1, p2), at most `2 _OUTSIDE alpha` too small: far blocks are not summed."""
    (m1, m2), s, first, least = region.runs, region.reach, region.first, region.least
    away1, away2 = (s * np.sqrt(m * p * (1.0 - p)) + s * s / 3.0 for m, p in ((m1, p1), (m2, p2)))
    begin = np.maximum(least.searchsorted(m1 * p1 - away1, "right"), first.searchsorted(m2 * p2 - away2, "right") - 1)
    end = least.searchsorted(np.minimum(m1 * p1 + away1, m1 + 1.0))
    end = np.minimum(end, first.searchsorted(m2 * p2 + away2, "right"))
    columns = np.arange(max(0, int((end - begin).max())) + 1)
    edges, least = np.r_[first, m2 + 1.0], np.r_[least, m1 + 1.0]
    rows = max(1, _ENTRIES // len(columns))
    out = np.empty(len(p1))
    for part in (slice(i, i + rows) for i in range(0, len(p1), rows)):
        blocks = np.minimum(begin[part, None] + columns, len(first))
        bounds, within = edges[blocks], least[blocks[:, :-1]]
        if within.size and max(m1, m2) <= _BLOCKS:  # every count is a block
            above, share = binomial_tail(bounds[:, 0], m2, p2[part]), binomial_pmf(bounds[:, :-1], m2, p2[part, None])
            reject = binomial_tail_table(within, m1, p1[part])
        else:
            above = binomial_tail(bounds, m2, p2[part, None])
            above, share = above[:, 0], above[:, :-1] - above[:, 1:]
            reject = binomial_tail(within, m1, p1[part, None])
        out[part] = 1.0 - above + np.einsum("ij,ij->i", share, reject)
    return out


def _wilson(count: Any, runs: int, z: float) -> Any:
    """Wilson's score limit for a proportion, the upper one for z > 0, the lower one for z < 0."""
    return (count + z * z / 2.0 + z * (count * (runs - count) / runs + z * z / 4.0) ** 0.5) / (runs + z * z)


def _order(c1: int, c2: int, runs: Pair, z: float, ratio: float | None, delta: float) -> tuple[float, float]:
    """T of the pair, an epsilon (`ratio` None) or a delta, and its standard error.

    The squared score is Pearson's, so where it equals z the constrained p1 and p2 are Wilson limits at `z cos(angle)`
    and `z sin(angle)`; the likelihood equation `tan(angle) = R sd2/sd1` fixes the angle.
    """

    def at(angle: float) -> tuple[float, float, float, float, float]:
        p1 = max(0.0, _wilson(c1, runs[0], -z * math.cos(angle)))
        p2 = min(1.0, _wilson(c2, runs[1], z * math.sin(angle)))
        r = (p1 - delta) / max(p2, 1e-300) if ratio is None else ratio
        return p1, p2, r, math.sqrt(p1 * (1.0 - p1) / runs[0]), r * math.sqrt(p2 * (1.0 - p2) / runs[1])

    if c1 == 0 or (ratio is None and at(0.0)[0] <= delta):
        return -math.inf, 1.0
    left, right = 0.0, math.pi / 2.0
    for _ in range(60):
        angle = (left + right) / 2.0
        *_, sd1, sd2 = at(angle)
        left, right = (angle, right) if sd2 * math.cos(angle) > sd1 * math.sin(angle) else (left, angle)
    p1, p2, r, sd1, sd2 = at(right)
    sd = math.hypot(sd1, sd2)
    return (math.log(r), sd / (p1 - delta)) if ratio is None else (p1 - r * p2, sd)


def _crossing(test: Callable[[Array], NDArray[np.bool_]], left: Array, right: Array) -> Array:
    """The point of [left, right], elementwise, from which on `test` holds (`right` if it never does)."""
    for _ in range(48):
        middle = (left + right) / 2.0
        holds = test(middle)
        left, right = np.where(holds, left, middle), np.where(holds, middle, right)
    return right


def _least_count(c2: Array, runs: Pair, z: float, ratio: float, delta: float) -> Array:
    """`b`: for each c2 the least c1 whose score for `p1 <= ratio p2 + delta` reaches z; `m1 + 1` where none does.

    With c2 fixed, the constrained estimate p of p2 rises with c1, and the score is `s sqrt(V)`,
    `s = m2 (p - c2/m2) / (ratio p (1-p))`, `V = p1 (1-p1)/m1 + ratio^2 p (1-p)/m2`. So one root in p is sought.
    """
    (m1, m2), share, cap = runs, c2 / runs[1], min(1.0, (1.0 - delta) / ratio)
    z *= 1.0 - 1e-9  # pairs tied with the observed one (its mirror image, say) stay in, whatever the rounding

    def variance(p: Array) -> Array:
        p1 = np.clip(ratio * p + delta, 0.0, 1.0)
        return p1 * (1.0 - p1) / m1 + ratio**2 * p * (1.0 - p) / m2

    def reached(p: Array) -> NDArray[np.bool_]:
        return m2 * (p - share) * np.sqrt(variance(p)) >= z * ratio * p * (1.0 - p)

    def falls(p: Array) -> NDArray[np.bool_]:
        slope = ratio * (1.0 - 2.0 * (ratio * p + delta)) / m1 + ratio**2 * (1.0 - 2.0 * p) / m2
        rise = 2.0 * variance(p) * ((p - share) ** 2 + share * (1.0 - share))
        return rise + (p - share) * p * (1.0 - p) * slope < -1e-12 * rise

    possible = (share <= cap) & (-delta / ratio <= cap)
    left = np.minimum(np.maximum(share, -delta / ratio), cap)
    right = np.maximum(left, np.minimum(cap, _wilson(c2, m2, z)))  # there the second sample alone reaches z
    if m2 > ratio * m1:  # only then may the score fall again, towards c1 = m1: look no further than its one peak
        right = _crossing(falls, left, right)
    possible &= reached(right)
    exact = m1 * (ratio * share + delta + z * np.sqrt(variance(_crossing(reached, left, right))))
    # Rounded down by more than the arithmetic can be wrong: a pair let in by mistake does no harm.
    return np.where(possible, np.clip(np.ceil(exact - 1e-9 - 4e-15 * m1), 0.0, m1 + 1.0), m1 + 1.0)


@lru_cache(maxsize=16)  # a bound and its p-value ask for the same one
def _region(c1: int, c2: int, runs: Pair, alpha: float, ratio: float | None, delta: float) -> _Region:
    """The region of the observed pair; epsilon runs if `ratio` is None, else delta does."""
    m2 = runs[1]
    low, high = _clopper_pearson(c2, m2, _NUISANCE * alpha)
    z = float(-ndtri(min(alpha, 0.45)))  # only orders the pairs: any z > 0 would be valid
    root, scale = _order(c1, c2, runs, z, ratio, delta)
    s = math.sqrt(-2.0 * (math.log(_OUTSIDE) + math.log(alpha)))
    start = max(0, math.floor(m2 * low - s * math.sqrt(m2 * low * (1.0 - low)) - s * s / 3.0))
    stop = min(m2, math.ceil(m2 * high + s * math.sqrt(m2 * high * (1.0 - high)) + s * s / 3.0))
    first = np.arange(start, stop + 1, -(-(stop - start + 1) // _BLOCKS), dtype=float)
    least = np.zeros_like(first)
    if root > -math.inf:
        least = _least_count(first, runs, z, *((math.exp(root), delta) if ratio is None else (ratio, root)))
        least = np.where(first <= c2, np.minimum(least, c1), least)
        least = np.minimum.accumulate(least[::-1])[::-1]
    return _Region(first, least, runs, low, high, root, scale, alpha, s)


def _interpolation_error(runs: Pair, *ends: tuple[Array, Array]) -> Array:
    """What interpolation at Chebyshev nodes between the ends of p1 and of p2 errs by at most, for any event.

    At complex p an event's probability, less 1/2, is at most `M = 1/2 prod (|p_i| + |1 - p_i|)^m_i`, and interpolation
    errs by `4 M rho^(1-n) / (rho-1)` for M's maximum on the ellipse of radius rho. Distance sums are convex, so corners
    of a polygon around it bound them. Unlike the Fisher information this stays finite at 0 and 1.
    """
    logs = np.log(2.0 / (_RADII - 1.0)) - (_NODES - 1) * np.log(_RADII)
    for m, (a, c) in zip(runs, ends, strict=True):
        points = ((a + c) / 2.0)[:, None, None] + ((c - a) / 2.0)[:, None, None] * _ELLIPSES
        sums = (np.abs(points) + np.abs(1.0 - points)).max(axis=2)
        logs = logs + m * (np.log(np.maximum(sums, 1.0)) + 4e-16)
    return np.exp(np.minimum(logs.min(axis=1), 0.0))


def _worst(region: _Region, ratio: float, delta: float) -> float:
    """The p-value of `p1 <= ratio p2 + delta`: never too small, and near alpha too large by less than 5e-4 alpha."""
    alpha, tolerance = region.alpha, max(_SUPREMUM * region.alpha, 1e-100)
    cap = min(1.0, (1.0 - delta) / ratio)

    def law1(p2: Array) -> Array:
        return np.where(p2 >= cap, 1.0, np.minimum(1.0, ratio * p2 + delta))

    # Where p1 is 1, a larger p2 only makes the region less likely (b rises): the cap stands for all beyond it.
    panels = np.array([[region.low], [min(region.high, cap)]])
    best = float(_rejection(region, law1(panels[0]), panels[0])[0])
    panels = panels[:, panels[0] < panels[1]]
    while panels.size:
        a, c = panels
        if len(a) > 32:  # one sample is far sharper: drop what the corner (p1 at c, p2 at a) proves to be no higher
            middle = (a + c) / 2.0
            best = max(best, float(_rejection(region, law1(middle), middle).max()))
            a, c = panels[:, _rejection(region, law1(c), a) > best + tolerance]
        fine = _interpolation_error(region.runs, (law1(a), law1(c)), (a, c)) <= tolerance
        if fine.any():
            nodes = ((a + c)[fine, None] + (c - a)[fine, None] * np.cos(_ANGLES)) / 2.0
            values = _rejection(region, law1(nodes.ravel()), nodes.ravel()).reshape(nodes.shape)
            few = _ENTRIES // (_FINE + 1)  # so small a product stays in the cache, and BLAS starts no threads for it
            best = max(best, *(float((values[i : i + few] @ _TO_FINE.T).max()) for i in range(0, len(values), few)))
        a, c = a[~fine], c[~fine]
        panels = np.array([np.r_[a, (a + c) / 2.0], np.r_[(a + c) / 2.0, c]])
    return min(1.0, best * _BETWEEN + alpha * (_NUISANCE + _SUPREMUM + 2.0 * _OUTSIDE + _ROUNDING) + 1e-15)


@lru_cache(maxsize=4096)
def _bound(c1: int, c2: int, runs: Pair, alpha: float, epsilon: float | None, delta: float) -> float:
    """The largest rejected value of the running parameter (epsilon if that is None, else delta), 0.0 if there is none.

    alpha is met to 1e-5 of it, from below, by secants on the normal scale, where the p-value is nearly straight.
    """
    ratio = None if epsilon is None else math.exp(epsilon)
    region = _region(c1, c2, runs, alpha, ratio, delta)
    goal, scale = float(ndtri(alpha * (1.0 - 5e-6))), region.scale
    low, high, x, last, slope = 0.0, math.inf if ratio is None else 1.0, max(region.root, 0.0), None, scale
    for trial in range(200):
        p = _worst(region, math.exp(x), delta) if ratio is None else _worst(region, ratio, x)
        low, high = (low, x) if p > alpha else (x, high)
        if high == 0.0 or alpha * (1.0 - 1e-5) <= p <= alpha or high - low <= 1e-7 * scale:
            break
        here = float(ndtri(min(max(p, 1e-300), 1.0 - 1e-15)))
        if last is not None and (x - last[0]) * (here - last[1]) > 0.0:
            slope = (x - last[0]) / (here - last[1])
        last, x = (x, here), x + min(max((goal - here) * slope, -8.0 * scale), 8.0 * scale)
        if not low < x < high or trial > 20:
            x = 0.0 if x <= low == 0.0 else (low + min(high, 2.0 * low + 1.0)) / 2.0
    return low


def _p_value(c1: int, c2: int, runs: Pair, alpha: float, epsilon: float, delta: float) -> float:
    p = _worst(_region(c1, c2, runs, alpha, None, delta), math.exp(epsilon), delta)
    # Bound and p lie above one rising function; where they disagree about alpha, within the slack, either is right.
    return min(p, alpha) if epsilon < _bound(c1, c2, runs, alpha, None, delta) else max(p, math.nextafter(alpha, 1.0))


def _each(one: Callable[..., float], c1: Any, c2: Any, runs: Any, alpha: Any, epsilon: Any, delta: Any) -> Any:
    """Checks what came in, then asks `one` about each pair of counts."""

    def checked(name: str, value: Any, least: float, most: float, wanted: str, whole: bool = False) -> NDArray[Any]:
        v = np.asarray(value)
        if v.dtype.kind not in "fiu" or not np.all((v >= least) & (v <= most) & ((v == np.floor(v)) | (not whole))):
            raise InputError(f"{name} is {' '.join(repr(value).split())[:60]}: it must be {wanted}.")
        return v

    below_one = math.nextafter(1.0, 0.0)
    sizes = checked("runs", runs, 1, _MOST_RUNS, "a whole number from 1 to 10^12, or a pair of them, one a side", True)
    level = checked("alpha", alpha, 5e-324, below_one, "a number above 0 and below 1")
    if sizes.shape not in ((), (2,)) or level.ndim:
        raise InputError(f"runs must be one number or a pair, and alpha one number: found {sizes} and {level}.")
    m1, m2 = np.broadcast_to(sizes, 2).astype(int).tolist()
    first = checked("c1", c1, 0, m1, f"a whole number from 0 to the number of runs, {m1}", True)
    second = checked("c2", c2, 0, m2, f"a whole number from 0 to the number of runs, {m2}", True)
    deltas = checked("delta", delta, 0.0, below_one, "at least 0 and below 1")
    # Beyond 100 nothing can be proved: p1 may be 1 where p2 is 0 in effect.
    epsilons = np.minimum(checked("epsilon", epsilon, 0.0, 1.7e308, "finite and at least 0"), 100.0)
    try:
        asked = np.broadcast(first, second, epsilons, deltas)
    except ValueError:
        raise InputError("the shapes of c1, c2 and the claim do not fit together.") from None
    answers = [one(int(a), int(b), (m1, m2), float(level), float(e), float(d)) for a, b, e, d in asked]
    return np.array(answers, dtype=float).reshape(asked.shape) if asked.ndim else answers[0]


def epsilon_lower_bound(c1: Many, c2: Many, runs: Runs, delta: Many = 0.0, alpha: float = 0.05) -> Any:
    """Certified lower bound on epsilon in `p1 <= e^epsilon p2 + delta` (docs/method.md, section 5).

    With probability at least `1 - alpha` it is not above the true one. Always finite; 0.0 where nothing is proved.
    `c1`, `c2` and `delta` broadcast; scalars give a float. `runs` is one number, or a pair, one a side.
    """
    return _each(lambda a, b, m, level, _, d: _bound(a, b, m, level, None, d), c1, c2, runs, alpha, 0.0, delta)


def delta_lower_bound(c1: Many, c2: Many, runs: Runs, epsilon: Many, alpha: float = 0.05) -> Any:
    """Certified lower bound on delta at this epsilon: the same event read the other way (docs/method.md, section 5).

    Every value holds at `1 - alpha` on its own. Pairs are ordered by delta here, by epsilon in `epsilon_lower_bound`:
    about a claim on the very edge the two may disagree.
    """
    return _each(_bound, c1, c2, runs, alpha, epsilon, 0.0)


def claim_p_value(c1: Many, c2: Many, runs: Runs, epsilon: Many, delta: Many = 0.0, alpha: float = 0.05) -> Any:
    """Valid p-value of the claim `p1 <= e^epsilon p2 + delta` (docs/method.md, section 5).

    At most `alpha` exactly where `epsilon < epsilon_lower_bound(c1, c2, runs, delta, alpha)`. `alpha` takes part: it
    orders the pairs (through `z_{1-alpha}`), and alpha/1000 goes to the nuisance interval, so no value is smaller. For
    an alpha fixed beforehand the p-value is valid at every level.
    """
    return _each(_p_value, c1, c2, runs, alpha, epsilon, delta)
