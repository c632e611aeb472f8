"""Scores learned from training runs: by moments, and by counting in bins, which streams over any number of runs.

The features are the coordinates (where values repeat) and the innovations: whitened with the time-ordered Cholesky
factor of the pooled covariance, so that each coordinate is what is new at its step (docs/method.md, section 5).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression, minimize
from scipy.sparse import csr_array, vstack
from scipy.special import expit

from dpverify.events.partition import Atoms, Partition, code_weights, find_atoms, pad_rows
from dpverify.events.scores import Additive, CellScore, Features, Linear, Patterned, Piecewise, Quadratic, Score
from dpverify.sampling.counts import Counts, CountTable, occupied_codes
from dpverify.util.arrays import array_namespace, contiguous_transpose, digitize, evaluate_method

MAX_BINS = 64  # bins a coordinate
MAX_BINS_SINGLE_COORDINATE = 512  # bins where there is only one coordinate
MAX_QUADRATIC_COORDINATES = 64  # coordinates at most for a quadratic score
MAX_PATTERNS = 64  # of atoms that a score tells apart
MIN_RUNS_PER_PATTERN = 200  # training runs at least
TAIL_RUNS = 32  # the most extreme runs that a bin at the end holds
MAX_FIT_NUMBERS = 1 << 19  # a side, for a joint fit
KNOT_QUANTILES = (0.0005, 0.005, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.995, 0.9995)  # quantiles
RIDGE_RUNS = 5.0  # runs' worth of belief that a step is 0
MAX_SCORED_CELLS = 4096  # cells that a score lists; more are noise, and too long to write down


def clip_tails(flat: np.ndarray) -> np.ndarray:
    """Without the wildest two-hundredth at either end: heavy tails have no moments."""
    low, high = np.quantile(flat, [0.005, 0.995], axis=0)
    return np.clip(flat, low, high)


def innovations(first: np.ndarray, second: np.ndarray) -> Features:
    """Mean and time-ordered whitening from both sides, each about its own mean."""
    tame = clip_tails(np.concatenate([first, second]))
    sides = tame[: len(first)], tame[len(first) :]
    covariance = sum(np.atleast_2d(np.cov(side, rowvar=False)) for side in sides) / 2
    # A coordinate that is constant on each side has no spread of its own: the distance of the sides is its unit.
    whole = tame.std(0)
    scale = np.sqrt(np.diag(covariance))
    scale = np.where(scale > 1e-9 * whole, scale, np.where(whole > 0, whole, 1.0))
    correlation = covariance / np.outer(scale, scale)
    # A coordinate that the earlier ones determine has no innovation: the ridge keeps its rounding from being magnified.
    factor = np.linalg.cholesky(correlation + 1e-9 * np.eye(len(scale)))
    return Features(tame.mean(0), np.linalg.solve(factor, np.diag(1 / scale)))


def moment_scores(features: Features, first: np.ndarray, second: np.ndarray) -> list[Score]:
    """The log-ratio of two Gaussians with a common covariance, and with one each."""
    z1, z2 = (clip_tails(features.values(side)) for side in (first, second))
    difference = z1.mean(0) - z2.mean(0)
    assert features.whiten is not None
    scores: list[Score] = [Linear(features.whiten.T @ difference)]
    dimension = z1.shape[1]
    if dimension <= MAX_QUADRATIC_COORDINATES and min(len(z1), len(z2)) > 10 * dimension:
        ridge = 1e-6 * np.eye(dimension)
        P1, P2 = (np.linalg.inv(np.atleast_2d(np.cov(z, rowvar=False)) + ridge) for z in (z1, z2))
        weights = P1 @ z1.mean(0) - P2 @ z2.mean(0)
        scores.append(Quadratic(features, weights, (P2 - P1) / 2))
    return scores


class Binning(NamedTuple):
    """Bins of every feature; it measures how many runs fall into each."""

    features: Features
    edges: np.ndarray  # (J, E), sorted, padded with infinity

    result_kind = CountTable

    def measure(self, x: Any) -> np.ndarray:
        return evaluate_method(self, "tables", x)

    def tables(self, x: Any) -> Any:
        xp, number = array_namespace(x), self.edges.shape[1] + 1
        length = {"minlength": number} if xp is np else {"length": number}
        z = contiguous_transpose(self.features.values(x.reshape(x.shape[0], -1)))
        return xp.stack([xp.bincount(digitize(e, column), **length) for e, column in zip(self.edges, z, strict=True)])


def make_binning(features: Features, flat: np.ndarray, atoms: list[np.ndarray]) -> Binning:
    """Quantile bins of the training runs, fine bins at the ends, and a bin of its own for every atom of a coordinate.

    Innovations of discrete coordinates repeat without end: there only quantiles count.
    """
    z = features.values(flat)
    found = []
    if features.whiten is not None:
        atoms = [np.zeros(0)] * z.shape[1]
    number = MAX_BINS_SINGLE_COORDINATE if z.shape[1] == 1 else MAX_BINS
    for j in range(z.shape[1]):
        x = np.sort(z[:, j])
        if len(atoms[j]):
            x = x[~np.isin(x, atoms[j])]
        edges = [atoms[j], np.nextafter(atoms[j], -np.inf), _quantile_edges(x, number)]
        found.append(np.unique(np.concatenate(edges)))
    return Binning(features, pad_rows(found))


def _quantile_edges(x: np.ndarray, number: int) -> np.ndarray:
    """Between order statistics of sorted values: in equal steps, and in doubling ones towards both ends."""
    if not x.size:
        return x
    doubling = TAIL_RUNS * 2 ** np.arange(max(1, int(np.log2(max(x.size / number / TAIL_RUNS, 1))) + 1))
    places = np.concatenate([np.arange(1, number) * x.size // number, doubling, x.size - doubling])
    places = places[(places > 0) & (places < x.size)]
    return np.unique(x[places - 1] + (x[places] - x[places - 1]) / 2)


def additive_scores(binning: Binning, table1: np.ndarray, table2: np.ndarray) -> list[Score]:
    """Log-ratios of counts, with neighbouring bins pooled to several finenesses, and made monotone.

    Few bins are blind to shape, many are noisy: held-out runs decide. A log-ratio that only rises or only falls, as
    many do, is freed of most of its noise by that knowledge.
    """
    total = table1[0].sum()
    finest = MAX_BINS_SINGLE_COORDINATE if len(table1) == 1 else MAX_BINS
    steps = [
        np.stack([_shrunken_ratio(c1, c2, bins, total) for c1, c2 in zip(table1, table2, strict=True)])
        for bins in (2, 8, 32, 64, 512)
        if bins <= finest
    ]
    steps.append(np.stack([monotone_ratio(c1, c2) for c1, c2 in zip(table1, table2, strict=True)]))
    scores: list[Score] = []
    for at, heights in enumerate(steps):
        if any(np.array_equal(heights, earlier) for earlier in steps[:at]):
            continue
        matters = np.flatnonzero(np.any(heights != heights[:, :1], axis=1))
        if matters.size:
            scores.append(_trimmed(Additive(binning.features, matters, binning.edges[matters], heights[matters])))
    return scores


def monotone_ratio(c1: np.ndarray, c2: np.ndarray) -> np.ndarray:
    """The rising or the falling log-ratio nearest to the counts', or a constant where neither is worth its noise."""
    weight = (c1 + 0.5) * (c2 + 0.5) / (c1 + c2 + 1)  # one over the variance of the log-ratio
    ratio = np.log((c1 + 0.5) / (c2 + 0.5))
    fits = [isotonic_regression(ratio, weights=weight, increasing=rising).x for rising in (True, False)]
    misses = [float((weight * (ratio - fit) ** 2).sum()) for fit in fits]
    flat = np.full(ratio.shape, np.average(ratio, weights=weight))
    best = int(np.argmin(misses))
    gain = float((weight * (ratio - flat) ** 2).sum()) - misses[best]
    return fits[best] if gain > 2 * np.log(len(ratio)) + 6 else flat  # chance alone gains about the logarithm


