"""Threads: a mechanism that stores state on itself gives wrong runs when two threads call it at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import dpverify as dpv
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.statements import Verdict
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.executors import WorkerPool
from dpverify.sampling.stages import threads_agree

FEW = {"select_runs": 400, "test_runs": 4000}


class StoresData:
    """Stores the dataset, draws noise, and reads the dataset again."""

    def __call__(self, data, runs, rng):
        self.data = data
        noise = rng.laplace(size=(runs, 1))
        return self.data + noise


def laplace(data, runs, rng):
    return data + rng.laplace(size=(runs, 1))


class Unseeded(StoresData):
    seeded = False


@pytest.mark.parametrize("seeds", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_a_mechanism_that_stores_its_data_on_itself_is_always_voided(seeds):
    with ThreadPoolExecutor(2) as pool:
        for seed in range(seeds):
            report = dpv.verify(StoresData(), 0.0, 1.0, 0.5, executor=pool, seed=seed, **FEW)
            assert Diagnostic.NOT_THREAD_SAFE in report.diagnostics
            assert report.verdict is Verdict.NO_ANSWER
    print(f"a mechanism that stores its data: voided in {seeds} of {seeds} runs")


class Locked(StoresData):
    """Does the same, but only one call at a time."""

    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, data, runs, rng):
        with self.lock:
            return super().__call__(data, runs, rng)


@pytest.mark.parametrize(("mechanism", "is_safe"), [(StoresData(), False), (laplace, True), (Locked(), True)])
def test_blocks_that_threads_draw_at_once_are_those_drawn_alone(mechanism, is_safe):
    source = SampleSource(mechanism, (0.0, 1.0), 0, 2048)
    with ThreadPoolExecutor(2) as executor:
        assert threads_agree(source, WorkerPool(executor)) is is_safe
    assert threads_agree(source, WorkerPool())


@pytest.mark.parametrize("seeds", [8, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_mechanism_without_state_is_never_voided(seeds):
    with ThreadPoolExecutor(2) as pool:
        for seed in range(seeds):
            report = dpv.verify(laplace, 0.0, 1.0, 0.5, executor=pool, seed=seed, select_runs=100, test_runs=300)
            assert not report.voiding
    print(f"a mechanism without state: voided in 0 of {seeds} runs")


@pytest.mark.filterwarnings("ignore::dpverify.DPVerifyWarning")
def test_only_seeded_mechanisms_in_threads_are_checked():
    assert not dpv.verify(StoresData(), 0.0, 1.0, 0.5, **FEW).voiding
    with ThreadPoolExecutor(2) as pool:
        report = dpv.verify(Unseeded(), 0.0, 1.0, 0.5, executor=pool, **FEW)
    assert Diagnostic.NOT_THREAD_SAFE not in report.diagnostics
