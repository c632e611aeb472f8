"""Input perturbation: the covariance of its noise, and the accuracy of the warm start."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.stats import chi2, kstest

from dpverify.estimation import W2MHE, InputPerturbed, Normal, PrivateKalman, System, oscillator, simulate
from dpverify.estimation.input_perturbation import sensor_blocks
from dpverify.util.arrays import enable_x64

SYSTEM = oscillator()
DATA = simulate(SYSTEM, np.random.default_rng(2)).data
MHE = W2MHE(SYSTEM, 5, 1.0, 1.4e-5)


def test_one_block_per_sensor_is_positive_and_one_large_block_is_not():
    """The paper's formula has a negative eigenvalue in each of 200 draws in 20 dimensions, and in none in 2."""
    smallest = [np.linalg.eigvalsh(sensor_blocks(20, 20, seed))[0] for seed in range(200)]
    assert max(smallest) < 0
    assert min(np.linalg.eigvalsh(sensor_blocks(20, 2, seed))[0] for seed in range(200)) > 0
    blocks = sensor_blocks(20, 2, 0)
    assert np.array_equal(blocks, sensor_blocks(20, 2, 0))
    assert not np.array_equal(blocks, sensor_blocks(20, 2, 1))
    assert np.count_nonzero(blocks) == 40


@pytest.mark.parametrize(
    ("changes", "s_bar"),
    [pytest.param({}, 0.944, marks=pytest.mark.slow), ({"law": "blend", "tau": 1.0}, -2.0)],
    ids=["the paper's noise, a ball", "fifty times its variance, a cube and a wide tau"],
)
def test_solutions_from_a_shared_start_are_converged(changes, s_bar):
    """The warm-started solutions agree with the full ones to 1e-8."""
    mhe, root = replace(MHE, **changes), np.linalg.cholesky((1 - s_bar) * sensor_blocks(20, 2, 0))
    noisy = DATA + np.random.default_rng(5).standard_normal((24, *DATA.shape)) @ root.T
    with enable_x64():
        both = jax.jit(lambda noisy: (jax.vmap(mhe.warm_start(DATA))(noisy), jax.vmap(mhe.estimate)(noisy)))
        warm, full = map(np.asarray, both(noisy))
    assert np.isfinite(warm).all()
    assert np.abs(warm - full).max() < 1e-8
    assert np.abs(full - full[0]).max() > 1e-6  # the solutions of the runs differ


def test_noise_through_a_linear_filter_has_the_closed_form():
    """M(y + noise) = G y + G noise is Gaussian with covariance G S G', where S is the covariance of the noise."""
    system = System(
        A=[[1.0, 0.1], [0.0, 1.0]],
        C=np.eye(2),
        start=(0.0, 0.0),
        disturbance=Normal(0.05),
        noise=Normal(0.2),
        initial=Normal(1.0),
    )
    data, runs = np.cumsum(np.full((4, 2), 0.1), 0), 4096
    estimator = PrivateKalman(system, 0.0)
    mechanism = InputPerturbed(estimator, 0.9, seed=3)
    samples = np.asarray(mechanism(data, runs, np.random.default_rng(1))).reshape(runs, -1)
    G = estimator.gain(4)
    covariance = G @ np.kron(np.eye(4), mechanism.noise_covariance) @ G.T
    offset = samples - estimator.truth(data, data).first.ravel()
    assert kstest((offset @ np.linalg.inv(covariance) * offset).sum(1), chi2(8).cdf).pvalue > 1e-3
    other = G @ np.kron(np.eye(4), InputPerturbed(estimator, 0.9, seed=4).noise_covariance) @ G.T
    assert (
        kstest((offset @ np.linalg.inv(other) * offset).sum(1), chi2(8).cdf).pvalue < 1e-3
    )  # another seed gives another covariance
