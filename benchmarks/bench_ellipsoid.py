"""Measures the minimum-volume ellipsoid: relative to cvxpy with Clarabel, and in passes over a million points.

Every figure is a ratio of two times of the same run.

Run: python benchmarks/bench_ellipsoid.py (about two minutes; needs cvxpy and clarabel).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import numpy as np

from dpverify.events.region import minimum_volume_ellipsoid

REQUIRED_SPEED_UP, ALLOWED_PASSES = 20, 60


def best_seconds(repeats: int, call: Callable[[], object]) -> float:
    """Return the shortest of several times, which has the least interference from other programs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def solve_with_cvxpy(x: np.ndarray) -> None:
    """Build and solve the same problem in cvxpy; for some point sets its solver fails."""
    import cvxpy

    d = x.shape[1]
    A, b = cvxpy.Variable((d, d), PSD=True), cvxpy.Variable(d)
    problem = cvxpy.Problem(cvxpy.Maximize(cvxpy.log_det(A)), [cvxpy.norm(x @ A - b[None, :], axis=1) <= 1])
    with contextlib.suppress(cvxpy.SolverError):
        problem.solve(solver=cvxpy.CLARABEL)


def pass_seconds(x: np.ndarray) -> float:
    """Return the time to evaluate one quadratic form at all points, by the faster of two expressions."""
    m = np.cov(x[:1000].T)
    return min(
        best_seconds(7, lambda: ((x @ m) * x).sum(axis=1)),
        best_seconds(7, lambda: np.einsum("ij,ij->i", x @ m, x)),
    )


def main() -> None:
    """Print the ratios to cvxpy, then the number of passes for point sets of several shapes."""
    rng = np.random.default_rng(0)
    for n, d in [(814, 2), (2000, 4), (814, 6)]:
        x = rng.normal(size=(n, d))
        ours = best_seconds(20, lambda x=x: minimum_volume_ellipsoid(x))
        cvxpy_seconds = best_seconds(3, lambda x=x: solve_with_cvxpy(x))
        required = f" (required: {REQUIRED_SPEED_UP})" if d == 2 else ""
        ratio = cvxpy_seconds / ours
        print(f"({n}, {d}): {1e3 * ours:.2f} ms, {ratio:.0f} times faster than cvxpy + Clarabel{required}")

    n, d = 10**6, 8
    normal = rng.normal(size=(n, d))
    for kind, x in {
        "normal": normal,
        "uniform in a cube": rng.random((n, d)),
        "uniform in a ball": normal / np.linalg.norm(normal, axis=1, keepdims=True) * rng.random((n, 1)) ** (1 / d),
        "Cauchy": rng.standard_cauchy((n, d)),
        "near-degenerate": normal * np.geomspace(1, 1e-7, d) @ np.linalg.qr(normal[:d])[0],
    }.items():
        passes = best_seconds(3, lambda x=x: minimum_volume_ellipsoid(x)) / pass_seconds(x)
        print(f"({n}, {d}) {kind}: the time of {passes:.0f} passes over the points (allowed: {ALLOWED_PASSES})")


if __name__ == "__main__":
    main()
