"""A Dask cluster on this machine, on the loopback device only: the report does not depend on its workers."""

import importlib.util
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import dpverify as dpv
from dpverify.cli import main

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("distributed"), reason="the extra dask is not installed")

MECHANISM = """
import time
import numpy as np

def laplace(data, runs, rng):
    if rng.bit_generator.seed_seq.spawn_key[0] == 4:  # the test runs are slow, so that workers can be killed meanwhile
        time.sleep(0.02)
    return np.sum(data) + rng.laplace(size=(runs, 1))
"""
SETTINGS = {"select_runs": 2000, "test_runs": 64_000, "block": 256}
GOES = ["--host", "127.0.0.1", "--no-dashboard"]


def start(arguments, place, **options):
    impatient = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **impatient}
    return subprocess.Popen([sys.executable, "-m", *arguments], cwd=place, env=environment, text=True, **options)


def wait_for(condition):
    """Wait until the condition is true, at most a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


class Cluster:
    def __init__(self, place):
        self.place = place
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.quiet, where = quiet, place / "scheduler.json"
        # If the test is killed, the idle scheduler ends itself, and without a scheduler the workers end.
        command = ["distributed.cli.dask_scheduler", *GOES, "--port", "0", "--idle-timeout", "120"]
        self.scheduler = start([*command, "--scheduler-file", str(where)], place, **quiet)
        wait_for(lambda: where.exists() and where.stat().st_size)
        self.workers = [self.add_worker() for _ in range(2)]
        self.address = json.loads(where.read_text())["address"]

    def add_worker(self):
        command = ["distributed.cli.dask_worker", "--scheduler-file", "scheduler.json", *GOES, "--no-nanny"]
        return start([*command, "--nthreads", "1", "--death-timeout", "20"], self.place, **self.quiet)

    def close(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "mine.py").write_text(MECHANISM)
    (tmp_path / "a.txt").write_text("0\n")
    (tmp_path / "b.txt").write_text("1\n")
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def expected():
    """The digest of a run in this process, without pauses."""

    def laplace(data, runs, rng):
        return np.sum(data) + rng.laplace(size=(runs, 1))

    return dpv.verify(laplace, np.array([0.0]), np.array([1.0]), 0.5, **SETTINGS).digest


def command(*more):
    changes = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    files = ["--first", "a.txt", "--second", "b.txt", "--folder", "kept", "--json", "report.json"]
    return ["dpverify", "verify", "mine.py:laplace", *files, "--epsilon", "0.5", "--quiet", *changes, *more]


def test_the_workers_of_a_cluster_may_change(cluster, expected):
    """One worker is killed during the test runs, and another one is added."""
    process = start(command("--dask", cluster.address), cluster.place, stderr=subprocess.PIPE)
    wait_for((cluster.place / "kept" / "test-1.record").exists)
    cluster.workers[0].kill()
    cluster.workers.append(cluster.add_worker())
    _, complaint = process.communicate()
    assert process.returncode == 1, complaint
    assert complaint == ""
    assert dpv.Report.from_json(cluster.place / "report.json").digest == expected


@pytest.mark.slow
def test_a_run_without_its_scheduler_is_resumed_from_its_folder(cluster, expected):
    process = start(command("--dask", cluster.address), cluster.place, stderr=subprocess.PIPE)
    wait_for((cluster.place / "kept" / "test-1.record").exists)
    cluster.scheduler.kill()
    _, complaint = process.communicate()
    assert process.returncode == 3
    assert complaint.startswith("dpverify: the workers were lost (")
    assert "saved in kept; repeat the same call to resume" in complaint
    assert complaint.count("\n") == 1
    again = start(command("--dask", cluster.address), cluster.place, stderr=subprocess.PIPE)
    _, complaint = again.communicate()
    assert again.returncode == 3
    assert "no scheduler at tcp://127.0.0.1" in complaint
    assert complaint.count("\n") == 1
    last = start(command("--workers", "2"), cluster.place)
    assert last.wait() == 1
    report = dpv.Report.from_json(cluster.place / "report.json")
    assert report.digest == expected
    assert report.provenance["resumed"]


def test_the_error_without_dask_names_the_package_to_install(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(MECHANISM)
    (tmp_path / "a.txt").write_text("0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "distributed", None)
    sys.modules.pop("mine", None)
    arguments = ["verify", "mine.py:laplace", "--first", "a.txt", "--second", "a.txt", "--dask", "tcp://127.0.0.1:1"]
    assert main(arguments) == 2
    advice = 'pip install ".[dask]" in a clone of dpverify'
    assert capsys.readouterr().err == f"dpverify: --dask: distributed is not installed; {advice}\n"
    sys.modules.pop("mine", None)
