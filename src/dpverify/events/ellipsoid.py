"""The minimum-volume ellipsoid around a set of points (docs/method.md, section 2).

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

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from dpverify.errors import InputError
from dpverify.util.least_squares import nonnegative_minimum

Array = NDArray[np.floating]

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


class Flat(NamedTuple):
    """The affine hull of the points: |directions @ x - values| <= tolerance, with orthonormal rows `directions`."""

    directions: Array
    values: Array
    tolerance: Array


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

    A: Array
    b: Array
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


def _checked(points: ArrayLike) -> Array:
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


def _within_hull(x: Array, magnitude: Array, directions: Array, basis: Array, approximate: bool) -> Ellipsoid:
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


def _enclose(x: Array, magnitude: Array, A: Array, b: Array) -> tuple[Array, Array, float]:
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


def _squared_lengths(y: Array, b: Array) -> Array:
    """Return |y_i - b|^2 for the columns of y. The array y is overwritten."""
    y -= b[:, None]
    return np.einsum("ij,ij->j", y, y)


def _principal_axes(z: Array, noise: Array) -> tuple[Array, Array]:
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


def _optimal_design(z: Array, work: Array, weights: Array) -> tuple[Array, Array, Array]:
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


def _approximate_design(z: Array) -> tuple[Array, Array, Array]:
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


def _extreme_points(z: Array) -> NDArray[np.intp]:
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


def _design_weights(points: Array, weights: Array, tolerance: float) -> tuple[Array, Array]:
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


def _quadratic_optimum(lifted: Array, weights: Array) -> tuple[Array, Callable[[Array], float]]:
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


def _symmetric_factor(factor: Array) -> Array:
    """Return the symmetric positive definite A with A^T A = factor^T factor.

    The Jacobi method computes small entries accurately if the coordinates have very different units (ratios up to
    1e100; beyond that the gap shows the loss of accuracy).
    """
    (gejsv,) = scipy.linalg.get_lapack_funcs(("gejsv",), (factor,))
    singular, _, v, scales, _, _ = gejsv(factor, joba=0)  # 0: accurate for columns of any scale
    A = (v * (singular * (scales[0] / scales[1]))) @ v.T
    return (A + A.T) / 2
