"""The paper's test, its quantities lambda and eta, Clopper-Pearson limits, and the checks of counts and claims."""

import math

import numpy as np
import pytest
import scipy
from limits import most
from scipy.special import betainc, betaincc
from scipy.stats import beta, binom, chisquare, hypergeom

import dpverify as dpv
from dpverify.stats import paper as paper_test
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.paper import PAPER_EPSILON_SWEEP, eta_upper_bound
from dpverify.util.checks import check_count_columns


@pytest.mark.parametrize(
    ("eta", "epsilon", "printed"),
    [
        (0.013, 0.39947, 0.0888),
        (0.010, 0.11485, 0.0724),
        (0.026, 0.70306, 0.1550),
        (0.028, 0.41844, 0.1351),
        (0.015, 0.53229, 0.1011),
        (0.039, 0.72204, 0.2106),
        (0.010, 0.98768, 0.1037),
        (0.038, 2.3423, 0.8408),
    ],
)
def test_the_papers_lambdas(eta, epsilon, printed):
    assert round(dpv.paper_lambda(0.05, eta, epsilon), 4) == printed


def test_p_values_are_the_hypergeometric_tail_at_epsilon_zero():
    c1, c2 = (c.ravel() for c in np.meshgrid(np.arange(61), np.arange(61)))
    forward, backward = paper_test.p_values(c1, c2, 1000, 0, np.random.default_rng(0))
    np.testing.assert_allclose(forward, hypergeom.sf(c1 - 1, 2000, 1000, c1 + c2), rtol=1e-12)
    np.testing.assert_allclose(backward, hypergeom.sf(c2 - 1, 2000, 1000, c1 + c2), rtol=1e-12)


def test_thinned_counts_have_a_binomial_distribution():
    c, m, epsilon, trials = 40, 1000, 0.7, 20_000
    forward, _ = paper_test.p_values(np.full(trials, c), np.zeros(trials, int), m, epsilon, np.random.default_rng(1))
    # With a second count of 0 the p-value falls strictly in the thinned count, so it determines the thinned count.
    tails = np.array([1.0] + [hypergeom.sf(k - 1, 2 * m, m, k) for k in range(1, c + 1)])
    thinned = np.argmin(np.abs(forward[:, None] / tails - 1), axis=1)
    expected = trials * binom.pmf(np.arange(c + 1), c, math.exp(-epsilon))
    seen = np.bincount(thinned, minlength=c + 1)
    often = expected >= 5
    pooled = lambda x: np.append(x[often], x[~often].sum())  # noqa: E731
    assert chisquare(pooled(seen), pooled(expected)).pvalue > 1e-3


def test_the_smaller_of_two_p_values_has_twice_the_size_and_one_fixed_direction_has_not():
    """docs/method.md, section 4.9."""
    rng = np.random.default_rng(2)
    c1, c2 = rng.binomial(2000, 0.4, (2, 4000))
    forward, backward = paper_test.p_values(c1, c2, 2000, 0, rng)
    smaller = int((np.minimum(forward, backward) <= 0.05).sum())
    assert smaller > most(4000, 0.05)
    assert smaller <= most(4000, 0.10)
    assert int((forward <= 0.05).sum()) <= most(4000, 0.05)


def test_the_sweep_holds_the_papers_values():
    printed = [0.11485, 0.39947, 0.41844, 0.53229, 0.70306, 0.72204, 0.89281, 0.98768]
    assert all(np.min(np.abs(PAPER_EPSILON_SWEEP - value)) < 5e-6 for value in printed)


def test_critical_epsilon_by_the_sweep_is_random_and_on_the_sweep():
    values = {dpv.critical_epsilon(27, 12, 1000, rng=np.random.default_rng(seed)) for seed in range(50)}
    assert len(values) > 3
    assert all(np.min(np.abs(PAPER_EPSILON_SWEEP - value)) < 1e-12 for value in values)


def test_the_sweep_continues_beyond_its_end():
    value = dpv.critical_epsilon(1990, 10, 2000, rng=np.random.default_rng(0))
    assert value > 3
    steps = (value - PAPER_EPSILON_SWEEP[0]) / (PAPER_EPSILON_SWEEP[1] - PAPER_EPSILON_SWEEP[0])
    assert steps == pytest.approx(round(steps), abs=1e-9)


