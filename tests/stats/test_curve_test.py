"""The exact test of claims that are curves: its size by enumeration, its lower bounds, and its power."""

import bisect
import math

import numpy as np
import pytest
from curves import gaussian_profile, gaussian_tradeoff
from scipy.special import ndtr
from scipy.stats import binom

import dpverify as dpv
from dpverify.stats.exact import is_rejected, small_p_value

claims = dpv.claims
P2 = np.r_[0.0, np.geomspace(1e-4, 0.05, 12), np.linspace(0.06, 0.94, 30), 0.97, 0.99, 0.999]

# Weak and strong claims of every kind.
CLAIMS = {
    "pure": [claims.pure(0.1), claims.pure(1.0), claims.pure(3.0)],
    "approximate": [claims.approximate(0.5, 0.01), claims.approximate(2.0, 0.2)],
    "points": [claims.points([(0.1, 0.1), (1.0, 0.001)]), claims.points([(0.5, 0.3), (2.0, 0.05), (4.0, 0.0)])],
    "gaussian": [claims.gaussian(0.0), claims.gaussian(0.2), claims.gaussian(1.0), claims.gaussian(3.0)],
    "zcdp": [claims.zcdp(0.01), claims.zcdp(0.5), claims.zcdp(3.0)],
    "renyi": [claims.renyi(1.5, 0.1), claims.renyi(4.0, 1.0), claims.renyi(30.0, 3.0)],
    "profile": [claims.profile(gaussian_profile(0.3)), claims.profile(gaussian_profile(2.0))],
    "tradeoff": [claims.tradeoff(gaussian_tradeoff(0.5)), claims.tradeoff(gaussian_tradeoff(2.0))],
    "group": [claims.gaussian(0.4).group(2), claims.renyi(4.0, 0.3).group(2), claims.points([(0.5, 0.01)]).group(2)],
}


def p_value_of(c1, c2, runs, claim, alpha):
    return claim.p_value(c1, c2, runs, alpha)


def rejected_from(claim, runs, alpha, p_value=p_value_of):
    """For each c2 the smallest c1 that is rejected; the p-value does not rise with c1."""
    least = []
    for c2 in range(runs + 1):
        low, high = 0, runs + 1
        while low < high:
            middle = (low + high) // 2
            if p_value(middle, c2, runs, claim, alpha) <= alpha:
                high = middle
            else:
                low = middle + 1
        least.append(low)
    return np.array(least)


def size(claim, runs, least):
    """The largest probability of a rejection on the boundary of the claim, by enumeration of all pairs of counts."""
    c2, p1 = np.arange(runs + 1), claim.boundary(P2)
    return max((binom.pmf(c2, runs, q) * binom.sf(least - 1, runs, p)).sum() for p, q in zip(p1, P2, strict=True))


@pytest.mark.parametrize("kind", ["points", "gaussian", "renyi", "profile", "group"])
def test_the_size_is_at_most_alpha(kind):
    largest = max(size(claim, 10, rejected_from(claim, 10, 0.05)) for claim in CLAIMS[kind][1:2])
    assert largest <= 0.05 + 1e-9
    assert largest > 0.005  # the test does reject


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, 1e-3])
@pytest.mark.parametrize("runs", [20, 50])
@pytest.mark.parametrize("kind", CLAIMS)
def test_the_size_is_at_most_alpha_for_every_kind_of_claim(kind, runs, alpha):
    for claim in CLAIMS[kind]:
        assert size(claim, runs, rejected_from(claim, runs, alpha)) <= alpha + 1e-9


@pytest.mark.slow
def test_the_p_value_does_not_rise_with_the_first_count_nor_fall_with_the_second():
    for claim in (claims.gaussian(1.0), claims.zcdp(0.5), claims.profile(gaussian_profile(1.0))):
        p = np.array([[claim.p_value(c1, c2, 20, 0.05) for c2 in range(21)] for c1 in range(21)])
        assert (np.diff(p, axis=0) <= 1e-4).all()
        assert (np.diff(p, axis=1) >= -1e-4).all()


def test_the_enumeration_detects_a_test_that_is_too_liberal():
    """Negative control: the p-value at the observed frequency instead of its supremum has a size above alpha."""
    claim, runs = claims.gaussian(1.0), 12

    def too_liberal(c1, c2, both_runs, claim, alpha):
        allowed = claim.boundary(min(0.999, c2 / runs))
        return binom.sf(c1 - 1, runs, allowed)

    assert size(claim, runs, rejected_from(claim, runs, 0.05, too_liberal)) > 0.1


