"""Adapters of Python packages: filters of filterpy, and measurements of OpenDP."""

import math
import pickle
import warnings

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

import dpverify as dpv
from dpverify.adapters import dp_auditorium, filterpy_estimates, fitted, opendp, perturbed, perturbed_jax

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # warnings of the package itself
    from filterpy.kalman import ExtendedKalmanFilter, KalmanFilter, MerweScaledSigmaPoints, UnscentedKalmanFilter

A, C = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[1.0, 0.0]])
FIRST = np.sin(0.3 * np.arange(4))[:, None]
SECOND = FIRST + 0.5 * (np.arange(4) == 1)[:, None]


def settle(tracker):
    tracker.P, tracker.Q, tracker.R = np.eye(2), 0.01 * np.eye(2), np.array([[0.04]])
    return tracker


def move(x, dt):
    return A @ x


def observe(x):
    return x[:1]


def jacobian(x):
    return C


def kalman():
    tracker = settle(KalmanFilter(2, 1))
    tracker.F, tracker.H = A, C
    return tracker


def extended():
    tracker = settle(ExtendedKalmanFilter(2, 1))
    tracker.F = A
    return tracker


def update(tracker, z):
    tracker.update(z, jacobian, observe)


def unscented():
    return settle(UnscentedKalmanFilter(2, 1, 0.1, observe, move, MerweScaledSigmaPoints(2, 0.1, 2.0, 1.0)))


FILTERS = {
    "KF": filterpy_estimates(kalman),
    "EKF": filterpy_estimates(extended, update),
    "UKF": filterpy_estimates(unscented),
}


@pytest.mark.parametrize("kind", FILTERS)
def test_filterpys_filters_agree_on_a_linear_system(kind):
    """On a linear system all three filters are the Kalman filter."""
    x, P, expected = np.zeros(2), np.eye(2), []
    for z in FIRST:
        x, P = A @ x, A @ P @ A.T + 0.01 * np.eye(2)
        gain = P @ C.T / (C @ P @ C.T + 0.04)
        x, P = x + gain @ (z - C @ x), P - gain @ C @ P
        expected.append(x)
    np.testing.assert_allclose(FILTERS[kind](FIRST), expected, atol=1e-9)
    pickle.loads(pickle.dumps(perturbed(FILTERS[kind], 1.0)))


def gaussian_epsilon(distance, delta):
    """Return the epsilon of N(0, 1) noise for a shift by `distance` (Balle and Wang, 2018)."""

    def gap(epsilon):
        a, b = distance / 2 - epsilon / distance, -distance / 2 - epsilon / distance
        return ndtr(a) - math.exp(epsilon) * ndtr(b) - delta

    return brentq(gap, 0.0, 50.0)


def test_the_bound_for_a_filterpy_ukf_is_below_the_exact_value():
    scale, delta, estimates = 1.0, 0.01, FILTERS["UKF"]
    exact = gaussian_epsilon(np.linalg.norm(estimates(FIRST) - estimates(SECOND)) / scale, delta)
    mechanism = perturbed(estimates, scale)
    report = dpv.verify(mechanism, FIRST, SECOND, exact / 2, delta, alpha=1e-6, select_runs=10_000, test_runs=20_000)
    assert report.refuted
    assert report.name == "unscented"
    assert report.epsilon_lower < exact
    assert not report.against(exact, delta).refuted


def test_a_filterpy_ukf_with_noisy_data():
    """Every run is a whole filter. On a linear system the output is Gaussian, a linear map of the noisy data."""
    estimates, scale, delta = FILTERS["UKF"], 0.25, 0.05
    short = FIRST[:2], SECOND[:2]
    exact = gaussian_epsilon(0.5 / scale, delta)  # the linear map is invertible, so that the output contains all data
    mechanism = perturbed(estimates, scale, "input")
    report = dpv.verify(mechanism, *short, exact / 3, delta, select_runs=600, test_runs=1000, block=256, beta=0.2)
    assert report.refuted
    assert not report.against(exact, delta).refuted


def jax_smooth(data):
    return 0.5 * data[1:] + 0.5 * data[:-1]


@pytest.mark.parametrize("where", ["input", "output"])
def test_numpy_and_jax_add_the_same_noise(where):
    one, two = (
        np.asarray(make(jax_smooth, 0.3, where)(FIRST, 20_000, np.random.default_rng(0)))
        for make in (perturbed, perturbed_jax)
    )
    assert one.shape == two.shape == (20_000, 3, 1)
    spread = 0.3 / math.sqrt(2) if where == "input" else 0.3
    for runs in (one, two):
        np.testing.assert_allclose(runs.mean(axis=0), jax_smooth(FIRST), atol=5 * spread / math.sqrt(20_000))
        np.testing.assert_allclose(runs.std(axis=0), spread, rtol=0.03)


def test_invalid_noise_is_refused():
    with pytest.raises(dpv.InputError, match="where: found 'inside'"):
        perturbed(jax_smooth, 1.0, "inside")
    with pytest.raises(dpv.InputError, match="scale: found -1"):
        perturbed_jax(jax_smooth, -1.0)


# OpenDP.