class PatternBinning(NamedTuple):
    """Bins of every coordinate that is no atom, for each frequent pattern of atoms; measures runs in each of them."""

    score: Patterned  # all heights 0

    result_kind = CountTable

    def measure(self, x: Any) -> np.ndarray:
        """One row of counts for each of the score's rows, and a last one for the patterns."""
        flat, score = np.asarray(x).reshape(len(x), -1), self.score
        shown = score.place(flat)
        table = np.zeros((len(score.rows) + 1, max(score.steps.shape[1], len(score.offsets))), np.int64)
        for row, (pattern, j) in enumerate(zip(score.rows, score.coordinates, strict=True)):
            bins = np.searchsorted(score.edges[row], flat[shown == pattern, j])
            table[row] = np.bincount(bins, minlength=table.shape[1])
        table[-1] = np.bincount(shown, minlength=table.shape[1])
        return table


def make_pattern_binning(flat: np.ndarray, found: list[np.ndarray]) -> PatternBinning | None:
    """None where no pattern of atoms leaves a coordinate free, or where there is only one pattern."""
    where = [j for j, values in enumerate(found) if len(values)]
    if not where:
        return None
    values = pad_rows([found[j] for j in where])
    atoms = Atoms(np.array(where), values, code_weights([1 + len(found[j]) for j in where]))
    patterns, shown, counts = np.unique(atoms.index(flat), return_inverse=True, return_counts=True)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:MAX_PATTERNS])
    frequent = frequent[counts[frequent] >= MIN_RUNS_PER_PATTERN]
    rows, coordinates, edges = [], [], []
    for place, pattern in enumerate(frequent):
        some = flat[shown == pattern]
        for j in range(flat.shape[1]):
            if not np.isin(some[0, j], found[j]):  # the pattern says where all of its runs hold atoms
                rows.append(place)
                coordinates.append(j)
                edges.append(_quantile_edges(np.sort(some[:, j]), MAX_BINS))
    if not rows or patterns.size == 1:
        return None
    score = Patterned(
        atoms,
        patterns[frequent],
        np.zeros(frequent.size + 1),
        np.array(rows),
        np.array(coordinates),
        pad_rows(edges),
        np.zeros((len(rows), max(map(len, edges)) + 1)),
    )
    return PatternBinning(score)