@pytest.mark.parametrize("claim", [claims.gaussian(0.8), claims.renyi(2.0, 0.5), claims.zcdp(0.2)])
def test_a_claim_is_refuted_exactly_below_the_lower_bound_of_its_parameter(claim):
    lower = claim.lower_bound(700, 300, 1000, 0.05)
    for factor, refuted in ((0.99, True), (1.01, False)):
        p_value = claim.with_parameter(factor * lower).p_value(700, 300, 1000, 0.05)
        assert (p_value <= 0.05) is refuted


def test_the_bound_on_mu_is_close_to_the_truth():
    runs = 10**6
    c1, c2 = round(ndtr(0.5) * runs), round(ndtr(-0.5) * runs)
    lower = claims.gaussian(1.0).lower_bound(c1, c2, runs, 0.05)
    # One standard error is 0.00186, so the ideal bound at these counts is 1 - 1.645 * 0.00186 = 0.99694.
    assert 0.9968 < lower < 0.9970


def test_the_same_claim_has_nearly_the_same_p_value_in_every_form():
    runs = 10**5
    for c1, c2 in ((69_500, 30_854), (3_300, 300)):
        for mu in (0.99, 1.0):
            exact = claims.gaussian(mu).p_value(c1, c2, runs, 0.05)
            for other in (claims.profile(gaussian_profile(mu)), claims.tradeoff(gaussian_tradeoff(mu))):
                assert other.p_value(c1, c2, runs, 0.05) == pytest.approx(exact, rel=0.03, abs=1e-4)


def test_an_epsilon_and_a_delta_have_the_test_of_their_own():
    for c1, c2, epsilon, delta in ((300, 100, 0.9, 0.0), (300, 100, 0.5, 0.05), (10, 0, 2.0, 0.0)):
        claim = claims.approximate(epsilon, delta)
        assert claim.p_value(c1, c2, 1000, 0.05) == small_p_value(c1, c2, 1000, epsilon, delta, 0.05)
        lower = dpv.epsilon_lower_bound(c1, c2, 1000, delta)
        assert claim.lower_bound(c1, c2, 1000, 0.05) == lower


def test_a_profile_has_no_parameter_and_no_evidence_gives_no_bound():
    assert claims.points([(1.0, 0.0)]).lower_bound(9, 1, 10, 0.05) is None
    for claim in (claims.gaussian(1.0), claims.zcdp(1.0)):
        assert claim.lower_bound(5, 5, 10, 0.05) == 0.0
        assert claim.lower_bound(0, 10, 10, 0.05) == 0.0
        assert claim.p_value(0, 0, 10, 0.05) > 0.05
    assert claims.points([(1.0, 0.0)]).p_value(10, 10, 10, 0.05) > 0.05


def test_a_single_event_understates_concentrated_privacy():
    """The best event of Gaussian noise with a small rho shows about 2/pi of it."""
    runs, mu = 10**9, 0.1
    c1, c2 = round(ndtr(mu / 2) * runs), round(ndtr(-mu / 2) * runs)
    lower = claims.zcdp(0.0).lower_bound(c1, c2, runs, 0.05)
    assert lower == pytest.approx(2 / np.pi * mu**2 / 2, rel=0.01)


def test_the_two_tests_of_a_curve_need_a_budget_each():
    """Exact: each of them errs with probability at most alpha, one of the two more often, but at most twice alpha."""
    runs, q, claim, delta, alpha = 100, 0.3, claims.gaussian(1.0), 0.2, 0.05
    p = float(claim.boundary(q))
    epsilon, errors = math.log((p - delta) / q), np.zeros(3)
    for c2 in range(12, 51):

        def refutes_claim(c1, c2=c2):
            return claim.p_value(c1, c2, runs, alpha) <= alpha

        def exceeds_epsilon(c1, c2=c2):
            return is_rejected(c1, c2, runs, epsilon, delta, alpha)

        least = [bisect.bisect_left(range(runs + 1), True, key=key) for key in (refutes_claim, exceeds_epsilon)]
        errors += binom.pmf(c2, runs, q) * binom.sf(np.array([*least, min(least)]) - 1, runs, p)
    assert (errors[:2] <= alpha).all()
    assert alpha < errors[2] <= 2 * alpha
