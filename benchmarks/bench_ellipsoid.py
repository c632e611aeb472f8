"""What the smallest ellipsoid costs: against cvxpy + Clarabel, and in passes over a million points.

Run as `python benchmarks/bench_ellipsoid.py`. Every figure is a ratio of two times measured in the same run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import numpy as np

from dpverify.events.ellipsoid import minimum_volume_ellipsoid


def best_of(repeats: int, call: Callable[[], object]) -> float:
    """The least time of several: what the work takes when nothing else interferes."""

    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(once() for _ in range(repeats))


def by_cvxpy(x: np.ndarray) -> None:
    """The same ellipsoid as a user would ask cvxpy for it: built and solved, or, on some clouds, given up."""
    import cvxpy

    d = x.shape[1]
    A, b = cvxpy.Variable((d, d), PSD=True), cvxpy.Variable(d)
    problem = cvxpy.Problem(cvxpy.Maximize(cvxpy.log_det(A)), [cvxpy.norm(x @ A - b[None, :], axis=1) <= 1])
    with contextlib.suppress(cvxpy.SolverError):
        problem.solve(solver=cvxpy.CLARABEL)


def one_pass(x: np.ndarray) -> float:
    """Time to evaluate one quadratic form at all points, the faster of two ways to write it."""
    m = np.cov(x[:1000].T)
    return min(
        best_of(7, lambda: ((x @ m) * x).sum(axis=1)),
        best_of(7, lambda: np.einsum("ij,ij->i", x @ m, x)),
    )


def main() -> None:
    rng = np.random.default_rng(0)

    for n, d in [(814, 2), (2000, 4), (814, 6)]:
        x = rng.normal(size=(n, d))
        ours, theirs = best_of(20, lambda x=x: minimum_volume_ellipsoid(x)), best_of(3, lambda x=x: by_cvxpy(x))
        needed = " (needed: 20)" if d == 2 else ""
        print(f"({n}, {d}): {1e3 * ours:.2f} ms, {theirs / ours:.0f} times faster than cvxpy + Clarabel{needed}")

    n, d = 10**6, 8
    normal = rng.normal(size=(n, d))
    for kind, x in {
        "normal": normal,
        "uniform in a cube": rng.random((n, d)),
        "uniform in a ball": normal / np.linalg.norm(normal, axis=1, keepdims=True) * rng.random((n, 1)) ** (1 / d),
        "Cauchy": rng.standard_cauchy((n, d)),
        "near-degenerate": normal * np.geomspace(1, 1e-7, d) @ np.linalg.qr(normal[:d])[0],
    }.items():
        passes = best_of(3, lambda x=x: minimum_volume_ellipsoid(x)) / one_pass(x)
        print(f"({n}, {d}) {kind}: the time of {passes:.0f} passes over the points (allowed: 60)")


if __name__ == "__main__":
    main()
