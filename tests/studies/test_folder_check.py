"""The integrity check of folders: undamaged ones have no problem, and each kind of damage is named in one line."""

import json
import os
import shutil

import numpy as np
import pytest

import dpverify as dpv
from dpverify.cli import main
from dpverify.studies.study import check_folder
from mechanisms import ONE, ZERO, laplace

SMALL = {"select_runs": 2000, "test_runs": 4000, "block": 256}
STUDY = """
epsilon = 0.5
seeds = 2
[pairs.p]
first = "a.txt"
second = "b.txt"
[mechanisms.laplace]
use = "dpverify.demo:laplace_sum"
[settings]
select_runs = 1000
test_runs = 2000
"""


@pytest.fixture(scope="module")
def verified(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verified") / "kept"
    dpv.verify(laplace, ZERO, ONE, folder=folder, **SMALL)
    return folder


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    place = tmp_path_factory.mktemp("studied")
    np.savetxt(place / "a.txt", ZERO.ravel())
    np.savetxt(place / "b.txt", ONE.ravel())
    (place / "noise.toml").write_text(STUDY)
    dpv.run_study(place / "noise.toml", place / "kept")
    return place / "kept"


def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def test_a_folder_of_a_verification_is_described(verified, capsys):
    before = {path.name: path.read_bytes() for path in verified.iterdir()}
    assert main(["verify-folder", str(verified)]) == 0
    out = capsys.readouterr().out
    assert "everything belongs together" in out
    assert "test-1.record: finished blocks: 16 of the first dataset, 16 of the second dataset" in out
    assert "events.record: a frozen choice" in out
    assert before == {path.name: path.read_bytes() for path in verified.iterdir()}


def test_a_folder_of_a_study_is_described(studied):
    check = check_folder(studied)
    assert check.problems == ()
    assert str(check).count(": REFUTED") == 2


def change_bytes(path):
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2, len(content) // 2 + 300):  # some bytes of an archive have no meaning
        content[place] ^= 1
    path.write_bytes(content)


def change_bound(folder):
    path = next((folder / "reports").iterdir())
    document = json.loads(path.read_text())
    document["result"]["cell_counts"]["alpha"] += 0.01
    path.write_text(json.dumps(document))


def swap_reports(folder):
    first, second = sorted((folder / "reports").iterdir())
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


VERIFICATION_DAMAGE = {
    "changed bytes": (lambda f: change_bytes(f / "test-1.record"), "test-1.record: damaged"),
    "a renamed file": (
        lambda f: (f / "pilot-1.record").rename(f / "train-7.record"),
        "train-7.record: found the content of pilot-1.record",
    ),
    "another file": (lambda f: (f / "thesis.tex").write_text("mine"), "thesis.tex: not a file of dpverify"),
}
STUDY_DAMAGE = {
    "an edited bound": (change_bound, "found another checksum"),
    "swapped reports": (swap_reports, "found the report of another job"),
    "another file": (lambda f: (f / "reports" / "x.txt").write_text("mine"), "x.txt: not a file of dpverify"),
}


@pytest.mark.parametrize("name", VERIFICATION_DAMAGE)
def test_damage_of_a_verification_is_named(verified, tmp_path, name):
    damage, message = VERIFICATION_DAMAGE[name]
    folder = copy(verified, tmp_path)
    damage(folder)
    (problem,) = check_folder(folder).problems
    assert message in problem


@pytest.mark.parametrize("name", STUDY_DAMAGE)
def test_damage_of_a_study_is_named(studied, tmp_path, name, capsys):
    damage, message = STUDY_DAMAGE[name]
    folder = copy(studied, tmp_path)
    damage(folder)
    problems = check_folder(folder).problems
    assert message in problems[0]
    assert main(["verify-folder", str(folder), "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_an_unfinished_verification_of_a_study_is_checked(studied, verified, tmp_path):
    folder = copy(studied, tmp_path)
    shutil.copytree(verified, folder / "running" / "0001")
    assert check_folder(folder).problems == ()
    change_bytes(folder / "running" / "0001" / "test-1.record")
    (problem,) = check_folder(folder).problems
    assert "test-1.record: damaged" in problem


def test_other_folders_are_refused_in_one_line(tmp_path, verified):
    with pytest.raises(dpv.InputError, match=r"found no dpverify.json; expected a folder that dpverify has written"):
        check_folder(tmp_path)
    folder = copy(verified, tmp_path)
    (folder / "dpverify.json").write_text("{")
    with pytest.raises(dpv.FolderError, match=r"dpverify.json: damaged"):
        check_folder(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["dpverify.json", "lock", "test-1.record"])
def test_a_pipe_or_a_device_in_the_folder_of_a_verification_is_refused(name, verified, tmp_path):
    """Reading a pipe waits for ever, and reading /dev/zero takes all memory."""
    for number, make in enumerate((os.mkfifo, lambda path: os.symlink("/dev/zero", path))):
        (tmp_path / f"{number}").mkdir()
        folder = copy(verified, tmp_path / f"{number}")
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
        with pytest.raises(dpv.FolderError, match=rf"{name}: found a pipe or a device; expected a file; remove it"):
            dpv.verify(laplace, ZERO, ONE, folder=folder, **SMALL)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_folder_of_a_study_is_refused(studied, tmp_path, capsys):
    place = shutil.copytree(studied.parent, tmp_path / "copy")
    report = sorted((place / "kept" / "reports").iterdir())[0]
    report.unlink()
    os.mkfifo(report)
    with pytest.raises(dpv.FolderError, match=r"json: found a pipe or a device; expected a file; remove it"):
        dpv.run_study(place / "noise.toml", place / "kept")
    assert any("found a pipe or a device" in problem for problem in check_folder(place / "kept").problems)


def test_a_study_with_a_parameter_belongs_together(tmp_path):
    """The README has such a study; the reports store its columns sorted, and some rows are too weak."""
    np.savetxt(tmp_path / "a.txt", ZERO.ravel())
    np.savetxt(tmp_path / "b.txt", ONE.ravel())
    (tmp_path / "folder_check_own.py").write_text(
        "def noisy_sum(scale):\n    return lambda data, runs, rng: data.sum() + rng.laplace(scale=scale, size=runs)\n"
    )
    own = '[mechanisms.noise]\nuse = "folder_check_own.py:noisy_sum"\nscale = [1.0, 3.0]\n[settings]'
    (tmp_path / "noise.toml").write_text(STUDY.replace("[settings]", own))
    dpv.run_study(tmp_path / "noise.toml", tmp_path / "kept")
    assert list(check_folder(tmp_path / "kept").problems) == []
