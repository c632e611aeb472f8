"""Estimators of systems as control engineers write them: verified with proposed parameters, and exact draws."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quadrature import chi_square, draw_runs

import dpverify as dpv
from dpverify.estimation import W2MHE, Normal, OwnFilter, PrivateEKF, System
from dpverify.estimation.moving_horizon import sliding_windows, stage_cost
from dpverify.util.arrays import enable_x64

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from bench_systems import SYSTEMS, estimators, neighbours, verified

FEW = {"select_runs": 512, "test_runs": 1024, "block": 256, "partition": "grid", "events": "cell"}
MIN_P_VALUE = 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pendulum", "bicycle", "four tanks", "epidemic", "saturated"])
def test_every_estimator_is_verified_or_refused_in_one_line(name):
    system = SYSTEMS[name]()
    data = neighbours(system)
    for estimator, make in estimators(system, data[0]).items():
        row = verified(name, estimator, make, data, **FEW)
        assert row.is_verified or row.outcome.startswith(("s: found", "s_hat: found"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pendulum", "van der Pol", "epidemic"])
def test_draws_of_a_nonlinear_system_agree_with_quadrature(name):
    """A shifted sample is rejected, so that the test has power."""
    system = SYSTEMS[name]()
    data = system.simulate(np.random.default_rng(0), 3).data
    mechanism = W2MHE.proposed(system, data, window=3)
    assert mechanism.faithfulness(data).method == "taylor"
    z = draw_runs(mechanism, data, 20_000, 0)[:, 0] / np.asarray(mechanism.scale)
    (centre,), (radius,) = mechanism.sets(1)
    line = radius * (2 * np.arange(500) + 1 - 500) / 500
    points = centre + np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    with enable_x64():
        rows = jax.tree.map(lambda v: v[0], sliding_windows(data, 3))
        cost = stage_cost(mechanism.problem.system, mechanism.problem.residual_weights)
        costs = np.asarray(jax.jit(jax.vmap(lambda x: cost(x, rows)))(jnp.asarray(points)))
    start = np.asarray(mechanism.problem.system.start)
    exponent = (costs + np.square(points - start).sum(1) / (2 * mechanism.tau)) / mechanism.kappa
    density = np.exp(exponent.min() - exponent) * (np.square(points - centre).sum(1) <= radius**2)
    assert chi_square(points, density / density.sum(), z, 8) >= MIN_P_VALUE
    assert chi_square(points, density / density.sum(), z + 0.2 * z.std(0), 8) < MIN_P_VALUE


def cubic(x):
    return x + x**3


def first_squared(x, v):
    return x[:1] ** 2 * (1 + v)


def test_divergence_is_one_line():
    system = System(f=cubic, h=cubic, start=(3.0,), disturbance=Normal(0.1), noise=Normal(0.1), initial=Normal(0.1))
    for run in (
        lambda: system.simulate(np.random.default_rng(0), 12),
        lambda: W2MHE(system, 1, 0.8, 1.0)(np.ones((13, 1)), 8, np.random.default_rng(0)),
        lambda: PrivateEKF(system, 0.9)(np.ones((13, 1)), 8, np.random.default_rng(0)),
    ):
        with pytest.raises(dpv.InputError, match="found NaN or infinity") as error:
            run()
        assert "\n" not in str(error.value)


def root(x):
    return jnp.sqrt(x)


def test_noise_that_leaves_the_domain_of_f_is_one_line_and_noise_on_the_output_is_not_fed_back():
    system = System(f=root, h=cubic, start=(0.01,), noise=Normal(0.1), initial=Normal(0.1))
    data = np.zeros((6, 1))
    with pytest.raises(dpv.InputError, match="NaN or infinity"):
        PrivateEKF(system, 0.9)(data - 1.0, 64, np.random.default_rng(0))
    line = System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal(1.0), initial=Normal(1.0))
    runs = np.asarray(PrivateEKF(line, 0.5, where="output")(data, 512, np.random.default_rng(0)))[..., 0]
    assert 0 <= runs.min() < 0.05 < 0.95 < runs.max() <= 1
    assert abs(np.corrcoef(runs[:, 0], runs[:, 1])[0, 1]) < 4 / np.sqrt(512)


def test_noise_inside_h_has_the_variance_of_its_first_derivative():
    """At x = 2 the noise v moves h = x^2 (1 + v) by 4 v."""
    spread = {"noise": Normal(0.1), "initial": Normal(0.5), "disturbance": Normal(0.1)}
    inside = System(A=[[1.0]], h=first_squared, start=(2.0,), **spread)
    assert inside.measurement_variances == pytest.approx([0.16])
    added = System(A=[[1.0]], h=lambda x: x[:1] ** 2, start=(2.0,), **(spread | {"noise": Normal(0.4)}))
    data = np.array([[4.2]])
    estimates = [np.asarray(PrivateEKF(s, 1.0)(data, 1, np.random.default_rng(0))) for s in (inside, added)]
    np.testing.assert_allclose(*estimates)


def stay(state):
    return state[0], state[1] + 0.01


def correct(state, y):
    x, P = state
    gain = P / (P + 0.04)
    return x + gain * (y - x), (1 - gain) * P


def test_a_filter_of_the_user_is_the_same_in_numpy_and_jax():
    own = OwnFilter(stay, correct, (np.zeros(1), np.ones(1)), window=1)
    walk = System(A=[[1.0]], C=[[1.0]], start=(0.0,), disturbance=Normal(0.1), noise=Normal(0.2), initial=Normal(1.0))
    data = walk.simulate(np.random.default_rng(0), 6).data
    expected = np.asarray(PrivateEKF(walk, 1.0, 1)(data, 1, np.random.default_rng(0)))[0]
    with enable_x64():
        in_jax = np.asarray(own(jnp.asarray(data)))
    np.testing.assert_allclose(own(data), expected, rtol=1e-9)
    np.testing.assert_allclose(in_jax, expected, rtol=1e-9)
    with pytest.raises(dpv.InputError, match="data: found 1 steps"):
        own(data[:1])
