"""The share of adjacent pairs that pass, for mechanisms whose answer is known."""

from typing import NamedTuple

import numpy as np
import pytest

from dpverify.paper import passing_pairs
from dpverify.paper.passing_pairs import measure_passing_pairs, sample_pairs


class NoisyMean(NamedTuple):
    """The mean of all measurements, with Gaussian noise."""

    scale: float

    def __call__(self, data, runs, rng):
        return data.mean() + self.scale * rng.standard_normal((runs, 1))


@pytest.mark.slow
def test_pairs_are_drawn_anew_and_have_the_stated_distance():
    pairs = sample_pairs("Q1", 3, "exact")
    distances = [np.linalg.norm(first - second) for first, second in pairs]
    np.testing.assert_allclose(distances, 10, rtol=1e-6)
    assert not np.array_equal(pairs[0][0], pairs[1][0])
    moved = [np.flatnonzero(np.abs(first - second).max(axis=0) > 0) // 2 for first, second in pairs]
    assert all(len(set(sensors)) == 1 for sensors in moved)


def test_much_noise_passes_and_little_noise_is_refuted(monkeypatch):
    """The means differ by 0.05; a claim of 0.4 is true with noise 10 and false with noise 0.001."""
    monkeypatch.setattr(passing_pairs, "sample_pairs", lambda *_: [(np.zeros(20), np.eye(20)[k]) for k in range(4)])
    (private,) = measure_passing_pairs(NoisyMean(10.0), "Q1", 0.4, 4, 1000, ["exact"])
    assert (private.passed, private.refuted, private.violating) == (4, 0, 0.0)
    (leaking,) = measure_passing_pairs(NoisyMean(0.001), "Q1", 0.4, 4, 1000, ["exact"])
    assert leaking.refuted == 4
    assert leaking.interval[0] <= leaking.passed / leaking.pairs <= leaking.interval[1]
    assert leaking.violating > 0.3
