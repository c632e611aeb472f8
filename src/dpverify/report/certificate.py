"""Upper bounds over all events, from what is stated about the density of the output.

Counts alone cannot bound all events: an event that no run has shown may still have a positive probability under one of
the datasets. Two statements of the user, or of the mechanism, close this gap. A `DensityCertificate` rests on the
density of the output, and runs contradict it if it is wrong. A `LipschitzCertificate` rests on a Lipschitz constant of
the log-density, which is not checked. Each has a source, which says before the test runs what is counted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpverify.claims import Claim
from dpverify.errors import InputError
from dpverify.events.partition import FIRST_CELL, Partition, find_atoms, grid
from dpverify.events.region import Region
from dpverify.events.scores import Levels, UserScore
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import Mechanism
from dpverify.report.statements import REGION_SHARE, CountsPair
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.count import occupied_codes
from dpverify.stats.boundaries import MAX_EXPONENT
from dpverify.stats.density import Misfit, delta_from_tail, find_misfit, loss_thresholds, tail_limits
from dpverify.stats.upper import Frontier, delta_upper_bound, frontier, frontier_bound, smallest_epsilon
from dpverify.util.arrays import Array, array_namespace, enable_x64
from dpverify.util.checks import check_delta, check_epsilon
from dpverify.util.formatting import format_count, format_number

LogDensity = Callable[[Any, Array], Array]  # the argument `log_density=`
DENSITY_ALPHA = 1e-6  # probability that a true density is contradicted; then there is no answer, and nothing is wrong
DECIMALS = {8: 9, 4: 4, 2: 1}  # of a log-ratio, by the size of a number: the rounding of a log-density of 100 is less
SMOOTH_GRID_CELLS = 1024
MAX_LIPSCHITZ_DIMENSION = 2


class _AllEvents:
    """What certificates have in common: everything follows from the bound on delta at every epsilon."""

    assumption: ClassVar[str]  # in words, after "provided that"
    argument: ClassVar[str]  # of `verify`, by which it is stated
    is_joint: ClassVar[bool]  # whether the bounds at all epsilons hold together

    def delta_upper(self, epsilon: float) -> float:
        """Return an upper bound on delta at this epsilon, over all events and both orders."""
        raise NotImplementedError

    def describe_misfit(self) -> str:
        """Return in words which runs contradict what is stated; empty if none do, or if nothing is compared."""
        return ""

    def epsilon_upper(self, delta: float = 0.0) -> float:
        """Return an upper bound on epsilon at this delta, over all events and both orders.

        The bound is infinite where delta is so small that the runs cannot exclude it.
        """
        check_delta(delta)
        return smallest_epsilon(self.delta_upper, delta)

    @property
    def certifiable_delta(self) -> float:
        """A power of ten at which these runs bound epsilon; 1 or more if there is none."""
        least = self.delta_upper(MAX_EXPONENT)  # no epsilon has a smaller bound
        return 10.0 ** math.ceil(math.log10(2 * max(least, 1e-300)))

    def meets_claim(self, claim: Claim | None) -> bool:
        """Return whether the claim holds for all events, with confidence 1 - alpha."""
        if claim is None or (claim.is_curve and not self.is_joint):
            return False
        return claim.follows_from(self.delta_upper)


@dataclass(frozen=True)
class DensityCertificate(_AllEvents):
    """Upper bounds over all events. They rest on the density of the output that is stated (docs/method.md, 5.13).

    Attributes
    ----------
    edges : array of shape (slices - 1,)
        The edges of slices of the log-ratio of the two densities, symmetric around 0.
    counts : array of shape (2, slices, columns)
        Test runs of each dataset in every slice, divided by another score if there are several columns.
    runs : int
        Test runs per dataset.
    alpha : float
        The bounds at all epsilons hold together, with confidence 1 - alpha.
    misfit_alpha : float
        The probability that runs contradict a density that is right.
    """

    edges: np.ndarray
    counts: np.ndarray
    runs: int
    alpha: float
    misfit_alpha: float
    assumption: ClassVar[str] = "the stated density is correct"
    argument: ClassVar[str] = "log_density"
    is_joint: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[tuple[np.ndarray, ...], int]:
        """The counts as columns of equal shape, and the largest possible count; for the reader of a file."""
        return (self.counts[0], self.counts[1]), self.runs

    @functools.cached_property
    def _tails(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """The thresholds, and for each order upper limits of the probability of a larger loss."""
        thresholds = self.edges[self.edges >= 0]
        slices = self.counts.sum(axis=2)
        above = self.runs - np.cumsum(slices[0])[:-1], np.cumsum(slices[1])[:-1][::-1]
        return thresholds, [tail_limits(one[-thresholds.size :], self.runs, self.alpha / 2) for one in above]

    def delta_upper(self, epsilon: float) -> float:
        """Return an upper bound on delta at this epsilon, over all events and both orders.

        The bounds at all epsilons hold together, with confidence 1 - alpha.
        """
        check_epsilon(epsilon)
        thresholds, limits = self._tails
        return min(1.0, max(delta_from_tail(thresholds, one, epsilon) for one in limits))

    def meets_claim(self, claim: Claim | None) -> bool:
        """Return whether the claim holds for all events, with confidence 1 - alpha.

        The events that are best by the stated density have to keep the claim in the runs, too. So a claim that one of
        them violates is certified with probability at most alpha, even if the density is wrong by too little to be
        noticed.
        """
        return claim is not None and super().meets_claim(claim) and claim.follows_from(self._excess_upper)

    def _excess_upper(self, epsilon: float) -> float:
        """Return an upper limit of the excess of {log-ratio > epsilon}, with the next edge, whatever the density is."""
        above = int(np.searchsorted(self.edges, epsilon)) + 1
        first, second = self.counts.sum(axis=2)
        pairs = (first[above:], second[above:]), (second[: first.size - above], first[: first.size - above])
        counts = [[np.array([side.sum()]) for side in pair] for pair in pairs]
        return max(delta_upper_bound(a, b, self.runs, epsilon, self.alpha) for a, b in counts)

    @functools.cached_property
    def misfit(self) -> Misfit | None:
        """Runs that contradict the stated density, or None."""
        return find_misfit(self.edges, self.counts, self.runs, self.misfit_alpha)

    def describe_misfit(self) -> str:
        """Return in words which runs contradict the stated density; empty if none do."""
        if self.misfit is None:
            return ""
        low, high, columns, counts = self.misfit
        limits = f"between {format_number(low)} and {format_number(high)}"
        if math.isinf(low) or math.isinf(high):
            limits = f"above {format_number(low)}" if math.isinf(high) else f"of at most {format_number(high)}"
        part = "" if columns == (0, self.counts.shape[2]) else ", and in a part of the outputs that another score gives"
        first, second = map(format_count, counts)
        return (
            f"of the runs with a stated log-ratio {limits}{part}, {first} belong to the first dataset and {second} to "
            "the second, which is another ratio"
        )


@dataclass(frozen=True)
class LipschitzCertificate(_AllEvents):
    """Upper bounds over all events. They rest on a Lipschitz constant of the log-densities that the user states.

    Within a bounded cell the logarithm of the density ratio varies by at most `variation`. The remaining runs count in
    full as a violation (docs/method.md, section 5).

    Attributes
    ----------
    c1, c2 : array of int
        Counts of the bounded cells under the first and the second dataset.
    rest : tuple of int
        Test runs outside all bounded cells, under the first and under the second dataset.
    variation : float
        Largest variation of the log-ratio of the densities within a cell.
    runs : int
        Test runs per dataset.
    alpha : float
        Each bound has confidence 1 - alpha.
    """

    c1: np.ndarray
    c2: np.ndarray
    rest: tuple[int, int]
    variation: float
    runs: int
    alpha: float
    assumption: ClassVar[str] = "the stated Lipschitz constant is correct"
    argument: ClassVar[str] = "log_lipschitz"
    is_joint: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[tuple[np.ndarray, ...], int]:
        """The counts as columns of equal shape, and the largest possible count; for the reader of a file."""
        return (self.c1, self.c2), self.runs

    @functools.cached_property
    def _frontiers(self) -> tuple[Frontier, Frontier]:
        c1, c2 = self.c1, self.c2
        return (
            frontier(np.append(c1, self.rest[0]), np.append(c2, 0), self.runs, self.alpha),
            frontier(np.append(c2, self.rest[1]), np.append(c1, 0), self.runs, self.alpha),
        )

    def delta_upper(self, epsilon: float) -> float:
        """Return an upper bound on delta at this epsilon, over all events and both orders.

        Each value holds with confidence 1 - alpha on its own.
        """
        check_epsilon(epsilon)
        bound = max(frontier_bound(line, epsilon - self.variation) for line in self._frontiers)
        return min(1.0, max(0.0, bound))


class Slices(NamedTuple):
    """Slices of the stated log-ratio, crossed with level sets of another score: what is counted for a certificate."""

    log_ratio: Levels
    rival: Levels | None
    is_plain_data = False  # the density is a function

    @property
    def columns(self) -> int:
        """The number of level sets of the other score."""
        return 1 if self.rival is None else self.rival.size

    @property
    def size(self) -> int:
        """One more than the largest code."""
        return self.log_ratio.size * self.columns

    def codes(self, x: Array) -> Array:
        """Return the cell of every run."""
        codes = self.log_ratio.codes(x)
        return codes if self.rival is None else codes * self.columns + self.rival.codes(x)


class DensitySource(NamedTuple):
    """What is counted for a `DensityCertificate`; fixed before the test runs."""

    cells: Slices

    def certificate(self, pair: CountsPair, runs: int, alpha: float, share: float = 1.0) -> DensityCertificate:
        """Return the certificate at a share of alpha."""
        slices = self.cells
        shape = slices.log_ratio.size, slices.columns
        counts = np.stack([side.of(np.arange(slices.size)).reshape(shape) for side in pair])
        level = share * (1 - REGION_SHARE) * alpha
        return DensityCertificate(slices.log_ratio.edges, counts, runs, level, share * DENSITY_ALPHA)


class LogRatio:
    """The log-ratio of the stated densities of the two datasets, one number per run."""

    def __init__(self, density: LogDensity, data: tuple[object, object]) -> None:
        self.density, self.data = density, data

    def __call__(self, samples: Array) -> Array:
        """Return the log-ratios of whole outputs."""
        return self.of_prefixes(samples)[:, -1]

    def of_prefixes(self, samples: Array) -> Array:
        """Return the log-ratios of all prefixes, or in one column those of whole outputs, if only these are stated.

        They lie from -700 to 700. Where both densities are 0, the log-ratio is that of a run without a density.
        """
        xp = array_namespace(samples)
        with enable_x64(samples), np.errstate(invalid="ignore"):
            # A density in JAX may be asked about runs in NumPy; then the densities are compared in NumPy.
            logs = [xp.asarray(self.density(data, samples)) for data in self.data]
            for one in logs:
                if one.shape not in (samples.shape[:1], samples.shape[:2]):
                    raise InputError(
                        f"log_density: found shape {one.shape}; expected one number per run, shape {samples.shape[:1]}"
                    )
            ratio = xp.where(xp.isneginf(logs[0]) & xp.isneginf(logs[1]), xp.inf, logs[0] - logs[1])
            # Noise in floating point has traces in the last digits of the ratio, which no stated density describes.
            # Other scores look for them.
            ratio = xp.round(xp.clip(ratio, -MAX_EXPONENT, MAX_EXPONENT), DECIMALS[ratio.dtype.itemsize])
            return ratio.reshape(samples.shape[0], -1)


def stated_log_ratio(stated: LogDensity | None, source: SampleSource) -> UserScore | None:
    """Return the log-ratio of the stated densities as a score; without a statement that of the mechanism, or None."""
    density = getattr(source.mechanism, "log_density", None) if stated is None else stated
    if density is None:
        return None
    assert source.shape is not None
    return UserScore(LogRatio(density, source.data), source.shape, "log_density")


def density_source(score: UserScore, rival: Levels | None, points: np.ndarray) -> DensitySource:
    """Return slices of the log-ratio that follow its distribution in runs of shape (n, K, d), which are not counted."""
    score.check_row_by_row(points)
    return DensitySource(Slices(Levels(score, slice_edges(score.values(points.reshape(len(points), -1)))), rival))


def slice_edges(log_ratios: Array) -> np.ndarray:
    """Return the edges of slices, symmetric around 0, that follow the distribution of some log-ratios."""
    thresholds = loss_thresholds(np.abs(np.asarray(log_ratios, float)))
    return np.unique(np.r_[-thresholds, thresholds])


class SmoothGrid(NamedTuple):
    """A fine grid, and the largest variation of the log-ratio of the densities within one of its cells."""

    cells: Partition
    variation: float

    def certificate(self, pair: CountsPair, runs: int, alpha: float, share: float = 1.0) -> LipschitzCertificate:
        """Return the certificate at a share of alpha, from the counts of the grid's cells."""
        codes = occupied_codes(*pair)
        c1, c2 = (counts.of(codes[codes >= FIRST_CELL]) for counts in pair)
        rest = runs - int(c1.sum()), runs - int(c2.sum())
        return LipschitzCertificate(c1, c2, rest, self.variation, runs, share * (1 - REGION_SHARE) * alpha)


