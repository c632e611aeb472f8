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
PROCESS_ENDED = "the process ended while it was verified ({}); the mechanism, or a library, ended it"
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
    assert "4 verifications: 3 failed, 1 refuted." in out
    line = "dpverify: laplace fault=exit late=False, files, seed 0 failed: " + PROCESS_ENDED.format("exit status 0")
    assert line in err.splitlines()
    found = problems(place)
    assert found["exit"] == PROCESS_ENDED.format("exit status 0")
    assert found["crash"] == PROCESS_ENDED.format("signal 11")
    assert "CancelledError" in found["cancel"]
    assert found["none"] == "REFUTED"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_with_workers_continues_after_combinations_that_end_their_process(place, workers):
    write_study(place, ["exit", "cancel"], late="true")
    with pytest.warns(dpv.DPVerifyWarning, match="failed"):
        study = dpv.run_study("study.toml", workers=workers)
    assert study.rows[0]["problem"] == PROCESS_ENDED.format("exit status 0")
    assert "CancelledError" in study.rows[1]["problem"]
    assert study.rows[2]["verdict"] == "REFUTED"


def test_a_combination_that_reaches_the_time_limit_has_failed(place, capsys):
    """The limit is many times what the other combination needs."""
    write_study(place, ["hang"], top="timeout = 1000", late="true")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["study", "study.toml", "--timeout", "20"]) == 2
    assert capsys.readouterr().err.endswith(f"dpverify: 1 failed, the first: {TIME_LIMIT.format(20)}\n")
    assert problems(place) == {"hang": TIME_LIMIT.format(20), "none": "REFUTED"}


def test_a_combination_that_does_not_react_to_the_time_limit_is_ended(place):
    write_study(place, ["hang in C"], top="timeout = 10")
    status, _, err = run("--quiet")
    reason = TIME_LIMIT.format(10)
    assert status == 2
    assert err.endswith(f"dpverify: 1 failed, the first: {reason}\n")
    assert problems(place) == {"hang in C": reason, "none": "REFUTED"}


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
