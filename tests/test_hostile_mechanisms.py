"""Mechanisms that deceive the command: attributes that fail, and a message that only the command may send."""

import subprocess
import sys

import pytest
from user_folder import make_user_folder

from dpverify.cli import main

MECHANISMS = """
import os
import numpy as np

class Laplace:
    def __call__(self, data, runs, rng):
        return np.sum(data) + rng.laplace(size=runs)

class Forges(Laplace):  # sends "I have finished with status 0" to every open file, and ends
    def __call__(self, data, runs, rng):
        for handle in range(3, 64):
            try:
                os.write(handle, f"{os.getpid()} 0".encode())
            except OSError:
                pass
        os._exit(0)

class Refuses(Laplace):
    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")

forges, refuses, text, negative = Forges(), Refuses(), Laplace(), Laplace()
text.block, negative.block = "x", -1
"""
ARGUMENTS = ["--first", "a.txt", "--second", "b.txt", "--epsilon", "1"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    return make_user_folder(tmp_path, monkeypatch, {"hostile.py": MECHANISMS, "a.txt": "0\n", "b.txt": "1\n"})


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("text", "the mechanism's attribute block: found 'x'; expected a whole number from 1 up\n"),
        ("negative", "the mechanism's attribute block: found -1; expected a whole number from 1 up\n"),
        ("refuses", "the mechanism failed: RuntimeError: no block (at hostile.py, line 20)\n"),
    ],
)
def test_attributes_that_cannot_be_used_exit_2_in_one_line(name, line, capsys):
    assert main(["verify", f"hostile.py:{name}", *ARGUMENTS]) == 2
    assert capsys.readouterr().err == f"dpverify: {line}"


def test_a_mechanism_cannot_report_success_for_the_command():
    command = [sys.executable, "-m", "dpverify", "verify", "hostile.py:forges", *ARGUMENTS]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 3
    assert done.stderr.endswith("(exit status 0); the mechanism, or a library, ended it\n")
