"""Blocks that are counted in a second thread: the same reports, the mechanism stays in its thread, errors arrive."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dpverify as dpv
from dpverify.sampling import stages as background
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.count import Accumulator, KeptSamples, Statistics
from dpverify.sampling.stages import BackgroundCounter, BlockSums, background_counter, draw_blocks

DATA = np.zeros((4, 2)), np.full((4, 2), 0.2)
RUNS = {"select_runs": 2000, "test_runs": 8000}
NAME = "dpverify-counting"


@pytest.fixture
def second_thread(monkeypatch):
    """Use the second thread from the second task of a stage on, however fast the blocks are."""
    monkeypatch.setattr(background, "available_cores", lambda: 2)
    monkeypatch.setattr(background, "MIN_SAVED_SECONDS", 0.0)
    monkeypatch.setattr(background, "MIN_SAVED_SHARE", 0.0)
    monkeypatch.setattr(background, "MAX_RELATIVE_SECONDS", np.inf)


@pytest.fixture
def counted_by(monkeypatch):
    """Return the set of the threads that add blocks of samples to accumulators."""
    threads = set()
    add = Accumulator.add

    def note_thread(self, *args):
        threads.add(threading.current_thread().name.split("_")[0])
        return add(self, *args)

    monkeypatch.setattr(Accumulator, "add", note_thread)
    return threads


def gaussian(data, runs, rng):
    return data + rng.standard_normal((runs, *data.shape))


class OneBuffer:
    """A mechanism that writes all of its outputs into the same array."""

    def __init__(self):
        self.buffer = np.empty((0, 4, 2))

    def __call__(self, data, runs, rng):
        if len(self.buffer) != runs:
            self.buffer = np.empty((runs, 4, 2))
        rng.standard_normal(out=self.buffer)
        self.buffer += data
        return self.buffer


def test_the_second_thread_gives_the_same_report(second_thread, counted_by, monkeypatch):
    report = dpv.verify(gaussian, *DATA, 0.5, **RUNS)
    assert NAME in counted_by
    monkeypatch.setattr(background, "available_cores", lambda: 1)
    counted_by.clear()
    alone = dpv.verify(gaussian, *DATA, 0.5, **RUNS)
    assert NAME not in counted_by
    assert report.digest == alone.digest


@pytest.mark.usefixtures("second_thread")
def test_a_mechanism_may_use_its_array_again():
    report = dpv.verify(OneBuffer(), *DATA, 0.5, **RUNS)
    assert report.witness.counts == dpv.verify(gaussian, *DATA, 0.5, **RUNS).witness.counts


class Uncopied(np.ndarray):
    """An array that cannot be copied."""

    def copy(self, order="K"):
        return np.asarray(self)


class WithoutCopy(BackgroundCounter):
    def add(self, sums, side, block, samples, runs=None):
        super().add(sums, side, block, samples.view(Uncopied), runs)


@pytest.mark.usefixtures("second_thread")
def test_an_array_that_is_not_copied_would_be_seen(monkeypatch):
    """Negative control: without the copy, a block is counted after the next one has overwritten it."""
    add = Accumulator.add

    def add_later(self, *args):
        if threading.current_thread().name.startswith(NAME):
            time.sleep(0.002)  # the mechanism draws the next block meanwhile
        return add(self, *args)

    monkeypatch.setattr(Accumulator, "add", add_later)
    few = {"select_runs": 500, "test_runs": 2000}
    expected = dpv.verify(OneBuffer(), *DATA, 0.5, **few)
    monkeypatch.setattr(background, "BackgroundCounter", WithoutCopy)
    assert dpv.verify(OneBuffer(), *DATA, 0.5, **few).witness.counts != expected.witness.counts


def transposed(data, runs, rng):
    """Return an array whose runs are not contiguous."""
    return np.moveaxis(rng.standard_normal((*data.shape, runs)), -1, 0) + data


def sums_of(kind):
    """Return empty sums of one data set with an accumulator of this kind."""
    return BlockSums({0: kind(Statistics((KeptSamples(),)))}, {0: set()})


def test_the_order_of_the_numbers_in_memory_stays():
    kept = []

    class Layout(Accumulator):
        def add(self, block, samples, runs=None):
            kept.append(samples.strides)

    sums, samples = sums_of(Layout), transposed(DATA[0], 10, np.random.default_rng(0))
    with ThreadPoolExecutor(1) as pool:
        counter = BackgroundCounter(pool)
        counter._is_overlapping = True
        counter.add(sums, 0, 0, samples)
        counter.wait()
    assert kept == [samples.strides]


def test_an_array_on_a_device_waits_for_the_block_before_it(monkeypatch):
    """A mechanism may return arrays of NumPy and of JAX in turn; both are added to the same accumulator."""
    jnp = pytest.importorskip("jax.numpy")
    order = []

    class Slow(Accumulator):
        def add(self, block, samples, runs=None):
            order.append(("begin", block))
            time.sleep(0.01)
            order.append(("end", block))

    def alternate(source, stage, side, block, output, check_finite_later):
        return jnp.asarray(output) if block % 2 else output

    monkeypatch.setattr(background, "validate_block", alternate)
    monkeypatch.setattr(background, "MAX_COPIED_RUNS", 0)
    source, sums = SampleSource(gaussian, DATA, 0, 5), sums_of(Slow)
    with ThreadPoolExecutor(1) as pool:
        counter = BackgroundCounter(pool)
        counter._is_overlapping = True
        draw_blocks(source, "test", 20, sums, [(0, block) for block in range(4)], counter)
    assert order == [(name, block) for block in range(4) for name in ("begin", "end")]
    assert sums.is_consistent


@pytest.mark.usefixtures("second_thread")
def test_without_a_further_thread_the_caller_counts(counted_by, monkeypatch):
    def cannot_start(*args):
        raise RuntimeError("can't start new thread")

    expected = dpv.verify(gaussian, *DATA, 0.5, **RUNS).digest
    counted_by.clear()
    monkeypatch.setattr(ThreadPoolExecutor, "submit", cannot_start)
    assert dpv.verify(gaussian, *DATA, 0.5, **RUNS).digest == expected
    assert NAME not in counted_by


@pytest.mark.usefixtures("second_thread")
def test_functions_of_the_user_are_called_in_the_thread_of_the_caller(counted_by):
    callers = set()

    def mechanism(data, runs, rng):
        callers.add(threading.current_thread())
        return gaussian(data, runs, rng)

    def size(samples):
        callers.add(threading.current_thread())
        return np.abs(samples).sum((1, 2))

    dpv.verify(mechanism, *DATA, 0.5, error=size, **RUNS)
    dpv.verify(mechanism, *DATA, 0.5, events=size, **RUNS)
    dpv.verify(mechanism, *DATA, 0.5, learn=lambda first, second: size, **RUNS)
    assert callers == {threading.current_thread()}
    assert NAME in counted_by  # the selection of the first verification


@pytest.mark.usefixtures("second_thread")
def test_an_error_of_the_second_thread_is_raised(monkeypatch):
    add = Accumulator.add

    def fail(self, *args):
        if threading.current_thread().name.startswith(NAME):
            raise MemoryError("no memory for the counts")
        return add(self, *args)

    monkeypatch.setattr(Accumulator, "add", fail)
    with pytest.raises(dpv.Stopped, match="out of memory"):
        dpv.verify(gaussian, *DATA, 0.5, **RUNS)
    assert not any(thread.name.startswith(NAME) for thread in threading.enumerate())


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt])
def test_a_run_that_fails_while_a_block_is_counted_resumes(second_thread, tmp_path, problem):
    calls = 0

    def mechanism(data, runs, rng):
        nonlocal calls
        calls += 1
        if calls == failing:
            raise problem("now")
        return gaussian(data, runs, rng)

    failing = 0
    expected = dpv.verify(mechanism, *DATA, 0.5, **RUNS)
    failing, calls = calls - 20, 0  # among the test runs
    with pytest.raises((dpv.MechanismError, dpv.Stopped)):
        dpv.verify(mechanism, *DATA, 0.5, folder=tmp_path, **RUNS)
    drawn_before, failing, calls = calls, 0, 0
    resumed = dpv.verify(mechanism, *DATA, 0.5, folder=tmp_path, **RUNS)
    assert resumed.digest == expected.digest
    assert calls < drawn_before


class SlowAccumulator(Accumulator):
    """Adds a block when the test allows it."""

    allowed = threading.Event()

    def add(self, block, samples, runs=None):
        assert self.allowed.wait(10)
        super().add(block, samples, runs)


def test_sums_are_consistent_only_after_the_block_has_been_added():
    sums = sums_of(SlowAccumulator)
    with ThreadPoolExecutor(1) as pool:
        counter = BackgroundCounter(pool)
        counter._is_overlapping = True
        SlowAccumulator.allowed.clear()
        counter.add(sums, 0, 3, np.zeros((2, 1, 1)))
        assert not sums.is_consistent
        assert sums.done == {0: set()}
        SlowAccumulator.allowed.set()
        counter.wait()
    assert sums.is_consistent
    assert sums.done == {0: {3}}


def counter_after(alone, together):
    """Return whether the second thread is used after so many seconds per block without it, and then with it."""
    with ThreadPoolExecutor(1) as pool:
        counter = BackgroundCounter(pool)
        counter._counting_seconds = 0.5 * alone
        counter.choose(1, alone)
        used = [counter._is_overlapping]
        counter.choose(1, together)
        return [*used, counter._pool is not None and counter._is_overlapping]


def test_the_second_thread_is_used_only_if_it_saves_time():
    assert counter_after(1.0, 0.6) == [True, True]
    assert counter_after(1.0, 5.0) == [True, False]  # the mechanism holds the global lock of Python
    assert counter_after(1e-6, 1e-6) == [False, False]  # small blocks
    with background_counter(False) as counter:
        assert counter._pool is None


def test_a_statistic_with_a_function_of_the_user_is_not_plain():
    assert Statistics(()).is_plain
    assert not Statistics((), error=np.sum).is_plain
    assert not Statistics((KeptSamples(),)).is_plain  # a second thread would only copy once more
