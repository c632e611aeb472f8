"""At epsilon 0 a claim says that two proportions are equal, for which SciPy has tests of its own.

The paper's p-value is then Fisher's, to rounding. Ours is no such conditional test but an exact unconditional one, as
Barnard's is: both are as large as some p makes the pairs that are plainly at least as extreme, neither rejects a true
claim more often than its level. Which other pairs count as extreme is each test's own choice, so that no more than this
can be asked: the two need not refute the same pairs, and of 8 runs a side they do not.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import barnard_exact, binom, fisher_exact

import dpverify as dpv
from dpverify.stats.lower_bound import claim_p_value

P = np.linspace(1e-4, 1 - 1e-4, 2001)


@pytest.mark.parametrize("runs", [(20, 20), (7, 19), (300, 1000)])
def test_the_papers_p_value_is_fishers(runs):
    m1, m2 = runs
    rng = np.random.default_rng(m1)
    for c1, c2 in zip(rng.integers(0, m1 + 1, 40).tolist(), rng.integers(0, m2 + 1, 40).tolist(), strict=True):
        ours = dpv.p_values(c1, c2, runs, 0.0, rng)
        table = [[c1, c2], [m1 - c1, m2 - c2]]
        theirs = [fisher_exact(table, alternative=side).pvalue for side in ("greater", "less")]
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-300)
        assert ours[0] == pytest.approx(float(by_counting(c1, c2, m1, m2)), rel=1e-9)


def by_counting(c1, c2, m1, m2):
    """Of all ways to mark c1 + c2 of the runs, those with at least c1 marks among the first m1."""
    marks = c1 + c2
    ways = sum(math.comb(m1, k) * math.comb(m2, marks - k) for k in range(c1, min(m1, marks) + 1))
    return Fraction(ways, math.comb(m1 + m2, marks))


def barnards(m1, m2):
    p = np.ones((m1 + 1, m2 + 1))
    for c1 in range(m1 + 1):
        for c2 in range(m2 + 1):
            if c1 * m2 > c2 * m1:  # elsewhere nothing speaks against p1 <= p2
                p[c1, c2] = barnard_exact([[c1, c2], [m1 - c1, m2 - c2]], alternative="greater").pvalue
    return p


def chance(table, m1, m2, p1, p2):
    first, second = binom.pmf(np.arange(m1 + 1)[:, None], m1, p1), binom.pmf(np.arange(m2 + 1)[:, None], m2, p2)
    return np.einsum("ip,ij,jp->p", first, table.astype(float), second)


@pytest.mark.parametrize(
    ("m1", "m2"), [(6, 6), (4, 7), *(pytest.param(*m, marks=pytest.mark.slow) for m in ((12, 12), (8, 15), (20, 20)))]
)
def test_ours_and_barnards_are_exact_tests_of_one_claim(m1, m2):
    c1, c2 = np.arange(m1 + 1)[:, None], np.arange(m2 + 1)[None]
    theirs = barnards(m1, m2)
    plain = (binom.sf(c1 - 1, m1, P)[:, None] * binom.cdf(c2.T, m2, P)[None]).max(-1)  # c1 or more, c2 or fewer
    speaks = c1 * m2 > c2 * m1
    assert (theirs >= plain * (1 - 1e-6))[speaks].all()
    for alpha in (0.05,) if m1 < 10 else (0.01, 0.05):
        ours = claim_p_value(c1, c2, (m1, m2), 0.0, 0.0, alpha)
        assert (ours >= plain * (1 - 1e-3)).all()  # p2 is sought where it lies at confidence 1 - alpha / 1000
        for p in (ours, theirs):
            assert chance(p <= alpha, m1, m2, P, P).max() <= alpha


@pytest.mark.parametrize("m", [8, pytest.param(15, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.slow)])
def test_an_unconditional_test_refutes_more_than_fishers(m):
    """Where p1 and p2 may be anything, every pair of counts is as likely as any other: so pairs are counted."""
    c1, c2 = np.broadcast_arrays(np.arange(m + 1)[:, None], np.arange(m + 1)[None])
    ours = claim_p_value(c1, c2, m, 0.0) <= 0.05
    fishers = dpv.p_values(c1, c2, m, 0.0, np.random.default_rng(0))[0] <= 0.05
    assert ours.sum() > fishers.sum()
