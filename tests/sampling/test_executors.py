"""Queues of blocks, exact sums, results as arrays, and executors."""

import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpverify as dpv
from dpverify.errors import StopReason
from dpverify.sampling.accumulators import CountAccumulator, SampleBuffer
from dpverify.sampling.counts import Counts, CountTable, Statistics
from dpverify.sampling.executors import WorkerPool
from dpverify.sampling.ranges import BlockQueue
from dpverify.selection.histograms import Extremes, ScoreHistogram
from dpverify.util.intervals import merge_intervals
from mechanisms import ONE, ZERO, laplace

block_ranges = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 5)).map(lambda pair: (pair[0], sum(pair))), max_size=8
)


def blocks_of(ranges):
    return {block for start, stop in ranges for block in range(start, stop)}


@given(block_ranges)
def test_merged_ranges_contain_the_same_blocks_and_do_not_touch(ranges):
    merged = merge_intervals(ranges)
    assert blocks_of(merged) == blocks_of(ranges)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(merged))


@given(block_ranges, block_ranges, st.integers(35, 40), st.lists(st.integers(1, 9), min_size=1))
def test_a_queue_returns_every_missing_block_once(first, second, blocks, batches):
    done = {0: merge_intervals(first), 1: merge_intervals(second)}
    queue, taken, turn = BlockQueue(blocks, done), [], 0
    while queue.left:
        side, start, stop = queue.take(batches[turn % len(batches)])
        taken += [(side, block) for block in range(start, stop)]
        turn += 1
    missing = {(side, block) for side in (0, 1) for block in set(range(blocks)) - blocks_of(done[side])}
    assert sorted(taken) == sorted(missing)


def test_a_queue_of_many_blocks_needs_little_memory():
    queue = BlockQueue(10**12, {0: [], 1: [(5, 7)]})
    assert queue.left == 2 * 10**12 - 2
    assert [queue.take(4) for _ in range(5)] == [(0, 0, 4), (1, 0, 4), (0, 4, 8), (1, 4, 5), (0, 8, 12)]


@settings(max_examples=50)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=12), st.randoms())
def test_errors_are_summed_exactly_in_any_order(values, shuffled):
    def sums(order):
        accumulator, rebuilt = CountAccumulator(statistics), CountAccumulator(statistics)
        for value in order:
            part = CountAccumulator(statistics)
            part.add(0, np.full((1, 1, 1), value))
            rebuilt.merge_arrays(part.to_arrays())
            accumulator.merge(part)
        assert accumulator.to_arrays()[0].tolist() == rebuilt.to_arrays()[0].tolist()
        return accumulator.to_arrays()

    statistics = Statistics((), lambda samples: np.sqrt(np.abs(samples[:, 0, 0])) * np.sign(samples[:, 0, 0]))
    mixed = values.copy()
    shuffled.shuffle(mixed)
    assert sums(values)[0].tolist() == sums(mixed)[0].tolist()


def test_results_are_rebuilt_from_their_arrays():
    numbers = np.arange(4)
    results = {
        Counts: Counts(numbers, numbers),
        ScoreHistogram: ScoreHistogram(numbers, Extremes(numbers, numbers + 1)),
        CountTable: numbers,
    }
    for kind, result in results.items():
        rebuilt = kind.from_arrays(iter(kind.to_arrays(result)))
        assert type(rebuilt) is type(result)
        for original, copy in zip(kind.to_arrays(result), kind.to_arrays(rebuilt), strict=True):
            np.testing.assert_array_equal(original, copy)


def test_samples_are_returned_in_the_order_of_their_blocks():
    merged, rebuilt = SampleBuffer(), SampleBuffer()
    for block in (5, 0, 3):
        part = SampleBuffer()
        part.add(block, np.full((2, 1, 1), float(block)))
        rebuilt.merge_arrays(part.to_arrays())
        merged.merge(part)
    for buffer in (merged, rebuilt):
        assert np.concatenate(buffer.blocks()).ravel().tolist() == [0, 0, 3, 3, 5, 5]


@pytest.mark.parametrize("executor", [None, "threads"])
def test_nothing_is_converted_to_arrays_in_this_process(executor, monkeypatch):
    def refuse(*_):
        raise AssertionError("an accumulator was converted")

    for kind in (CountAccumulator, SampleBuffer):
        monkeypatch.setattr(kind, "to_arrays", refuse)
        monkeypatch.setattr(kind, "merge_arrays", refuse)
    with ThreadPoolExecutor(2) as threads:
        pool = threads if executor else None
        assert dpv.verify(laplace, ZERO, ONE, 0.5, executor=pool, select_runs=2000, test_runs=4000).refuted


@pytest.mark.parametrize(("attributes", "number"), [({}, 4), ({"_max_workers": 7}, 7), ({"num_workers": 3}, 3)])
def test_the_number_of_workers_of_an_executor(attributes, number):
    executor = type("Some", (), attributes)()
    assert WorkerPool(executor).number == number


def test_an_error_function_that_cannot_be_pickled_is_refused():
    with pytest.raises(dpv.InputError, match="error or score cannot be sent to another process"):
        dpv.verify(laplace, ZERO, ONE, error=lambda samples: samples[:, 0, 0], executor=1, test_runs=1000)


def test_an_executor_that_was_shut_down_raises_stopped():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(
        dpv.Stopped, match=r"the workers were lost \(cannot schedule new futures after shutdown\)"
    ) as stop:
        dpv.verify(laplace, ZERO, ONE, executor=pool)
    assert stop.value.reason is StopReason.WORKERS_LOST


def test_a_stopped_error_is_pickled_with_its_reason():
    stop = pickle.loads(pickle.dumps(dpv.Stopped("out of memory after 9 runs", "folder", 9, StopReason.OUT_OF_MEMORY)))
    assert (str(stop), stop.folder, stop.done) == ("out of memory after 9 runs", "folder", 9)
    assert stop.reason is StopReason.OUT_OF_MEMORY
    assert dpv.Stopped("the run ended").reason is StopReason.UNKNOWN
