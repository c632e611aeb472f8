"""The value of a pair: common random numbers, kept runs, and the slopes of a box."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.events.scores import summarise
from dpverify.sampling.blocks import SampleSource, draw_block
from dpverify.sampling.context import open_run
from dpverify.studies.search import KeptRuns, SearchAim, estimate_gradient, evaluate_pair
from mechanisms import gaussian_trajectory, laplace

AIM = SearchAim(0.0, None)


def value_of(mechanism, pair, runs, aim=AIM, **settings):
    with open_run(mechanism, *pair, dpv.Settings(**settings), None, False) as run:
        return evaluate_pair(run, pair, aim, runs)


def rare_leak(data, runs, rng):
    """Data above 1 appear in the output with probability 1/500; smaller data are the mean of noise."""
    noise = data * (data < 1) + rng.standard_normal((runs, 1))
    return np.where((rng.random((runs, 1)) < 0.002) & (data > 1), data, noise)


def test_coupled_data_sets_share_their_random_numbers_except_in_test_runs():
    source = SampleSource(laplace, (0.0, 1.0), 7, 64)._replace(is_coupled=True)
    for stage in ("pilot", "train", "propose", "decide"):
        first, second = (np.asarray(draw_block(source, stage, side, 0)) for side in (0, 1))
        np.testing.assert_allclose(second - first, 1.0)
    for one in (source, source._replace(is_coupled=False)):
        first, second = (np.asarray(draw_block(one, "test", side, 0)) for side in (0, 1))
        assert np.ptp(second - first) > 1.0


def test_kept_runs_are_not_drawn_again():
    drawn = []

    def counted(data, runs, rng):
        drawn.append(runs)
        return laplace(data, runs, rng)

    pair, settings = (0.0, 1.0), dpv.Settings(block=500)
    with open_run(counted, *pair, settings, None, False) as run:
        drawn.clear()
        kept = KeptRuns.empty()
        evaluate_pair(run, pair, AIM, 4000, kept)
        value = evaluate_pair(run, pair, AIM, 12_000, kept)
        assert sum(drawn) == 2 * 12_000
        assert value == evaluate_pair(run, pair, AIM, 12_000)


def test_values_that_both_data_sets_share_are_no_atoms():
    """With common random numbers the second coordinate is the same for both data sets."""

    def mechanism(data, runs, rng):
        return np.array([data, 0.0]) + rng.laplace(size=(runs, 2))

    source = SampleSource(mechanism, (0.0, 1.0), 7, 1000)._replace(is_coupled=True)
    samples = [np.asarray(draw_block(source, "train", side, 0)) for side in (0, 1)]
    assert summarise(samples).has_atoms
    assert not summarise(samples, is_coupled=True).has_atoms
    rounded = [np.clip(np.round(runs), -2, 2) for runs in samples]
    assert summarise(rounded, is_coupled=True).is_discrete


def test_the_value_is_near_the_bound_of_the_planned_test():
    value = value_of(laplace, (0.0, 1.0), 40_000, test_runs=100_000)
    assert 0.9 < value.lower < 1.1
    assert value.lower < value.upper < 1.4  # events with few runs could still turn out to be better


def test_a_rare_leak_is_above_a_small_frequent_difference():
    """The leak has 20 runs in each half."""
    rare, frequent = (value_of(rare_leak, (0.0, shift), 20_000, test_runs=10**6) for shift in (9.0, 0.2))
    assert rare.lower > frequent.lower
    assert rare.upper > 4.0  # the runs allow a large bound, although they do not show it


def test_without_an_expected_bound_the_total_variation_decides():
    near, far = (value_of(laplace, (0.0, shift), 2000, SearchAim(0.3, None)).lower for shift in (0.05, 0.2))
    assert -1 <= near < far < 0


@pytest.mark.parametrize("changes", [{"events": "union"}, {"partition": "equal-mass"}, {"events": "cell"}, {}])
def test_the_value_follows_the_events_that_the_settings_name(changes):
    assert value_of(gaussian_trajectory, (np.zeros((2, 2)), np.ones((2, 2))), 4000, **changes).lower > 1.0


def test_the_gradient_points_to_what_the_output_depends_on():
    weights = np.array([3.0, -2.0, 0.0, 1.0, 0.0, -1.0])

    def mechanism(data, runs, rng):
        return np.array([weights @ data]) + rng.laplace(size=(runs, 1))

    def pair_at(theta):
        return np.zeros(6), theta

    with open_run(mechanism, np.zeros(6), np.ones(6), dpv.Settings(block=64), None, False) as run:
        slopes = estimate_gradient(run, pair_at, np.full(6, 0.2), np.full(6, 0.1), AIM, 32_000)
    assert slopes @ weights > 0.98 * np.linalg.norm(slopes) * np.linalg.norm(weights)
