"""Settings of all tests: how many examples a property is checked with, and what a test must not leave behind."""

import gc
import os
import sys
import tempfile
from pathlib import Path

# The tests run in several processes; more threads in each of them only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings
from leaks import files_left_in, left_behind, resources

# `make test` uses few examples, `make test-all` thousands; they are always the same.
settings.register_profile("few", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("many", max_examples=5000, deadline=None, derandomize=True)
settings.load_profile("few")


def pytest_collection_finish():
    """Exclude what exists before the first test from garbage collection: modules and tests are never garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_leaked_imports():
    """Remove what a test added to sys.path, and modules that it imported from its temporary folder."""
    path, modules = [*sys.path], set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "pytest-of-" in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture(autouse=True, scope="module")
def _no_leaked_resources():
    """Fail if a test module leaves open files, sockets, threads or child processes behind."""
    before = resources()
    yield
    left = left_behind(before)
    assert not left, f"left behind: {left}"


@pytest.fixture(autouse=True, scope="session")
def _no_leaked_temporary_files(tmp_path_factory):
    """Fail if the tests of this process leave files in the temporary folder, which is a folder of its own here.

    Other users may enter it, because a test runs a child as another user. Dask keeps one folder for later clusters.
    """
    tmp_path_factory.getbasetemp()  # outside of the checked folder
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="dpverify-tests-") as folder:
        Path(folder).chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", folder)  # for child processes, too
            tempfile.tempdir = None
            yield
            tempfile.tempdir = before
        left = [name for name in files_left_in(Path(folder)) if name != "dask-scratch-space"]
        assert not left, f"left behind in the temporary folder: {left}"