def pattern_score(binning: PatternBinning, table1: np.ndarray, table2: np.ndarray) -> Patterned:
    """The log-ratio of each pattern, and of each free coordinate given the pattern, rising or falling."""
    score = binning.score
    seen1, seen2 = (table[-1, : len(score.offsets)] + 0.5 for table in (table1, table2))
    offsets = np.log(seen1 / seen2)
    offsets[-1] *= min(seen1[-1], seen2[-1]) > 1  # nothing is known of what was never seen
    steps = np.zeros_like(score.steps)
    for row, bins in enumerate(np.isfinite(score.edges).sum(1) + 1):
        fit = monotone_ratio(table1[row, :bins], table2[row, :bins])
        steps[row] = np.pad(fit, (0, steps.shape[1] - bins), mode="edge")
    varied = np.flatnonzero(np.ptp(steps, axis=1) > 0)
    steps = steps[varied] - offsets[score.rows[varied]][:, None]
    edges, steps = _without_idle_edges(score.edges[varied], steps)
    return score._replace(
        offsets=offsets, rows=score.rows[varied], coordinates=score.coordinates[varied], edges=edges, steps=steps
    )


def piecewise_score(features: Features, first: np.ndarray, second: np.ndarray) -> Piecewise:
    """Piecewise linear functions of all features, fitted jointly by logistic regression.

    Counting takes every coordinate on its own, and counts the same thing twice where coordinates depend on each other;
    a joint fit does not, and what is linear between knots carries over from where runs are many to where they are few.
    """
    runs = max(1000, MAX_FIT_NUMBERS // first.shape[1])
    sides = [features.values(side[:runs]).T for side in (first, second)]
    both = np.concatenate(sides, axis=1)
    atoms = find_atoms(both.T) if features.whiten is None else [np.zeros(0)] * len(both)
    rows = pad_rows(atoms, least=1)
    knots = []
    for z, values in zip(both, atoms, strict=True):
        free = z[~np.isin(z, values)] if len(values) else z
        found = np.unique(np.quantile(free, KNOT_QUANTILES)) if free.size else np.zeros(1)
        if found.size < len(KNOT_QUANTILES):  # few distinct values: spread the knots evenly
            found = np.linspace(found[0], max(found[-1], found[0] + 1), len(KNOT_QUANTILES))
        knots.append(found)
    start = Piecewise(features, np.stack(knots), np.zeros((len(both), len(KNOT_QUANTILES))), rows, np.zeros(rows.shape))
    cut = start.heights.size
    design = vstack([sign * _design(start, side) for sign, side in zip((1, -1), sides, strict=True)], format="csr")
    transposed = design.T.tocsr()

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        margin = design @ numbers
        value = np.logaddexp(0.0, -margin).sum() + 0.5 * RIDGE_RUNS * (numbers @ numbers)
        slope = RIDGE_RUNS * numbers - transposed @ expit(-margin)
        return value / len(margin), slope / len(margin)

    zero = np.zeros(cut + rows.size)
    fitted = minimize(loss, zero, jac=True, method="L-BFGS-B", options={"maxiter": 60}).x
    return start._replace(
        heights=fitted[:cut].reshape(start.heights.shape), atom_heights=fitted[cut:].reshape(rows.shape)
    )


def _design(start: Piecewise, features: np.ndarray) -> csr_array:
    """The matrix that takes heights at the knots and jumps at the atoms to the score of every run."""
    knots, atoms, entries = start.heights, start.atom_heights, []
    for j, z in enumerate(features):
        right, share, hit, atom = start.place(np.ascontiguousarray(z), j)
        entries += [(j * knots.shape[1] + right - 1, np.where(hit, 0.0, 1 - share))]
        entries += [(j * knots.shape[1] + right, np.where(hit, 0.0, share))]
        if hit.any():
            entries += [(knots.size + j * atoms.shape[1] + np.where(hit, atom, 0), hit.astype(float))]
    contiguous_transpose, values = (np.stack(part, axis=1).ravel() for part in zip(*entries, strict=True))
    ends = np.arange(features.shape[1] + 1) * len(entries)
    return csr_array((values, contiguous_transpose, ends), shape=(features.shape[1], knots.size + atoms.size))


def _shrunken_ratio(c1: np.ndarray, c2: np.ndarray, bins: int, total: int) -> np.ndarray:
    """log(c1/c2) after pooling neighbours up to a share 1/bins of the runs, times what exceeds its noise."""
    both = c1 + c2
    middle = (np.cumsum(both) - both / 2) / (2 * total)
    group = np.unique(np.minimum((middle * bins).astype(int), bins - 1), return_inverse=True)[1]
    p1, p2 = (np.bincount(group, c) for c in (c1, c2))
    ratio = np.log((p1 + 0.5) / (p2 + 0.5))
    noise = 1 / (p1 + 0.5) + 1 / (p2 + 0.5)
    weight = (p1 + p2) / max((p1 + p2).sum(), 1)
    signal = 1 - (weight * noise).sum() / max((weight * ratio**2).sum(), 1e-300)
    return max(signal, 0.0) * ratio[group]


def _trimmed(score: Additive) -> Additive:
    """Without the edges at which nothing changes: the same function, faster and shorter."""
    edges, steps = _without_idle_edges(score.edges, score.steps)
    return score._replace(edges=edges, steps=steps)


def _without_idle_edges(all_edges: np.ndarray, all_steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    trimmed = []
    for edges, steps in zip(all_edges, all_steps, strict=True):
        changes = (steps[1:] != steps[:-1]) & np.isfinite(edges)
        trimmed.append((edges[changes], np.append(steps[0], steps[1:][changes])))
    if not trimmed:
        return all_edges[:, :1], all_steps[:, :2]
    edges = pad_rows([edges for edges, _ in trimmed], least=1)
    return edges, np.stack([np.pad(s, (0, edges.shape[1] + 1 - len(s)), mode="edge") for _, s in trimmed])


def cell_score(partition: Partition, first: Counts, second: Counts) -> CellScore:
    """The cells in the order of their ratio of counts, the most telling ones where there are too many."""
    codes = occupied_codes(first, second)
    c1, c2 = first.of(codes) + 0.5, second.of(codes) + 0.5
    numbers = np.log(c1 / c2)
    if codes.size > MAX_SCORED_CELLS:
        # By how many standard errors a ratio differs from 1.
        kept = np.sort(np.argsort(-np.abs(numbers) / np.sqrt(1 / c1 + 1 / c2), kind="stable")[:MAX_SCORED_CELLS])
        codes, numbers = codes[kept], numbers[kept]
    if not codes.size:
        codes, numbers = np.zeros(1, np.int64), np.zeros(1)
    return CellScore(partition, codes, numbers, np.zeros(()))
