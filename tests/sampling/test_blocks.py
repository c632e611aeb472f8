"""Blocks of runs: seeds, order, errors of a mechanism, and accuracy."""

import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

import dpverify as dpv
from dpverify.errors import StopReason
from dpverify.sampling.blocks import STAGES, SampleSource, block_size, draw_block
from dpverify.sampling.executors import open_pool
from dpverify.sampling.probe import probe_mechanism
from dpverify.sampling.stages import collect_samples
from dpverify.util.progress import Progress
from mechanisms import ONE, ZERO, fails_at_block_three, gaussian_trajectory, laplace

SMALL = {"select_runs": 2000, "test_runs": 10_000, "block": 256}


class Backwards(Executor):
    """An executor that waits until no more tasks arrive, and then runs them from the last to the first."""

    _max_workers = 10**6

    def __init__(self):
        self.tasks, self.order, self.lock = [], [], threading.Lock()

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        with self.lock:
            self.tasks.append((future, function, args))
            if len(self.tasks) == 1:
                threading.Thread(target=self._work, daemon=True).start()
        return future

    def _work(self):
        number = -1
        while number != len(self.tasks):
            number = len(self.tasks)
            time.sleep(0.05)
        with self.lock:
            tasks, self.tasks = self.tasks, []
        for future, function, args in reversed(tasks):
            task, block_range = args
            self.order.append((task.args[1], block_range))
            future.set_result(function(*args))


def test_the_digest_does_not_depend_on_the_executor_or_the_order():
    def digest(executor):
        return dpv.verify(laplace, ZERO, ONE, 0.5, executor=executor, error=dpv.rmse(ZERO), **SMALL).digest

    serial = digest(None)
    with ThreadPoolExecutor(2) as threads:
        assert digest(threads) == serial
    assert digest(2) == serial
    backwards = Backwards()
    assert digest(backwards) == serial
    test_blocks = [task[0][1] for stage, task in backwards.order if stage == "test"]
    assert test_blocks[0] > test_blocks[-1]


@pytest.mark.parametrize(("runs", "block"), [(1, 64), (2000, 64), (200_000, 2048), (10**7, 65536), (10**9, 65536)])
def test_the_default_block_size_is_a_function_of_the_test_runs(runs, block):
    assert block_size(laplace, None, runs) == block


def test_a_block_has_a_generator_of_its_stage_data_set_and_number():
    source = SampleSource(lambda data, runs, rng: rng.random(runs), (0.0, 0.0), 5, 8)
    keys = [*((stage, 0, 0) for stage in STAGES), ("test", 1, 0), ("test", 0, 1)]
    assert len({draw_block(source, *key).tobytes() for key in keys}) == len(keys)
    spawned = np.random.SeedSequence(5, spawn_key=(4, 1, 7))
    assert draw_block(source, "test", 1, 7).ravel().tolist() == np.random.default_rng(spawned).random(8).tolist()


def test_a_large_output_halves_the_block():
    def wide(data, runs, rng):
        return data + rng.random((runs, 1, 1))

    source = SampleSource(wide, (np.zeros((100, 100)), np.zeros((100, 100))), 0, 4096)
    probed, drawn = probe_mechanism(source)
    assert probed.block * 100 * 100 * 8 <= 64 << 20 < 2 * probed.block * 100 * 100 * 8
    assert {len(runs) for runs in drawn.values()} == {probed.block}


def test_the_surplus_of_the_last_block_is_dropped():
    asked = []

    def mechanism(data, runs, rng):
        asked.append(runs)
        return np.sum(data) + rng.random(runs)

    report = dpv.verify(mechanism, ZERO, ONE, select_runs=1001, test_runs=1003, block=100)
    assert asked[0] == 4  # the probe
    assert set(asked[1:]) == {100}
    assert report.on_partition.c1 @ report.on_partition.number == 1003


def test_collected_samples_are_the_samples_of_their_blocks():
    source = SampleSource(laplace, (ZERO, ONE), 3, 64, shape=(1, 1))
    with open_pool(None) as pool:
        first, second = collect_samples(source, "pilot", 100, pool, Progress(False))
    expected = np.concatenate([draw_block(source, "pilot", 1, 0), draw_block(source, "pilot", 1, 1)])[:100]
    np.testing.assert_array_equal(second, expected)
    assert len(first) == 100


