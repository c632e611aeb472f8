"""The search finds the worst of forty sensor moves on the paper's circle without verifying all of them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpverify as dpv
from dpverify.estimation import PrivateKalman, adjacent_pair, oscillator, sensor_circle
from dpverify.util.arrays import enable_x64

MOVES, DELTA = 40, 0.01
EACH = {"delta": DELTA, "select_runs": 32_768, "test_runs": 131_072, "block": 2048}


@pytest.mark.slow
def test_a_third_of_the_runs_finds_a_sensor_that_is_nearly_the_most_exposed():
    """The filter is linear in the data, so that the exact epsilon of every move is known.

    The exhaustive search verifies every move. All runs are counted, those of the pilot stage included.
    """
    turn = np.random.default_rng(0).random()
    sensors = sensor_circle(2 * np.pi * (np.arange(MOVES) + turn) / MOVES)
    circle = oscillator(sensors)
    pairs = [adjacent_pair(circle, sensors, move, 3.0, np.random.default_rng(1)) for move in range(MOVES)]
    with enable_x64():
        C = np.asarray(jax.jacfwd(sensors)(jnp.asarray(circle.start)))
    estimator, drawn = PrivateKalman(dataclasses.replace(circle, C=C), scale=0.03), [0]
    truth = np.array([estimator.truth(*pair).epsilon(DELTA) for pair in pairs])
    assert (truth >= 0.95 * truth.max()).sum() < 6  # few moves are good enough

    def counted(data, runs, rng):
        drawn[0] += runs
        return estimator(data, runs, rng)

    def index(theta):
        return min(int(theta[0]), MOVES - 1)

    dpv.verify(counted, *pairs[0], **EACH)
    exhaustive, good = MOVES * drawn[0], 0
    for seed in range(10):
        drawn[0] = 0
        result = dpv.search_pairs(
            counted,
            lambda theta: pairs[index(theta)],
            bounds=[(0, MOVES)],
            runs=50 * EACH["select_runs"],
            seed=seed,
            **EACH,
        )
        ratio = truth[index(result.pair)] / truth.max()
        print(f"seed {seed}: {ratio:.3f} of the worst, {drawn[0] / exhaustive:.3f} of the runs")
        assert drawn[0] <= exhaustive / 3
        good += ratio >= 0.95
    assert good >= 9
