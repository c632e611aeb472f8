"""Every operation on the disk fails once, and the power fails at every operation; then the run is resumed.

The resumed run has the digest of an undisturbed one, or the folder is refused in one line.
"""

import itertools
import os
import random

import numpy as np
import pytest
from disk_faults import FaultyDisk
from failure_points import KINDS, Refusal, fail_at, save_after_every_task, sweep

import dpverify as dpv
from dpverify.ci.check import run_check
from dpverify.ci.history import read_history
from dpverify.ci.junit import FAILED
from dpverify.ci.ledger import read_ledger, verify_version
from dpverify.util.files import replace_file
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import to_plain
from mechanisms import ONE, ZERO, laplace

SMALL = {"select_runs": 1000, "test_runs": 2000, "block": 256}
QUICK = {"select_runs": 200, "test_runs": 400, "block": 200, "partition": "grid", "events": "cell"}
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


def verify_once(folder):
    return dpv.verify(laplace, ZERO, ONE, 0.5, folder=folder, **SMALL).digest


def verify(folder):
    """Verify twice, so that the second call reads what the first one has stored."""
    return verify_once(folder), verify_once(folder)


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
    try:
        folder.mkdir(exist_ok=True)
    except OSError as problem:
        raise dpv.InputError("the user cannot make a folder") from problem
    path = folder / "ledger.json"
    for seed in (1, 2):
        if not any(run.seed == seed and run.finished for record in read_ledger(path).records for run in record.runs):
            versioned = {"name": "sum", "version": f"v{seed}", "ledger": path, "seed": seed}
            verify_version(laplace, ZERO, ONE, 2.0, **versioned, **QUICK)
    return fingerprint(to_plain(read_ledger(path)))


CALLS = {"verify": verify, "study": run_study, "check": check_claims, "ledger": add_versions}
FEW = {"verify": 23, "study": 97, "check": 61, "ledger": 13}  # the fast tests take every so-manieth operation
FEW_ARRAYS = {"verify": 1499, "study": 799, "check": 399, "ledger": 3001}
MANY_ARRAYS = {"verify": 7, "study": 3, "check": 1, "ledger": 41}  # the slow tests take every operation on the disk


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "is_whole"),
    [*((name, False) for name in CALLS), *(pytest.param(n, True, marks=pytest.mark.slow) for n in CALLS)],
)
def test_after_a_failure_the_same_result_or_a_refusal(name, is_whole, kind, tmp_path, monkeypatch):
    save_after_every_task(monkeypatch)
    steps = (FEW_ARRAYS, MANY_ARRAYS) if kind == "memory" else (FEW, dict.fromkeys(CALLS, 1))
    found = sweep(CALLS[name], kind, steps[is_whole][name], tmp_path, monkeypatch)
    print(f"{name}, {kind}: {found.points} points, {found.resumed} resumed calls, {len(found.refusals)} refused")
    assert found.points >= 3
    assert len(found.refusals) <= found.resumed // 10  # nearly always the run is resumed


def write_in_place(path, content):
    """Write a file such that a power failure leaves half of it."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(content)
        os.fsync(file.fileno())


def replace_unsynced(path, content, is_synced=False):
    """Replace a file such that a power failure leaves the new name without the new content."""
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(content)
        if is_synced:
            os.fsync(file.fileno())
    os.replace(new, path)


@pytest.mark.parametrize("write", [write_in_place, replace_unsynced])
def test_files_that_are_not_replaced_atomically_are_noticed(write, tmp_path, monkeypatch):
    """The negative control: with these functions a power failure damages files."""
    save_after_every_task(monkeypatch)
    monkeypatch.setattr("dpverify.sampling.checkpoint.replace_file", write)
    found = [fail_at(verify_once, "power", number, tmp_path, monkeypatch)[1][1:] for number in range(10, 60, 7)]
    refused = [outcomes for outcomes in found if any(isinstance(outcome, Refusal) for outcome in outcomes)]
    assert len(refused) > len(found) // 10


def test_a_later_change_can_survive_a_power_failure_that_an_earlier_one_does_not(tmp_path, monkeypatch):
    """The simulated disk keeps every combination of changes of names, as long as their folder is not synchronised."""
    found = set()
    for seed in range(40):
        place = tmp_path / f"{seed}"
        place.mkdir()
        for name in ("earlier", "later", "removed", "synced"):
            (place / name).write_text("old")
        disk = FaultyDisk(place)
        with disk.attached(monkeypatch):
            replace_file(place / "synced", b"new")
            os.unlink(place / "removed")
            for name in ("earlier", "later"):
                replace_unsynced(place / name, b"new", is_synced=True)
        disk.lose(random.Random(seed))
        assert (place / "synced").read_text() == "new"
        found.add(((place / "earlier").read_text(), (place / "later").read_text(), (place / "removed").exists()))
    assert found == set(itertools.product(("old", "new"), ("old", "new"), (False, True)))
