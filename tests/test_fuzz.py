"""A few hundred damaged inputs for every reader, and inputs that once broke one (`make fuzz` tries a million)."""

import contextlib
import io
import json
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dpverify.errors import InputError
from dpverify.events.scores import SCORE_KINDS, UserScore
from dpverify.report.json import with_checksum
from dpverify.sampling.checkpoint import pack_record
from fuzz import READERS, Broken, attempt, fuzz, watching
from fuzz.results import signed

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("name", READERS)
def test_undamaged_inputs_are_accepted(name, tmp_path):
    """If the unchanged examples were refused, no change of them would test anything."""
    reader = READERS[name](tmp_path)
    with watching(tmp_path):
        for example in reader.whole():
            assert attempt(reader, example, tmp_path) == "taken"


def test_reports_with_every_kind_of_score_are_damaged(tmp_path):
    text = json.dumps(READERS["report"](tmp_path).documents)
    assert all(f'"kind": "{kind.__name__}"' in text for kind in SCORE_KINDS if kind is not UserScore)


@pytest.mark.parametrize("name", READERS)
def test_a_few_hundred_inputs(name, tmp_path):
    outcomes, broken, _ = fuzz(name, 250, 0, tmp_path)
    assert not broken, broken[0]
    assert outcomes["taken"] > 5
    assert outcomes.total() - outcomes["taken"] > 100


class Misbehaving:
    """A reader that does everything that is forbidden."""

    def __init__(self, place):
        self.place = place

    def read(self, kind):
        if kind == "raises":
            raise KeyError("no key")
        if kind == "is no line":
            raise InputError("one\nand another")
        if kind == "hangs":
            while True:
                pass
        if kind == "writes elsewhere":
            (self.place.parent / "elsewhere").write_text("x")
        if kind == "starts something":
            subprocess.run(["true"])
        if kind == "unpickles":
            pickle.loads(pickle.dumps(Path))
        if kind == "writes here":
            (self.place / "here").write_text("x")


