"""The high-likely region: a product of minimum-volume ellipsoids, and how many runs it needs (paper, Algorithm 3)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.events.ellipsoid import minimum_volume_ellipsoid
from dpverify.util.arrays import Array, array_namespace, contiguous_transpose, multiply_rows
from dpverify.util.checks import check_probability, check_whole_number
from dpverify.util.exact_edges import exact_edges
from dpverify.util.parallel import map_parallel

MAX_EXACT_DIMENSION = 20  # the smallest ellipsoid of one step takes 0.04 s in 20 and 40 s in 100 dimensions
MIN_PARALLEL_DIMENSION = 8  # smaller ellipsoids consist of short calls, which threads cannot share
MAX_UNROLLED_DIMENSION = 8  # of the output of one step, for products in compiled code
NUMBERS_PER_PIECE = 1 << 17  # arrays of this many numbers stay within the processor caches


def _count_variables(dimension: int, beta: float, gamma: float, steps: int) -> int:
    """Return the number of variables of one scenario program with one ellipsoid per step."""
    check_probability("beta", beta)
    check_probability("gamma", gamma)
    dimension, steps = check_whole_number("dimension", dimension, 1), check_whole_number("steps", steps, 1)
    return steps * (dimension * (dimension + 1) // 2 + dimension)


def scenario_size(dimension: int, beta: float, gamma: float, steps: int = 1) -> int:
    """Return how many runs the high-likely region needs: Gamma in the paper.

    The minimum-volume ellipsoid around this many runs contains a new run with probability at least 1 - beta, at
    confidence 1 - gamma (scenario approach).

    Parameters
    ----------
    dimension : int
        The dimension of the output at one step.
    beta : float
        The probability that may lie outside the region.
    gamma : float
        One minus the confidence of this statement.
    steps : int
        The number of steps that are enclosed by one program. The region then holds 1 - beta for all steps jointly
        (docs/method.md, section 4.3). The paper treats each step separately, which is `steps=1`.

    Returns
    -------
    int
        The number of runs.

    Examples
    --------
    >>> scenario_size(2, 0.05, 1e-9)
    814
    """
    variables = _count_variables(dimension, beta, gamma, steps)
    return math.ceil(math.e / (math.e - 1) / beta * (math.log(1 / gamma) + variables))


def exact_scenario_size(dimension: int, beta: float, gamma: float, steps: int = 1) -> int:
    """Return the smallest number of runs with the guarantee of `scenario_size`.

    It is the smallest Gamma with BinomCDF(variables - 1; Gamma, beta) <= gamma.

    Examples
    --------
    >>> exact_scenario_size(2, 0.05, 1e-9)
    616
    """
    variables = _count_variables(dimension, beta, gamma, steps)
    low, high = variables, scenario_size(dimension, beta, gamma, steps)
    while low < high:  # bisection: the distribution function decreases in Gamma
        middle = (low + high) // 2
        if scipy.special.bdtr(variables - 1, middle, beta) <= gamma:
            high = middle
        else:
            low = middle + 1
    return low


class Region(NamedTuple):
    """A product over K steps of ellipsoids `|A x - b| <= 1`.

    If the runs of a step span fewer than d dimensions, the missing directions are pinned: `|pins x - values| <= slack`.

    Attributes
    ----------
    A : ndarray of shape (K, d, d)
        The matrix of each ellipsoid. Rows beyond its rank are zero.
    b : ndarray of shape (K, d)
        The offset of each ellipsoid.
    pins, values, slack : ndarray of shape (K, d, d), (K, d), (K, d)
        The pinned directions, their values and tolerances. Rows without a pinned direction are zero.
    centre, half : ndarray of shape (K, d)
        The centre and the half widths of the box around each ellipsoid.
    """

    A: np.ndarray
    b: np.ndarray
    pins: np.ndarray
    values: np.ndarray
    slack: np.ndarray
    centre: np.ndarray
    half: np.ndarray

    def contains(self, x: Array) -> Array:
        """Return which runs of shape (runs, K, d) lie in the ellipsoid of every step."""
        xp = array_namespace(x)
        if xp is np:
            test = self._contains_pinned if self.pins.any() else self._contains_full_rank
            runs = max(1, NUMBERS_PER_PIECE // self.b.size)
            pieces = [test(x[start : start + runs]) for start in range(0, len(x), runs)]
            return np.concatenate(pieces) if pieces else np.zeros(0, bool)
        u = _multiply_by_step(x, self.A) - self.b[:, None]
        inside = (xp.sum(u * u, 2) <= 1).all(0)
        distance = xp.abs(_multiply_by_step(x, self.pins) - self.values[:, None])
        return inside & (distance <= self.slack[:, None]).all((0, 2))

    def interval_edges(self) -> np.ndarray | None:
        """Return the numbers between which a scalar output lies inside; None if there is no such interval."""
        if self.centre.size != 1 or self.pins.any():
            return None
        A, b = self.A[0, 0], self.b[0]

        def is_right(x: np.ndarray) -> np.ndarray:
            low, high = (x * A - b) * np.sign(A)  # `contains` compares the square with 1, which is the same
            return np.array([low >= -1, high > 1])

        return exact_edges(is_right, (self.centre + np.array([-1, 1]) * self.half).ravel())

    def _contains_full_rank(self, x: np.ndarray) -> np.ndarray:
        """The test without pinned directions. The runs are the last axis, so that operations read contiguous memory."""
        steps, d = self.b.shape
        u = contiguous_transpose(x.reshape(len(x), -1)).reshape(steps, d, -1)
        u = (u * self.A if d == 1 else np.matmul(self.A, u)) - self.b[:, :, None]
        u *= u
        return (u.sum(1) <= 1).all(0)

    def _contains_pinned(self, x: np.ndarray) -> np.ndarray:
        """The test with pinned directions, with one matrix product per step."""
        inside = np.ones(len(x), bool)
        for k, (A, pins) in enumerate(zip(self.A, self.pins, strict=True)):
            free, fixed = A.any(1), pins.any(1)
            product = multiply_rows(x[:, k], np.concatenate([A[free], pins[fixed]]).T)
            u = product[:, : free.sum()] - self.b[k, free]
            distance = np.abs(product[:, free.sum() :] - self.values[k, fixed])
            inside &= (np.einsum("ni,ni->n", u, u) <= 1) & (distance <= self.slack[k, fixed]).all(1)
        return inside


def _multiply_by_step(x: Array, matrices: Array) -> Array:
    """Apply each step's matrix to that step of every run; the result has shape (K, runs, d).

    Products of small matrices are sums of few terms, which a compiler fuses with the operations around them.
    """
    by_step = x.swapaxes(0, 1)
    if x.shape[2] > MAX_UNROLLED_DIMENSION:
        return array_namespace(x).matmul(by_step, matrices.swapaxes(1, 2))
    return sum(by_step[:, :, j, None] * matrices[:, None, :, j] for j in range(x.shape[2]))  # type: ignore[return-value]


class RegionIndicator(NamedTuple):
    """A partition with two cells: 0 outside and 1 inside the region. A run that is not finite is outside."""

    region: Region

    @property
    def size(self) -> int:
        """One more than the largest code."""
        return 2

    def interval_edges(self) -> np.ndarray | None:
        """Return the edges of the region, for a scalar output."""
        return self.region.interval_edges()

    def codes(self, x: Array) -> Array:
        """Return the cell of every run. Comparisons with NaN are false, so such runs are outside."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.region.contains(x).astype(np.int64)


