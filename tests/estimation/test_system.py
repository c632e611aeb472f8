"""The paper's set-up: where the target starts, and how far a turned sensor moves the data."""

import numpy as np
import pytest

from dpverify.errors import InputError
from dpverify.estimation import System, adjacent_pair, adjacent_recordings, oscillator

SYSTEM = oscillator()


@pytest.mark.parametrize(("sensor", "distance"), [(0, 10.0), (2, 5.0), (7, 0.1)])
def test_the_data_sets_are_as_far_apart_as_stated(sensor, distance):
    first, second, recording = adjacent_recordings(SYSTEM, SYSTEM.h, sensor, distance, np.random.default_rng(sensor))
    assert np.linalg.norm(second - first) == pytest.approx(distance, rel=1e-9)
    assert np.array_equal(recording.states[0], SYSTEM.start)  # the target sets out from there
    moved = np.abs(second - first).reshape(9, 10, 2).max((0, 2)) > 0
    assert np.flatnonzero(moved).tolist() == [sensor]


def test_the_papers_angle_moves_the_data_much_further():
    """By 42 to 146 where d = 10 is meant, depending on where the sensor stands; docs/method.md, section 4.6."""
    turn = 10.0 / (20 * np.sqrt(2))

    def seen(states, angle):
        place = 10 * np.sqrt(2) * np.stack([np.cos(angle), np.sin(angle)], -1)
        return 100 * np.tanh(0.1 * (states[:, :2] - place[:, None]))

    def apart(states, angle):
        return np.linalg.norm(seen(states, angle + turn) - seen(states, angle), axis=(1, 2))

    for seed in range(3):
        first, second, recording = adjacent_recordings(
            SYSTEM, SYSTEM.h, 3 * seed, 10.0, np.random.default_rng(seed), angle="paper"
        )
        assert np.linalg.norm(second - first) == pytest.approx(
            apart(recording.states, np.array([SYSTEM.h.angles[3 * seed]]))[0]
        )
        everywhere = apart(recording.states, np.linspace(0, 2 * np.pi, 1000))
        assert round(everywhere.min()) == 42
        assert round(everywhere.max()) == 146
        assert everywhere.max() <= 10 * np.sqrt(9) * 2 * 10 * np.sqrt(2) * np.sin(turn / 2)


def test_what_can_not_be_moved_is_refused():
    with pytest.raises(InputError, match="found sensor 10"):
        adjacent_pair(SYSTEM, SYSTEM.h, 10, 1.0, np.random.default_rng(0))
    with pytest.raises(InputError, match="no turn of sensor 0"):
        adjacent_pair(SYSTEM, SYSTEM.h, 0, 1e4, np.random.default_rng(0))


@pytest.mark.parametrize("law", ["disturbance", "noise", "initial"])
def test_a_number_in_place_of_a_law_is_named(law):
    with pytest.raises(InputError, match=rf"{law}: found 0.1; expected a law; Normal\(0.1\)"):
        System(A=[[1.0]], C=[[1.0]], start=(0.0,), **{law: 0.1})
