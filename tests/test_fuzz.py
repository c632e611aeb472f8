"""A few hundred damaged inputs for every reader, and all that has ever broken one (`make fuzz` tries a million)."""

import io
import json
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dpverify.errors import InputError
from dpverify.events.scores import SCORE_KINDS, UserScore
from dpverify.util.hashing import fingerprint
from fuzz import READERS, Broken, attempt, fuzz, watching

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("name", READERS)
def test_what_is_not_damaged_is_taken(name, tmp_path):
    """All that the changes begin with: else a whole kind of input would be refused for another reason for ever."""
    reader = READERS[name](tmp_path)
    with watching(tmp_path):
        for example in reader.whole():
            assert attempt(reader, example, tmp_path) == "taken"


def test_reports_with_every_kind_of_score_are_damaged(tmp_path):
    text = json.dumps(READERS["report"](tmp_path).documents)
    assert all(f'"kind": "{kind.__name__}"' in text for kind in SCORE_KINDS if kind is not UserScore)


@pytest.mark.parametrize("name", READERS)
def test_a_few_hundred_inputs(name, tmp_path):
    outcomes, broken = fuzz(name, 250, 0, tmp_path)
    assert not broken, broken[0]
    assert outcomes["taken"] > 5
    assert outcomes.total() - outcomes["taken"] > 100


