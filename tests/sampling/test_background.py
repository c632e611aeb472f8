"""Blocks that are counted in a second thread: the same reports, the mechanism stays in its thread, errors arrive."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dpverify as dpv
from dpverify.sampling import stages
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.count import Accumulator, KeptSamples

DATA = np.zeros((4, 2)), np.full((4, 2), 0.2)
RUNS = {"select_runs": 2000, "test_runs": 8000}
NAME = "dpverify-counting"


@pytest.fixture
def second_thread(monkeypatch):
    """Use the second thread from the second task of a stage on, however small the blocks are."""
    monkeypatch.setattr(stages, "available_cores", lambda: 2)
    monkeypatch.setattr(stages, "MIN_BACKGROUND_NUMBERS", 0)


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
    monkeypatch.setattr(stages, "available_cores", lambda: 1)
    counted_by.clear()
    alone = dpv.verify(gaussian, *DATA, 0.5, **RUNS)
    assert NAME not in counted_by
    assert report.digest == alone.digest


@pytest.mark.usefixtures("second_thread")
def test_a_mechanism_may_use_its_array_again():
    report = dpv.verify(OneBuffer(), *DATA, 0.5, **RUNS)
    assert report.witness.counts == dpv.verify(gaussian, *DATA, 0.5, **RUNS).witness.counts


@pytest.mark.usefixtures("second_thread")
def test_an_array_that_is_not_copied_would_be_seen(monkeypatch):
    """Negative control: without the copy, a block is counted after the next one has overwritten it."""
    add, validate = Accumulator.add, stages.validate_block

    class Uncopied(np.ndarray):
        def copy(self, order="K"):
            return np.asarray(self)

    def add_later(self, *args):
        if threading.current_thread().name.startswith(NAME):
            time.sleep(0.002)  # the mechanism draws the next block meanwhile
        return add(self, *args)

    monkeypatch.setattr(Accumulator, "add", add_later)
    few = {"select_runs": 500, "test_runs": 2000}
    expected = dpv.verify(OneBuffer(), *DATA, 0.5, **few)
    monkeypatch.setattr(stages, "validate_block", lambda *args, **more: validate(*args, **more).view(Uncopied))
    monkeypatch.setattr(stages, "copy_runs", lambda samples, runs: samples[:runs])
    monkeypatch.setattr(stages, "type", lambda x: np.ndarray if isinstance(x, np.ndarray) else type(x), raising=False)
    assert dpv.verify(OneBuffer(), *DATA, 0.5, **few).witness.counts != expected.witness.counts


def test_the_order_of_the_numbers_in_memory_stays(monkeypatch):
    """It determines the rounding of sums."""
    kept = []
    monkeypatch.setattr(Accumulator, "add", lambda self, block, samples, runs=None: kept.append(samples.strides))
    monkeypatch.setattr(Accumulator, "results", lambda self: [])

    def transposed(data, runs, rng):
        return np.moveaxis(rng.standard_normal((*data.shape, runs)), -1, 0) + data

    source = SampleSource(transposed, DATA, 0, 10)
    stages.draw_blocks(source, "test", 20, (KeptSamples(),), [(0, 0), (0, 1)], in_background=True)
    assert kept == [transposed(DATA[0], 10, np.random.default_rng(0)).strides] * 2


def test_an_array_on_a_device_waits_for_the_block_before_it(monkeypatch):
    """A mechanism may return arrays of NumPy and of JAX in turn; both are added to the same accumulator."""
    jnp = pytest.importorskip("jax.numpy")
    order = []

    def slow(self, block, samples, runs=None):
        order.append(("begin", block))
        time.sleep(0.01)
        order.append(("end", block))

    def alternate(source, stage, side, block, output, check_finite_later):
        return jnp.asarray(output) if block % 2 else output

    monkeypatch.setattr(Accumulator, "add", slow)
    monkeypatch.setattr(stages, "validate_block", alternate)
    monkeypatch.setattr(stages, "MAX_COPIED_RUNS", 0)
    source, blocks = SampleSource(gaussian, DATA, 0, 5), [(0, block) for block in range(4)]
    stages.draw_blocks(source, "test", 20, (KeptSamples(),), blocks, in_background=True)
    assert order == [(name, block) for block in range(4) for name in ("begin", "end")]


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
