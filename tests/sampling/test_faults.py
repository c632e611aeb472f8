"""Mistakes that other tools make. Each test shows that dpverify does not make one of them."""

import math

import numpy as np
import pytest
from limits import least, most
from scipy.stats import binom

from dpverify.stats.exact import claim_p_value, small_p_value


def test_the_direction_is_not_chosen_on_the_test_sample():
    """Otherwise equal distributions are rejected too often at epsilon 0. Computed exactly, for 20 runs per dataset."""
    m, p = 20, 0.3
    counts = np.arange(m + 1)
    pmf = np.outer(binom.pmf(counts, m, p), binom.pmf(counts, m, p))
    forward = claim_p_value(counts[:, None], counts, m, 0.0) <= 0.05
    backward = forward.T  # the counts exchanged
    assert pmf[forward].sum() <= 0.05 < pmf[forward | backward].sum()


@pytest.mark.slow
def test_the_type_i_error_is_close_to_the_level():
    """P-values averaged over thinnings reject 1.5% at level 5% on the boundary; this test rejects nearly 5%."""
    rng = np.random.default_rng(1)
    m, p2 = 2000, 0.05
    c1, c2 = rng.binomial(m, math.e * p2, 1000), rng.binomial(m, p2, 1000)
    rejected = int((claim_p_value(c1, c2, m, 1.0) <= 0.05).sum())
    assert least(1000, 0.04) <= rejected <= most(1000, 0.05)


def test_small_p_values_are_valid():
    """They are valid also below the smallest p-value of the test at level alpha."""
    rng = np.random.default_rng(2)
    m, p2 = 300, 0.2
    c1, c2 = rng.binomial(m, p2, 400), rng.binomial(m, p2, 400)
    values = np.array([small_p_value(int(a), int(b), m, 0.0, 0.0, 0.5) for a, b in zip(c1, c2, strict=True)])
    for level in (0.001, 0.01, 0.05, 0.2, 0.5):
        assert (values <= level).sum() <= most(400, level)
    assert 1e-15 <= small_p_value(900, 400, 2000, 0.0, 0.0, 0.05) < 1e-9
