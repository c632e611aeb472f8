"""Tasks of workers, exact sums in any order, samples by block, and executors."""

import multiprocessing
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpverify as dpv
from dpverify.errors import StopReason
from dpverify.sampling import executors
from dpverify.sampling.count import Accumulator, MeanError
from dpverify.sampling.executors import WorkerPool, completed_tasks
from mechanisms import ONE, ZERO, laplace


@pytest.mark.parametrize("number", [1, 2, 37])
def test_tasks_contain_every_block_once(number):
    blocks = [(side, block) for block in range(number) for side in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        done = list(completed_tasks(blocks, lambda task: [2 * block for _, block in task], WorkerPool(pool)))
    assert sorted(block for task, _ in done for block in task) == sorted(blocks)
    assert all(result == [2 * block for _, block in task] for task, result in done)


@settings(max_examples=50)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=12), st.randoms())
def test_errors_are_summed_exactly_in_any_order(values, shuffled):
    error = MeanError(lambda samples: np.sqrt(np.abs(samples[:, 0, 0])) * np.sign(samples[:, 0, 0]))

    def mean(order):
        accumulator = Accumulator((error,))
        for value in order:
            part = Accumulator((error,))
            part.add(0, np.full((1, 1, 1), value))
            accumulator.merge(part.results())
        return accumulator.results()[0].mean(len(order))

    mixed = values.copy()
    shuffled.shuffle(mixed)
    assert mean(values) == mean(mixed)


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


def test_processes_in_a_daemonic_process_are_refused(monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(dpv.InputError, match="executor: found 2 in a daemonic process"):
        dpv.verify(laplace, ZERO, ONE, executor=2)


class Cluster(Executor):
    """A cluster whose workers come when the test says so; like Dask's executor, it knows its client."""

    def __init__(self, come_after):
        self._client, self.counts, self.come_after, self.waiting = self, 0, come_after, []

    def nthreads(self):
        self.counts += 1
        if self.counts <= self.come_after:
            return {}
        for future, function, args in self.waiting:
            future.set_result(function(*args))
        self.waiting, self.submit = [], self.submit_to_worker
        return {"worker": 1}

    def submit(self, function, /, *args):
        self.waiting.append((future := Future(), function, args))
        return future

    def submit_to_worker(self, function, /, *args):
        future = Future()
        future.set_result(function(*args))
        return future


def test_a_cluster_without_workers_is_noticed_and_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "SECONDS_BETWEEN_WORKER_COUNTS", 0.02)
    few = {"select_runs": 1000, "test_runs": 2000, "folder": tmp_path}
    with pytest.warns(dpv.DPVerifyWarning, match="no worker is connected to the scheduler; start one"):
        report = dpv.verify(laplace, ZERO, ONE, 0.5, executor=Cluster(6), **few)
    assert report.digest == dpv.verify(laplace, ZERO, ONE, 0.5, select_runs=1000, test_runs=2000).digest
    monkeypatch.setattr(executors, "SECONDS_WITHOUT_WORKERS", 0.1)
    with (
        pytest.warns(dpv.DPVerifyWarning, match="no worker is connected"),
        pytest.raises(dpv.Stopped, match=r"the workers were lost \(no worker was connected .* for 0.1 s\)") as stop,
    ):
        dpv.verify(laplace, ZERO, ONE, 0.5, seed=1, executor=Cluster(10**6), **{**few, "folder": tmp_path / "other"})
    assert stop.value.reason is StopReason.WORKERS_LOST
