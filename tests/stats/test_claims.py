"""Claims: their boundaries against closed forms, their groups, and their form as plain data."""

import json

import numpy as np
import pytest
from curves import gaussian_profile, gaussian_tradeoff

import dpverify as dpv
from dpverify.claims import CLAIM_KINDS
from dpverify.stats.boundaries import renyi_divergence
from dpverify.util.serialization import from_plain, to_plain

claims = dpv.claims
TAIL = np.geomspace(1e-7, 0.5, 60)
Q = np.r_[0.0, TAIL, 1.0 - TAIL[::-1], 1.0]


EXAMPLES = [
    claims.pure(0.7),
    claims.approximate(1.0, 0.01),
    claims.points([(0.1, 0.2), (1.0, 0.01), (3.0, 1e-6)]),
    claims.gaussian(1.0),
    claims.zcdp(0.5),
    claims.renyi(3.0, 0.4),
    claims.profile(gaussian_profile(0.8)),
    claims.tradeoff(gaussian_tradeoff(1.2)),
]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("claim", EXAMPLES, ids=lambda c: c.describe())
def test_a_boundary_is_concave_does_not_fall_and_is_at_least_q(claim, size):
    claim = claim if size == 1 else claim.group(size)
    p = claim.boundary(Q)
    assert (p >= Q).all()
    assert (p <= 1).all()
    assert (np.diff(p) >= -1e-14).all()
    middle = claim.boundary((Q[1:] + Q[:-1]) / 2)
    assert (middle >= (p[1:] + p[:-1]) / 2 - 1e-9).all()


def jump(q):
    """A total variation of 0.3, and the value 1 at 0 that every test with type I error 0 may have."""
    return 0.7 * (1.0 - q) if q > 0.0 else 1.0


@pytest.mark.parametrize(
    "f",
    [lambda q: 0.8 * (1.0 - q), jump, lambda q: (1.0 - 1e-9) * (1.0 - q), lambda q: (1.0 - q) ** 1.1],
    ids=["straight", "jump", "nearly 1 - q", "power"],
)
def test_a_table_of_a_nearly_straight_function_is_not_below_it(f):
    """Over a short interval rounding changes the slope of a chord, which matters at the other end of [0, 1]."""
    table = claims.tradeoff(f)
    q = Q[1:]
    p = np.array([1.0 - f(x) for x in q])
    assert (table.boundary(q) >= p - 1e-15).all()
    assert (table.boundary(q) - p <= 2e-5 * np.sqrt(p * (1 - p)) + 2e-9).all()


@pytest.mark.parametrize("claim", [*EXAMPLES, EXAMPLES[2].group(3)], ids=lambda c: c.describe())
def test_a_claim_is_plain_data(claim):
    again = from_plain(json.loads(json.dumps(to_plain(claim))), CLAIM_KINDS)
    assert again == claim
    assert (again.boundary(Q) == claim.boundary(Q)).all()


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_a_table_is_close_to_its_function_and_never_below_it(mu):
    exact = claims.gaussian(mu).boundary(Q)
    spread = np.sqrt(exact * (1 - exact))
    for table in (claims.profile(gaussian_profile(mu)), claims.tradeoff(gaussian_tradeoff(mu))):
        excess = table.boundary(Q) - exact
        assert excess.min() > -1e-14
        assert (excess <= 1e-4 * spread + 1e-6).all()


def test_negative_epsilons_matter_for_likely_events():
    assert claims.profile(gaussian_profile(1.0)).boundary(0.7) == pytest.approx(0.936, abs=5e-4)
    assert claims.points([(1.0, 0.0)]).boundary(0.7) == pytest.approx(1 - 0.3 / np.e)
    assert claims.pure(1.0).boundary(0.7) == 1.0


@pytest.mark.parametrize("size", [1, 2, 3])
def test_groups_have_their_closed_forms(size):
    assert claims.gaussian(0.4).group(size) == claims.gaussian(0.4 * size)
    claim = claims.approximate(0.3, 0.001).group(size)
    assert claim.epsilon == pytest.approx(0.3 * size)
    assert claim.delta == pytest.approx(0.001 * np.expm1(0.3 * size) / np.expm1(0.3))
    assert claims.approximate(0.0, 0.001).group(size).delta == pytest.approx(0.001 * size)
    spread = np.sqrt(Q * (1 - Q))
    by_profile = claims.profile(gaussian_profile(0.4)).group(size).boundary(Q)
    excess = by_profile - claims.gaussian(0.4 * size).boundary(Q)
    assert (excess >= -1e-14).all()
    assert (excess <= 1e-3 * spread + 1e-6).all()
    assert (claims.zcdp(0.1).group(size).boundary(Q) <= claims.zcdp(0.1 * size**2).boundary(Q)).all()


