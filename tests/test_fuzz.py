"""A few hundred damaged files for every reader, and files that once broke one (`make fuzz` tries 100 000 of each)."""

import json

import pytest

from fuzz import READERS, STUDY, Broken, attempt, fuzz

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(params=READERS)
def reader(request, tmp_path):
    return READERS[request.param](tmp_path)


def test_undamaged_files_are_accepted(reader):
    """If the unchanged files were refused, no change of them would test anything."""
    contents = (
        [STUDY.encode()] if reader.pack.__qualname__.startswith("Studies") else map(reader.pack, reader.documents)
    )
    assert {attempt(reader, content) for content in contents} == {"taken"}


@pytest.mark.parametrize("name", READERS)
def test_a_few_hundred_files(name, tmp_path):
    outcomes, broken, _ = fuzz(name, 250, 0, tmp_path)
    assert not broken, broken[0]
    assert outcomes["taken"] > 5
    assert outcomes.total() - outcomes["taken"] > 100


def test_a_reader_that_fails_is_noticed():
    class Failing:
        def read(self, content):
            raise content

    for problem in (KeyError("no key"), READERS, dpv_error("two\nlines")):
        with pytest.raises(Broken):
            attempt(Failing(), problem)


def dpv_error(text):
    from dpverify.errors import InputError

    return InputError(text)


# Files that once caused a traceback, a hang, or unlimited use of memory: where the value is, and the new value.
CELLS = ("result", "cell_counts")
CHANGES = {
    "report": {
        "a delta as text": ("result", "delta", "much"),
        "NaN": ("result", "delta", float("nan")),
        "no event": ("result", "tested", []),
        "a number too large for 64 bits": (*CELLS, "c1", "values", 0, 10**30),
        "too many cells": (*CELLS, "number", "values", 0, 10**13),
        "more cells than runs": (*CELLS, "number", "values", 0, 10**7),
        "counts of other runs": (*CELLS, "runs", 7),
        "an invalid dtype": (*CELLS, "c1", "dtype", "(3,)f8,("),
        "a list for a score": ("result", "tested", 0, "event", "partition", []),
    },
    "history": {
        "a number for a release": ("content", 0, 7),
        "no text for a state": ("content", 0, "claims", "laplace-p", "state", []),
        "text for a bound": ("content", 0, "claims", "laplace-p", "epsilon_lower", "x"),
        "a number for all releases": ("content", 7),
    },
    "ledger": {
        "no e-values": ("content", "records", 0, "runs", 0, "log_e_values", []),
        "alpha 2": ("content", "alpha", 2.0),
    },
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_with_a_valid_checksum_are_refused(name, tmp_path):
    reader = READERS[name](tmp_path)
    for what, (*path, last, value) in CHANGES[name].items():
        node = document = json.loads(json.dumps(reader.documents[0]))
        for key in path:
            node = node[key]
        node[last] = value
        try:
            content = reader.pack(document)
        except Exception:  # NaN has no checksum
            content = json.dumps(document).encode()
        assert attempt(reader, content) == "InputError", what
    assert attempt(reader, b"[" * 100_000) == "InputError"


def test_control_characters_of_a_report_are_not_printed(tmp_path):
    reader = READERS["report"](tmp_path)
    for name in ("\x1b[2J", "\ud800", "x\n  proved    epsilon >= 9"):
        document = {**reader.documents[0], "result": {**reader.documents[0]["result"], "name": name}}
        assert attempt(reader, reader.pack(document)) == "taken"


STUDIES = {
    "too many verifications": ("seeds = 2", "seeds = 1000000000000"),
    "a setting called self": ("seed = 3", "self = 3"),
    "a number too large for a float": ("seed = 3", f"alpha = {'9' * 400}"),
    "an impossible file name": ('"a.txt"', f'"{"x" * 300}.txt"'),
    "nested too deeply": ("[1.0, 2]", "[" * 3000),
    "a very long module name": ('"dpverify.demo:laplace_sum"', f'"{"x" * 4000}:laplace"'),
    "a very long file name": ('"fuzzed.py:pair"', f'"{"x" * 4000}.py:pair"'),
    "a very long name that cannot be called": ('"fuzzed.py:make()"', f'"fuzzed.py:{"x" * 4000}("'),
    "too many parameters": ("scale = [0.5, 1.0, 2.0]", "\n".join(f"p{i} = [1, 2, 3, 4]" for i in range(12))),
}


@pytest.mark.parametrize("name", STUDIES)
def test_damaged_studies_are_refused(name, tmp_path):
    old, new = STUDIES[name]
    assert old in STUDY
    assert attempt(READERS["study"](tmp_path), STUDY.replace(old, new).encode()) == "InputError"