@pytest.mark.parametrize("kind", ["raises", "is no line", "hangs", "writes elsewhere", "starts something", "unpickles"])
def test_forbidden_actions_are_detected(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("fuzz.SECONDS", 0.05)
    (tmp_path / "own").mkdir()
    with watching(tmp_path / "own"):
        assert attempt(Misbehaving(tmp_path / "own"), "writes here", tmp_path / "own") == "taken"
        with pytest.raises(Broken):
            attempt(Misbehaving(tmp_path / "own"), kind, tmp_path / "own")


# Inputs that once caused a traceback, a hang, or unlimited use of memory.


def changed(document, *path, to):
    """A copy with the value at `path` replaced."""
    node = document = json.loads(json.dumps(document))
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = to
    return json.dumps(document).encode()


REPORTS = {
    "nested too deeply": lambda d: b"[" * 100_000,
    "a delta as text": lambda d: changed(d, "result", "delta", to="much"),
    "NaN": lambda d: changed(d, "result", "delta", to=float("nan")),
    "no event": lambda d: changed(d, "result", "tested", to=[]),
    "a number too large for 64 bits": lambda d: changed(d, "result", "cell_counts", "c1", "values", 0, to=10**30),
    "too many cells": lambda d: changed(d, "result", "cell_counts", "number", "values", 0, to=10**13),
    "more cells than runs": lambda d: changed(d, "result", "cell_counts", "number", "values", 0, to=10**7),
    "counts of other runs": lambda d: changed(d, "result", "cell_counts", "runs", to=7),
    "an invalid dtype": lambda d: changed(d, "result", "cell_counts", "c1", "dtype", to="(3,)f8,("),
    "a list for a score": lambda d: changed(d, "result", "tested", 0, "event", "partition", to=[]),
}


def with_new_checksum(text):
    """A report with a valid checksum, so that what stands behind the checksum is reached."""
    with contextlib.suppress(Exception):
        return json.dumps(with_checksum(json.loads(text))).encode()
    return text


@pytest.mark.parametrize("name", REPORTS)
def test_damaged_reports_are_refused(name, tmp_path):
    reader = READERS["report"](tmp_path)
    with watching(tmp_path):
        assert attempt(reader, with_new_checksum(REPORTS[name](reader.documents[0])), tmp_path) == "InputError"


def test_control_characters_of_a_report_are_not_printed(tmp_path):
    reader = READERS["report"](tmp_path)
    for name in ("\x1b[2J", "\ud800", "x\n  proved    epsilon >= 9"):
        with watching(tmp_path):
            text = with_new_checksum(changed(reader.documents[0], "result", "name", to=name))
            assert attempt(reader, text, tmp_path) == "taken"


FOLDERS = {
    "no owner": ("region.record", lambda owner: pack_record({"content": {}}, [])),
    "no region": (
        "region.record",
        lambda owner: pack_record({"run": owner, "file": "region", "content": {"region": {"kind": "Region"}}}, []),
    ),
    "a name with a line break": ("region.record", lambda o: pack_record({"run": o, "file": "a\nb", "content": 1}, [])),
    "no blocks": (
        "pilot-1.record",
        lambda o: pack_record({"run": o, "file": "pilot-1", "content": {"content": "x"}}, []),
    ),
    "missing arrays": (
        "pilot-1.record",
        lambda owner: pack_record(
            {"run": owner, "file": "pilot-1", "content": {"content": "x", "done": {"0": 3}, "results": [[0, [1]]]}}, []
        ),
    ),
    "nested too deeply": ("dpverify.json", lambda owner: b"[" * 100_000),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_damaged_folders_are_refused(name, tmp_path):
    reader = READERS["folder"](tmp_path)
    file, content = FOLDERS[name]
    with watching(tmp_path):
        assert attempt(reader, (file, content(reader.owner["digest"])), tmp_path) == "FolderError"


STUDIES = {
    "too many verifications": ("seeds = 2", "seeds = 1000000000000"),
    "a setting called self": ("seed = 3", "self = 3"),
    "a number too large for a float": ("seed = 3", f"alpha = {'9' * 400}"),
    "an impossible file name": ('"a.txt"', f'"{"x" * 300}.txt"'),
    "nested too deeply": ("[1.0, 2]", "[" * 3000),
    "a very long module name": ('"fuzzed:laplace"', f'"{"x" * 4000}:laplace"'),
    "a very long file name": ('"fuzzed.py:pair"', f'"{"x" * 4000}.py:pair"'),
    "a very long name": ('"fuzzed.py:pair"', f'"fuzzed.py:{"x" * 4000}"'),
    "a very long name that cannot be called": ('"fuzzed.py:make()"', f'"fuzzed.py:{"x" * 4000}("'),
    "a very long data file name": ('"b.csv"', f'"{"x" * 4000}.csv"'),
    "too many parameters": ("scale = [0.5, 1.0, 2.0]", "\n".join(f"p{i} = [1, 2, 3, 4]" for i in range(12))),
}


@pytest.mark.parametrize("name", STUDIES)
def test_damaged_studies_are_refused(name, tmp_path):
    reader = READERS["study"](tmp_path)
    old, new = STUDIES[name]
    assert old in reader.TEXT
    with watching(tmp_path):
        assert attempt(reader, reader.TEXT.replace(old, new).encode(), tmp_path) == "InputError"


def archive():
    np.savez(buffer := io.BytesIO(), np.zeros(1))
    return buffer.getvalue()


COMMANDS = {
    "a setting called self": (["--set", "self=1"], None),
    "a number too large for a float": (["--set", f"alpha={'9' * 400}"], None),
    "nested too deeply": (["--set", f"alpha={'(' * 500}"], None),
    "an impossible file name": (["--first", f"{'x' * 300}.txt"], None),
    "an impossible output path": (["--js", "\0.txt"], None),
    "data nested too deeply": (["--first", "c.json"], ("c.json", b"[" * 100_000)),
    "an archive as an array": (["--first", "d.npy"], ("d.npy", archive())),
    "half an array": (["--first", "d.npy"], ("d.npy", b"\x93NUMPY\x01\x00v\x00{'descr'")),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_damaged_commands_are_refused(name, tmp_path):
    reader = READERS["command"](tmp_path)
    more, damaged = COMMANDS[name]
    words = ["verify", "fuzzed:laplace", "--first", "a.txt", "--second", "b.csv", *more]
    with watching(tmp_path):
        assert attempt(reader, (words, damaged), tmp_path) == "InputError"


@pytest.mark.parametrize("mechanism", ["fu\0zzed.py:make()", "fu\0zzed:make", "\0.py:x", f"{'x' * 5000}.py:x"])
def test_impossible_names_of_mechanisms_are_refused(mechanism, tmp_path):
    reader = READERS["command"](tmp_path)
    words = ["verify", mechanism, "--first", "a.txt", "--second", "b.csv"]
    with watching(tmp_path):
        assert attempt(reader, (words, None), tmp_path) == "InputError"


def signed_change(document, *path, to):
    """The text of a copy with one value replaced and a valid checksum."""
    return signed(json.loads(changed(document, *path, to=to)))


HISTORIES = {
    "a number for a release": ("content", 0, 7),
    "no text for a state": ("content", 0, "claims", "laplace-p", "state", []),
    "text for a bound": ("content", 0, "claims", "laplace-p", "epsilon_lower", "x"),
    "a number for all releases": ("content", 7),
}
LEDGERS = {
    "no e-values": ("content", "records", 0, "runs", 0, "log_e_values", []),
    "alpha 2": ("content", "alpha", 2.0),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_damaged_histories_are_refused(name, tmp_path):
    check_refused("history", HISTORIES[name], tmp_path)


@pytest.mark.parametrize("name", LEDGERS)
def test_damaged_ledgers_are_refused(name, tmp_path):
    check_refused("ledger", LEDGERS[name], tmp_path)


def check_refused(kind, change, place):
    reader = READERS[kind](place)
    *path, value = change
    with watching(place):
        assert attempt(reader, signed(reader.document), place) == "taken"
        assert attempt(reader, signed_change(reader.document, *path, to=value), place) == "InputError"