def high_likely_set(samples: ArrayLike, approximate: bool = False) -> Region:
    """Return the product over the steps of the smallest ellipsoids around all runs (paper, Algorithm 3).

    Parameters
    ----------
    samples : array_like of shape (runs,), (runs, d) or (runs, K, d)
        Outputs of a mechanism.
    approximate : bool
        Whether ellipsoids of nearly the smallest volume are sufficient in many dimensions. The scenario guarantee
        needs the smallest ones.

    Returns
    -------
    Region
        The region. `scenario_size` says how many runs give it a stated probability.

    Examples
    --------
    >>> import numpy as np
    >>> region = high_likely_set(np.array([0.0, 1.0, 2.0]))
    >>> region.contains(np.array([[[1.5]], [[2.5]]]))
    array([ True, False])
    """
    samples = np.asarray(samples, float)
    samples = samples.reshape(len(samples), *((1, 1), (1, -1), samples.shape[1:])[min(samples.ndim, 3) - 1])
    if not samples.size:
        raise InputError(f"samples: found shape {samples.shape}; expected at least one run")
    _, steps, d = samples.shape
    A, pins = np.zeros((steps, d, d)), np.zeros((steps, d, d))
    b, values, slack, centre, half = (np.zeros((steps, d)) for _ in range(5))
    is_approximate = approximate and d > MAX_EXACT_DIMENSION
    ellipsoids = map_parallel(
        lambda k: minimum_volume_ellipsoid(samples[:, k], is_approximate),
        range(steps),
        samples.size if d >= MIN_PARALLEL_DIMENSION else 0,
    )
    for k, ellipsoid in enumerate(ellipsoids):
        rank = len(ellipsoid.b)
        A[k, :rank], b[k, :rank] = ellipsoid.A, ellipsoid.b
        directions, pinned_values, tolerance = ellipsoid.flat
        pins[k, : d - rank], values[k, : d - rank], slack[k, : d - rank] = directions, pinned_values, tolerance
        # The ellipsoid is {x0 + inverse(A) u : |u| <= 1}, so the half width of a coordinate is the length of its row.
        # A pseudo-inverse would treat a coordinate as flat if its unit is 10^15 times larger than another one.
        inverse = np.linalg.inv(np.vstack([ellipsoid.A, directions]))
        half[k] = np.hypot.reduce(inverse[:, :rank], axis=1)
        centre[k] = inverse @ np.append(ellipsoid.b, pinned_values)
    return Region(A, b, pins, values, slack, centre, half)
