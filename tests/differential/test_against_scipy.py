"""Comparison with tests of SciPy at epsilon 0, where the claim is `p1 <= p2`.

The paper's p-value is then that of Fisher's test, up to rounding. Ours is an exact unconditional test, like Barnard's.
Both p-values are at least the largest probability of all pairs with a larger c1 and a smaller c2, and neither test
rejects a true claim more often than its level. The two tests order the other pairs differently, so that they need not
refute the same pairs; with 8 runs per dataset they do not.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import barnard_exact, binom, fisher_exact

import dpverify as dpv
from dpverify.stats.exact import claim_p_value

P = np.linspace(1e-4, 1 - 1e-4, 2001)


@pytest.mark.parametrize("runs", [(20, 20), (7, 19), (300, 1000)])
def test_the_papers_p_value_is_that_of_fishers_test(runs):
    m1, m2 = runs
    rng = np.random.default_rng(m1)
    for c1, c2 in zip(rng.integers(0, m1 + 1, 40).tolist(), rng.integers(0, m2 + 1, 40).tolist(), strict=True):
        ours = dpv.p_values(c1, c2, runs, 0.0, rng)
        table = [[c1, c2], [m1 - c1, m2 - c2]]
        theirs = [fisher_exact(table, alternative=side).pvalue for side in ("greater", "less")]
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-300)
        assert ours[0] == pytest.approx(float(fisher_by_counting(c1, c2, m1, m2)), rel=1e-9)


def fisher_by_counting(c1, c2, m1, m2):
    """Return the share of all choices of c1 + c2 runs that have at least c1 runs among the first m1."""
    total = c1 + c2
    extreme = sum(math.comb(m1, k) * math.comb(m2, total - k) for k in range(c1, min(m1, total) + 1))
    return Fraction(extreme, math.comb(m1 + m2, total))


def barnard_p_values(m1, m2):
    p = np.ones((m1 + 1, m2 + 1))
    for c1 in range(m1 + 1):
        for c2 in range(m2 + 1):
            if c1 * m2 > c2 * m1:  # elsewhere the counts agree with p1 <= p2
                p[c1, c2] = barnard_exact([[c1, c2], [m1 - c1, m2 - c2]], alternative="greater").pvalue
    return p


def rejection_probability(table, m1, m2, p1, p2):
    first, second = binom.pmf(np.arange(m1 + 1)[:, None], m1, p1), binom.pmf(np.arange(m2 + 1)[:, None], m2, p2)
    return np.einsum("ip,ij,jp->p", first, table.astype(float), second)


@pytest.mark.parametrize(
    ("m1", "m2"), [(6, 6), (4, 7), *(pytest.param(*m, marks=pytest.mark.slow) for m in ((12, 12), (8, 15), (20, 20)))]
)
def test_our_test_and_barnards_are_exact(m1, m2):
    c1, c2 = np.arange(m1 + 1)[:, None], np.arange(m2 + 1)[None]
    theirs = barnard_p_values(m1, m2)
    least = (binom.sf(c1 - 1, m1, P)[:, None] * binom.cdf(c2.T, m2, P)[None]).max(-1)  # c1 or more, c2 or fewer
    against_claim = c1 * m2 > c2 * m1
    assert (theirs >= least * (1 - 1e-6))[against_claim].all()
    for alpha in (0.05,) if m1 < 10 else (0.01, 0.05):
        ours = claim_p_value(c1, c2, (m1, m2), 0.0, 0.0, alpha)
        assert (ours >= least * (1 - 1e-3)).all()  # p2 is restricted to an interval at confidence 1 - alpha / 1000
        for p in (ours, theirs):
            assert rejection_probability(p <= alpha, m1, m2, P, P).max() <= alpha


@pytest.mark.parametrize("m", [8, pytest.param(15, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.slow)])
def test_the_unconditional_test_refutes_more_pairs_than_fishers(m):
    """For p1 and p2 with a uniform distribution all pairs of counts are equally likely, so the pairs are counted."""
    c1, c2 = np.broadcast_arrays(np.arange(m + 1)[:, None], np.arange(m + 1)[None])
    ours = claim_p_value(c1, c2, m, 0.0) <= 0.05
    fishers = dpv.p_values(c1, c2, m, 0.0, np.random.default_rng(0))[0] <= 0.05
    assert ours.sum() > fishers.sum()
