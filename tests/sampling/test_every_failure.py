"""Every operation on the disk fails once, and the power fails at every operation; then the run is resumed.

The resumed run has the digest of an undisturbed one, or the folder is refused in one line.
"""

import contextlib
import errno
import os
import shutil
import warnings

import numpy as np
import pytest
from disk_faults import FaultyDisk, PowerLoss

import dpverify as dpv
from dpverify.studies.releases.check import run_check
from dpverify.studies.releases.history import read_history
from dpverify.studies.releases.junit import FAILED
from dpverify.studies.releases.ledger import read_ledger
from dpverify.studies.releases.version_check import verify_version
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import to_plain
from mechanisms import ONE, ZERO, laplace

SMALL = {"select_runs": 1000, "test_runs": 2000, "block": 256}
STUDY = """
epsilon = 0.5
seeds = 2
[pairs.p]
first = "a.txt"
second = "b.txt"
[mechanisms.laplace]
use = "dpverify.demo:laplace_sum"
[settings]
select_runs = 500
test_runs = 1000
block = 250
partition = "grid"  # fast
events = "cell"
"""
MANIFEST = STUDY.replace("epsilon = 0.5\nseeds = 2", 'claims = [{mechanism = "laplace", pair = "p", epsilon = 0.5}]')


def verify(folder):
    return dpv.verify(laplace, ZERO, ONE, 0.5, folder=folder, **SMALL).digest


def run_study(folder):
    if not (folder.parent / "study.toml").exists():
        np.savetxt(folder.parent / "a.txt", ZERO)
        np.savetxt(folder.parent / "b.txt", ONE)
        (folder.parent / "study.toml").write_text(STUDY)
    study = dpv.run_study(folder.parent / "study.toml", folder)
    if study.failed:
        raise dpv.InputError(study.failed[0]["problem"])
    return tuple(study.report(row).digest for row in study.rows)


def check_claims(folder):
    """Check the claims of a manifest twice, so that a history is read and replaced."""
    if not (folder.parent / "claims.toml").exists():
        np.savetxt(folder.parent / "a.txt", ZERO)
        np.savetxt(folder.parent / "b.txt", ONE)
        (folder.parent / "claims.toml").write_text(MANIFEST)
    for release in ("1.0", "1.1"):
        check = run_check(folder.parent / "claims.toml", folder, release=release, pages=False)
        if failed := check.in_state(FAILED):
            raise dpv.InputError(failed[0]["problem"])
    history = read_history(folder / "history.json")
    assert [release.release for release in history] == ["1.0", "1.1"]
    return tuple(release.claims["laplace-p"]["digest"] for release in history)


def add_versions(folder):
    """Test two versions with a ledger. A version that the ledger has is read, and not added again."""
    folder.mkdir(exist_ok=True)
    path = folder / "ledger.json"
    for seed in (1, 2):
        seeds = {one.seed for record in read_ledger(path).records for one in record.runs}
        if seed not in seeds:
            remove_lock(path)
            versioned = {"name": "sum", "version": f"v{seed}", "ledger": path, "seed": seed}
            verify_version(laplace, ZERO, ONE, 2.0, **versioned, select_runs=200, test_runs=400)
    return fingerprint(to_plain(read_ledger(path)))


def remove_lock(path):
    """Do what the message asks for after a process was killed: remove the lock file."""
    path.with_name("ledger.json.lock").unlink(missing_ok=True)


CALLS = {"verify": verify, "study": run_study, "check": check_claims, "ledger": add_versions}
KINDS = {
    "one operation": (errno.EIO, lambda number: lambda count: count == number, False),
    "all later ones": (errno.ENOSPC, lambda number: lambda count: count >= number, False),
    "power": (errno.EIO, lambda number: lambda count: count == number, True),
}


def save_after_every_task(monkeypatch):
    """Without this, a short run is saved at the end of each stage only."""
    monkeypatch.setattr("dpverify.sampling.checkpoints.MIN_SECONDS_BETWEEN_SAVES", -1.0)
    monkeypatch.setattr("dpverify.sampling.checkpoints.MIN_SAVE_INTERVAL_RATIO", 0)


def fail_at(call, kind, number, tmp_path, monkeypatch):
    """Let operation `number` fail; return whether it was reached, and the results of the resumed runs."""
    problem, fails, power = KINDS[kind]
    folder = tmp_path / f"{number}"
    disk = FaultyDisk(folder, fails(number), problem, power)
    with disk.attached(monkeypatch), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a save that failed
        with contextlib.suppress(dpv.InputError, dpv.FolderError, dpv.Stopped, dpv.MechanismError, OSError, PowerLoss):
            call(folder)
    results = []
    for loses in (False, True) if power else (False,):
        if loses:
            disk.lose_unsynced()
        with contextlib.suppress(dpv.FolderError):
            results.append(call(shutil.copytree(folder, tmp_path / f"{number}-{loses}") if folder.exists() else folder))
    for path in tmp_path.glob(f"{number}*"):
        shutil.rmtree(path)
    return disk.count >= number, results


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("verify", 23),
        ("study", 97),
        ("check", 61),
        ("ledger", 5),
        *(pytest.param(n, 1, marks=pytest.mark.slow) for n in CALLS),
    ],
)
def test_after_a_failure_the_same_result_or_a_refusal(name, step, kind, tmp_path, monkeypatch):
    save_after_every_task(monkeypatch)
    call = CALLS[name]
    expected = call(tmp_path / "undisturbed")
    shutil.rmtree(tmp_path / "undisturbed")
    number, points, refused, reached = 1, 0, 0, True
    while reached:
        reached, results = fail_at(call, kind, number, tmp_path, monkeypatch)
        assert all(result == expected for result in results), number
        points, refused = points + 1, refused + (not results)
        number += step
    print(f"{name}, {kind}: {points} points, {refused} refused")
    assert points >= 5
    assert refused <= points // 10  # nearly always the run is resumed


def test_files_that_are_not_replaced_atomically_are_noticed(tmp_path, monkeypatch):
    """The negative control: a file is written in place, so a power failure leaves half of it."""

    def write_in_place(path, content):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(content)

    save_after_every_task(monkeypatch)
    monkeypatch.setattr("dpverify.sampling.checkpoints.replace_file", write_in_place)
    outcomes = [fail_at(verify, "power", number, tmp_path, monkeypatch)[1] for number in range(1, 60, 3)]
    assert sum(not results for results in outcomes) > len(outcomes) // 10
