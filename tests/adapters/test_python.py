"""Adapters of Python packages: filters of filterpy, and measurements of OpenDP."""

import math
import pickle
import warnings

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

import dpverify as dpv
from dpverify.adapters import filterpy_estimates, opendp_measurement, perturbed, perturbed_jax

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
    ("make", "delta", "runs"),
    [(opendp_laplace, 0.0, 2000), pytest.param(opendp_gaussian, 0.05, 20_000, marks=pytest.mark.slow)],
)
def test_the_claim_of_opendp_is_not_refuted_and_half_of_it_is(make, delta, runs):
    """With these runs, the test fails by chance only at ten standard deviations."""
    mechanism = opendp_measurement(make)
    claim = mechanism.claim(1.0, delta)
    report = dpv.verify(mechanism, 0.0, 1.0, claim, delta, alpha=1e-6, select_runs=1000, test_runs=runs, beta=0.2)
    assert not report.refuted
    assert report.against(claim / 2, delta).refuted
    assert not report.seeded
    assert report.name == make.__name__
    pickle.loads(pickle.dumps(mechanism))


def test_claims_of_opendp():
    """OpenDP converts the zCDP of the Gaussian mechanism to at least the exact epsilon."""
    laplace, gaussian = opendp_measurement(opendp_laplace), opendp_measurement(opendp_gaussian)
    assert laplace.claim(1.0) == pytest.approx(2.0)
    assert laplace.claim(3.0) == pytest.approx(6.0)
    for delta in (1e-6, 1e-3, 0.05):
        assert gaussian_epsilon(1.0, delta) < gaussian.claim(1.0, delta) < 1.4 * gaussian_epsilon(1.0, delta)


def opendp_fixed():
    import opendp.prelude as dp

    return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(opendp_gaussian()), 1e-3)


def test_a_measurement_of_opendp_with_a_fixed_delta():
    mechanism = opendp_measurement(opendp_fixed)
    assert mechanism.claim(1.0, 1e-3) == pytest.approx(opendp_measurement(opendp_gaussian).claim(1.0, 1e-3))
    with pytest.raises(dpv.InputError, match=r"delta: found 0.0; expected 0.001 or more"):
        mechanism.claim(1.0)