class Misbehaving:
    """The negative control."""

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
def test_the_watch_sees_what_no_reader_may_do(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("fuzz.SECONDS", 0.05)
    (tmp_path / "own").mkdir()
    with watching(tmp_path / "own"):
        assert attempt(Misbehaving(tmp_path / "own"), "writes here", tmp_path / "own") == "taken"
        with pytest.raises(Broken):
            attempt(Misbehaving(tmp_path / "own"), kind, tmp_path / "own")


# What once broke a reader: a traceback, a hang, or memory without end.


def changed(document, *path, to):
    """A copy with the value at `path` replaced."""
    here = document = json.loads(json.dumps(document))
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = to
    return json.dumps(document).encode()


REPORTS = {
    "deeper than the stack": lambda d: b"[" * 100_000,
    "a level in words": lambda d: changed(d, "result", "alpha", to="much"),
    "NaN": lambda d: changed(d, "result", "epsilon_lower", to=float("nan")),
    "no witness": lambda d: changed(d, "result", "witness", to=None),
    "a claim without its p-value": lambda d: changed(d, "result", "p_value", to=None),
    "a number beyond 64 bits": lambda d: changed(d, "result", "on_partition", "c1", "values", 0, to=10**30),
    "cells without end": lambda d: changed(d, "result", "on_partition", "number", "values", 0, to=10**13),
    "counts of other runs": lambda d: changed(d, "result", "on_partition", "runs", to=7),
    "a type that is no type": lambda d: changed(d, "result", "on_partition", "c1", "dtype", to="(3,)f8,("),
    "a list for a score": lambda d: changed(d, "result", "witness", "event", "partition", to=[]),
}


@pytest.mark.parametrize("name", REPORTS)
def test_reports_that_broke_it(name, tmp_path):
    reader = READERS["report"](tmp_path)
    with watching(tmp_path):
        assert attempt(reader, REPORTS[name](reader.documents[0]), tmp_path) == "InputError"


def test_a_report_can_not_order_the_terminal_about(tmp_path):
    reader = READERS["report"](tmp_path)
    for name in ("\x1b[2J", "\ud800", "x\n  proved    epsilon >= 9"):
        with watching(tmp_path):
            assert attempt(reader, changed(reader.documents[0], "result", "name", to=name), tmp_path) == "taken"


def page(head, sign=True):
    head = {**head, "checksum": fingerprint((head, []))} if sign else head
    buffer = io.BytesIO()
    np.savez(buffer, head=np.frombuffer(json.dumps(head).encode(), np.uint8))
    return buffer.getvalue()


FOLDERS = {
    "nobody's": ("region.npz", lambda owner: page({"format": 1, "region": {}})),
    "a format of two lines": ("region.npz", lambda owner: page({"format": "a\nb", "owner": owner})),
    "no region": ("region.npz", lambda owner: page({"format": 1, "owner": owner, "region": {"kind": "Region"}})),
    "half a character": ("region.npz", lambda owner: page({"format": 1, "owner": owner, "\ud800": 1}, sign=False)),
    "no blocks": ("pilot-1.npz", lambda owner: page({"format": 1, "owner": owner, "measured": "x"})),
    "arrays that are not there": (
        "pilot-1.npz",
        lambda owner: page({"format": 1, "owner": owner, "measured": "x", "done": [[[0, 1]]], "arrays": [3]}),
    ),
    "deeper than the stack": ("dpverify.json", lambda owner: b"[" * 100_000),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_broke_it(name, tmp_path):
    reader = READERS["folder"](tmp_path)
    file, content = FOLDERS[name]
    with watching(tmp_path):
        assert attempt(reader, (file, content(reader.owner["digest"])), tmp_path) == "FolderError"


STUDIES = {
    "verifications without end": ("seeds = 2", "seeds = 1000000000000"),
    "a setting called self": ("seed = 3", "self = 3"),
    "a number beyond floats": ("seed = 3", f"alpha = {'9' * 400}"),
    "a name that no file has": ('"a.txt"', f'"{"x" * 300}.txt"'),
    "deeper than the stack": ("[1.0, 2]", "[" * 3000),
    "a module without end": ('"fuzzed:laplace"', f'"{"x" * 4000}:laplace"'),
    "a file without end": ('"fuzzed.py:pair"', f'"{"x" * 4000}.py:pair"'),
    "a name without end": ('"fuzzed.py:pair"', f'"fuzzed.py:{"x" * 4000}"'),
    "what can not be called, without end": ('"fuzzed.py:make()"', f'"fuzzed.py:{"x" * 4000}("'),
    "data without end": ('"b.csv"', f'"{"x" * 4000}.csv"'),
    "parameters without end": ("scale = [0.5, 1.0, 2.0]", "\n".join(f"p{i} = [1, 2, 3, 4]" for i in range(12))),
}


@pytest.mark.parametrize("name", STUDIES)
def test_studies_that_broke_it(name, tmp_path):
    reader = READERS["study"](tmp_path)
    old, new = STUDIES[name]
    assert old in reader.TEXT
    with watching(tmp_path):
        assert attempt(reader, reader.TEXT.replace(old, new).encode(), tmp_path) == "InputError"


COMMANDS = {
    "a setting called self": (["--set", "self=1"], None),
    "a number beyond floats": (["--set", f"alpha={'9' * 400}"], None),
    "deeper than the stack": (["--set", f"alpha={'(' * 500}"], None),
    "a name that no file has": (["--first", f"{'x' * 300}.txt"], None),
    "a place that no file has": (["--js", "\0.txt"], None),
    "data deeper than the stack": (["--first", "c.json"], ("c.json", b"[" * 100_000)),
    "an archive as an array": (["--first", "d.npy"], ("d.npy", page({}))),
    "half an array": (["--first", "d.npy"], ("d.npy", b"\x93NUMPY\x01\x00v\x00{'descr'")),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_broke_it(name, tmp_path):
    reader = READERS["command"](tmp_path)
    more, spoilt = COMMANDS[name]
    words = ["verify", "fuzzed:laplace", "--first", "a.txt", "--second", "b.csv", *more]
    with watching(tmp_path):
        assert attempt(reader, (words, spoilt), tmp_path) == "InputError"


@pytest.mark.parametrize("mechanism", ["fu\0zzed.py:make()", "fu\0zzed:make", "\0.py:x", f"{'x' * 5000}.py:x"])
def test_mechanisms_that_no_file_or_module_can_hold(mechanism, tmp_path):
    reader = READERS["command"](tmp_path)
    words = ["verify", mechanism, "--first", "a.txt", "--second", "b.csv"]
    with watching(tmp_path):
        assert attempt(reader, (words, None), tmp_path) == "InputError"
