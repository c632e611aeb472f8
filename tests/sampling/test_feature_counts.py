"""Level sets of scores of the same features have the counts of their own codes."""

import numpy as np

from dpverify.events.scores import Features, Levels, Linear, Quadratic
from dpverify.sampling.accumulators import CountAccumulator
from dpverify.sampling.counts import CellCounter, Statistics, count_cells
from dpverify.sampling.feature_counts import FeatureCells


def make_partitions():
    """Return level sets, of which the first, the third and the last one have equal features."""
    rng = np.random.default_rng(0)
    whiten, mean = np.tril(rng.normal(size=(5, 5))), rng.normal(size=5)
    edges = np.array([-2.0, 0.0, 1.0, 9.0])
    scores = [Quadratic(Features(mean, whiten.copy()), rng.normal(size=5), rng.normal(size=(5, 5))) for _ in range(3)]
    other = Quadratic(Features(mean + 1, whiten), rng.normal(size=5), rng.normal(size=(5, 5)))
    plain = [Quadratic(Features(mean, None), np.ones(5), np.eye(5)) for _ in range(2)]
    order = [scores[0], Linear(np.ones(5)), scores[1], other, *plain, scores[2]]
    return [Levels(score, edges) for score in order]


def test_only_level_sets_of_equal_features_are_grouped():
    assert [group.numbers for group in FeatureCells.groups(make_partitions())] == [(0, 2, 6)]
    assert FeatureCells.groups([None, make_partitions()[0]]) == ()


def test_the_counts_are_those_of_each_partition():
    partitions = make_partitions()
    accumulator = CountAccumulator(Statistics(tuple(map(CellCounter, partitions))))
    rng, blocks, buffer = np.random.default_rng(1), [], np.empty((600, 5, 1))
    for number, runs in enumerate([600, 7, 450]):
        buffer[:] = rng.normal(size=buffer.shape)  # a mechanism may use its array again
        buffer[3, 2] = np.nan
        accumulator.add(number, buffer, runs)
        blocks.append(buffer[:runs].copy())
    for partition, counts in zip(partitions, accumulator.results(), strict=True):
        expected = count_cells(partition, np.concatenate(blocks))
        np.testing.assert_array_equal(counts.codes, expected.codes)
        np.testing.assert_array_equal(counts.counts, expected.counts)
