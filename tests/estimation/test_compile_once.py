"""Sensor positions are arguments of compiled code; priors and input noise can start anew for every window."""

import numpy as np
import pytest

from dpverify import InputError
from dpverify.estimation import W2MHE, InputPerturbed, PrivateEKF, adjacent_pair, oscillator, sensor_circle
from dpverify.estimation.moving_horizon import jitted_trajectory

ANGLES = (np.arange(3.0), np.arange(3.0) + 0.4)


@pytest.fixture(scope="module")
def recorded():
    """Two systems that differ in the sensors alone, each with one dataset of nine steps."""
    systems = [oscillator(sensor_circle(angles.tolist())) for angles in ANGLES]
    return [(s, adjacent_pair(s, s.h, 0, 3.0, np.random.default_rng(1))[0]) for s in systems]


def test_two_placements_share_one_compilation_and_have_their_own_values(recorded):
    jitted_trajectory.clear_cache()
    mechanisms = [W2MHE(system, 5, 1.0, 4e-5, law="blend") for system, _ in recorded]
    estimates = [mechanism.deterministic(data) for mechanism, (_, data) in zip(mechanisms, recorded, strict=True)]
    assert jitted_trajectory._cache_size() == 1
    for estimate, (system, data) in zip(estimates, recorded, strict=True):
        residual = data[:4] - np.stack([np.asarray(system.h(z)) for z in estimate])
        assert np.abs(residual).max() < 0.3  # with the other sensors it is above 10
    swapped = data_of(recorded[1])[:4] - np.stack([np.asarray(recorded[0][0].h(z)) for z in estimates[1]])
    assert np.abs(swapped).max() > 10


def data_of(pair):
    return pair[1]


def test_two_placements_have_one_template_and_their_own_numbers(recorded):
    system, _ = recorded[0]
    assert system.template == recorded[1][0].template != system
    bound = system.template.bind(system.numbers)
    x = np.array([5.0, 0.1, 0.0, 2.5])
    np.testing.assert_array_equal(bound.measure(x), system.h(x))


def test_the_ekf_of_another_placement_is_not_compiled_again(recorded):
    from dpverify.estimation import ekf

    before = ekf._ekf_runs._cache_size()
    for system, data in recorded:
        PrivateEKF(system, 0.99, window=5)(data, 8, np.random.default_rng(0))
    assert ekf._ekf_runs._cache_size() == before + 1


def test_without_a_carried_prior_a_window_depends_on_its_own_data_only(recorded):
    system, data = recorded[0]
    changed = data.copy()
    changed[0] += 0.5
    for prior, moved in (("start", [True, False, False, False]), ("carried", [True] * 4)):
        mechanism = W2MHE(system, 5, 1.0, 1e-3, law="blend", prior=prior)
        difference = np.abs(mechanism.deterministic(changed) - mechanism.deterministic(data)).max(1)
        assert (difference > 1e-9).tolist() == moved


@pytest.mark.slow
def test_input_noise_of_every_window_is_independent(recorded):
    system, data = recorded[0]
    estimator = W2MHE(system, 5, 1.0, 1e-3, law="blend", prior="start", support="wide", radius=10.0)
    correlations = {}
    for noise_per in ("run", "window"):
        runs = InputPerturbed(estimator, covariance=0.1, noise_per=noise_per)(data, 400, np.random.default_rng(3))
        steps = np.asarray(runs)[:, :, 0]
        correlations[noise_per] = np.corrcoef(steps.T)[0, 1]
    assert correlations["run"] > 0.5  # neighbouring windows share five of six measurements
    assert abs(correlations["window"]) < 4 / np.sqrt(400)


def test_input_noise_of_every_window_needs_windows(recorded):
    system, _ = recorded[0]
    with pytest.raises(InputError, match='noise_per: found "window" with PrivateEKF'):
        InputPerturbed(PrivateEKF(system, 1.0, window=5), covariance=0.1, noise_per="window")


@pytest.mark.slow
def test_the_gibbs_distribution_without_a_carried_prior_has_independent_steps(recorded):
    system, data = recorded[0]
    correlation = {}
    for prior in ("carried", "start"):
        runs = np.asarray(W2MHE(system, 5, 0.7, 1.4e-5, prior=prior)(data, 1024, np.random.default_rng(0)))
        correlation[prior] = np.corrcoef(runs[:, 0, 0], runs[:, 1, 0])[0, 1]
    assert correlation["carried"] > 0.3
    assert abs(correlation["start"]) < 4 / 32
