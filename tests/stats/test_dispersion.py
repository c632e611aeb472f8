"""The test for dependent runs: it is exact, and what it detects."""

import numpy as np
import pytest
from limits import most
from scipy.stats import chi2, norm

from dpverify.stats.binomial import MAX_P_VALUE, homogeneity_p_value


@pytest.mark.parametrize(
    ("probability", "block", "blocks"),
    [(0.5, 2048, 98), (0.01, 2048, 98), (0.001, 2048, 98), (0.3, 64, 4), (0.02, 64, 300), (0.999, 2048, 98)],
)
def test_independent_runs_are_rarely_called_dependent(probability, block, blocks):
    rng = np.random.default_rng(0)
    sizes = np.full(blocks, block)
    p = [homogeneity_p_value([(rng.binomial(block, probability, blocks), sizes)]) for _ in range(1000)]
    for level in (0.1, 0.01, 0.001):
        assert np.sum(np.array(p) <= level) <= most(1000, level)
    assert min(p) > 1e-6


def test_the_bound_is_above_the_share_of_all_arrangements():
    """All ways to put three hits into the six runs of blocks of 2, 2, 1 and 1 runs are equally likely."""
    sizes, arrangements = np.array([2, 2, 1, 1]), []
    for code in range(64):
        runs = np.array([code >> k & 1 for k in range(6)])
        if runs.sum() == 3:
            arrangements.append([runs[:2].sum(), runs[2:4].sum(), runs[4], runs[5]])
    counts = np.array(arrangements)
    statistic = ((counts - sizes / 2) ** 2 / sizes).sum(1)
    for own, value in zip(counts, statistic, strict=True):
        assert homogeneity_p_value([(own, sizes)]) >= (statistic >= value).mean() - 1e-12


@pytest.mark.parametrize("factor", [2.0, 3.0])
@pytest.mark.parametrize(("cells", "size"), [(98, 2048), (64, 16_000)])
def test_many_runs_lose_little_to_the_normal_approximation(factor, cells, size):
    offsets = np.resize([1, -1], cells) * np.sqrt(factor * size / 4)
    counts, sizes = np.round(size / 2 + offsets).astype(int), np.full(cells, size)
    approximate = chi2.sf(((counts - size / 2) ** 2 / (size / 4)).sum(), cells - 1)
    assert approximate < homogeneity_p_value([(counts, sizes)]) < 40 * approximate


def test_noise_that_is_shared_within_a_block_is_detected():
    """A part of the noise with 5% of its standard deviation is common to all runs of a block."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        probability = norm.sf(0.5 - 0.05 * rng.standard_normal(98))
        assert homogeneity_p_value([(rng.binomial(2048, probability), np.full(98, 2048))]) < MAX_P_VALUE


def test_few_runs_that_share_a_rare_output_are_detected():
    """Blocks are not merged: twice five of ten hits in one of a thousand blocks are impossible by chance."""
    counts = np.zeros(1000, int)
    counts[[3, 700]] = 5
    assert homogeneity_p_value([(counts, np.full(1000, 2048))]) < MAX_P_VALUE
    spread = np.zeros(1000, int)
    spread[::100] = 1
    assert homogeneity_p_value([(spread, np.full(1000, 2048))]) == 1.0


def test_parts_with_other_probabilities_are_no_dependence():
    parts = [(np.full(20, 10), np.full(20, 100)), (np.full(20, 60), np.full(20, 100))]
    assert homogeneity_p_value(parts) == 1.0
    assert homogeneity_p_value([tuple(np.concatenate(column) for column in zip(*parts, strict=True))]) < MAX_P_VALUE


@pytest.mark.parametrize(("counts", "sizes"), [([0, 0], [100, 100]), ([50], [100]), ([], []), ([1, 0, 0], [9, 0, 9])])
def test_too_few_counts_give_no_evidence(counts, sizes):
    assert homogeneity_p_value([(counts, sizes)]) == 1.0
