"""Files are replaced as a whole; links are not followed; the folder is synchronised."""

import errno
import os

import pytest

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
