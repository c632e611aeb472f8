"""The rejection region of the exact unconditional test, for one observed pair of counts (docs/method.md, section 5.2).

`c1 ~ Bin(m1, p1)` and `c2 ~ Bin(m2, p2)` count one frozen event; the claim is `p1 <= R p2 + delta`, `R = e^epsilon`.
Pairs of counts are ordered by T, the value of the free parameter (epsilon or delta) at which the Farrington-Manning
score equals `z_{1-alpha}`. The region `S = {c1 >= b(c2)}` contains every pair at or above the observed one.

For maintainers. S must *contain* all pairs at or above the observed one, and these sets must be nested. A larger S
(rounding b down, blocks, the monotone closure) only makes the bound less tight. Never make S smaller, and never let it
depend on the claim. The sets are nested because the score falls as its parameter rises. For delta, one constrained
estimate rises and the other falls. For epsilon, with x the constrained p1 and `y = (x - delta)(c1 - m1 x)/(x (1-x))`,
the squared score is `A(x) + G(y)`, where A and `A + y` fall and `0 <= G' <= 1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, overload

import numpy as np
import scipy
from numpy.typing import NDArray

from dpverify.stats.binomial import (
    FloatArray,
    PreparedTails,
    binomial_pmf,
    binomial_tail_table,
    clopper_pearson_interval,
)

BoolArray = NDArray[np.bool_]

MAX_TABLE_ENTRIES = 1 << 14  # of a table that is computed at once: small enough for the processor's cache
MAX_KEPT_ENTRIES = 1 << 18  # of a table that is kept for the next evaluation
SPARE_BLOCKS = 4  # on either side of a kept table
MAX_BLOCKS = 8192  # blocks of values of c2; together they cover about 21 standard deviations
MAX_ORDERING_LEVEL = 0.45  # the score is compared with a positive quantile, whatever alpha is
NUISANCE_SHARE = 1e-3  # of alpha: p2 lies outside its interval (Berger and Boos)
OUTSIDE_SHARE = 1e-8  # of alpha: a count lies outside its window


class KeptTails(NamedTuple):
    """Tails of c2 at the edges of some blocks. The search of a bound needs them for the same p2 several times.

    Attributes
    ----------
    p2 : numpy.ndarray
        The probabilities, one for each row.
    begin : numpy.ndarray
        The first block of each row.
    table : numpy.ndarray
        The tails at the edges of consecutive blocks.
    """

    p2: FloatArray
    begin: np.ndarray
    table: FloatArray

    @classmethod
    def of(cls, tails: PreparedTails, p2: FloatArray, begin: np.ndarray, number: int) -> KeptTails:
        """Return the tails of so many blocks, and of a few more on either side."""
        begin = np.maximum(begin - SPARE_BLOCKS, 0)
        columns = np.arange(number + 2 * SPARE_BLOCKS)
        table = np.empty((len(p2), len(columns)))
        rows = max(1, MAX_TABLE_ENTRIES // len(columns))
        for start in range(0, len(p2), rows):
            part = slice(start, start + rows)
            blocks = np.minimum(begin[part, None] + columns, len(tails.counts) - 1)
            table[part] = tails.at(blocks, p2[part, None])
        return cls(p2, begin, table)

    def covers(self, p2: FloatArray, begin: np.ndarray, number: int) -> bool:
        """Return whether the table has the tails of these blocks."""
        if not np.array_equal(self.p2, p2):
            return False
        offset = begin - self.begin
        return bool(offset.min() >= 0 and offset.max() + number <= self.table.shape[1])

    def read(self, part: slice, begin: np.ndarray, number: int) -> FloatArray:
        """Return the tails of some rows, from the given first blocks on."""
        offsets = (begin - self.begin[part]).tolist()
        rows = zip(self.table[part], offsets, strict=True)
        return np.stack([row[offset : offset + number] for row, offset in rows])


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
        The runs of the first and of the second data set.
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
        width1, width2 = self._half_width(m1, p1), self._half_width(m2, p2)
        begin = np.maximum(
            least.searchsorted(m1 * p1 - width1, "right"), first.searchsorted(m2 * p2 - width2, "right") - 1
        )
        end = least.searchsorted(np.minimum(m1 * p1 + width1, m1 + 1.0))
        end = np.minimum(end, first.searchsorted(m2 * p2 + width2, "right"))
        columns = np.arange(max(0, int((end - begin).max())) + 1)
        edges, thresholds = self._tails
        rows = max(1, MAX_TABLE_ENTRIES // len(columns))
        is_kept = max(m1, m2) > MAX_BLOCKS and len(p1) > rows and len(p1) * len(columns) <= MAX_KEPT_ENTRIES
        kept = self._keep_tails(p2, begin, len(columns)) if is_kept else None
        result = np.empty(len(p1))
        for start in range(0, len(p1), rows):
            part = slice(start, start + rows)
            blocks = np.minimum(begin[part, None] + columns, len(first))
            inner = blocks[:, :-1]
            if inner.size and max(m1, m2) <= MAX_BLOCKS:  # every value of c2 is a block of its own
                above = edges.at(blocks[:, 0], p2[part])
                block_mass = binomial_pmf(edges.counts[inner], m2, p2[part, None])
                rejected = binomial_tail_table(thresholds.counts[inner], m1, p1[part])
            else:
                tails = edges.at(blocks, p2[part, None]) if kept is None else kept.read(part, begin[part], len(columns))
                above, block_mass = tails[:, 0], tails[:, :-1] - tails[:, 1:]
                rejected = thresholds.at(inner, p1[part, None])
            result[part] = 1.0 - above + np.einsum("ij,ij->i", block_mass, rejected)
        return result

    def _keep_tails(self, p2: FloatArray, begin: np.ndarray, number: int) -> KeptTails:
        """Return a table of the tails of so many blocks; it is kept for the next call, which may have the same p2."""
        kept = self._kept.get("tails")
        if kept is None or not kept.covers(p2, begin, number):
            kept = self._kept["tails"] = KeptTails.of(self._tails[0], p2, begin, number)
        return kept

    @cached_property
    def _kept(self) -> dict[str, KeptTails]:
        return {}

    @cached_property
    def _tails(self) -> tuple[PreparedTails, PreparedTails]:
        """The tails of the counts at which blocks begin, and of the least counts; the last block is empty."""
        (m1, m2), first, least = self.runs, self.first_counts, self.least_counts
        return PreparedTails.of(np.r_[first, m2 + 1.0], m2), PreparedTails.of(np.r_[least, m1 + 1.0], m1)

    def _half_width(self, runs: int, p: FloatArray) -> FloatArray:
        """Return how far from its mean a count may lie within its window."""
        return self.window * np.sqrt(runs * p * (1.0 - p)) + self.window * self.window / 3.0


@overload
def wilson_limit(count: int, runs: int, z: float) -> float: ...
@overload
def wilson_limit(count: FloatArray, runs: int, z: float) -> FloatArray: ...
def wilson_limit(count: int | FloatArray, runs: int, z: float) -> float | FloatArray:
    """Return Wilson's score limit of a proportion: the upper one for z > 0, the lower one for z < 0."""
    return (count + z * z / 2.0 + z * (count * (runs - count) / runs + z * z / 4.0) ** 0.5) / (runs + z * z)


