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
from reproduction.experiment import build, seeded_setup
from reproduction.paper import BASE, CELLS


def test_a_row_has_the_numbers_of_verify_and_reads_back():
    task = measure.RowTask("Q1, W2-MHE, s 0.8", BASE._replace(test_runs=1000), 0, 1)
    (stored,) = measure.measure_rows([task])
    (seed,) = measure.read_row(task, {**stored, "results": [list(one) for one in stored["results"]]}).results
    data = seeded_setup("Q1", 0, "degrees", "quiet")
    mechanism = build("W2-MHE", task.reading, data.system, 0.8)
    settings = measure.paper_settings(task.reading, measure.SEEDS_PER_ROW)  # the second printed row
    report = dpv.verify(mechanism, data.first, data.second, settings=settings)
    assert report.paper.averaged
    assert (seed.epsilon_c, seed.eta) == (pytest.approx(report.epsilon_critical), report.paper.eta)
    assert (seed.c1, seed.c2) == report.witness.counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "change"),
    [
        ("Q1, input perturbation, s̄ 0.894", {}),
        ("Q1, input perturbation, s̄ 0.894", {"covariance": "clipped", "states": "positions"}),
        ("Q1, private EKF, ŝ", {}),
        ("Q1, private EKF, ŝ", {"feedback": True}),
    ],
)
def test_every_mechanism_is_measured_and_repeats(row, change):
    task = measure.RowTask(row, BASE._replace(**change, test_runs=1000), 0, 1)
    stored = measure.measure_row(task)
    assert stored == measure.measure_row(task)
    assert 0 < stored["results"][0].errors[-1] < 0.05


@pytest.mark.slow
def test_the_slides_exclude_a_carried_prior_and_allow_degrees():
    by_name = {str(one["changes"]): one for one in measure.measure_shifts()}
    assert np.max(by_name["{}"]["error"]) < 1e-5
    low, high = np.quantile(by_name["{}"]["error_adjacent"], (0.05, 0.95))
    assert low < CELLS[0].error_adjacent < high
    carried = next(one for name, one in by_name.items() if "carried" in name)
    assert np.quantile(carried["ratio"], 0.05) > 1.5


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
