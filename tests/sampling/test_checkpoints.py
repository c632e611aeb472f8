"""Checkpoints: runs are resumed to the same report, foreign and damaged folders are refused, disks may fail."""

import contextlib
import errno
import hashlib
import json
import os
import pickle
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import dpverify as dpv
from dpverify.sampling.blocks import STAGES
from dpverify.sampling.checkpoint import Record, open_checkpoint, pack_record, unpack_record
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace

SMALL = {"select_runs": 4000, "test_runs": 8000, "block": 256}
PROBE = STAGES.index("probe")
PLANE = np.zeros((2, 2)), np.full((2, 2), 0.5)


class Watched:
    """A mechanism that records its blocks, and calls `doing` (by default an interruption) after `calls` blocks."""

    def __init__(self, mechanism, calls=10**9, doing=None):
        self.mechanism, self.calls, self.name = mechanism, calls, mechanism.__name__
        self.doing = doing or self.interrupt
        self.drawn = []

    def interrupt(self):
        raise KeyboardInterrupt

    def __call__(self, data, runs, rng):
        key = rng.bit_generator.seed_seq.spawn_key[:3]
        if len(self.drawn) + 1 == self.calls and key[0] != PROBE:
            self.doing()
        if key[0] != PROBE:  # how many blocks measure the speed depends on the load of the machine
            self.drawn.append(key)
        return self.mechanism(data, runs, rng)


def first_coordinate(samples):
    return samples[:, 0, 0]