def test_divergences_at_the_boundary_are_the_claimed_ones():
    q = np.array([1e-4, 0.01, 0.1, 0.3])
    p = claims.renyi(3.0, 0.4).boundary(q)
    assert renyi_divergence(p, q, 3.0) == pytest.approx(0.4, abs=1e-9)
    p = claims.zcdp(0.2).boundary(q)[:, None]
    orders = 1.0 + np.geomspace(1e-4, 1e3, 5000)
    largest = (renyi_divergence(p, q[:, None], orders) - 0.2 * orders).max(axis=1)
    assert largest == pytest.approx(0.0, abs=1e-6)


def test_gaussian_noise_keeps_its_concentrated_and_renyi_claims():
    mu = 0.9
    exact = claims.gaussian(mu).boundary(Q)
    assert (claims.zcdp(mu**2 / 2).boundary(Q) >= exact).all()
    assert (claims.renyi(4.0, 4.0 * mu**2 / 2).boundary(Q) >= exact).all()
    assert (claims.zcdp(0.5 * mu**2 / 2).boundary(Q) < exact - 1e-3).any()


class Pessimistic:
    """Looks like the distribution object of the package dp_accounting."""

    def get_delta_for_epsilon(self, epsilon):
        return gaussian_profile(1.0)(epsilon) + 1e-10


class Accountant:
    """Looks like an accountant of the package dp_accounting."""

    def get_delta(self, epsilon):
        return gaussian_profile(1.0)(epsilon)


class Measured:
    """Looks like OpenDP's privacy profile."""

    def delta(self, epsilon):
        return gaussian_profile(1.0)(epsilon)


@pytest.mark.parametrize("source", [Pessimistic(), Accountant(), Measured(), gaussian_profile(1.0)])
def test_an_accountants_object_is_a_claim(source):
    claim = claims.as_claim(source)
    assert claim.boundary(0.3) == pytest.approx(float(claims.gaussian(1.0).boundary(0.3)), abs=1e-4)


def test_a_claim_of_opendp_is_a_claim():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    noise = dp.m.make_gaussian(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), 1.0)
    profile = dp.c.make_zCDP_to_approxDP(noise).map(1.0)
    claim = claims.as_claim(profile)
    assert (claim.boundary(Q) >= claims.gaussian(1.0).boundary(Q)).all()  # OpenDP's conversion is not tight


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: claims.gaussian(-1), "mu must be"),
        (lambda: claims.renyi(1.0, 1.0), "order: found 1.0"),
        (lambda: claims.points([]), "points: found no point"),
        (lambda: claims.approximate(1.0, 1.0), "delta must be"),
        (lambda: claims.profile(3), "profile: found 3"),
        (lambda: claims.profile(lambda _: float("nan")), "profile: found delta nan"),
        (lambda: claims.tradeoff(lambda q: 1.0), "tradeoff: found f"),
        (lambda: claims.tradeoff(lambda q: 1.0 - np.sqrt(q) if q < 0.5 else 0.1 * (1.0 - q)), "tradeoff: found"),
        (lambda: claims.as_claim("gaussian"), "claim: found 'gaussian'"),
        (lambda: claims.gaussian(1.0).boundary(1.5), "q: found 1.5"),
        (lambda: claims.gaussian(1.0).group(0), "size must be"),
    ],
)
def test_a_bad_claim_is_refused_in_one_line(make, message):
    with pytest.raises(dpv.InputError) as caught:
        make()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda: 0.1, "TypeError"),
        (lambda epsilon: (0.1, 0.2), "TypeError"),
        (lambda epsilon: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_profile_that_fails_is_named_in_one_line(function, found):
    with pytest.raises(dpv.InputError, match=f"profile: found {found}.* at epsilon 0; expected a function"):
        dpv.claims.profile(function)
