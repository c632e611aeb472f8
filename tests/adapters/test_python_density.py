"""Adapters and filters with Gaussian noise state the density of their output."""

import math

import numpy as np
import pytest
from scipy.stats import kstest, laplace, multivariate_normal, uniform

from dpverify.adapters import perturbed, perturbed_jax
from dpverify.errors import InputError


def test_noise_on_the_output_has_its_density():
    samples = np.random.default_rng(0).standard_normal((5, 3, 1))
    density = perturbed(np.cumsum, 0.5).log_density
    ratio = density(np.zeros(3), samples) - density(np.ones(3), samples)
    exact = [
        multivariate_normal.logpdf(samples[:, :, 0], mean, 0.25) for mean in (np.zeros(3), np.array([1.0, 2.0, 3.0]))
    ]
    assert ratio[:, -1] == pytest.approx(exact[0] - exact[1])


@pytest.mark.parametrize("mechanism", [perturbed(np.cumsum, 0.5, "input"), perturbed(np.cumsum, 0.0)])
def test_noise_on_the_data_and_no_noise_have_no_density(mechanism):
    assert not hasattr(mechanism, "log_density")


def test_an_estimator_in_jax_has_the_same_density():
    jnp = pytest.importorskip("jax.numpy")
    samples = np.random.default_rng(0).standard_normal((5, 1, 3))
    plain, jitted = (
        made.log_density(np.ones(3), samples) for made in (perturbed(np.cumsum, 0.5), perturbed_jax(jnp.cumsum, 0.5))
    )
    assert np.asarray(jitted) == pytest.approx(plain)


@pytest.mark.parametrize("noise", ["laplace", "uniform"])
def test_other_noise_has_its_density_in_numpy_and_jax(noise):
    jnp = pytest.importorskip("jax.numpy")
    law = {"laplace": laplace(scale=0.5), "uniform": uniform(-0.5, 1.0)}[noise]
    mechanism, jitted = perturbed(np.cumsum, 0.5, noise=noise), perturbed_jax(jnp.cumsum, 0.5, noise=noise)
    data = np.zeros(3)
    samples = mechanism(data, 4000, np.random.default_rng(0))
    assert kstest(samples.ravel(), law.cdf).pvalue > 1e-3
    assert kstest(np.asarray(jitted(data, 4000, np.random.default_rng(0))).ravel(), law.cdf).pvalue > 1e-3
    few = samples[:5, :, None] + 0.3
    for made in (mechanism, jitted):
        log = np.asarray(made.log_density(data, few))[:, -1]
        exact = law.logpdf(few[:, :, 0]).sum(axis=1)
        assert log - log[0] == pytest.approx(exact - exact[0]) or not np.isfinite(exact[0])
        assert np.array_equal(np.isfinite(log), np.isfinite(exact))


def test_an_unknown_noise_is_refused():
    with pytest.raises(InputError, match="noise"):
        perturbed(np.cumsum, 0.5, noise="cauchy")


def test_the_messages_of_a_consensus_have_their_density():
    pytest.importorskip("jax")
    from dpverify.estimation import PrivateConsensus

    path = [[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]
    mechanism = PrivateConsensus(path, steps=3, noise=1.0, decay=0.5, own_weight=0.9)
    first, second = np.zeros(3), np.array([0.5, 0.0, 0.0])
    truth = mechanism.truth(first, second)
    samples = mechanism(first, 50_000, np.random.default_rng(0))
    losses = (mechanism.log_density(first, samples) - mechanism.log_density(second, samples))[:, -1]
    gain = np.maximum(-np.expm1(0.2 - losses), 0.0)
    assert losses.max() <= truth.epsilon(0.0) + 1e-9
    assert gain.mean() == pytest.approx(truth.delta(0.2), abs=5 * gain.std() / 50_000**0.5)


@pytest.mark.parametrize("where", ["output", "input"])
def test_the_kalman_filter_has_a_gaussian_density(where):
    pytest.importorskip("jax")
    from dpverify.estimation import Normal, PrivateKalman, System

    matrices = {"A": [[1.0, 0.1], [0.0, 1.0]], "C": [[1.0, 0.0]]}
    system = System(**matrices, start=(0.0, 0.0), noise=Normal(1.0), initial=Normal(1.0))
    mechanism = PrivateKalman(system, scale=0.5, where=where)
    data, other = np.zeros((3, 1)), np.array([[0.0], [1.0], [0.0]])
    samples = np.asarray(mechanism(data, 4, np.random.default_rng(0)))
    log = np.asarray(mechanism.log_density(data, samples))
    if where == "output":
        exact = [
            multivariate_normal.logpdf(samples.reshape(4, -1), mechanism.distribution(d).mean.ravel(), 0.25)
            for d in (data, other)
        ]
        assert (log - np.asarray(mechanism.log_density(other, samples)))[:, -1] == pytest.approx(exact[0] - exact[1])
    else:  # six numbers from three readings: the outputs lie in a subspace
        assert np.isfinite(log).all()
        assert (np.asarray(mechanism.log_density(data, samples + np.eye(1, 6).reshape(3, 2))) == -math.inf).all()