CALLS = {
    "score": (laplace, ZERO, ONE, {}),
    "trajectory": (gaussian_trajectory, *PLANE, {"delta": 0.01}),
    "grid and accuracy": (gaussian_trajectory, *PLANE, {"partition": "grid", "error": dpv.rmse(PLANE[0])}),
    "tree": (gaussian_trajectory, *PLANE, {"partition": "tree"}),
    "all events": (laplace, ZERO, ONE, {"log_lipschitz": 1.0, "nonfinite": "event"}),
    "a user's score": (gaussian_trajectory, *PLANE, {"events": first_coordinate}),
    "paper": (laplace, ZERO, ONE, {"settings": dpv.Settings.paper(), "block": 64, "select_runs": 1000}),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupted_run_is_resumed_to_the_same_report(name, tmp_path):
    mechanism, first, second, more = CALLS[name]
    keywords = {**SMALL, **more}
    expected = dpv.verify(mechanism, first, second, 0.5, **keywords)
    drawn, stops, report = [], [], None
    while report is None:
        watched = Watched(mechanism, calls=25)
        try:
            report = dpv.verify(watched, first, second, 0.5, folder=tmp_path / "kept", **keywords)
        except dpv.Stopped as stop:
            stops.append(stop)
        drawn += watched.drawn
    assert len(stops) > 2
    assert all(
        stop.folder == str(tmp_path / "kept") and "repeat the same call to resume" in str(stop) for stop in stops
    )
    assert sorted({stop.done for stop in stops}) == [stop.done for stop in stops]  # every start makes progress
    assert report.digest == expected.digest
    assert report.provenance["resumed"]
    assert not expected.provenance["resumed"]
    drawn = [key for key in drawn if key[0] != 5]  # every start measures the speed with a few runs
    probes = [key for key in drawn if key[0] == 0 and key[2] == 0]  # every start probes the first block of both sets
    compared = [key for key in drawn if key == (0, 0, 1)]  # and compares it with the second block
    others = [key for key in drawn if key not in probes and key not in compared]
    assert len(probes) <= 3 * (len(stops) + 1)  # and draws one of them twice
    assert len(compared) <= len(stops) + 1
    assert len(others) - len(set(others)) <= 16 * len(stops)  # only the blocks of the task that was stopped
    assert len(list((tmp_path / "kept").iterdir())) <= 9  # a score of the user has one more file, `refit.record`


def test_a_run_is_resumed_with_any_executor(tmp_path):
    expected = dpv.verify(laplace, ZERO, ONE, 0.5, **SMALL).digest
    for calls in (10, 30):
        with pytest.raises(dpv.Stopped):
            dpv.verify(Watched(laplace, calls), ZERO, ONE, 0.5, folder=tmp_path, **SMALL)
    with ThreadPoolExecutor(2) as threads, pytest.raises(dpv.Stopped):
        dpv.verify(Watched(laplace, 30), ZERO, ONE, 0.5, folder=tmp_path, executor=threads, **SMALL)
    assert dpv.verify(laplace, ZERO, ONE, 0.5, folder=tmp_path, executor=2, **SMALL).digest == expected
    again = Watched(laplace)
    assert dpv.verify(again, ZERO, ONE, 0.5, folder=tmp_path, **SMALL).digest == expected
    assert len(again.drawn) == 4  # the first blocks, one of them again, and a second block


def test_the_tasks_before_a_failing_block_are_saved(tmp_path):
    def fail():
        raise ZeroDivisionError

    with pytest.raises(dpv.MechanismError):
        dpv.verify(Watched(laplace, 40, fail), ZERO, ONE, 0.5, folder=tmp_path, **SMALL)
    again = Watched(laplace)
    dpv.verify(again, ZERO, ONE, 0.5, folder=tmp_path, **SMALL)
    whole = Watched(laplace)
    dpv.verify(whole, ZERO, ONE, 0.5, **SMALL)
    assert len(whole.drawn) - 39 + 4 <= len(again.drawn) <= len(whole.drawn) - 39 + 4 + 16  # blocks of one task


@pytest.mark.filterwarnings("ignore:the mechanism cannot be seeded")
def test_a_mechanism_that_cannot_be_seeded_is_resumed(tmp_path):
    source = np.random.default_rng(5)

    def hardware(data, runs, rng):
        return laplace(data, runs, source)

    drawn, report = [], None
    while report is None:
        watched = Watched(hardware, 30)
        watched.seeded = False
        with contextlib.suppress(dpv.Stopped):
            report = dpv.verify(watched, ZERO, ONE, 0.5, folder=tmp_path, **SMALL)
        drawn += watched.drawn
    tested = [key for key in drawn if key[0] == 4]
    assert len(set(tested)) == 2 * -(-8000 // 256) < len(tested)  # some tasks were stopped and drawn again
    assert report.on_partition.c1 @ report.on_partition.number == 8000
    other = Watched(hardware)
    other.seeded, other.name = False, "another"
    with pytest.raises(dpv.FolderError, match="found mechanism hardware; expected another"):
        dpv.verify(other, ZERO, ONE, 0.5, folder=tmp_path, **SMALL)


def test_another_claim_has_a_folder_of_its_own(tmp_path):
    """The selected events depend on the claim."""
    dpv.verify(laplace, ZERO, ONE, 0.5, folder=tmp_path, **SMALL)
    with pytest.raises(dpv.FolderError, match="found another claim"):
        dpv.verify(laplace, ZERO, ONE, 0.9, folder=tmp_path, **SMALL)


def test_the_size_of_the_files_does_not_grow_with_the_runs(tmp_path):
    """The counts of the first 256 blocks are kept, so both runs have more blocks than that."""
    sizes = []
    for runs in (20_000, 200_000):
        folder = tmp_path / str(runs)
        dpv.verify(laplace, ZERO, ONE, 0.5, folder=folder, **{**SMALL, "test_runs": runs, "block": 64})
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()))
    assert sizes[1] < 1.2 * sizes[0]  # the same arrays; the numbers in the JSON have more digits


# Folders that are refused, in one line.


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    dpv.verify(laplace, ZERO, ONE, 0.5, folder=folder, **SMALL)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    for path in finished.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def twice_the_noise(data, runs, rng):
    return 2 * laplace(data, runs, rng)


OTHER_CALLS = [
    ((laplace, ZERO, ONE), {"test_runs": 9000}, "found test_runs 8000; expected 9000"),
    ((laplace, ZERO, ONE), {"seed": 1}, "found seed 0; expected 1"),
    ((laplace, ZERO, ONE), {"block": 128}, "found block 256; expected 128"),
    ((laplace, ZERO, ONE), {"delta": 0.1}, "found delta 0.0; expected 0.1"),
    ((laplace, ZERO, ONE), {"error": dpv.rmse(ZERO)}, "found another error"),
    ((laplace, ZERO, ONE), {"error": lambda samples: samples[:, 0, 0]}, "found another error"),
    ((laplace, ZERO, ONE), {"log_lipschitz": 1.0}, "found another log_lipschitz"),
    ((laplace, ZERO, 2 * ONE), {}, "found another second dataset"),
    ((twice_the_noise, ZERO, ONE), {}, "found the runs of another mechanism"),
]


