"""The worst of forty sensor moves on the paper's circle, found without verifying them all."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.estimation import W2MHE, adjacent_pair, oscillator, sensor_circle
from dpverify.tune import estimate_epsilon

MOVES, DELTA = 40, 0.01
EACH = {"delta": DELTA, "select_runs": 16_384, "test_runs": 32_768, "block": 1024}
LONG = {"delta": DELTA, "select_runs": 131_072, "test_runs": 2**20, "block": 8192, "seed": 99}


@pytest.mark.slow
def test_a_third_of_the_runs_finds_a_sensor_that_is_nearly_the_most_exposed():
    """From random starts. The exhaustive runs would verify every move; pilot runs and first looks count too."""
    turn = np.random.default_rng(0).random()
    sensors = sensor_circle(2 * np.pi * (np.arange(MOVES) + turn) / MOVES)
    system = oscillator(sensors)
    pairs = [adjacent_pair(system, sensors, move, 3.0, np.random.default_rng(1)) for move in range(MOVES)]
    estimator, drawn = W2MHE(system, window=5, s=0.8, tau=1.4e-5), [0]

    def counted(data, runs, rng):
        drawn[0] += runs
        return estimator(data, runs, rng)

    def place(theta):
        return min(int(theta[0]), MOVES - 1)

    def epsilon(pair, settings):
        return estimate_epsilon(dpv.verify(counted, *pair, **settings), DELTA)

    truth = np.array([epsilon(pair, EACH) for pair in pairs])
    exhaustive, good = drawn[0], 0
    for move in np.flatnonzero(truth > 0.8 * truth.max()):  # short runs are off by some per cent: these decide
        truth[move] = epsilon(pairs[move], LONG)
    for seed in range(10):
        drawn[0] = 0
        found = dpv.search_pairs(
            counted,
            lambda theta: pairs[place(theta)],
            bounds=[(0, MOVES)],
            runs=30 * EACH["select_runs"],
            seed=seed,
            **EACH,
        )
        near = truth[place(found.pair)] / truth.max()
        print(f"seed {seed}: {near:.3f} of the worst, {drawn[0] / exhaustive:.3f} of the runs")
        assert drawn[0] <= exhaustive / 3
        good += near >= 0.95
    assert good >= 9
