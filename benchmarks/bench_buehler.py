"""Measures the time of one exact lower bound, from small counts to 10^10 runs.

Run: python benchmarks/bench_buehler.py (about a minute).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from dpverify.stats import exact as lower_bound

CASES = [  # runs, c1, c2
    (20, 10, 0),
    (10**5, 165, 100),
    (10**5, 739, 100),
    (10**5, 2718, 1000),
    (10**5, 33_155, 30_000),
    (10**7, 10**7 - 5, 1000),
    (10**7, 824_361, 500_000),
    (10**10, 1649, 1000),
    (10**10, 5 * 10**9, 10_000),
    (10**10, 10**10, 10**6),
    (10**10, 5_050_000_000, 5 * 10**9),
]


def best_seconds(function: Callable[..., object], *arguments: object, repeats: int = 3) -> float:
    """Return the shortest of several times; the cache is cleared before each."""
    best = math.inf
    for _ in range(repeats):
        lower_bound._lower_bound.cache_clear()
        start = time.perf_counter()
        function(*arguments)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print the bound of each case and the times of the three functions, then the time of a thousand bounds."""
    print(f"{'runs':>12} {'c1':>12} {'c2':>12} {'epsilon >=':>11} {'epsilon':>9} {'delta':>9} {'p-value':>9}")
    for runs, c1, c2 in CASES:
        bound = lower_bound.epsilon_lower_bound(c1, c2, runs)
        times = (
            best_seconds(lower_bound.epsilon_lower_bound, c1, c2, runs),
            best_seconds(lower_bound.delta_lower_bound, c1, c2, runs, bound / 2),
            best_seconds(lower_bound.claim_p_value, c1, c2, runs, bound / 2),
        )
        print(f"{runs:12d} {c1:12d} {c2:12d} {bound:11.4f} " + " ".join(f"{1e3 * t:6.1f} ms" for t in times))
    rng = np.random.default_rng(0)
    c2 = rng.integers(0, 101, 1000)
    c1 = rng.binomial(10**5, np.minimum(1.0, (c2 + 1) / 10**5 * np.exp(rng.uniform(0, 3, 1000))))
    seconds = best_seconds(lower_bound.epsilon_lower_bound, c1, c2, 10**5, repeats=1)
    print(f"1000 bounds, 10^5 runs, c2 <= 100: {seconds:.1f} s")


if __name__ == "__main__":
    main()
