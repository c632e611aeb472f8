"""Many claims at once: false discoveries and family-wise errors over simulated p-values."""

import numpy as np
import pytest
from limits import most
from scipy.stats import norm

from dpverify.stats.many import benjamini_hochberg, holm


def simulate(refute, trials, true=8, false=4, seed=1):
    """Return the mean share of true claims among the refuted ones, how often there is any, and the power."""
    rng = np.random.default_rng(seed)
    shares, errors, found = [], 0, 0
    for _ in range(trials):
        z = rng.standard_normal(true + false) + np.r_[np.zeros(true), np.full(false, 3.0)]
        refuted = np.array(refute(z), int)
        shares.append((refuted < true).sum() / max(1, refuted.size))
        errors += bool((refuted < true).any())
        found += (refuted >= true).sum()
    return np.mean(shares), errors, found / (trials * false)


def test_the_false_discovery_rate_is_controlled():
    share, _, power = simulate(lambda z: benjamini_hochberg(norm.sf(z), 0.2), 3000)
    error = 0.25 / np.sqrt(3000)
    assert 0.2 * 8 / 12 - 4 * error < share < 0.2 * 8 / 12 + 4 * error  # the exact rate for independent p-values
    assert power > 0.6


def test_the_simulation_detects_tests_without_a_correction():
    """Negative control of the false discovery rate."""
    share, _, _ = simulate(lambda z: np.flatnonzero(norm.sf(z) <= 0.2), 3000)
    assert share > 0.25


def test_holm_controls_the_probability_of_any_error():
    _, errors, power = simulate(lambda z: holm(norm.sf(z), 0.05), 3000)
    assert errors <= most(3000, 0.05)
    assert power > 0.4


@pytest.mark.parametrize("function", [lambda p: benjamini_hochberg(p, 0.05), lambda p: holm(p, 0.05)])
def test_no_claims_give_no_result(function):
    assert function(np.zeros(0)) == ()
