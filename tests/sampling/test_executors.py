"""Plans of blocks, exact sums, and what happens to workers when their parent is gone."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpverify as dpv
from dpverify.sampling.accumulators import CountAccumulator, SampleBuffer, Statistics
from dpverify.sampling.counts import Counts, Extremes, flatten_result, rebuild_result
from dpverify.sampling.executors import BlockQueue, WorkerPool, merge_ranges
from dpverify.selection.histograms import ScoreHistogram
from mechanisms import ONE, ZERO, laplace

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)).map(lambda pair: (pair[0], sum(pair))), max_size=8)


def members(found):
    return {block for start, stop in found for block in range(start, stop)}


@given(spans)
def test_joined_spans_hold_the_same_blocks_and_lie_apart(found):
    joined = merge_ranges(found)
    assert members(joined) == members(found)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(joined))


@given(spans, spans, st.integers(35, 40), st.lists(st.integers(1, 9), min_size=1))
def test_a_plan_hands_out_every_missing_block_once(first, second, blocks, batches):
    done = {0: merge_ranges(first), 1: merge_ranges(second)}
    plan, taken, turn = BlockQueue(blocks, done), [], 0
    while plan.left:
        side, start, stop = plan.take(batches[turn % len(batches)])
        taken += [(side, block) for block in range(start, stop)]
        turn += 1
    missing = {(side, block) for side in (0, 1) for block in set(range(blocks)) - members(done[side])}
    assert sorted(taken) == sorted(missing)


def test_a_plan_of_many_blocks_takes_no_room():
    plan = BlockQueue(10**12, {0: [], 1: [(5, 7)]})
    assert plan.left == 2 * 10**12 - 2
    assert [plan.take(4) for _ in range(5)] == [(0, 0, 4), (1, 0, 4), (0, 4, 8), (1, 4, 5), (0, 8, 12)]


@settings(max_examples=50)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=12), st.randoms())
def test_errors_are_summed_exactly_in_any_order(values, shuffled):
    def total(order):
        sums = CountAccumulator(measure)
        for value in order:
            part = CountAccumulator(measure)
            part.add(0, np.full((1, 1, 1), value))
            sums.include(part.arrays())
        return sums.arrays()

    measure = Statistics((), lambda samples: np.sqrt(np.abs(samples[:, 0, 0])) * np.sign(samples[:, 0, 0]))
    mixed = values.copy()
    shuffled.shuffle(mixed)
    assert total(values)[0].tolist() == total(mixed)[0].tolist()


def test_parts_are_rebuilt_from_their_arrays():
    numbers = np.arange(4)
    for part in (Counts(numbers, numbers), ScoreHistogram(numbers, Extremes(numbers, numbers + 1)), numbers):
        again = rebuild_result(type(part), iter(flatten_result(part)))
        assert type(again) is type(part)
        for one, two in zip(flatten_result(part), flatten_result(again), strict=True):
            np.testing.assert_array_equal(one, two)


def test_kept_samples_come_back_in_the_order_of_their_blocks():
    total = SampleBuffer()
    for block in (5, 0, 3):
        part = SampleBuffer()
        part.add(block, np.full((2, 1, 1), float(block)))
        total.include(part.arrays())
    assert total.arrays()[2].ravel().tolist() == [0, 0, 3, 3, 5, 5]


@pytest.mark.parametrize(("attributes", "number"), [({}, 4), ({"_max_workers": 7}, 7), ({"num_workers": 3}, 3)])
def test_executors_are_asked_how_many_they_are(attributes, number):
    executor = type("Some", (), attributes)()
    assert WorkerPool(executor).number == number


def test_an_error_that_does_not_pickle_is_one_line():
    with pytest.raises(dpv.InputError, match="error or score can't be sent to another process"):
        dpv.verify(laplace, ZERO, ONE, error=lambda samples: samples[:, 0, 0], executor=1, test_runs=1000)


def test_an_executor_that_was_shut_down_is_one_line():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(dpv.Stopped, match=r"the workers died \(cannot schedule new futures after shutdown\)"):
        dpv.verify(laplace, ZERO, ONE, executor=pool)