def test_the_averaged_p_values_are_the_means_over_all_thinnings():
    rng, (c1, c2, m, epsilon) = np.random.default_rng(5), (35, 12, 3000, 0.6)
    exact = [float(p) for p in paper_test.p_values(c1, c2, m, epsilon, None)]
    thinned = np.array(paper_test.p_values(np.full(4000, c1), np.full(4000, c2), m, epsilon, rng))
    np.testing.assert_allclose(thinned.mean(1), exact, atol=5 * thinned.std() / math.sqrt(4000))
    assert abs(np.median(thinned[0]) - exact[0]) > 5 * thinned[0].std() / math.sqrt(4000)  # negative control
    many = paper_test.p_values([35, 0, 7], 12, (3000, 2000), epsilon, None)
    for number, c in enumerate((35, 0, 7)):
        assert [p[number] for p in many] == [float(p) for p in paper_test.p_values(c, 12, (3000, 2000), epsilon, None)]
    np.testing.assert_allclose(
        paper_test.p_values(35, 12, 3000, 0.0, None), paper_test.p_values(35, 12, 3000, 0.0, rng), rtol=1e-9
    )


def test_the_averaged_sweep_is_deterministic_and_gives_the_printed_value():
    """Counts (35, 12) reproduce the curve that the authors show; no counts (c, 0) have this critical epsilon."""
    for m in (1000, 3000, 10_000):
        assert round(dpv.critical_epsilon(35, 12, m, averaged=True), 5) == 0.39947
        assert round(dpv.critical_epsilon(12, 35, m, averaged=True), 5) == 0.39947
    assert 0.39947 not in dpv.critical_epsilon(np.arange(200), 0, 3000, averaged=True).round(5)
    assert dpv.critical_epsilon(1990, 10, 2000, averaged=True) > 3


@pytest.mark.parametrize("runs", [1000, 10_000])
def test_the_ceiling_depends_on_the_count_alone(runs):
    """docs/method.md, section 4.11: the p-value of counts (c', 0) is near 2^-c', so the test rejects from 5 on."""
    accepted, rejected = hypergeom.sf([3, 4], 2 * runs, runs, [4, 5])
    assert rejected <= 0.05 < accepted
    rng = np.random.default_rng(0)
    medians = [np.median(dpv.critical_epsilon(np.full(200, c), 0, runs, rng=rng)) for c in (6, 10, 20, 60)]
    np.testing.assert_allclose(medians, [0.15, 0.48, 1.0, 2.0], atol=0.1)


def test_disjoint_distributions_give_their_ceiling():
    """Two distributions that share no output, on 256 equally likely cells: epsilon is infinite, epsilon_c is small."""
    rng = np.random.default_rng(0)
    counts = rng.binomial(3000, 1 / 256, 400)
    low, median, high = np.quantile(dpv.critical_epsilon(counts, 0, 3000, rng=rng), (0.05, 0.5, 0.95))
    assert low == pytest.approx(0.17, abs=0.1)
    assert median == pytest.approx(0.57, abs=0.1)
    assert high == pytest.approx(0.97, abs=0.15)


def test_the_averaged_test_rejects_true_claims_at_most_four_times_too_often():
    """Twice a mean of p-values is a p-value, and the smaller of two is taken."""
    rng = np.random.default_rng(6)
    c1, c2 = rng.binomial(3000, 0.02, 1500), rng.binomial(3000, 0.02 * math.exp(-0.1), 1500)
    smaller = np.minimum(*paper_test.p_values(c1, c2, 3000, 0.1, None))
    assert int((smaller <= 0.05).sum()) <= most(1500, 0.2)
    false = np.minimum(*paper_test.p_values(3 * c1, c2, 3000, 0.1, None))  # negative control: the claim is false
    assert int((false <= 0.05).sum()) > most(1500, 0.2)


def test_critical_epsilon_is_deterministic_and_symmetric_by_default():
    value = dpv.critical_epsilon(27, 12, 1000)
    assert value == dpv.critical_epsilon(12, 27, 1000)
    assert value == dpv.epsilon_lower_bound(27, 12, 1000) > 0


