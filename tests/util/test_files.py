"""Files are replaced as a whole; writers do not disturb each other; locks belong to the operating system."""

import errno
import os
import pickle
import threading

import pytest

import dpverify as dpv
from dpverify.util.files import hold_lock, replace_file, write_text


def test_a_file_of_the_user_beside_the_target_stays_and_permissions_are_kept(tmp_path):
    """The new content has a file of its own with a name that nobody else uses."""
    (tmp_path / "report.json.new").write_text("mine")
    (tmp_path / "report.json").write_text("old")
    (tmp_path / "report.json").chmod(0o600)
    replace_file(tmp_path / "report.json", b"{}")
    assert (tmp_path / "report.json.new").read_text() == "mine"
    assert (tmp_path / "report.json").read_bytes() == b"{}"
    assert (tmp_path / "report.json").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.json.new"]


def test_many_writers_of_one_path_never_fail_and_readers_see_whole_files(tmp_path):
    path, texts, problems = tmp_path / "page.html", {letter * 5000 for letter in "abc"}, []
    write_text(path, "a" * 5000)

    def write(text):
        try:
            for _ in range(30):
                write_text(path, text)
                assert path.read_text() in texts
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_a_linked_lock_creates_no_file_elsewhere(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), hold_lock(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_file_and_folder_are_synchronised_in_this_order(tmp_path, monkeypatch):
    events, sync, replace = [], os.fsync, os.replace

    def record_sync(handle):
        events.append("folder" if os.path.isdir(f"/dev/fd/{handle}") else "file")
        sync(handle)

    def record_replace(source, target):
        events.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", record_replace)
    replace_file(tmp_path / "report.json", b"{}")
    assert events == ["file", "replace", "folder"]


def two_steps(data, runs, rng):
    return data + rng.laplace(size=(runs, 2, 1))


@pytest.mark.parametrize("writer", ["to_json", "to_html"])
def test_a_report_that_cannot_be_written_gives_the_line_of_the_command(tmp_path, monkeypatch, writer):
    """The path is that of the caller, and a program that catches OSError still does."""
    monkeypatch.chdir(tmp_path)
    few = {"select_runs": 500, "test_runs": 1000}
    for result in (dpv.verify(two_steps, 0.0, 1.0, **few), dpv.privacy_over_time(two_steps, 0.0, 1.0, **few)):
        for kind in (OSError, dpv.InputError):
            with pytest.raises(kind) as caught:
                getattr(result, writer)("nowhere/x.html")
            assert str(caught.value) == "nowhere/x.html: No such file or directory; expected a path that can be written"
            assert caught.value.errno == errno.ENOENT
            assert caught.value.filename == "nowhere/x.html"
            assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        with pytest.raises(dpv.InputError, match="expected a path that can be written"):
            getattr(result, writer)("x\0")
    assert not list(tmp_path.iterdir())