Certificate = DensityCertificate | LipschitzCertificate
CertificateSource = DensitySource | SmoothGrid  # what is counted for a certificate


def find_certificate_source(
    log_density: LogDensity | None,
    log_lipschitz: float | tuple[float, float] | None,
    source: SampleSource,
    region: Region,
    points: np.ndarray,
    rival: Levels | None,
) -> tuple[CertificateSource | None, tuple[Diagnostic, ...]]:
    """Return what is counted for a certificate, and diagnostics that explain why there is none.

    Parameters
    ----------
    log_density, log_lipschitz
        What the user states; None uses the methods of the same names of the mechanism.
    source : SampleSource
        The mechanism with its two datasets.
    region : Region
        The region that a grid divides.
    points : array, shape (n, K, d)
        The finite pilot runs from which the region was made.
    rival : Levels or None
        Level sets of the best score besides the log-ratio.
    """
    score = stated_log_ratio(log_density, source)
    if score is not None:
        return density_source(score, rival, points), ()
    return smooth_grid(log_lipschitz, source.mechanism, source.data, region, points)


def smooth_grid(
    stated: float | tuple[float, float] | None,
    mechanism: Mechanism,
    data: tuple[object, object],
    region: Region,
    points: np.ndarray,
) -> tuple[SmoothGrid | None, tuple[Diagnostic, ...]]:
    """Return the grid for a bound over all events, and the diagnostics that explain why there is none.

    Parameters
    ----------
    stated : float, pair of float, or None
        The Lipschitz constant of the log-density, for both datasets or one for each. None uses the attribute
        `log_lipschitz` of the mechanism; without this attribute there is no grid and no diagnostic.
    mechanism, data
        The mechanism and its two datasets.
    region : Region
        The region that the grid divides.
    points : array, shape (n, K, d)
        The finite pilot runs from which the region was made.
    """
    constants = lipschitz_constants(stated, mechanism, data)
    if constants is None:
        return None, ()
    flat = points.reshape(len(points), -1)
    dimension = flat.shape[1]
    if any(map(len, find_atoms(flat))):
        return None, (Diagnostic.NO_DENSITY,)
    if dimension > MAX_LIPSCHITZ_DIMENSION:
        return None, (Diagnostic.LIPSCHITZ_DIMENSION,)
    resolution = round(SMOOTH_GRID_CELLS ** (1 / dimension))
    diagonal = float(np.linalg.norm(2 * region.half)) / resolution
    return SmoothGrid(grid(region, points, resolution), (constants[0] + constants[1]) * diagonal), ()


def lipschitz_constants(
    stated: float | tuple[float, float] | None, mechanism: Mechanism, data: tuple[object, object]
) -> tuple[float, float] | None:
    """Return the stated Lipschitz constants, one for each dataset, or None if none is stated."""
    if stated is None:
        own = getattr(mechanism, "log_lipschitz", None)
        if own is None:
            return None
        stated = own(data[0]), own(data[1])
    pair = (stated, stated) if np.ndim(stated) == 0 else tuple(stated)  # type: ignore[arg-type]
    if len(pair) != 2 or not all(isinstance(x, (int, float, np.number)) and 0 <= x < math.inf for x in pair):
        raise InputError(
            f"log_lipschitz: found {stated!r}; expected a finite number from 0 up, or one for each dataset"
        )
    return float(pair[0]), float(pair[1])  # type: ignore[arg-type]