@pytest.mark.parametrize(("call", "changes", "message"), OTHER_CALLS, ids=[message for *_, message in OTHER_CALLS])
def test_a_folder_of_another_call_is_refused(folder, call, changes, message):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(dpv.FolderError, match=message) as problem:
        dpv.verify(*call, 0.5, folder=folder, **{**SMALL, **changes})
    assert "\n" not in str(problem.value)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def change_format(folder, found):
    document = json.loads((folder / "dpverify.json").read_text())
    (folder / "dpverify.json").write_text(json.dumps({**document, "format": found}))


def swap(folder):
    with tempfile.TemporaryDirectory() as other:
        dpv.verify(laplace, ZERO, ONE, 0.5, folder=other, **{**SMALL, "seed": 1})
        (folder / "test-1.record").write_bytes((Path(other) / "test-1.record").read_bytes())


def edit_settings(folder):
    path = folder / "dpverify.json"
    path.write_text(path.read_text().replace('"digest": "', '"digest": "0'))


DAMAGED = {
    "another format": (lambda f: change_format(f, 2), "found format 2; expected 1; resume with the version"),
    "no JSON": (lambda f: (f / "dpverify.json").write_text("{"), "dpverify.json: damaged"),
    "wrong digest": (edit_settings, "dpverify.json: damaged"),
    "cut off": (
        lambda f: (f / "test-1.record").write_bytes((f / "test-1.record").read_bytes()[:-30]),
        "test-1.record: damaged",
    ),
    "empty": (lambda f: (f / "events.record").write_bytes(b""), "events.record: damaged"),
    "no record": (lambda f: (f / "test-1.record").write_bytes(pickle.dumps(7)), "test-1.record: damaged"),
    "of another run": (swap, "test-1.record: found a file of another run"),
    "renamed": (
        lambda f: (f / "pilot-1.record").rename(f / "test-1.record"),
        "test-1.record: found the content of pilot-1.record; remove this file",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_refused(folder, name):
    damage, message = DAMAGED[name]
    damage(folder)
    with pytest.raises(dpv.FolderError, match=message) as problem:
        dpv.verify(laplace, ZERO, ONE, 0.5, folder=folder, **SMALL)
    assert "\n" not in str(problem.value)


def test_the_runs_of_a_removed_file_are_drawn_again(folder):
    expected = dpv.verify(laplace, ZERO, ONE, 0.5, **SMALL).digest
    for name in ("test-1.record", "events.record", "pilot-1.record", "region.record"):
        (folder / name).unlink()
        assert dpv.verify(laplace, ZERO, ONE, 0.5, folder=folder, **SMALL).digest == expected


def test_a_folder_with_other_files_is_not_changed(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(dpv.FolderError, match=r"found thesis.tex, so this is not a folder of dpverify"):
        dpv.verify(laplace, ZERO, ONE, folder=tmp_path, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(dpv.FolderError, match="File exists"):
        dpv.verify(laplace, ZERO, ONE, folder=tmp_path / "thesis.tex", **SMALL)


def test_a_second_run_in_the_same_folder_is_refused(tmp_path):
    def second_run():
        with pytest.raises(dpv.FolderError, match="found another run that uses this folder"):
            dpv.verify(laplace, ZERO, ONE, 0.5, folder=tmp_path, **SMALL)
        seen.append(True)

    seen = []
    dpv.verify(Watched(laplace, 20, second_run), ZERO, ONE, 0.5, folder=tmp_path, **SMALL)
    assert seen
    dpv.verify(laplace, ZERO, ONE, 0.5, folder=tmp_path, **SMALL)  # afterwards the folder is unlocked


# Disk errors.


def test_a_finished_folder_is_read_from_a_medium_that_cannot_be_written(folder, monkeypatch):
    expected = dpv.verify(laplace, ZERO, ONE, 0.5, **SMALL).digest
    open_path, open_descriptor = Path.open, os.open

    def refuse(path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def open_for_reading(path, mode="r", *more, **keywords):
        return refuse(path) if mode not in ("r", "rb") else open_path(path, mode, *more, **keywords)

    def open_without_writing(path, flags, *more, **keywords):
        return refuse(path) if flags & os.O_CREAT else open_descriptor(path, flags, *more, **keywords)

    monkeypatch.setattr(Path, "open", open_for_reading)
    monkeypatch.setattr(os, "open", open_without_writing)
    watched = Watched(laplace)
    assert dpv.verify(watched, ZERO, ONE, 0.5, folder=folder, **SMALL).digest == expected
    assert len(watched.drawn) == 4  # the check that the folder belongs to the mechanism
    (folder / "lock").unlink()
    assert dpv.verify(laplace, ZERO, ONE, 0.5, folder=folder, **SMALL).digest == expected
    with pytest.raises(dpv.FolderError, match="Read-only file system; expected a folder that can be read and written"):
        dpv.verify(laplace, ZERO, ONE, 0.5, folder=folder / "new", **SMALL)


def test_a_full_disk_gives_a_warning_and_the_run_continues(folder, monkeypatch):
    (folder / "test-1.record").unlink()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.warns(dpv.DPVerifyWarning, match="No space left on device; the run continues") as caught:
            report = dpv.verify(laplace, ZERO, ONE, 0.5, folder=folder, **SMALL)
        assert len(caught) == 1
        with (
            pytest.warns(dpv.DPVerifyWarning, match="No space left"),
            pytest.raises(dpv.Stopped, match="its last results are not saved"),
        ):
            dpv.verify(Watched(laplace, 20), ZERO, ONE, 0.5, folder=folder, **SMALL)
    assert report.digest == dpv.verify(laplace, ZERO, ONE, 0.5, **SMALL).digest
    assert any("No space left" in note for note in report.notes)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert dpv.verify(laplace, ZERO, ONE, 0.5, folder=folder, **SMALL).digest == report.digest


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_an_impossible_folder_name_is_refused(name):
    with pytest.raises(dpv.FolderError, match="expected a folder that can be read and written"), open_checkpoint(name):
        pass


def test_a_relative_folder_stays_where_it_was_when_the_mechanism_changes_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def moving(data, runs, rng):
        os.chdir(tmp_path / "elsewhere")
        return laplace(data, runs, rng)

    dpv.verify(moving, ZERO, ONE, 0.5, folder="kept", **SMALL)
    assert (tmp_path / "kept" / "dpverify.json").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


# Records and fingerprints.


def test_a_record_is_read_as_it_was_written(tmp_path):
    arrays = [np.arange(5), np.zeros((0, 2)), np.array(["1/3", "2"]), np.array(2.5)]
    with open_checkpoint(tmp_path) as checkpoint:
        checkpoint.acquire({"a": 1}, {})
        assert checkpoint.read("x") is None
        checkpoint.write("x", Record({"word": "ä", "pairs": [(1, 2)]}, arrays))
        head, arrays_read = checkpoint.read("x")
    assert head["pairs"] == [[1, 2]]
    for written, read in zip(arrays, arrays_read, strict=True):
        np.testing.assert_array_equal(written, read)
        assert written.dtype == read.dtype


def test_a_changed_byte_never_changes_what_is_read(tmp_path):
    with open_checkpoint(tmp_path) as store:
        store.acquire({"a": 1}, {})
        store.write("x", Record({"done": [[0, 7]]}, [np.arange(5), np.array([2.5])]))
        content = (tmp_path / "x.record").read_bytes()
        for place in range(len(content)):
            (tmp_path / "x.record").write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
            with pytest.raises(dpv.FolderError, match=r"x\.record: damaged"):
                store.read("x")


@pytest.mark.parametrize("shape", [[10**12], [3, 10**9], "x"])
def test_a_record_never_needs_more_memory_than_its_file(shape):
    head, numbers = unpack_record(pack_record({}, [np.arange(5)]))
    content = pack_record(head, []).replace(b'"arrays": []', f'"arrays": [["<i8", {json.dumps(shape)}]]'.encode())
    content[:64] = hashlib.sha256(content[64:]).hexdigest().encode()
    with pytest.raises((ValueError, TypeError)):
        print(unpack_record(content))
    assert numbers[0].tolist() == [0, 1, 2, 3, 4]
