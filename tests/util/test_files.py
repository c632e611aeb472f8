"""Files are replaced as a whole; links are not followed; the folder is synchronised."""

import errno
import os
import pickle

import pytest

import dpverify as dpv
from dpverify.util.files import replace_file


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    (tmp_path / "report.json.new").symlink_to(precious)
    replace_file(tmp_path / "report.json", b"{}")
    assert precious.read_text() == "mine"
    assert (tmp_path / "report.json").read_bytes() == b"{}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious.txt", "report.json"]


def test_a_new_file_that_appears_in_between_is_an_error(tmp_path, monkeypatch):
    """Another process creates the file after it was removed; its file is not overwritten through an open handle."""
    real = os.open

    def lose_the_race(path, flags, *more):
        if flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        return real(path, flags, *more)

    (tmp_path / "report.json").write_text("old")
    monkeypatch.setattr(os, "open", lose_the_race)
    with pytest.raises(FileExistsError):
        replace_file(tmp_path / "report.json", b"{}")
    assert (tmp_path / "report.json").read_text() == "old"


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
