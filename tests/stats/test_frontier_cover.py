"""The quick upper bound on epsilon: never below the exact one over unions of cells, and hardly above it."""

import numpy as np
import pytest

from dpverify.stats.upper import epsilon_upper_bound, frontier, frontier_bound, quick_epsilon_upper_bound


def draw_counts(seed, cells, runs, distance):
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=cells)
    other = weights * np.exp(distance * rng.normal(size=cells))
    return (rng.multinomial(runs, p / p.sum()) for p in (weights, other))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("runs", [500, 20_000])
def test_the_quick_bound_agrees_with_the_exact_one(seed, runs):
    c1, c2 = draw_counts(seed, 4 + 6 * seed, runs, 0.1 * (1 + seed))
    for delta, alpha in ((0.02, 0.05), (0.2, 0.001)):
        quick, exact = (bound(c1, c2, runs, delta, alpha) for bound in (quick_epsilon_upper_bound, epsilon_upper_bound))
        if exact == np.inf:
            assert quick == np.inf
            continue
        assert quick >= exact - 2e-6 * max(exact, 1e-3)
        assert quick <= exact + 0.02 * exact + 0.01
        for a, b in ((c1, c2), (c2, c1)):
            assert frontier_bound(frontier(a, b, runs, alpha), quick, 1e-9) <= delta * (1 + 1e-9)


def test_at_delta_zero_the_exact_bound_is_returned():
    c1, c2 = draw_counts(1, 8, 5000, 0.2)
    c1, c2 = np.array([*c1]), np.array([*c2])
    assert quick_epsilon_upper_bound(c1, c2, 5000, 0.0) == epsilon_upper_bound(c1, c2, 5000, 0.0)
