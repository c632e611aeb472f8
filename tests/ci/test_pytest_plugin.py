"""The pytest plugin: a fixed seed without a ledger, evidence over versions with one, and what its records contain."""

import importlib.metadata
import itertools
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import scipy.special  # noqa: F401 (pytester forgets what a test imports, and NumPy cannot be loaded twice)

from dpverify.ci.ledger import read_ledger
from dpverify.cli import main

pytest_plugins = ["pytester"]

TEST_FILE = """
SMALL = {"select_runs": 200, "test_runs": 1800, "detects": 6.0, "progress": False}
SCALE = float(__import__("os").environ.get("SCALE", 1.0))


def laplace(data, runs, rng):
    return data + rng.laplace(scale=SCALE, size=runs)


def test_laplace(assert_private):
    assert_private(laplace, 0.0, 1.0, epsilon=1.0, **SMALL)
"""


@pytest.fixture
def project(pytester, monkeypatch):
    for name in ("GITHUB_BASE_REF", "GITHUB_SHA", "CI_COMMIT_SHA", "PYTEST_ADDOPTS"):  # of a CI service
        monkeypatch.delenv(name, raising=False)
    seeds = itertools.count(100)  # a project has other seeds in every run; the tests have the same ones
    monkeypatch.setattr("dpverify.ci.ledger.secrets.randbits", lambda bits: next(seeds))
    pytester.makepyfile(test_mine=TEST_FILE)

    def run_pytest(*options, scale="1.0"):
        monkeypatch.setenv("SCALE", scale)
        installed = importlib.metadata.entry_points(group="pytest11", name="dpverify")
        plugin = () if installed else ("-p", "dpverify.ci.pytest_plugin")
        done = pytester.runpytest_inprocess(*plugin, "-p", "no:cacheprovider", "--junitxml=junit.xml", *options)
        return done.ret, str(done.stdout) + str(done.stderr)

    return run_pytest


def properties():
    tree = ElementTree.parse("junit.xml")
    return {each.get("name"): each.get("value") for each in tree.iter("property")}


def test_without_a_ledger_the_seed_is_fixed(project):
    status, output = project()
    assert status == 0, output
    assert properties()["dpverify_seed"] == "0"
    assert set(properties()) == {"dpverify_epsilon_lower", "dpverify_epsilon_detectable", "dpverify_seed"}


def test_the_life_of_a_project(project):
    ledger = ["--dpverify-ledger", "ledger.json"]
    status, output = project(*ledger, "--dpverify-write", "--dpverify-version", "one")
    assert status == 0, output
    assert "test_mine.py::test_laplace [epsilon 1, delta 0]: evidence" in output
    first = properties()
    assert set(first) == {
        f"dpverify_{name}" for name in ("e_value", "evidence", "epsilon_lower", "epsilon_detectable", "seed", "version")
    }
    # A pull request reads the ledger.
    status, output = project(*ledger, "--dpverify-version", "two", scale="0.95")
    assert status == 0, output
    assert properties()["dpverify_seed"] != first["dpverify_seed"]
    assert len(read_ledger("ledger.json").records[0].runs) == 1
    # A fault on the main branch raises an alarm that names its version and the command that repeats it.
    status, output = project(*ledger, "--dpverify-write", "--dpverify-version", "three", scale="0.4")
    assert status == 1, output
    assert "REFUTED by the evidence of all runs together (2)" in output
    assert "began     at version three" in output
    assert "--confirm test_mine.py::test_laplace" in output
    seed = properties()["dpverify_seed"]
    repeat = re.search(r"repeat    pytest (\S+) --dpverify-seed (\d+)", output)
    assert repeat is not None
    assert repeat[2] == seed
    before = Path("ledger.json").read_bytes()
    status, output = project(*ledger, repeat[1], "--dpverify-seed", seed, scale="0.4")
    assert (status, properties()["dpverify_seed"]) == (1, seed)
    assert Path("ledger.json").read_bytes() == before


def test_a_pull_request_cannot_write(project, monkeypatch):
    options = "--dpverify-ledger", "ledger.json", "--dpverify-write"
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    status, output = project(*options)
    assert status == 4
    assert "found a pull request (GITHUB_BASE_REF is set); expected the main branch" in output
    status, output = project("--dpverify-write")
    assert status == 4
    assert "--dpverify-write needs a ledger" in output


RENAMED = {"def test_laplace(": "def test_noise("}
OTHER_CLAIM = {"epsilon=1.0,": "epsilon=1.0000001,"}


@pytest.mark.parametrize("changes", [RENAMED, OTHER_CLAIM], ids=["renamed", "another claim"])
def test_an_alarm_does_not_disappear_with_its_test(changes, project, pytester):
    ledger = ["--dpverify-ledger", "ledger.json"]
    assert project(*ledger, "--dpverify-write", "--dpverify-version", "bad", scale="0.4")[0] == 1
    text = TEST_FILE
    for old, new in changes.items():
        text = text.replace(old, new)
    pytester.makepyfile(test_mine=text)
    status, output = project(*ledger)
    assert status == 1
    assert "1 passed" in output
    assert "test_mine.py::test_laplace [epsilon 1, delta 0]: ALARM at version bad" in output
    assert "a claim with an alarm was not tested" in output
    if changes is RENAMED:  # the alarm has its test again
        assert (
            main(["ledger", "ledger.json", "--rename", "test_mine.py::test_laplace", "test_mine.py::test_noise"]) == 1
        )
    else:
        assert main(["ledger", "ledger.json", "--confirm", "test_mine.py::test_laplace"]) == 0
    status, output = project(*ledger)
    assert status == 0, output
    assert ("test_mine.py::test_noise [epsilon 1, delta 0]: ALARM" in output) == (changes is RENAMED)
    assert "was not tested" not in output


def test_a_session_without_its_owner_fails(project, pytester):
    ledger = ["--dpverify-ledger", "ledger.json"]
    assert project(*ledger, "--dpverify-write", scale="0.4")[0] == 1
    pytester.makepyfile(test_other="def test_other(): pass")
    assert project(*ledger, "test_other.py")[0] == 1
    assert project(*ledger, "test_other.py", "--collect-only")[0] == 0
    assert project("test_other.py")[0] == 0  # negative control: no ledger


def test_the_expected_time_is_printed_before_the_runs_are_drawn(project, pytester):
    pytester.makepyfile(
        """
        import time, dpverify as dpv

        def slow(data, runs, rng):
            if runs > 64:
                raise KeyboardInterrupt
            time.sleep(0.01 * runs)
            return rng.random(runs)

        def test_slow():
            dpv.verify(slow, 0.0, 1.0, 1.0)
        """
    )
    output = project()[1]
    assert re.search(
        r"dpverify: about .* runs/s; stop_early=True ends as soon as .* several processes: executor=N", output
    )
