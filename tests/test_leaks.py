"""The checks for what tests leave behind find each kind of resource, and nothing if it was released."""

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from leaks import files_left_in, left_behind, resources


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch):
    monkeypatch.setattr("leaks.WAIT_SECONDS", 0.0)


def test_an_open_file_is_found(tmp_path):
    before = resources()
    with open(tmp_path / "open", "w"):
        (left,) = left_behind(before)
        assert left.endswith("/open")
    assert left_behind(before) == []


def test_a_thread_is_found():
    before, event = resources(), threading.Event()
    thread = threading.Thread(target=event.wait, name="waits")
    thread.start()
    assert left_behind(before) == ["thread waits"]
    event.set()
    thread.join()
    assert left_behind(before) == []


def test_a_child_process_is_found():
    before = resources()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert any(f"process {process.pid}" in left for left in left_behind(before))
    assert left_behind(before) == []


def test_a_temporary_file_is_found_and_temporary_folders_are_those_of_the_session():
    folder = Path(tempfile.gettempdir())
    before = set(files_left_in(folder))
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        assert set(files_left_in(folder)) - before == {Path(file.name).name}
    assert "dpverify-tests" in str(folder)
