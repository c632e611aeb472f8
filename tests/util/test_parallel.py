"""Threads for large computations: the same results in the same order, and errors arrive."""

import os
import threading

import numpy as np
import pytest

import dpverify as dpv
from dpverify.util import arrays as parallel
from dpverify.util.arrays import (
    MIN_NUMBERS,
    available_cores,
    map_columns,
    map_parallel,
)


@pytest.fixture(params=[1, 2, 5])
def cores(request, monkeypatch):
    monkeypatch.setattr(parallel, "available_cores", lambda: request.param)
    return request.param


def test_results_keep_the_order_of_the_items(cores):
    assert map_parallel(lambda x: x * x, range(20), MIN_NUMBERS) == [x * x for x in range(20)]
    assert map_parallel(abs, [], MIN_NUMBERS) == []


def test_an_error_is_raised_and_no_thread_stays(cores):
    def fail(x):
        if x == 3:
            raise KeyError(x)

    with pytest.raises(KeyError):
        map_parallel(fail, range(50), MIN_NUMBERS)
    assert not any(thread.name.startswith("dpverify-parallel") for thread in threading.enumerate())


def test_without_a_further_thread_the_caller_computes(cores, monkeypatch):
    def cannot_start(*args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(parallel.ThreadPoolExecutor, "submit", cannot_start)
    assert map_parallel(abs, [-1, -2], MIN_NUMBERS) == [1, 2]


def test_an_interruption_does_not_wait_for_the_other_threads(monkeypatch):
    monkeypatch.setattr(parallel, "available_cores", lambda: 2)
    has_begun, end, is_ended = (threading.Event() for _ in range(3))

    def wait_or_interrupt(item):
        if item == "interrupted":
            assert has_begun.wait(10)
            raise KeyboardInterrupt
        has_begun.set()
        assert end.wait(10)
        is_ended.set()

    with pytest.raises(KeyboardInterrupt):
        map_parallel(wait_or_interrupt, ["interrupted", "waiting"], MIN_NUMBERS)
    assert not is_ended.is_set()
    end.set()
    assert is_ended.wait(10)


def test_error_handling_of_numpy_is_that_of_the_caller(cores):
    with np.errstate(divide="ignore"):
        results = map_parallel(lambda x: np.divide(1.0, np.float64(x)), [0, 0], MIN_NUMBERS)
    assert np.isinf(results).all()


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("columns", [1, 31, 32, 33, 100])
def test_columns_are_those_of_the_table(columns):
    table = np.random.default_rng(0).normal(size=(MIN_NUMBERS // 32, columns))
    sums = map_columns(lambda column, number: (column.sum(), number), table, list(range(columns)))
    assert sums == [(column.sum(), number) for number, column in enumerate(np.ascontiguousarray(table.T))]


@pytest.fixture
def quota(monkeypatch, tmp_path):
    """A function that writes the files of a quota, and returns how many cores they allow."""

    def cores_of(*contents):
        files = [tmp_path / str(number) for number in range(len(contents))]
        for file, content in zip(files, contents, strict=True):
            file.write_text(content)
        monkeypatch.setattr(parallel, "QUOTA_FILES", ((str(tmp_path / "missing"),), tuple(map(str, files))))
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
        available_cores.cache_clear()
        return available_cores()

    yield cores_of
    monkeypatch.undo()
    available_cores.cache_clear()


@pytest.mark.parametrize(
    ("contents", "cores"),
    [
        (["100000 100000\n"], 1),
        (["150000 100000\n"], 2),
        (["5000 100000\n"], 1),
        (["400000\n", "100000\n"], 4),
        (["max 100000\n"], 64),
        (["-1\n", "100000\n"], 64),
        (["100000 0\n"], 64),
        ([""], 64),
    ],
)
def test_the_quota_of_a_container_limits_the_cores(quota, contents, cores):
    assert quota(*contents) == cores


def test_the_selection_does_not_depend_on_the_number_of_cores(monkeypatch):
    def mechanism(data, runs, rng):
        return data + rng.standard_normal((runs, 40))

    digests = []
    monkeypatch.setattr(parallel, "MIN_NUMBERS", 1)
    for cores in (1, 3):
        monkeypatch.setattr(parallel, "available_cores", lambda cores=cores: cores)
        report = dpv.verify(mechanism, np.zeros(40), np.full(40, 0.1), 0.5, select_runs=20_000, test_runs=5000)
        digests.append(report.digest)
    assert digests[0] == digests[1]
