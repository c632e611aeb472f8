"""Verifications, studies and checks are killed at random times, again and again; the end is always the same."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import dpverify as dpv
from dpverify.ci.history import read_history

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "10"))  # of each kind of run
MECHANISM = """
import time
import numpy as np

def laplace(data, runs, rng):
    time.sleep(0.02)
    return np.sum(data) + rng.laplace(size=(runs, 1))

class Laplace:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, data, runs, rng):
        time.sleep(0.005)
        return np.sum(data) + rng.laplace(scale=self.scale, size=(runs, 1))
"""
THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import dpverify as dpv
import mine

with ThreadPoolExecutor(2) as pool:
    report = dpv.verify(
        mine.laplace, np.zeros(1), np.ones(1), 0.5, folder="kept", executor=pool,
        select_runs=4000, test_runs=20_000, block=256,
    )
report.to_json("report.json")
sys.exit(1)
"""
DASK = """
import sys
import numpy as np
import dpverify as dpv
from distributed import Client, LocalCluster

def laplace(scale, pause):
    def draw(data, runs, rng):  # a closure: the workers cannot import it
        pause(0.02)
        return np.sum(data) + rng.laplace(scale=scale, size=(runs, 1))
    return draw

if __name__ == "__main__":
    import time
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        report = dpv.verify(
            laplace(1.0, time.sleep), np.zeros(1), np.ones(1), 0.5, folder="kept", executor=client.get_executor(),
            select_runs=4000, test_runs=20_000, block=256,
        )
    report.to_json("report.json")
    sys.exit(1)
"""
FUNCTIONS = """
import sys
import dpverify as dpv
import mine

few = {"folder": "kept", "select_runs": 2000, "test_runs": 6000, "block": 512, "partition": "grid", "events": "union"}
if sys.argv[1] == "pairs":
    found = dpv.verify_pairs(mine.laplace, [(0.0, 1.0), (0.0, 2.0), (0.0, 3.0)], 0.5, **few)
    reports = found.reports
else:
    found = dpv.calibrate(mine.Laplace, (0.3, 5.0), 0.0, 1.0, 1.0, 0.01, **few)
    reports = [report for _, report in found.tried]
with open("report.txt", "w") as file:
    print(*(report.digest for report in reports), found, sep="\\n", file=file)
sys.exit(1)
"""
STUDY = """
epsilon = 0.5
seeds = 3
[pairs.p]
first = "a.txt"
second = "b.txt"
[mechanisms.laplace]
use = "mine.py:laplace"
[settings]
select_runs = 2000
test_runs = 6000
block = 256
"""
CLAIMS = """
claims = [
    {mechanism = "laplace", pair = "p", epsilon = 0.5},
    {mechanism = "laplace", pair = "p", epsilon = 3, name = "x"},
]
"""
DPVERIFY = [sys.executable, "-m", "dpverify"]
VERIFY = [*DPVERIFY, "verify", "mine.py:laplace", "--first", "a.txt", "--second", "b.txt", "--epsilon", "0.5"]
VERIFY += ["--set", "select_runs=4000", "--set", "test_runs=20000", "--set", "block=256"]
VERIFY += ["--quiet", "--folder", "kept", "--json", "report.json"]
COMMANDS = {
    "serial": VERIFY,
    "processes": [*VERIFY, "--workers", "2"],
    "threads": [sys.executable, "threads.py"],
    "dask": [sys.executable, "cluster.py"],
    "study": [*DPVERIFY, "study", "study.toml", "--folder", "kept", "--quiet"],
    "study, processes": [*DPVERIFY, "study", "study.toml", "--folder", "kept", "--quiet", "--workers", "2"],
    "pairs": [sys.executable, "functions.py", "pairs"],
    "calibrate": [sys.executable, "functions.py", "calibrate"],
    "check": [*DPVERIFY, "check", "claims.toml", "--folder", "kept", "--release", "1.0", "--no-pages", "--quiet"],
}


def answers(place, name):
    """Return the digests that a finished run has written, and its table."""
    if name.startswith("study"):
        digests = [dpv.Report.from_json(path).digest for path in sorted((place / "kept" / "reports").iterdir())]
        return digests, (place / "kept" / "table.csv").read_text()
    if name == "check":
        (release,) = read_history(place / "kept" / "history.json")
        return release, (place / "kept" / "results.csv").read_text()
    if name in ("pairs", "calibrate"):
        return (place / "report.txt").read_text(), (place / "kept" / "table.csv").read_text()
    return dpv.Report.from_json(place / "report.json").digest


def start(place, name):
    return subprocess.Popen(
        COMMANDS[name], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(place, name):
    """Run the command to its end; return its answers. The claim is false, so the status is 1.

    A combination that was killed several times is recorded as failed, with status 2; the next call runs it again.
    """
    for _ in range(3):
        process = start(place, name)
        _, complaint = process.communicate()
        assert process.returncode in (1, 2), complaint
        assert "Traceback" not in complaint
        if process.returncode == 1:
            return answers(place, name)
        assert complaint.endswith("tries it again\n")
    raise AssertionError(complaint)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_that_is_killed_again_and_again_has_the_same_answers(name, tmp_path):
    if name == "dask":
        pytest.importorskip("distributed", reason="the extra dask is not installed")
    places = [tmp_path / "undisturbed", tmp_path / "killed"]
    for place in places:
        place.mkdir()
        (place / "mine.py").write_text(MECHANISM)
        (place / "threads.py").write_text(THREADS)
        (place / "cluster.py").write_text(DASK)
        (place / "functions.py").write_text(FUNCTIONS)
        (place / "a.txt").write_text("0\n")
        (place / "b.txt").write_text("1\n")
        (place / "study.toml").write_text(STUDY)
        (place / "claims.toml").write_text(CLAIMS + STUDY.partition("seeds = 3\n")[2])
    begin = time.monotonic()
    expected = finish(places[0], name)
    seconds = time.monotonic() - begin
    rng, kills = np.random.default_rng(5), 0
    while kills < KILLS:
        process = start(places[1], name)
        time.sleep(rng.uniform(0.2, 0.9) * seconds)
        is_running = process.poll() is None
        if is_running:
            kills += 1
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if process.returncode == 1:  # it was finished before the kill, so the next one begins anew
            assert answers(places[1], name) == expected
            shutil.rmtree(places[1] / "kept")
    assert finish(places[1], name) == expected
    print(f"{name}: {kills} kills, the same answers")
