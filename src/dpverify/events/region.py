"""The high-likely region: a product of the smallest ellipsoids around the pilot runs (docs/method.md, section 2).

The dual problem is a D-optimal design: weights on the points that maximise log det of their weighted covariance. Any
weights give a lower bound of the smallest volume. The ellipsoid of these weights, enlarged until it contains all
points, gives an upper bound. Every result therefore carries a certificate (Khachiyan 1996; Todd & Yildirim 2007).

Only few points have positive weight. The algorithm starts with a working set of extreme points (Kumar & Yildirim 2005).
It solves the problem on the working set, adds the points that lie farthest outside, and repeats until no point lies
outside. Points whose weight becomes zero leave the working set, as in the away steps of Todd & Yildirim (2007). Points
that have no weight in any optimal design are eliminated (Harman & Pronzato 2007). A few Newton steps on the working set
replace the many exchanges of single weights of Todd & Yildirim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from dpverify.errors import InputError
from dpverify.util.arrays import Array, array_namespace, contiguous_transpose, map_parallel, multiply_rows
from dpverify.util.checks import check_probability, check_whole_number

Floats = NDArray[np.floating]

EPS = float(np.finfo(float).eps)
ROUNDING_SPREAD = 1e-12  # a spread below this fraction of the magnitude is attributed to rounding
MIN_SPREAD = 1e-290  # the reciprocal of a smaller spread overflows
MIN_EIGENVALUE_RATIO = 1e-8  # below this ratio the covariance does not resolve its smallest direction
OUTSIDE_TOLERANCE = 2e-8  # a point is outside if its squared radius exceeds the rank by more; the gap is half of it
SOLVER_TOLERANCE = 1e-10  # the same on the working set; smaller, so that a point that is outside is always a new one
ROUGH_SHARE = 0.01  # of the largest excess: the tolerance on the working set in many dimensions
THINNING = 16  # every 16th point of a large set gives the starting point
APPROXIMATE_STEPS = 16  # multiplicative steps of an approximate ellipsoid
MIN_PIVOTING_DIMENSION = 16  # an active-set method is fast in few dimensions and slow in many
MAX_NEWTON_STEPS, MAX_ROUNDS = 100, 1000  # not reached in practice; if they were, the gap would show it

RIDGE = 1e-13  # relative; repeated columns make the matrix singular
DUAL_TOLERANCE = 1e-11  # relative to the largest entry of the linear term
MAX_IDLE_STEPS = 3  # consecutive steps after which no fewer signs are wrong than before


class Flat(NamedTuple):
    """The affine hull of the points: |directions @ x - values| <= tolerance, with orthonormal rows `directions`."""

    directions: Floats
    values: Floats
    tolerance: Floats


class Ellipsoid(NamedTuple):
    """All x with |A x - b| <= 1 that lie in the affine hull `flat`.

    Attributes
    ----------
    A : ndarray of shape (rank, d)
        Symmetric positive definite if rank = d. Otherwise its rows lie in the affine hull.
    b : ndarray of shape (rank,)
        The offset.
    flat : Flat
        The affine hull of the points: `directions`, `values` and `tolerance` of the pinned directions.
    gap : float
        The log-volume exceeds the smallest possible one by at most this much.
    """

    A: Floats
    b: Floats
    flat: Flat
    gap: float


def minimum_volume_ellipsoid(points: ArrayLike, approximate: bool = False) -> Ellipsoid:
    """Return the ellipsoid of least volume around points (docs/method.md, section 2).

    Parameters
    ----------
    points : array_like of shape (n, d) or (n,)
        The points.
    approximate : bool
        Whether a few steps of the multiplicative algorithm are sufficient. The ellipsoid contains all points and its
        gap is certified, but the gap is larger. In 50 dimensions this takes a fifth of the time.

    Returns
    -------
    Ellipsoid
        Every point satisfies |A x - b| <= 1 in float64. Points that span no volume are enclosed within their affine
        hull. The certified `gap` is below 1e-7 unless double precision limits it: with an offset of 1e9 spreads, for
        example, about 7 digits of the spread remain, and the gap is larger.

    Examples
    --------
    >>> ellipsoid = minimum_volume_ellipsoid([[1, 0], [-1, 0], [0, 1], [0, -1]])
    >>> np.abs(ellipsoid.A.round(6)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    x = np.ascontiguousarray(
        _checked(points).T
    )  # one point per column, so that sums over points read contiguous memory
    d = len(x)
    low, high = x.min(axis=1), x.max(axis=1)
    middle, spread, magnitude = low / 2 + high / 2, high / 2 - low / 2, np.maximum(-low, high)
    constant = spread <= np.maximum(ROUNDING_SPREAD * magnitude, MIN_SPREAD)
    if constant.any():
        axes = np.eye(d)
        return _within_hull(x, magnitude, axes[constant], axes[~constant], approximate)

    # From here the coordinates are centred and of order 1, whatever their units.
    z = x - middle[:, None]
    z /= spread[:, None]
    mean = z.mean(axis=1)
    z -= mean[:, None]
    whitening, narrow = _principal_axes(z, magnitude / spread)
    if len(narrow):
        q = np.linalg.qr((narrow / spread).T, mode="complete")[0].T
        return _within_hull(x, magnitude, q[: len(narrow)], q[len(narrow) :], approximate)

    z = whitening @ z
    if approximate:
        support, weights, inverse_root = _approximate_design(z)
    else:
        extreme = z[:, _extreme_points(z)]
        support, weights, inverse_root = _optimal_design(z, extreme, np.full(extreme.shape[1], 1 / extreme.shape[1]))
    centre = middle + spread * (mean + np.linalg.solve(whitening, support @ weights))
    # With radius 1 this is the dual bound: no ellipsoid around the points has a smaller volume (see _enclose).
    factor = inverse_root @ whitening / spread / np.sqrt(d)
    A = _symmetric_factor(factor)
    lost = abs(float(np.linalg.slogdet(A)[1] - np.linalg.slogdet(factor)[1]))
    A, b, growth = _enclose(x, magnitude, A, A @ centre)
    return Ellipsoid(A, b, Flat(np.empty((0, d)), np.empty(0), np.empty(0)), lost + growth)


def log_volume(ellipsoid: Ellipsoid) -> float:
    """Return the log-volume in `rank` dimensions, within the affine hull; 0.0 for a single point (rank 0)."""
    rank = len(ellipsoid.A)
    log_det = np.log(np.abs(np.diagonal(np.linalg.qr(ellipsoid.A.T, mode="r")))).sum()
    return float(rank / 2 * np.log(np.pi) - scipy.special.gammaln(rank / 2 + 1) - log_det)


def _checked(points: ArrayLike) -> Floats:
    """Return the points as a finite float array of shape (n, d) with n, d >= 1."""
    try:
        x = np.asarray(points)
    except ValueError as ragged:
        raise InputError("points: found rows of different lengths; expected an array of shape (n, d)") from ragged
    if x.dtype.kind not in "biuf":
        raise InputError(f"points: found an array of {x.dtype}; expected real numbers")
    if x.ndim not in (1, 2) or x.size == 0:
        raise InputError(f"points: found shape {x.shape}; expected (n, d) with n, d >= 1")
    x = x.astype(float, copy=False).reshape(len(x), -1)
    if not np.isfinite(x).all():
        bad = int(np.argmin(np.isfinite(x).all(axis=1)))
        raise InputError(f"points: found {x[bad].tolist()} as point {bad}; expected finite numbers")
    return x


def _within_hull(x: Floats, magnitude: Floats, directions: Floats, basis: Floats, approximate: bool) -> Ellipsoid:
    """Enclose the points in the coordinates `basis` of their affine hull; `directions` are pinned."""
    d = len(x)
    A, b, gap = np.empty((0, d)), np.empty(0), 0.0
    if len(basis):
        inner = minimum_volume_ellipsoid((basis @ x).T, approximate)
        directions = np.vstack([directions, inner.flat.directions @ basis])
        A, b, growth = _enclose(x, magnitude, inner.A @ basis, inner.b)
        gap = inner.gap + growth
    along = directions @ x
    low, high = along.min(axis=1), along.max(axis=1)
    values = low / 2 + high / 2
    tolerance = np.maximum(high - values, values - low) + 2 * d * EPS * (np.abs(directions) @ magnitude)
    return Ellipsoid(A, b, Flat(directions, values, tolerance), gap)


def _enclose(x: Floats, magnitude: Floats, A: Floats, b: Floats) -> tuple[Floats, Floats, float]:
    """Enlarge |A x - b| <= 1 until it contains all points; return it with an upper bound of the growth in log-volume.

    This growth is the gap, for the following reason. Let u be weights that sum to 1, and c and Q the weighted mean and
    covariance of the points. For any ellipsoid |B x - a| <= 1 around all points, with k = rank,
        1 >= sum_i u_i |B x_i - a|^2 >= tr(B Q B^T) >= k det(B Q B^T)^(1/k),
    by the inequality of arithmetic and geometric means, so -log det B >= (log det Q + k log k) / 2. That is the
    log-volume of (x - c)^T Q^-1 (x - c) <= k, the ellipsoid that is passed in. Enlarging it by r adds k log r.

    A different order of summation can change |A x - b| by rounding. The slack enlarges the radius by this much, and the
    gap once more for the rounding of A itself.
    """
    radius = float(np.sqrt(_squared_lengths(A @ x, b).max(initial=0.0)))
    slack = 2 * EPS * (2 + float(np.linalg.norm(np.abs(A) @ magnitude + np.abs(b))))
    radius *= 1 + slack
    return A / radius, b / radius, len(A) * float(np.log(radius) + slack)


def _squared_lengths(y: Floats, b: Floats) -> Floats:
    """Return |y_i - b|^2 for the columns of y. The array y is overwritten."""
    y -= b[:, None]
    return np.einsum("ij,ij->j", y, y)


def _principal_axes(z: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Return a matrix T such that T @ z has about unit covariance, and the unit directions (rows) in which z is flat.

    A direction is flat if rounding of the coordinates explains its width; `noise` is their magnitude relative to their
    spread.
    """
    k, n = z.shape
    variances, axes = np.linalg.eigh(z @ z.T / n)
    if variances[0] > MIN_EIGENVALUE_RATIO * variances[-1]:
        return axes.T / np.sqrt(variances)[:, None], np.empty((0, k))
    # The covariance squares the condition number; the triangular factor of the points themselves does not.
    triangle = np.linalg.qr(z.T, mode="r") / np.sqrt(n)
    _, deviations, axes = np.linalg.svd(np.pad(triangle, ((0, k - len(triangle)), (0, 0))))
    flat = np.abs(axes @ z).max(axis=1) <= ROUNDING_SPREAD * np.linalg.norm(axes * noise, axis=1)
    return axes / np.where(flat, 1.0, deviations)[:, None], axes[flat]


def _optimal_design(z: Floats, work: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return support and weights of the optimal design on z, and R with R^T R the inverse of its covariance.

    The iteration starts from weights on a working set that spans all dimensions.
    """
    k, n = z.shape
    if n > THINNING * 1000:  # a thinned set gives a good starting point at low cost
        work, weights, _ = _optimal_design(z[:, ::THINNING], work, weights)
    is_large = k >= MIN_PIVOTING_DIMENSION
    newcomers = 8 * k if is_large else 2 * k + k * (k + 3) // 2
    tolerance = SOLVER_TOLERANCE
    for _ in range(MAX_ROUNDS):
        weights, inverse_root = _design_weights(work, weights, tolerance)
        work, weights = work[:, weights > 0], weights[weights > 0]
        squared = _squared_lengths(inverse_root @ z, inverse_root @ work @ weights)
        excess = squared.max() - k
        if excess <= OUTSIDE_TOLERANCE:
            break
        outside = np.flatnonzero(squared > k + max(OUTSIDE_TOLERANCE, tolerance))
        if is_large:  # while points lie far outside, a rough solution is enough to find them
            tolerance = max(SOLVER_TOLERANCE, ROUGH_SHARE * excess)
        if len(outside) > newcomers:
            outside = outside[np.argpartition(squared[outside], -newcomers)[-newcomers:]]
        work = np.hstack([work, z[:, outside]])
        weights = np.append(weights, np.zeros(len(outside)))
        # Harman & Pronzato, theorem 1: points with variance y^T M^-1 y (here 1 + squared) below this have zero weight.
        least = (k + 1) * (1 + excess / 2 - np.sqrt(excess * (4 + excess - 4 / (k + 1))) / 2)
        alive = 1 + squared >= (1 - 1e-9) * least
        if 2 * np.count_nonzero(alive) < len(alive):  # otherwise the copy costs more than it saves
            z = z[:, alive]
    return work, weights, inverse_root


def _approximate_design(z: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the points, weights after a few multiplicative steps (Titterington 1976), and R as `_optimal_design`.

    Each step multiplies the weight of a point by its variance y^T M^-1 y over d + 1, which increases log det M.
    """
    k, n = z.shape
    weights = np.full(n, 1 / n)
    for step in range(APPROXIMATE_STEPS + 1):
        mean = z @ weights
        centred = z - mean[:, None]
        inverse_root = np.linalg.inv(np.linalg.cholesky((centred * weights) @ centred.T))
        if step < APPROXIMATE_STEPS:
            weights = weights * (1 + _squared_lengths(inverse_root @ z, inverse_root @ mean)) / (k + 1)
            weights /= weights.sum()
    return z, weights, inverse_root


def _extreme_points(z: Floats) -> NDArray[np.intp]:
    """Return indices of at most 2 d points that span all dimensions (Kumar & Yildirim 2005).

    Each direction is orthogonal to the span so far, so the two extreme points along it add a dimension.
    """
    k = len(z)
    chosen, span = [], np.empty((k, 0))
    for dimension in range(k):
        normal = np.linalg.qr(span, mode="complete")[0][:, dimension]
        along = normal @ z
        lowest, highest = along.argmin(), along.argmax()
        chosen += [lowest, highest]
        span = np.column_stack([span, z[:, highest] - z[:, lowest]])
    return np.unique(chosen)


def _design_weights(points: Floats, weights: Floats, tolerance: float) -> tuple[Floats, Floats]:
    """Return optimal weights on a few points, and R with R^T R the inverse of their weighted covariance.

    At the result the squared radius of every point exceeds the dimension by at most the tolerance.

    This is Newton's method for log det M(u) - D sum(u) over u >= 0, where M = sum_i u_i y_i y_i^T for the lifted points
    y = (1, x) and D = d + 1; the optimum has sum(u) = 1. In coordinates where M = I, in which the first entry of every
    y is still 1, the quadratic model is, up to a constant,
        -|sum_i u_i y_i y_i^T - (2 I - D e_1 e_1^T)|^2 / 2,
    so each step is a nonnegative least squares problem, and weights become exactly zero. The objective is
    self-concordant: steps damped by 1 / (1 + decrement) converge globally, and undamped steps converge quadratically
    near the optimum.
    """
    k = len(points)
    for _ in range(MAX_NEWTON_STEPS):
        centred = points - (points @ weights)[:, None]
        root = np.linalg.cholesky((centred * weights) @ centred.T)
        white = np.linalg.solve(root, centred)
        if np.square(white).sum(axis=0).max() <= k + tolerance:
            break
        lifted = np.vstack([np.ones(len(weights)), white])
        optimum, norm = _quadratic_optimum(lifted, weights)
        step = optimum - weights
        decrement = norm(step)
        weights = weights + step / (1.0 if decrement < 0.25 else 1 + decrement)
        weights /= weights.sum()
    return weights, np.linalg.inv(root)


def _quadratic_optimum(lifted: Floats, weights: Floats) -> tuple[Floats, Callable[[Floats], float]]:
    """Return the optimum u >= 0 of the quadratic model of `_design_weights`, and the norm |sum_i s_i y_i y_i^T|."""
    if len(lifted) > MIN_PIVOTING_DIMENSION:  # a lifted point has one number more
        gram = np.square(lifted.T @ lifted)  # products of y_i y_i^T and y_j y_j^T
        linear = 2 * np.square(lifted).sum(axis=0) - len(lifted)
        optimum = nonnegative_minimum(gram, linear, weights > 0)
        if optimum is not None:
            return optimum, lambda step: float(np.sqrt(max(step @ gram @ step, 0.0)))
    row, column = np.triu_indices(len(lifted))
    multiplicity = np.where(row == column, 1.0, np.sqrt(2.0))[:, None]  # an off-diagonal entry counts twice
    target = np.where(row == column, 2.0, 0.0)
    target[0] -= len(lifted)
    products = multiplicity * lifted[row] * lifted[column]
    return scipy.optimize.nnls(products, target)[0], lambda step: float(np.linalg.norm(products @ step))


def _symmetric_factor(factor: Floats) -> Floats:
    """Return the symmetric positive definite A with A^T A = factor^T factor.

    The Jacobi method computes small entries accurately if the coordinates have very different units (ratios up to
    1e100; beyond that the gap shows the loss of accuracy).
    """
    (gejsv,) = scipy.linalg.get_lapack_funcs(("gejsv",), (factor,))
    singular, _, v, scales, _, _ = gejsv(factor, joba=0)  # 0: accurate for columns of any scale
    A = (v * (singular * (scales[0] / scales[1]))) @ v.T
    return (A + A.T) / 2


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
    stand_ins : ndarray of shape (3, K, d), optional
        The numbers that stand for NaN, infinity and minus infinity in each coordinate, beyond its pilot runs; None if
        all outputs are finite. Such a value is an atom of its coordinate, and the other coordinates still count.
    """

    A: np.ndarray
    b: np.ndarray
    pins: np.ndarray
    values: np.ndarray
    slack: np.ndarray
    centre: np.ndarray
    half: np.ndarray
    stand_ins: np.ndarray | None = None

    def fill(self, x: Array) -> Array:
        """Return runs of shape (runs, K, d) with the numbers that stand for values that are not finite."""
        return x if self.stand_ins is None else replace_nonfinite(x, self.stand_ins)

    def meaning(self, coordinate: int, value: float) -> str:
        """Return "NaN", "inf" or "-inf" if a value of a coordinate stands for it, else an empty text."""
        columns = [] if self.stand_ins is None else self.stand_ins.reshape(3, -1)[:, coordinate].tolist()
        return dict(zip(columns, ("NaN", "inf", "-inf"), strict=False)).get(value, "")

    def contains(self, x: Array) -> Array:
        """Return which runs of shape (runs, K, d) lie in the ellipsoid of every step."""
        x, xp = self.fill(x), array_namespace(x)
        if xp is np:
            test = self._contains_pinned if self.pins.any() else self._contains_full_rank
            runs = max(1, NUMBERS_PER_PIECE // self.b.size)
            pieces = [test(x[start : start + runs]) for start in range(0, len(x), runs)]
            return np.concatenate(pieces) if pieces else np.zeros(0, bool)
        u = _multiply_by_step(x, self.A) - self.b[:, None]
        inside = (xp.sum(u * u, 2) <= 1).all(0)
        distance = xp.abs(_multiply_by_step(x, self.pins) - self.values[:, None])
        return inside & (distance <= self.slack[:, None]).all((0, 2))

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
    """A partition with two cells: 0 outside and 1 inside the region."""

    region: Region

    @property
    def size(self) -> int:
        """One more than the largest code."""
        return 2

    def codes(self, x: Array) -> Array:
        """Return the cell of every run."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.region.contains(x).astype(np.int64)


def replace_nonfinite(x: Array, stand_ins: Array) -> Array:
    """Return runs with the numbers that stand for NaN, infinity and minus infinity in each coordinate."""
    xp, (nan, high, low) = array_namespace(x), stand_ins
    return xp.where(xp.isnan(x), nan, xp.where(x == xp.inf, high, xp.where(x == -xp.inf, low, x)))


def choose_stand_ins(samples: np.ndarray) -> np.ndarray:
    """Return numbers of shape (3, K, d) that stand for NaN, infinity and minus infinity, from runs of shape (n, K, d).

    They lie beyond the finite values of each coordinate by a part of their range, so that a region and cells that are
    made from filled runs have the usual scale.
    """
    finite = np.isfinite(samples)
    high = np.where(finite.any(0), samples.max(0, where=finite, initial=-np.inf), 0.0)
    low = np.where(finite.any(0), samples.min(0, where=finite, initial=np.inf), 0.0)
    with np.errstate(over="ignore"):
        width = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
        beyond = np.stack([high + width / 4, high + width / 2, low - width / 2])
    return np.clip(beyond, -np.finfo(float).max, np.finfo(float).max)


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


def nonnegative_minimum(gram: np.ndarray, linear: np.ndarray, is_positive: np.ndarray) -> np.ndarray | None:
    """Return the u >= 0 that minimises u^T gram u / 2 - linear^T u, by block principal pivoting (Judice & Pires 1994).

    Unlike an active-set method, which adds one positive unknown at a time, each step exchanges all unknowns with a
    wrong sign. From a good guess of the positive unknowns few steps are needed.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        The matrix, symmetric and positive semidefinite.
    linear : ndarray of shape (n,)
        The linear term.
    is_positive : ndarray of bool, shape (n,)
        Which unknowns are probably positive.

    Returns
    -------
    ndarray of shape (n,), or None
        The minimum; None if the steps do not converge, which happens if the matrix is nearly singular.

    Examples
    --------
    >>> nonnegative_minimum(np.eye(2), np.array([1.0, -1.0]), np.array([False, True])).round(6).tolist()
    [1.0, 0.0]
    """
    ridge = RIDGE * float(np.trace(gram)) / len(gram)
    tolerance = DUAL_TOLERANCE * float(np.abs(linear).max())
    fewest, idle_steps = len(linear) + 1, 0
    while idle_steps <= MAX_IDLE_STEPS:
        positive = np.flatnonzero(is_positive)
        rows = gram[positive]
        matrix = rows[:, positive]
        matrix.flat[:: len(positive) + 1] += ridge
        solution = np.zeros(0)
        if len(positive):  # older versions of SciPy do not solve a system without unknowns
            try:
                factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
            except np.linalg.LinAlgError:
                return None
            solution = scipy.linalg.cho_solve(factor, linear[positive], check_finite=False)
        is_wrong = solution @ rows - linear < -tolerance  # here the objective falls if the unknown becomes positive
        is_wrong[positive] = solution < 0
        number = np.count_nonzero(is_wrong)
        if not number:
            result = np.zeros(len(linear))
            result[positive] = solution
            return result
        fewest, idle_steps = (number, 0) if number < fewest else (fewest, idle_steps + 1)
        is_positive = is_positive ^ is_wrong
    return None