@pytest.mark.parametrize("executor", [None, 2])
def test_a_failing_block_is_named_and_keeps_its_cause(executor):
    with pytest.raises(
        dpv.MechanismError, match="test runs of the second dataset, block 3: ZeroDivisionError"
    ) as problem:
        dpv.verify(fails_at_block_three, ZERO, ONE, executor=executor, **SMALL)
    error = problem.value
    assert (error.stage, error.side, error.block) == ("test", 1, 3)
    assert "no such estimate" in str(error)
    assert error.__cause__ is not None


def test_the_error_for_a_mechanism_that_cannot_be_pickled_names_factory():
    with pytest.raises(dpv.InputError, match="factory"):
        dpv.verify(lambda data, runs, rng: rng.random(runs), ZERO, ONE, executor=2, **SMALL)


@pytest.mark.parametrize("executor", [0, -1, True, "four", 2.5])
def test_an_invalid_executor_is_refused(executor):
    with pytest.raises(dpv.InputError, match="executor: found"):
        dpv.verify(laplace, ZERO, ONE, executor=executor, **SMALL)


def test_a_keyboard_interrupt_raises_stopped():
    calls = []

    def mechanism(data, runs, rng):
        calls.append(1)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return np.sum(data) + rng.laplace(size=runs)

    with pytest.raises(dpv.Stopped, match="stopped by the keyboard") as problem:
        dpv.verify(mechanism, ZERO, ONE, **SMALL)
    assert problem.value.done > 0
    assert problem.value.reason is StopReason.KEYBOARD


def test_the_mean_rmse_and_its_standard_error():
    zero, half = np.zeros((4, 2)), np.full((4, 2), 0.5)
    report = dpv.verify(gaussian_trajectory, zero, half, error=dpv.rmse(zero), **SMALL)
    (first, spread), (second, _) = report.error
    reference = np.sqrt((np.random.default_rng(0).standard_normal((200_000, 4, 2)) ** 2).sum(-1).mean(-1))
    assert first == pytest.approx(reference.mean(), abs=5 * spread)
    assert spread == pytest.approx(reference.std() / 100, rel=0.05)  # 10 000 runs
    assert second > first


def test_the_truth_is_reshaped_and_a_truth_of_another_size_is_refused():
    data = np.zeros((8, 1)), np.ones((8, 1))
    flat, column = (
        dpv.verify(gaussian_trajectory, *data, error=dpv.rmse(np.zeros(s)), **SMALL).error for s in (8, (8, 1))
    )
    assert flat == column
    for truth in (np.zeros(5), np.zeros((8, 2))):
        with pytest.raises(dpv.InputError, match="found a truth of shape"):
            dpv.verify(gaussian_trajectory, *data, error=dpv.rmse(truth), **SMALL)
    with pytest.raises(dpv.InputError, match="error: found ndarray"):
        dpv.verify(gaussian_trajectory, *data, error=np.zeros(8), **SMALL)


def test_a_second_look_with_other_settings_draws_new_test_runs():
    """With the same seed the selection runs are the same, but no test run of the first look reappears."""

    def looks(**changes):
        drawn = {}

        def mechanism(data, runs, rng):
            output = data[0] + rng.laplace(size=runs)
            drawn.setdefault(rng.bit_generator.seed_seq.spawn_key[0], set()).update(output.tolist())
            return output

        settings = {"select_runs": 400, "test_runs": 640, "block": 64, **changes}
        report = dpv.verify(mechanism, ZERO, ONE, 1.0, **settings)
        return report, drawn

    first, drawn = looks()
    assert looks()[0].digest == first.digest
    test_stage = STAGES.index("test")
    for changes in ({"test_runs": 1280}, {"alpha": 0.025}, {"resolution": 8}, {"events": "union"}):
        again = looks(**changes)[1]
        assert not drawn[test_stage] & again[test_stage]
        assert drawn[STAGES.index("train")] & again[STAGES.index("train")]