def opendp_laplace():
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=0.5)


def opendp_gaussian():
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.m.make_gaussian(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=1.0)


@pytest.mark.filterwarnings("ignore:the mechanism cannot be seeded")
@pytest.mark.parametrize(
    ("make", "half", "runs"),
    [
        (opendp_laplace, dpv.claims.pure(1.0), 2000),
        pytest.param(opendp_gaussian, dpv.claims.zcdp(0.125), 20_000, marks=pytest.mark.slow),
    ],
)
def test_the_claim_of_opendp_is_not_refuted_and_half_of_it_is(make, half, runs):
    """With these runs, the test fails by chance only at ten standard deviations."""
    mechanism = opendp(make)
    claim = mechanism.claim(1.0)
    report = dpv.verify(mechanism, 0.0, 1.0, claim=claim, alpha=1e-6, select_runs=1000, test_runs=runs, beta=0.2)
    assert not report.refuted
    assert report.against(half).refuted
    assert not report.seeded
    assert report.name == make.__name__
    pickle.loads(pickle.dumps(mechanism))


def opendp_profile():
    import opendp.prelude as dp

    return dp.c.make_zCDP_to_approxDP(opendp_gaussian())


def opendp_fixed():
    import opendp.prelude as dp

    return dp.c.make_fix_delta(opendp_profile(), 1e-3)


def test_claims_of_opendp():
    """OpenDP converts the zCDP of the Gaussian mechanism to at least the exact epsilon."""
    assert opendp(opendp_laplace()).claim(3.0) == dpv.claims.pure(6.0)
    assert opendp(opendp_gaussian).claim(1.0) == dpv.claims.zcdp(0.5)
    profile, fixed = (opendp(make).claim(1.0) for make in (opendp_profile, opendp_fixed))
    exact = gaussian_epsilon(1.0, 1e-3)
    assert fixed.delta == 1e-3
    assert exact < fixed.epsilon < 1.4 * exact
    assert profile.implied_delta(np.array([fixed.epsilon]))[0] == pytest.approx(1e-3, rel=0.05)


@pytest.mark.filterwarnings("ignore:the mechanism cannot be seeded")
def test_a_key_that_a_threshold_releases_too_often_is_found():
    """The stated delta omits the probability of a count that equals the threshold."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int))
    metric = dp.l01inf_distance(dp.absolute_distance(T=int))
    mechanism = opendp(dp.m.make_laplace_threshold(domain, metric, scale=1.0, threshold=5))
    claim = mechanism.claim((1, 1, 1))
    report = dpv.verify(mechanism, {}, {"u": 1}, claim=claim, select_runs=2000, test_runs=8000, alpha=0.01)
    assert report.refuted == (report.delta_lower(claim.epsilon) > claim.delta)
    assert report.refuted


@pytest.mark.filterwarnings("ignore:the mechanism cannot be seeded")
def test_a_mechanism_of_dp_auditorium():
    rng = np.random.default_rng(0)
    mechanism = dp_auditorium(lambda dataset, number: np.sum(dataset) + rng.laplace(size=number))
    report = dpv.verify(mechanism, np.zeros(1), np.ones(1), 0.5, select_runs=1000, test_runs=5000)
    assert report.refuted
    assert not report.seeded


class NoisyMean:
    """A model as in diffprivlib; the published number of samples is exact."""

    def __init__(self):
        self.random_state = None

    def get_params(self):
        return {"random_state": self.random_state}

    def set_params(self, random_state):
        self.random_state = random_state

    def fit(self, X):
        rng = np.random.default_rng(self.random_state)
        self.mean_, self.n_samples_seen_ = X.mean() + rng.laplace(size=2), len(X)


def test_a_model_with_fit_publishes_its_attributes():
    options = {"select_runs": 500, "test_runs": 2000}
    private = dpv.verify(fitted(NoisyMean, ["mean_"]), np.zeros(3), np.ones(3), 2.5, **options)
    assert not private.refuted
    assert private.digest == dpv.verify(fitted(NoisyMean, ["mean_"]), np.zeros(3), np.ones(3), 2.5, **options).digest
    leaky = dpv.verify(fitted(NoisyMean, ["mean_", "n_samples_seen_"]), np.zeros(3), np.zeros(4), 2.5, **options)
    assert leaky.refuted
    assert leaky.witness.text.startswith("['n_samples_seen_']")


def test_an_estimator_with_noise_at_its_output_is_called_twice_for_each_dataset():
    calls = []

    def estimate(data):
        calls.append(data)
        return np.cumsum(data)

    estimate.output_names = ("total",)
    mechanism = perturbed(estimate, 1.0)
    report = dpv.verify(mechanism, np.zeros(3), np.ones(3), select_runs=1000, test_runs=4000)
    assert len(calls) <= 6  # also in the first calls, whose data are other views
    assert mechanism.output_names == ("total",)
    assert report.epsilon_lower > 1


def test_an_estimator_that_is_random_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(dpv.MechanismError, match="found two results for the same data"):
        dpv.verify(perturbed(lambda data: data + rng.normal(), 1.0), 0.0, 1.0, select_runs=500, test_runs=500)
