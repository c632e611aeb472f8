"""Queues of blocks, exact sums, results as arrays, and executors."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpverify as dpv
from dpverify.errors import StopReason
from dpverify.sampling.count import (
    Accumulator,
    Counts,
    CountTable,
    KeptSamples,
    Statistics,
)
from dpverify.sampling.executors import BlockQueue, WorkerPool
from dpverify.selection.proposals import Extremes, ScoreHistogram
from mechanisms import ONE, ZERO, laplace

block_sets = st.sets(st.integers(0, 34), max_size=20)


@given(block_sets, block_sets, st.integers(35, 40), st.lists(st.integers(1, 9), min_size=1))
def test_a_queue_returns_every_missing_block_once(first, second, blocks, batches):
    queue, taken, turn = BlockQueue(blocks, {0: first, 1: second}), [], 0
    while queue.left:
        side, own = queue.take(batches[turn % len(batches)])
        taken += [(side, block) for block in own]
        turn += 1
    missing = {(side, block) for side, own in ((0, first), (1, second)) for block in set(range(blocks)) - own}
    assert sorted(taken) == sorted(missing)


def test_the_data_sets_take_turns():
    queue = BlockQueue(12, {0: set(), 1: {5, 6}})
    assert [queue.take(4) for _ in range(4)] == [
        (0, [0, 1, 2, 3]),
        (1, [0, 1, 2, 3]),
        (0, [4, 5, 6, 7]),
        (1, [4, 7, 8, 9]),
    ]


@settings(max_examples=50)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=12), st.randoms())
def test_errors_are_summed_exactly_in_any_order(values, shuffled):
    def sums(order):
        accumulator, rebuilt = Accumulator(statistics), Accumulator(statistics)
        for value in order:
            part = Accumulator(statistics)
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


def test_samples_are_kept_by_block():
    statistics = Statistics((KeptSamples(),))
    merged, rebuilt = Accumulator(statistics), Accumulator(statistics)
    for block in (5, 0, 3):
        part = Accumulator(statistics)
        part.add(block, np.full((2, 1, 1), float(block)))
        rebuilt.merge_arrays(part.to_arrays())
        merged.merge(part)
    for one in (merged, rebuilt):
        (blocks,) = one.results()
        assert {block: samples.ravel().tolist() for block, samples in blocks.items()} == {b: [b, b] for b in (5, 0, 3)}


@pytest.mark.parametrize("executor", [None, "threads"])
def test_nothing_is_converted_to_arrays_in_this_process(executor, monkeypatch):
    def refuse(*_):
        raise AssertionError("an accumulator was converted")

    monkeypatch.setattr(Accumulator, "to_arrays", refuse)
    monkeypatch.setattr(Accumulator, "merge_arrays", refuse)
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
