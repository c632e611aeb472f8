"""A verification that may stop early is killed at ten random moments and resumed: the digest is the same."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import dpverify as dpv

MECHANISM = """
import time
import numpy as np

def laplace(data, runs, rng):
    time.sleep(0.002)
    return np.sum(data) + rng.laplace(size=(runs, 1))
"""
SETTINGS = ["--set", "select_runs=600", "--set", "test_runs=2000", "--stop-early", "--quiet"]


def start(place, *more):
    arguments = [sys.executable, "-m", "dpverify", "verify", "mine.py:laplace", "--first", "a.txt", "--second", "b.txt"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([*arguments, "--epsilon", "1.2", *SETTINGS, *more], cwd=place, env=environment)


@pytest.mark.slow
def test_ten_kills_do_not_change_the_digest(tmp_path):
    for name, content in (("mine.py", MECHANISM), ("a.txt", "0\n"), ("b.txt", "1\n")):
        (tmp_path / name).write_text(content)
    begin = time.monotonic()
    assert start(tmp_path, "--json", "whole.json").wait() == 0
    seconds = time.monotonic() - begin
    for fraction in np.random.default_rng(4).uniform(0.2, 1, 10):
        process = start(tmp_path, "--folder", "kept")
        time.sleep(fraction * seconds)
        process.kill()
        process.wait()
    assert start(tmp_path, "--folder", "kept", "--json", "resumed.json").wait() == 0
    whole, resumed = (dpv.Report.from_json(tmp_path / f"{name}.json") for name in ("whole", "resumed"))
    assert resumed.provenance["resumed"]
    assert resumed.digest == whole.digest
