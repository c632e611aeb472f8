"""Combinations that end or block the process are recorded as failed, and the rest of the study continues."""

import csv
import os
import subprocess
import sys
import warnings

import pytest
from user_folder import make_user_folder

import dpverify as dpv
from dpverify.cli import main

MECHANISMS = """
import asyncio, ctypes, os, time
from dataclasses import dataclass
import numpy as np

@dataclass(frozen=True)
class Laplace:
    fault: str
    late: bool = False  # in the test runs, which workers draw; the first blocks are drawn in the main process

    def __call__(self, data, runs, rng):
        if not self.late or rng.bit_generator.seed_seq.spawn_key[0] == 4:
            if self.fault == "exit":
                os._exit(0)
            if self.fault == "crash":
                ctypes.string_at(0)
            if self.fault == "cancel":
                raise asyncio.CancelledError
            if self.fault == "hang":
                time.sleep(1000)
            if self.fault == "hang in C":
                mutex = ctypes.create_string_buffer(256)  # PyDLL keeps the interpreter locked
                ctypes.PyDLL(None).pthread_mutex_lock(mutex)
                ctypes.PyDLL(None).pthread_mutex_lock(mutex)
        return np.sum(data) + rng.laplace(size=(runs, 1))
"""
STUDY = """
epsilon = 0.3
{top}
[pairs.files]
first = "a.txt"
second = "b.txt"

[mechanisms.laplace]
use = "faulty.py:Laplace"
fault = {faults}
late = {late}

[settings]
select_runs = 500
test_runs = 1000
"""
PROCESS_ENDED = "the process ended while this combination was running ({}); the mechanism, or a library, ended it"
WORKER_ENDED = "a worker process ended while this combination was running; the mechanism, or a library, ended it"
TIME_LIMIT = "the time limit was reached ({} s); increase timeout, or check the mechanism"


@pytest.fixture
def place(tmp_path, monkeypatch):
    return make_user_folder(tmp_path, monkeypatch, {"faulty.py": MECHANISMS, "a.txt": "0\n", "b.txt": "1\n"})


def write_study(place, faults, top="", late="false"):
    (place / "study.toml").write_text(STUDY.format(faults=[*faults, "none"], top=top, late=late))


def run(*arguments):
    command = [sys.executable, "-m", "dpverify", "study", "study.toml", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    return done.returncode, done.stdout, done.stderr


def problems(place):
    with (place / "study" / "table.csv").open() as file:
        return {row["mechanism.fault"]: row["problem"] or row["verdict"] for row in csv.DictReader(file)}


def test_a_serial_study_continues_after_combinations_that_end_the_process(place):
    write_study(place, ["exit", "cancel", "crash"])
    status, out, err = run()
    assert status == 2
    summary = "4 verifications, 1 refuted (each at its own alpha), 1 together (Holm), 3 failed"
    assert out.startswith(f"{summary}; table: study/table.csv\n")
    line = "dpverify: laplace fault=exit late=False, files, seed 0 failed: " + PROCESS_ENDED.format("exit status 0")
    assert line in err.splitlines()
    found = problems(place)
    assert found["exit"] == PROCESS_ENDED.format("exit status 0")
    assert found["crash"] == PROCESS_ENDED.format("killed by SIGSEGV")
    assert "CancelledError" in found["cancel"]
    assert found["none"] == "REFUTED"
    assert not (place / "study" / "running").exists()


def test_a_study_continues_after_combinations_that_end_a_worker(place):
    write_study(place, ["exit", "cancel"], late="true")
    with pytest.warns(dpv.DPVerifyWarning, match="failed"):
        study = dpv.run_study("study.toml", executor=1)
    assert study.rows[0]["problem"] == WORKER_ENDED
    assert "CancelledError" in study.rows[1]["problem"]
    assert study.rows[2]["verdict"] == "REFUTED"


@pytest.mark.parametrize(
    ("arguments", "limit"), [([], "6"), (["--workers", "1"], "10")], ids=["serial", "workers"]
)  # the limits are many times what the other combination needs; with workers, a new process is started for it
def test_a_combination_that_reaches_the_time_limit_has_failed(place, capsys, arguments, limit):
    write_study(place, ["hang"], top="timeout = 1000", late="true")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["study", "study.toml", "--timeout", limit, *arguments]) == 2
    assert capsys.readouterr().err.endswith(f"dpverify: 1 failed, the first with: {TIME_LIMIT.format(limit)}\n")
    assert problems(place) == {"hang": TIME_LIMIT.format(limit), "none": "REFUTED"}


def test_a_combination_that_does_not_react_to_the_time_limit_is_ended(place):
    write_study(place, ["hang in C"], top="timeout = 10")
    status, _, err = run("--quiet")
    reason = "the time limit was reached, and the mechanism did not react; the process was ended"
    assert status == 2
    assert err.endswith(f"dpverify: 1 failed, the first with: {reason}\n")
    assert problems(place) == {"hang in C": reason, "none": "REFUTED"}


def test_a_call_records_a_combination_that_has_ended_two_processes(place):
    """Without the command, an end can also be a kill from outside, after which the combination is resumed."""
    write_study(place, ["exit"])
    script = "import dpverify; study = dpverify.run_study('study.toml'); print(study.rows[0]['problem'])"
    ends = [
        subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True) for _ in "123"
    ]
    assert [end.stdout for end in ends] == [
        "",
        "",
        "the process ended 2 times while this combination was running; the next start tries it again\n",
    ]
    assert problems(place)["none"] == "REFUTED"


@pytest.mark.parametrize("value", ["0", "-1", "nan", "true", "'1 s'"])
def test_a_time_limit_is_a_number_of_seconds(place, capsys, value):
    write_study(place, [], top=f"timeout = {value}")
    assert main(["study", "study.toml"]) == 2
    assert capsys.readouterr().err.endswith("; expected a number of seconds above 0\n")


def test_the_time_limit_does_not_belong_to_the_identity_of_a_study(place):
    write_study(place, [])
    first = dpv.run_study("study.toml", timeout=60)
    write_study(place, [], top="timeout = 30")
    assert dpv.run_study("study.toml") == first


def test_a_study_resolves_its_folder_before_the_mechanism_runs(place, capsys):
    (place / "faulty.py").write_text("import os\nos.chdir('/')\n" + MECHANISMS)
    write_study(place, [])
    assert main(["study", "study.toml", "--folder", "kept"]) == 1
    assert "table: kept/table.csv\n" in capsys.readouterr().out
    assert (place / "kept" / "table.csv").exists()
    os.chdir(place)
