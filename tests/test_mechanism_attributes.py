"""Mechanisms whose attributes cannot be used end the command with one line."""

import pytest
from user_folder import make_user_folder

from dpverify.cli import main

MECHANISMS = """
import numpy as np

class Laplace:
    def __call__(self, data, runs, rng):
        return np.sum(data) + rng.laplace(size=runs)

class Refuses(Laplace):
    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")

refuses, text, negative = Refuses(), Laplace(), Laplace()
text.block, negative.block = "x", -1
"""
ARGUMENTS = ["--first", "a.txt", "--second", "b.txt", "--epsilon", "1"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    return make_user_folder(tmp_path, monkeypatch, {"hostile.py": MECHANISMS, "a.txt": "0\n", "b.txt": "1\n"})


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("text", "the mechanism's attribute block must be a whole number of at least 1, not 'x'\n"),
        ("negative", "the mechanism's attribute block must be a whole number of at least 1, not -1\n"),
        ("refuses", "the mechanism failed: RuntimeError: no block (at hostile.py, line 10)\n"),
    ],
)
def test_attributes_that_cannot_be_used_exit_2_in_one_line(name, line, capsys):
    assert main(["verify", f"hostile.py:{name}", *ARGUMENTS]) == 2
    assert capsys.readouterr().err == f"dpverify: {line}"
