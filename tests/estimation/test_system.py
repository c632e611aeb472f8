"""The paper's system: the start of the trajectory, and the distance between adjacent datasets."""

import numpy as np
import pytest

from dpverify.errors import InputError
from dpverify.estimation import System, TruncatedMixture, adjacent_pair, adjacent_recordings, oscillator

SYSTEM = oscillator()


@pytest.mark.parametrize(("sensor", "distance"), [(0, 10.0), (2, 5.0), (7, 0.1)])
def test_the_data_sets_have_the_stated_distance(sensor, distance):
    first, second, recording = adjacent_recordings(SYSTEM, SYSTEM.h, sensor, distance, np.random.default_rng(sensor))
    assert np.linalg.norm(second - first) == pytest.approx(distance, rel=1e-9)
    assert np.array_equal(recording.states[0], SYSTEM.start)  # the trajectory starts there
    moved = np.abs(second - first).reshape(9, 10, 2).max((0, 2)) > 0
    assert np.flatnonzero(moved).tolist() == [sensor]


def test_the_papers_angle_gives_a_larger_distance():
    """The distance is 42 to 146 instead of 10, depending on the position of the sensor; docs/method.md, section 4.6."""
    turn = 10.0 / (20 * np.sqrt(2))

    def measured(states, angle):
        position = 10 * np.sqrt(2) * np.stack([np.cos(angle), np.sin(angle)], -1)
        return 100 * np.tanh(0.1 * (states[:, :2] - position[:, None]))

    def distances(states, angle):
        return np.linalg.norm(measured(states, angle + turn) - measured(states, angle), axis=(1, 2))

    for seed in range(3):
        first, second, recording = adjacent_recordings(
            SYSTEM, SYSTEM.h, 3 * seed, 10.0, np.random.default_rng(seed), angle="paper"
        )
        assert np.linalg.norm(second - first) == pytest.approx(
            distances(recording.states, np.array([SYSTEM.h.angles[3 * seed]]))[0]
        )
        all_positions = distances(recording.states, np.linspace(0, 2 * np.pi, 1000))
        assert round(all_positions.min()) == 42
        assert round(all_positions.max()) == 146
        assert all_positions.max() <= 10 * np.sqrt(9) * 2 * 10 * np.sqrt(2) * np.sin(turn / 2)


def test_an_impossible_move_raises_an_error():
    with pytest.raises(InputError, match="found sensor 10"):
        adjacent_pair(SYSTEM, SYSTEM.h, 10, 1.0, np.random.default_rng(0))
    with pytest.raises(InputError, match="no turn of sensor 0"):
        adjacent_pair(SYSTEM, SYSTEM.h, 0, 1e4, np.random.default_rng(0))


@pytest.mark.parametrize("field", ["disturbance", "noise", "initial"])
def test_a_number_in_place_of_a_distribution_raises_an_error(field):
    with pytest.raises(InputError, match=rf"{field}: found 0.1; expected a distribution; Normal\(0.1\)"):
        System(A=[[1.0]], C=[[1.0]], start=(0.0,), **{field: 0.1})


@pytest.mark.parametrize(
    ("mean", "deviation", "limit", "variance"),
    [
        (0.0, 1e6, 1.0, 1 / 3),  # uniform
        (0.0, 1e-3, 1.0, 1e-6),  # normal
        (1.0, 1e-3, 1.0, 1e-6 * (1 - 2 / np.pi)),  # half of a normal distribution
        (-1e6, 1.0, 1.0, 1e-12),  # exponential, of scale 1e-6
        (0.5, 0.0, 1.0, 0.0),  # not random
    ],
)
def test_the_variance_of_a_truncated_normal_distribution_has_the_right_limits(mean, deviation, limit, variance):
    mixture = TruncatedMixture((1.0,), (mean,), (deviation,), limit)
    assert mixture.variance == pytest.approx(variance, rel=1e-5)


def test_the_variance_of_a_truncated_mixture_is_that_of_its_density():
    weights, means, deviations, limit = (0.3, 0.7), (-0.5, 2.0), (0.4, 0.7), 1.0
    x, step = np.linspace(-limit, limit, 400_001, retstep=True)
    density = np.zeros_like(x)
    for weight, mean, deviation in zip(weights, means, deviations, strict=True):
        part = np.exp(-(((x - mean) / deviation) ** 2) / 2)
        density += weight * part / (np.trapezoid(part) * step)
    moments = [np.trapezoid(density * x**power) * step for power in (1, 2)]
    mixture = TruncatedMixture(weights, means, deviations, limit)
    assert mixture.variance == pytest.approx(moments[1] - moments[0] ** 2, rel=1e-8)
