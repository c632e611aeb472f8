"""The check that runs are independent: dependent runs void the report, independent runs do not."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.events.event import Event
from dpverify.events.scores import Levels, Linear
from dpverify.sampling import accumulators
from dpverify.sampling.accumulators import BlockSum
from dpverify.sampling.block_counts import MAX_CHECKED_BLOCKS, MAX_CHECKED_RUNS, BlockChecker, BlockCounts
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace

SMALL = {"select_runs": 400, "test_runs": 4000, "block": 64}


def one_noise_per_call(data, runs, rng):
    return np.full(runs, data[0] + rng.laplace())


def shared_part(data, runs, rng):
    """Five percent of the standard deviation of the noise is common to all runs of a call."""
    return data[0] + np.sqrt(1 - 0.05**2) * rng.standard_normal(runs) + 0.05 * rng.standard_normal()


def test_one_noise_per_call_voids_the_report():
    report = dpv.verify(one_noise_per_call, ZERO, ONE, 1.0, **SMALL)
    assert report.verdict is dpv.Verdict.NO_ANSWER
    assert not report.refuted
    assert report.voiding == (dpv.Diagnostic.DEPENDENT_RUNS,)
    assert "draw new noise for every run" in str(report)


@pytest.mark.parametrize("seeds", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_a_small_shared_part_of_the_noise_voids_the_report(seeds):
    for seed in range(seeds):
        report = dpv.verify(shared_part, ZERO, ONE, 1.0, seed=seed)
        assert report.voiding == (dpv.Diagnostic.DEPENDENT_RUNS,)


@pytest.mark.parametrize("seeds", [24, pytest.param(2000, marks=pytest.mark.slow)])
def test_independent_runs_do_not_void_the_report(seeds):
    for seed in range(seeds):
        assert not dpv.verify(laplace, ZERO, ONE, 1.0, seed=seed, **SMALL).voiding
    assert not dpv.verify(gaussian_trajectory, np.zeros((3, 2)), np.ones((3, 2)), 1.0, **SMALL).voiding


def test_block_counts_merge_in_the_order_of_the_blocks():
    parts = [BlockCounts(np.array([b]), np.array([10]), np.array([[b, 2 * b]])) for b in (2, 0, 1)]
    merged = BlockCounts.merge([BlockCounts.merge(parts[:2]), parts[2]])
    assert merged.blocks.tolist() == [0, 1, 2]
    assert merged.counts.tolist() == [[0, 0], [1, 2], [2, 4]]
    assert BlockCounts.from_arrays(iter(merged.to_arrays())).counts.tolist() == merged.counts.tolist()


@pytest.mark.parametrize("on_device", [False, True])
def test_the_first_runs_of_the_first_blocks_are_counted(on_device):
    as_array = pytest.importorskip("jax.numpy").asarray if on_device else np.asarray
    event = Event(Levels(Linear(np.ones(1)), np.zeros(1)), np.array([1]), 0)  # a positive output
    checked = BlockSum(BlockChecker(event, np.array([0]), np.array([1.0])))
    samples = np.random.default_rng(0).normal(size=(3, MAX_CHECKED_RUNS + 500, 1, 1)).astype(np.float32)
    checked.add(1, as_array(samples[0]))
    checked.add(0, as_array(samples[1]), 50)  # the other runs of the block are surplus
    checked.add(MAX_CHECKED_BLOCKS, as_array(samples[2]))
    checked.finish()
    expected = [samples[1, :50], samples[0, :MAX_CHECKED_RUNS]]
    assert checked.result().blocks.tolist() == [0, 1]
    assert checked.result().sizes.tolist() == [50, MAX_CHECKED_RUNS]
    assert checked.result().counts.tolist() == [[int((x > 0).sum()), int((x > 1).sum())] for x in expected]
    assert checked.result().counts[1, 0] != (samples[0] > 0).sum()  # all runs of a block have another count


@pytest.mark.parametrize("max_dense_cells", [0, 1 << 18])
def test_blocks_that_share_an_array_and_differ_in_size_are_counted_one_by_one(monkeypatch, max_dense_cells):
    monkeypatch.setattr(accumulators, "MAX_DENSE_CELLS", max_dense_cells)  # of a partition that has a table of cells
    event = Event(Levels(Linear(np.ones(1)), np.zeros(1)), np.array([1]), 0)  # a positive output
    checked = BlockSum(BlockChecker(event, np.array([0]), np.array([1.0])))
    rng, buffer, expected = np.random.default_rng(1), np.empty((64, 1, 1)), []
    for block, runs in enumerate([64, 7, 64, 1]):
        buffer[:] = rng.normal(size=buffer.shape)  # a mechanism may use its array again
        checked.add(block, buffer, runs)
        expected.append([int((buffer[:runs] > 0).sum()), int((buffer[:runs] > 1).sum())])
    assert checked.result().sizes.tolist() == [64, 7, 64, 1]
    assert checked.result().counts.tolist() == expected
    assert len(set(map(tuple, expected))) == 4  # counts of the last array alone would all be equal
