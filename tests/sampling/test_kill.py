"""The command is killed at different times; the same command resumes the run to the same report."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dpverify as dpv

MECHANISM = """
import os, time
import numpy as np

def laplace(data, runs, rng):
    time.sleep(float(os.environ["PAUSE"]))
    with open(os.environ["DRAWN"], "a") as log:
        log.write("{}-{}-{}\\n".format(*rng.bit_generator.seed_seq.spawn_key))
    return np.sum(data) + rng.laplace(size=(runs, 1))
"""
RUNS = 30_000
SETTINGS = ["--set", "select_runs=4000", "--set", f"test_runs={RUNS}", "--set", "block=256"]
LATE = 0.8  # fraction of the duration of a run after which it is killed
BLOCKS = 2 * -(-RUNS // 256)  # of the test runs


class Command:
    def __init__(self, place, *more):
        self.place = place
        self.arguments = [sys.executable, "-m", "dpverify", "verify", "mine.py:laplace", "--first", "a.txt"]
        self.arguments += ["--second", "b.txt", "--epsilon", "0.5", "--quiet", *SETTINGS, *more]
        (place / "mine.py").write_text(MECHANISM)
        (place / "a.txt").write_text("0\n")
        (place / "b.txt").write_text("1\n")

    def start(self, *more, pause="0.01"):
        environment = {**os.environ, "DRAWN": str(self.place / "drawn"), "OPENBLAS_NUM_THREADS": "1", "PAUSE": pause}
        return subprocess.Popen(
            [*self.arguments, *more],
            cwd=self.place,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, *more):
        """The report; the claim is false, so that the command exits 1."""
        process = self.start("--json", "report.json", *more)
        _, complaint = process.communicate()
        assert process.returncode == 1, complaint
        assert complaint == ""
        return dpv.Report.from_json(self.place / "report.json")

    def drawn(self, stage):
        lines = (self.place / "drawn").read_text().split()
        return [line for line in lines if line.startswith(f"{stage}-")]


@pytest.fixture(autouse=True)
def keyboard():
    """Handle Ctrl-C: a background job of a shell ignores it, and its children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The digest of an undisturbed run, and its duration, which decides when other runs are killed."""
    command = Command(tmp_path_factory.mktemp("undisturbed"))
    start = time.monotonic()
    digest = command.finish().digest
    return digest, time.monotonic() - start


def test_a_killed_run_is_resumed(tmp_path, undisturbed):
    command, (digest, seconds) = Command(tmp_path), undisturbed
    process = command.start("--folder", "kept")
    time.sleep(LATE * seconds)
    process.kill()
    process.communicate()
    report = command.finish("--folder", "kept")
    assert report.digest == digest
    assert len(set(command.drawn(4))) == BLOCKS
    part = report.on_partition
    assert part.c1 @ part.number == part.c2 @ part.number == RUNS


def wait_for(condition):
    """Wait until the condition is true, at most a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


def session_of(process):
    """Return the processes of the session that a process leads, without zombies."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                state, _, _, session = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(session) == process.pid and state != "Z":
                found.append(int(entry))
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
def test_the_workers_of_a_killed_run_end_and_the_run_is_resumed(tmp_path, undisturbed):
    """The run is killed after the first save of test counts, so that something can be resumed."""
    command, kept = Command(tmp_path, "--workers", "2"), tmp_path / "kept" / "test-1.record"
    process = command.start("--folder", "kept")
    wait_for(kept.exists)
    assert len(session_of(process)) >= 3
    process.kill()
    process.communicate()
    wait_for(lambda: not session_of(process))
    before = len(command.drawn(4))
    report = command.finish("--folder", "kept")
    assert report.digest == undisturbed[0]
    assert report.provenance["resumed"]
    assert len(set(command.drawn(4))) == BLOCKS
    assert len(command.drawn(4)) - before < BLOCKS  # the run was resumed and not repeated


@pytest.mark.parametrize("workers", [pytest.param([], marks=pytest.mark.slow), ["--workers", "2"]])
def test_ctrl_c_saves_the_finished_blocks(workers, tmp_path, undisturbed):
    """A terminal sends the signal to the command and to its workers."""
    command = Command(tmp_path, *workers)
    process = command.start("--folder", "kept", pause="0.1")  # the first file exists long before the end
    wait_for((tmp_path / "kept" / "test-1.record").exists)
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate()
    assert process.returncode == 3
    assert complaint.startswith("dpverify: stopped by the keyboard after ")
    assert complaint.endswith("saved in kept; repeat the same call to resume\n")
    assert complaint.count("\n") == 1
    assert command.finish("--folder", "kept").digest == undisturbed[0]
