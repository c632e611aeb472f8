"""A study of three hundred verifications with many faults gives the same table as an undisturbed one."""

import csv
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import dpverify as dpv

MECHANISMS = """
import os, random, signal, time
from dataclasses import dataclass
import numpy as np

DICE = random.Random(os.urandom(8))  # faults do not use the generator of the block
KINDS = ("raises", "out of memory", "NaN", "shape", "talks", "slow", "dies")


def fault():
    \"\"\"With a small probability, take one of the remaining faults. A file stands for each fault.\"\"\"
    folder = os.environ.get("FAULTS")
    if folder is None or DICE.random() > 1 / 60:
        return None
    for name in sorted(os.listdir(folder)):
        try:
            os.unlink(os.path.join(folder, name))
        except FileNotFoundError:  # another worker took it
            continue
        return KINDS[int(name) % len(KINDS)]


@dataclass(frozen=True)
class Laplace:
    scale: float

    def __call__(self, data, runs, rng):
        answer = np.sum(data) + rng.laplace(scale=self.scale, size=(runs, 1))
        kind = fault()
        if kind == "raises":
            raise RuntimeError("a fault")
        if kind == "out of memory":
            raise MemoryError
        if kind == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "talks":
            print("a fault\\n" * 100)
        if kind == "slow":
            time.sleep(0.5)
        if kind == "NaN":
            answer[3] = np.nan
        return answer[1:] if kind == "shape" else answer


def pair(value):
    return 0.0, value
"""
STUDY = """
seeds = 15
epsilon = 1.0

[pairs.made]
use = "faulty.py:pair"
value = [0.5, 1.0, 2.0, 4.0]

[mechanisms.laplace]
use = "faulty.py:Laplace"
scale = [0.25, 0.5, 1.0, 2.0, 4.0]

[settings]
select_runs = 200
test_runs = 500
block = 256
events = "score"
"""
NUMBER, KILLS, FAULTS = 300, 10, 70
FULL = (  # a limit on the size of files has the same effect as a full disk
    "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY)); "
    "from dpverify.cli import entry; entry()"
)


class Place:
    def __init__(self, folder):
        self.folder = folder
        (folder / "faulty.py").write_text(MECHANISMS)
        (folder / "study.toml").write_text(STUDY)
        (folder / "faults").mkdir()
        for number in range(FAULTS):
            (folder / "faults" / f"{number:03d}").touch()

    @property
    def faults(self):
        """The number of remaining faults."""
        return len(os.listdir(self.folder / "faults"))

    def done(self, out):
        reports = self.folder / out / "reports"
        return len(list(reports.glob("*.json"))) if reports.exists() else 0

    def start(self, out, *more, start=("-m", "dpverify"), faulty=True):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "FAULTS": str(self.folder / "faults")}
        if not faulty:
            del environment["FAULTS"]
        command = [sys.executable, *start, "study", "study.toml", "--folder", out, "--quiet", *more]
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
        )


@pytest.mark.slow
def test_three_hundred_verifications_with_faults_give_the_same_table(tmp_path, capsys):
    place, dice = Place(tmp_path), np.random.default_rng(0)
    process = place.start("whole", faulty=False)
    _, complaint = process.communicate()
    assert (process.returncode, complaint) == (1, "")  # some are refuted
    whole = (tmp_path / "whole" / "table.csv").read_bytes()

    kills, ends, goals, full = 0, [], np.sort(dice.integers(0, NUMBER - 20, KILLS)), None
    while kills < KILLS:  # kill the study when so many reports exist; restart it if it ends by itself
        process = place.start("kept", *(["--workers", "2"] if kills % 3 == 1 else []))
        while process.poll() is None and place.done("kept") < goals[kills]:
            time.sleep(0.02)
        time.sleep(dice.uniform(0, 0.3))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        _, complaint = process.communicate()
        ends.append((process.returncode, complaint))
        assert len(ends) < 300, complaint
        if kills == KILLS // 2 and full is None:
            process = place.start("kept", start=("-c", FULL), faulty=False)
            _, full = process.communicate()
            assert process.returncode in (2, 3), full
            assert full.splitlines()[-1].startswith("dpverify: ")
            assert "File too large" in full
            goals[kills:] = np.maximum(goals[kills:], place.done("kept"))
    while True:
        process = place.start("kept")
        _, complaint = process.communicate()
        ends.append((process.returncode, complaint))
        if process.returncode == 1:
            break
        assert len(ends) < 300, complaint

    assert (tmp_path / "kept" / "table.csv").read_bytes() == whole
    with (tmp_path / "kept" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == place.done("kept") == NUMBER
    assert not (tmp_path / "kept" / "running").exists()
    assert all(dpv.Report.from_json(tmp_path / "kept" / row["report"]).digest == row["digest"] for row in rows)
    assert {code for code, _ in ends} <= {1, 2, 3, -signal.SIGKILL}
    assert not any("Traceback" in complaint for _, complaint in ends)
    happened = FAULTS - place.faults
    assert happened > FAULTS // 2
    with capsys.disabled():
        print(
            f"\n{NUMBER} verifications, {happened} faults, {kills} kills, {len(ends)} starts, one full disk: same table"
        )
