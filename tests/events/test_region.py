import math

import numpy as np
import pytest
from limits import most
from scipy.stats import binom

import dpverify as dpv
from dpverify.events.region import exact_scenario_size


def test_the_papers_number_of_pilot_runs():
    assert dpv.scenario_size(2, beta=0.05, gamma=1e-9) == 814


def test_the_joint_program_counts_the_variables_of_all_steps():
    joint = dpv.scenario_size(2, 0.05, 1e-9, steps=4)
    assert joint == math.ceil(math.e / (math.e - 1) / 0.05 * (math.log(1e9) + 20))


def test_the_exact_size_is_the_least():
    size = exact_scenario_size(2, 0.05, 1e-9)
    assert size == 616
    assert binom.cdf(4, size, 0.05) <= 1e-9 < binom.cdf(4, size - 1, 0.05)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((2, 0, 1e-9), "beta"), ((2, 0.05, 2), "gamma"), ((0, 0.05, 1e-9), "dimension"), ((2, 0.05, 1e-9, 0), "steps")],
)
def test_sizes_check_their_arguments(arguments, name):
    with pytest.raises(dpv.InputError, match=f"{name} must be"):
        dpv.scenario_size(*arguments)


@pytest.mark.parametrize("shape", [(300,), (300, 3), (300, 4, 2)])
def test_every_pilot_run_is_inside(shape):
    samples = np.random.default_rng(0).standard_normal(shape)
    region = dpv.high_likely_set(samples)
    runs = samples.reshape(300, *region.centre.shape)
    assert region.contains(runs).all()
    assert not region.contains(runs + 100).any()


def test_one_step_outside_is_outside():
    samples = np.random.default_rng(0).standard_normal((300, 4, 2))
    region = dpv.high_likely_set(samples)
    samples[:, 2] += 50
    assert not region.contains(samples).any()


def test_the_box_touches_the_ellipsoid():
    samples = np.random.default_rng(1).standard_normal((500, 1, 2)) @ np.array([[2.0, 0.3], [0.0, 0.5]])
    region = dpv.high_likely_set(samples)
    angles = np.linspace(0, 2 * np.pi, 10_001)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    border = (circle + region.b[0]) @ np.linalg.inv(region.A[0]).T
    np.testing.assert_allclose(border.max(0), (region.centre + region.half)[0], rtol=1e-5)
    np.testing.assert_allclose(border.min(0), (region.centre - region.half)[0], rtol=1e-5)


def test_flat_directions_pin_the_region():
    t = np.random.default_rng(2).standard_normal((200, 1, 1))
    line = np.concatenate([t, 2 * t + 1], axis=2)
    region = dpv.high_likely_set(line)
    assert region.contains(line).all()
    assert not region.contains(line + np.array([0.0, 0.1])).any()


def test_a_constant_is_a_region_of_one_point():
    region = dpv.high_likely_set(np.full((50, 2, 3), 7.0))
    assert region.contains(np.full((4, 2, 3), 7.0)).all()
    assert not region.contains(np.full((4, 2, 3), 7.1)).any()


def test_the_joint_region_keeps_its_promise_and_the_per_step_one_breaks_it():
    """docs/method.md, section 4.3: K ellipsoids at beta each leave out up to K beta."""
    steps, beta, gamma = 20, 0.1, 0.05
    rng = np.random.default_rng(3)
    fresh = rng.standard_normal((20_000, steps, 2))

    def too_small(runs):
        return sum(
            dpv.high_likely_set(rng.standard_normal((runs, steps, 2))).contains(fresh).mean() < 1 - beta
            for _ in range(20)
        )

    assert too_small(exact_scenario_size(2, beta, gamma, steps)) <= most(20, gamma)
    assert too_small(exact_scenario_size(2, beta, gamma)) > most(20, gamma)


def test_jax_and_numpy_agree():
    import jax.numpy as jnp

    from dpverify.util.arrays import enable_x64

    samples = np.random.default_rng(4).standard_normal((500, 3, 2))
    region = dpv.high_likely_set(samples[:100])
    with enable_x64():
        np.testing.assert_array_equal(np.asarray(region.contains(jnp.asarray(samples))), region.contains(samples))
