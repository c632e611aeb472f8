"""The largest probability of a rejection region under a claim, with certified errors (docs/method.md, section 5.2).

The probability of the region is a polynomial in p2 along the boundary of the claim. Its supremum over the nuisance
parameter p2 is bounded by interpolation at Chebyshev nodes on panels. All errors (interpolation, evaluation on a finite
mesh, left-out counts, rounding) are added, so that the result is never too small.
"""

from __future__ import annotations

import math

import numpy as np

from dpverify.stats.binomial import FloatArray
from dpverify.stats.rejection_region import MAX_TABLE_ENTRIES, NUISANCE_SHARE, OUTSIDE_SHARE, RejectionRegion

# Shares of alpha that the certificate costs, besides those of the region. The factor MESH_FACTOR costs 3e-5 of the
# supremum in addition.
INTERPOLATION_SHARE = 4e-4  # the error of interpolation between the nodes
ROUNDING_SHARE = 1e-5  # tails and their sums in double precision
ROUNDING_ERROR = 1e-15  # absolute; no smaller p-value can be certified

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
    """Return the p-value of `p1 <= ratio p2 + delta`, the largest over p2 in its interval.

    The result is never too small. Near alpha it is too large by less than 5e-4 alpha. A p-value above `level` is not
    computed further: the result is then some number above it.
    """
    alpha, tolerance = region.alpha, max(INTERPOLATION_SHARE * region.alpha, 1e-100)
    cap = min(1.0, (1.0 - delta) / ratio)

    def largest_p1(p2: FloatArray) -> FloatArray:
        return np.where(p2 >= cap, 1.0, np.minimum(1.0, ratio * p2 + delta))

    def probability(p2: FloatArray) -> FloatArray:
        return region.probability(largest_p1(p2), p2)

    # Where p1 is 1, a larger p2 only makes the region less likely (b rises), so no p2 above the cap is evaluated.
    panels = np.array([[region.p2_lower], [min(region.p2_upper, cap)]])
    supremum = float(probability(panels[0])[0])
    panels = panels[:, panels[0] < panels[1]]
    if level < 1.0 and panels.size:
        # The maximum on the mesh cannot lie below the probability at one point by more than the tolerance.
        at_middle = float(probability(panels.mean(axis=0))[0])
        if at_middle - tolerance > level:
            return add_errors(at_middle, alpha)
    while panels.size and add_errors(supremum, alpha) <= level:
        left, right = panels
        if len(left) > MAX_UNPRUNED_PANELS:
            # This happens where one sample is far more precise than the other. The probability at the corner (p1 at the
            # right end, p2 at the left end) bounds a whole panel: panels that cannot exceed the supremum are dropped.
            supremum = max(supremum, float(probability((left + right) / 2.0).max()))
            left, right = panels[:, region.probability(largest_p1(right), left) > supremum + tolerance]
        error = interpolation_error(region.runs, (largest_p1(left), largest_p1(right)), (left, right))
        accurate = error <= tolerance
        if accurate.any():
            sums, widths = (left + right)[accurate, None], (right - left)[accurate, None]
            nodes = (sums + widths * CHEBYSHEV_NODES) / 2.0
            values = probability(nodes.ravel()).reshape(nodes.shape)
            supremum = max(supremum, mesh_maximum(values))
        left, right = left[~accurate], right[~accurate]
        middle = (left + right) / 2.0
        panels = np.array([np.r_[left, middle], np.r_[middle, right]])
    return add_errors(supremum, alpha)


def add_errors(supremum: float, alpha: float) -> float:
    """Return the p-value: the supremum on the mesh plus all errors of its computation."""
    share = NUISANCE_SHARE + INTERPOLATION_SHARE + 2.0 * OUTSIDE_SHARE + ROUNDING_SHARE
    return min(1.0, supremum * MESH_FACTOR + alpha * share + ROUNDING_ERROR)


def mesh_maximum(values: FloatArray) -> float:
    """Return the largest value of the interpolants on the mesh, given their values at the nodes, one row per panel.

    Products of few rows stay in the processor's cache, and BLAS starts no threads for them.
    """
    rows = MAX_TABLE_ENTRIES // (MESH_INTERVALS + 1)
    return max(float((values[i : i + rows] @ _NODES_TO_MESH.T).max()) for i in range(0, len(values), rows))
