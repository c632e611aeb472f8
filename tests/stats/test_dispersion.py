"""The test for dependent runs: its false-alarm rate, and what it detects."""

import numpy as np
import pytest
from limits import most
from scipy.stats import norm

from dpverify.stats.dispersion import MAX_P_VALUE, homogeneity_p_value


@pytest.mark.parametrize(
    ("probability", "block", "blocks"),
    [(0.5, 2048, 98), (0.01, 2048, 98), (0.001, 2048, 98), (0.3, 64, 4), (0.02, 64, 300), (0.999, 2048, 98)],
)
def test_independent_runs_are_rarely_called_dependent(probability, block, blocks):
    rng = np.random.default_rng(0)
    sizes = np.full(blocks, block)
    p = [homogeneity_p_value(rng.binomial(block, probability, blocks), sizes) for _ in range(2000)]
    for level in (0.1, 0.01):
        assert np.sum(np.array(p) <= level) <= most(2000, level)
    assert min(p) > 1e-6


def test_noise_that_is_shared_within_a_block_is_detected():
    """A part of the noise with 5% of its standard deviation is common to all runs of a block."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        probability = norm.sf(0.5 - 0.05 * rng.standard_normal(98))
        assert homogeneity_p_value(rng.binomial(2048, probability), np.full(98, 2048)) < MAX_P_VALUE


def test_one_noise_per_block_is_detected():
    assert homogeneity_p_value([0, 64] * 8, [64] * 16) < MAX_P_VALUE


@pytest.mark.parametrize(("counts", "sizes"), [([0, 0], [100, 100]), ([3, 40], [100, 100]), ([50], [100]), ([], [])])
def test_too_few_counts_give_no_evidence(counts, sizes):
    assert homogeneity_p_value(counts, sizes) == 1.0


def test_a_shorter_last_block_is_weighted_by_its_size():
    sizes = np.array([1000, 1000, 1000, 500])
    assert homogeneity_p_value(sizes // 2, sizes) == pytest.approx(1.0)
