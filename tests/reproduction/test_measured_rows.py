"""What is measured, and a reproduction that is killed and resumed."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from pages import PROJECT

import dpverify as dpv
from reproduction import measure
from reproduction.experiment import SENSORS, fixed_setup
from reproduction.paper import BASE


def test_a_row_has_the_numbers_of_verify_and_reads_back():
    task = measure.RowTask("Q1, W2-MHE, s 0.8", BASE._replace(test_runs=1000), 0, 1)
    (stored,) = measure.measure_rows([task])
    (seed,) = measure.read_row(task, {**stored, "results": [list(one) for one in stored["results"]]}).results
    data = measure.seeded_setup("Q1", "paper", 0)
    mechanism = measure.build("W2-MHE", task.reading, data.system, 0.8)
    settings = measure.paper_settings(task.reading, measure.SEEDS_PER_ROW)  # the second printed row
    report = dpv.verify(mechanism, data.first, data.second, settings=settings, error=dpv.rmse(data.truth))
    assert (seed.epsilon_c, seed.eta, seed.lambda_) == (report.epsilon_critical, report.paper.eta, report.paper.lambda_)
    assert (seed.c1, seed.c2) == report.witness.counts


@pytest.mark.slow
def test_pairs_are_drawn_anew_and_have_the_stated_distance():
    setups = [fixed_setup("Q1", k % SENSORS, measure.FIRST_PAIR_SEED + k) for k in range(3)]
    distances = [np.linalg.norm(data.first - data.second) for data in setups]
    np.testing.assert_allclose(distances, 10, rtol=1e-6)
    assert not np.array_equal(setups[0].first, setups[1].first)


def run_quick(folder, kills=()):
    """Run the quick reproduction, and return its files; it is killed when so many results are stored."""
    command = [sys.executable, "-m", "reproduction", "--quick", "--out", str(folder)]
    for results in kills:
        process = subprocess.Popen(command, cwd=PROJECT, start_new_session=True, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list(folder.glob("measured/*/reports/*.json"))) < results:
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGKILL)  # with its worker processes
        process.wait()
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    files = [path for kind in ("csv", "md", "html") for path in folder.glob(f"*.{kind}")]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.slow
def test_a_reproduction_that_is_killed_twice_has_the_same_tables(tmp_path):
    whole = run_quick(tmp_path / "whole")
    assert set(whole) == {"readings.csv", "rows.csv", "claims.csv", "table.md", "index.html"}
    assert run_quick(tmp_path / "killed", kills=(3, 13)) == whole