@pytest.mark.parametrize(("n", "p"), [(30, 0.1), (200, 0.5), (1000, 0.001)])
def test_clopper_pearson_covers_and_is_exact_at_the_ends(n, p):
    c = np.arange(n + 1)
    law = binom.pmf(c, n, p)
    assert law[clopper_pearson_upper(c, n, 0.05) < p].sum() <= 0.05
    assert law[clopper_pearson_lower(c, n, 0.05) > p].sum() <= 0.05
    assert clopper_pearson_upper(n, n, 0.05) == 1
    assert clopper_pearson_lower(0, n, 0.05) == 0
    assert clopper_pearson_upper(0, n, 0.05) == pytest.approx(1 - 0.05 ** (1 / n))


def test_eta_as_a_maximum_of_shares_is_biased_and_its_upper_limit_covers():
    """docs/method.md, section 4.7: 256 equal cells."""
    rng = np.random.default_rng(4)
    counts = rng.multinomial(1000, np.full(256, 1 / 256), 1000).max(axis=1)
    assert counts.mean() / 1000 == pytest.approx(0.0105, abs=2e-4)  # the truth is .0039
    # Unequal cells: the limit of the largest count lies below the largest probability no more often than its level.
    p = np.append(0.02, np.full(200, 0.98 / 200))
    most_likely = rng.multinomial(1000, p, 2000).max(axis=1)
    missed = sum(eta_upper_bound(c, 1000) < 0.02 for c in most_likely)
    assert missed <= most(2000, 0.05)


@pytest.mark.parametrize("alpha", [1e-12, 0.05, 0.9])
@pytest.mark.parametrize("error", [0.0, 1e-4, 0.5])
def test_limits_are_correct_where_the_beta_quantile_of_scipy_is_wrong(alpha, error, monkeypatch):
    """The inverse has a small or a large error, at some counts only. The tail corrects it, to the safe side."""
    c, m = np.array([0, 1, 10, 500, 999, 1000]), 1000
    expected_low, expected_high = beta.ppf(alpha, c[1:], m - c[1:] + 1), beta.isf(alpha, c[:-1] + 1, m - c[:-1])

    def wrong(true):
        return lambda a, b, level: true(a, b, level) * (1 - error * (a > 5))

    for name in ("betaincinv", "betainccinv"):
        monkeypatch.setattr(scipy.special, name, wrong(getattr(scipy.special, name)))
    low, high = clopper_pearson_lower(c, m, alpha), clopper_pearson_upper(c, m, alpha)
    np.testing.assert_allclose(low[1:], expected_low, rtol=1e-7)
    np.testing.assert_allclose(high[:-1], expected_high, rtol=1e-7)
    assert low[0] == 0
    assert high[-1] == 1
    if error:
        assert (betainc(c[2:], m - c[2:] + 1, low[2:]) <= alpha).all()
        assert (betaincc(c[2:-1] + 1, m - c[2:-1], high[2:-1]) <= alpha).all()


def test_the_p_value_of_a_count_of_zero_is_exactly_one():
    c = np.arange(0, 1001, 7)
    assert (paper_test.p_values(0, c, 1000, 0, np.random.default_rng(0))[0] == 1).all()
    assert (paper_test.p_values(c, 0, 1000, 0, np.random.default_rng(0))[1] == 1).all()
    assert (paper_test.p_values(1, c[:3], 1000, 0, np.random.default_rng(0))[0] < 1).all()


def refused(function, *arguments):
    with pytest.raises(dpv.InputError, match=r": found .*; expected | must be .*, not "):
        function(*arguments)
    return True


def test_count_columns_are_returned_in_order_or_refused():
    c1, c2 = check_count_columns([0, 5], [4, 0], (5, 4))
    assert (c1.tolist(), c2.tolist()) == ([0, 5], [4, 0])
    for columns in (([0, 5], [5, 0]), ([0, 6], [4, 0]), ([-1, 2], [1, 1]), ([1, 1], [-1, -1]), ([1], [1, 1])):
        assert refused(check_count_columns, *columns, (5, 4))
    assert refused(check_count_columns, 1, 1, 5)
    assert refused(check_count_columns, [[1]], [[1]], 5)
