"""The share of adjacent pairs that pass: the paper names this extension of its test, and prints no result of it.

A pair is drawn anew each time: the trajectory, the measurement noise, and which of the ten sensors moves. The claim is
a printed critical epsilon. The same pairs are also tested by the library's own test, which searches all events.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpverify.mechanisms.protocol import Mechanism
from dpverify.paper import experiment
from dpverify.paper.measurements import PassingPairs
from dpverify.settings import Settings
from dpverify.studies.pairs import verify_pairs

FIRST_SEED = 5_000_000  # no other part of the reproduction draws data with these seeds


def sample_pairs(setup: str, number: int, angle: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return independent adjacent pairs: new data each time, and a sensor that is drawn at random."""
    moved = np.random.default_rng(FIRST_SEED).integers(experiment.SENSORS, size=number)
    pairs = []
    for k in range(number):
        first, second, _ = experiment.pair(setup, move=int(moved[k]), seed=FIRST_SEED + k, angle=angle)
        pairs.append((first, second))
    return pairs


def measure_passing_pairs(
    mechanism: Mechanism, setup: str, epsilon: float, number: int, test_runs: int, angles: Sequence[str]
) -> tuple[PassingPairs, ...]:
    """Test one claim on sampled pairs, by the paper's procedure and by the library's own."""
    results = []
    for angle in angles:
        pairs = sample_pairs(setup, number, angle)
        paper = verify_pairs(mechanism, pairs, epsilon, settings=Settings.paper(test_runs=test_runs, block=1024))
        own = verify_pairs(
            mechanism, pairs, epsilon, settings=Settings(select_runs=1024, test_runs=test_runs, block=1024, seed=1)
        )
        refuted = len(own.answered) - own.passed
        results.append(PassingPairs(angle, epsilon, number, paper.passed, paper.share_interval, refuted, own.violating))
    return tuple(results)