class _ConstrainedFit(NamedTuple):
    """The estimates at one angle: two probabilities, their ratio, and the standard errors of p1 and of ratio p2."""

    p1: float
    p2: float
    ratio: float
    error1: float
    error2: float


def score_root(
    c1: int, c2: int, runs: tuple[int, int], z: float, ratio: float | None, delta: float
) -> tuple[float, float]:
    """Return T of a pair of counts and its standard error.

    T is an epsilon if `ratio` is None, else a delta. The squared score is Pearson's statistic, so where the score
    equals z the constrained p1 and p2 are Wilson limits at `z cos(angle)` and `z sin(angle)`. The likelihood equation
    `tan(angle) = R sd2/sd1` determines the angle.
    """

    def fit(angle: float) -> _ConstrainedFit:
        p1 = max(0.0, wilson_limit(c1, runs[0], -z * math.cos(angle)))
        p2 = min(1.0, wilson_limit(c2, runs[1], z * math.sin(angle)))
        r = (p1 - delta) / max(p2, 1e-300) if ratio is None else ratio
        error1 = math.sqrt(p1 * (1.0 - p1) / runs[0])
        error2 = r * math.sqrt(p2 * (1.0 - p2) / runs[1])
        return _ConstrainedFit(p1, p2, r, error1, error2)

    if c1 == 0 or (ratio is None and fit(0.0).p1 <= delta):
        return -math.inf, 1.0
    left, right = 0.0, math.pi / 2.0
    for _ in range(60):
        angle = (left + right) / 2.0
        estimate = fit(angle)
        if estimate.error2 * math.cos(angle) > estimate.error1 * math.sin(angle):
            left = angle
        else:
            right = angle
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


def window_width(alpha: float) -> float:
    """Return the attribute `window` of a region."""
    return math.sqrt(-2.0 * (math.log(OUTSIDE_SHARE) + math.log(alpha)))


def first_counts_of_blocks(runs: int, p_lower: float, p_upper: float, window: float) -> FloatArray:
    """Return the smallest count of each block; the blocks cover the windows of all p from `p_lower` to `p_upper`."""
    lower_width = window * math.sqrt(runs * p_lower * (1.0 - p_lower))
    upper_width = window * math.sqrt(runs * p_upper * (1.0 - p_upper))
    start = max(0, math.floor(runs * p_lower - lower_width - window * window / 3.0))
    stop = min(runs, math.ceil(runs * p_upper + upper_width + window * window / 3.0))
    return np.arange(start, stop + 1, -(-(stop - start + 1) // MAX_BLOCKS), dtype=float)


@lru_cache(maxsize=16)  # a bound and its p-value use the same region
def rejection_region(
    c1: int, c2: int, runs: tuple[int, int], alpha: float, ratio: float | None, delta: float
) -> RejectionRegion:
    """Return the region of the observed pair; the free parameter is epsilon if `ratio` is None, else delta."""
    m2 = runs[1]
    p2_lower, p2_upper = clopper_pearson_interval(c2, m2, NUISANCE_SHARE * alpha)
    z = float(-scipy.special.ndtri(min(alpha, MAX_ORDERING_LEVEL)))  # z only orders the pairs: any z > 0 is valid
    root, standard_error = score_root(c1, c2, runs, z, ratio, delta)
    window = window_width(alpha)
    first_counts = first_counts_of_blocks(m2, p2_lower, p2_upper, window)
    least_counts = np.zeros_like(first_counts)
    if root > -math.inf:
        claim = (math.exp(root), delta) if ratio is None else (ratio, root)
        least_counts = least_first_count(first_counts, runs, z, *claim)
        least_counts = np.where(first_counts <= c2, np.minimum(least_counts, c1), least_counts)
        least_counts = np.minimum.accumulate(least_counts[::-1])[::-1]
    return RejectionRegion(first_counts, least_counts, runs, p2_lower, p2_upper, root, standard_error, alpha, window)
