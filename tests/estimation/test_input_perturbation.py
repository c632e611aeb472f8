"""Input perturbation: its noise, and the shared solution beside the full one."""

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


def test_one_block_a_sensor_is_positive_and_one_large_block_is_not():
    """The paper's formula in 20 dimensions has a negative eigenvalue in each of 200 draws; in 2 never."""
    least = [np.linalg.eigvalsh(sensor_blocks(20, 20, seed))[0] for seed in range(200)]
    assert max(least) < 0
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
    """To 1e-8 of the full solution."""
    mhe, root = replace(MHE, **changes), np.linalg.cholesky((1 - s_bar) * sensor_blocks(20, 2, 0))
    noisy = DATA + np.random.default_rng(5).standard_normal((24, *DATA.shape)) @ root.T
    with enable_x64():
        both = jax.jit(lambda noisy: (jax.vmap(mhe.near(DATA))(noisy), jax.vmap(mhe.estimate)(noisy)))
        near, full = map(np.asarray, both(noisy))
    assert np.isfinite(near).all()
    assert np.abs(near - full).max() < 1e-8
    assert np.abs(full - full[0]).max() > 1e-6  # they do differ


def test_noise_through_a_linear_filter_has_the_closed_law():
    """M(y + noise) = G y + G noise: Gaussian with covariance G S G', S the stated one."""
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
    law = G @ np.kron(np.eye(4), mechanism.of_one_step) @ G.T
    off = samples - estimator.truth(data, data).first.ravel()
    assert kstest((off @ np.linalg.inv(law) * off).sum(1), chi2(8).cdf).pvalue > 1e-3
    other = G @ np.kron(np.eye(4), InputPerturbed(estimator, 0.9, seed=4).of_one_step) @ G.T
    assert kstest((off @ np.linalg.inv(other) * off).sum(1), chi2(8).cdf).pvalue < 1e-3  # another seed, another law
