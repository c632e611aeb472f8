"""Readers of what people write: study files, command lines and data files (see readers.py)."""

import contextlib
import io
import json
import os
from unittest import mock

import numpy as np

import dpverify as dpv
from dpverify.cli import commands, main
from dpverify.errors import InputError
from dpverify.report.statements import check_claim
from dpverify.studies.study import read_study
from fuzz.changes import change_bytes
from fuzz.readers import Broken, reports, small


class Studies:
    """`read_study`: everything that a study does before its first verification."""

    TEXT = """
seeds = 2
epsilon = 1.0
delta = 0.0

[pairs.files]
first = "a.txt"
second = "b.csv"

[pairs.made]
use = "fuzzed.py:pair"
value = [1.0, 2]
exact = true

[mechanisms.laplace]
use = "fuzzed:laplace"

[mechanisms.scaled]
use = "fuzzed.py:make()"
scale = [0.5, 1.0, 2.0]

[settings]
preset = "paper"
select_runs = 200
test_runs = 400
partition = "grid"
seed = 3
"""
    VALUES = (
        *("1", "-1", "0", "nan", "inf", "-inf", "1e400", "9" * 30, "true", '""', '"x"', "[]", "[1, 'x', []]", "{}"),
        *("1979-05-27", "[[" * 300, '"fuzzed:nothing"', '"../a.txt"', '"\\u0000.txt"', f'"{"x" * 300}.txt"', "0x7f"),
        *('"a.txt:b"', '"fuzzed.py:"', '":x"', '"a/b.py:c"', '"fuzzed.laplace:x"', '"grid"', "{ a = 1 }", "seeds"),
    )
    WORDS = ("self", "seeds", "epsilon", "settings", "use", "first", "[pairs]", "[[pairs.files]]", "[a.b.c]", "kind")

    def __init__(self, place):
        self.path = place / "study.toml"
        (place / "fuzzed.py").write_text("def laplace(data, runs, rng): ...\ndef pair(**a): ...\ndef make(**a): ...\n")
        (place / "a.txt").write_text("0\n")
        (place / "b.csv").write_text("1,2\n")

    def example(self, rng):
        if rng.random() < 0.3:
            return change_bytes(self.TEXT.encode(), rng)
        lines = self.TEXT.split("\n")
        for _ in range(rng.choice((1, 1, 2, 4))):
            index = rng.randrange(len(lines))
            name, equals, _ = lines[index].partition("=")
            kind = rng.randrange(5)
            if equals and kind < 3:
                lines[index] = f"{name}= {rng.choice(self.VALUES)}"
            elif kind == 3:
                unexpected = f"{rng.choice(self.WORDS)} = {rng.choice(self.VALUES)}"
                lines.insert(index, rng.choice((rng.choice(lines), unexpected)))
            else:
                del lines[index]
            lines = lines or [""]
        return "\n".join(lines).encode()

    def whole(self):
        return [self.TEXT.encode()]

    def read(self, text):
        self.path.write_bytes(text)
        read_study(self.path)


class Commands:
    """`dpverify ARGUMENTS`; data files and the report can be damaged too."""

    BASES = (
        "verify fuzzed:laplace --first a.txt --second b.csv --epsilon 0.5 --delta 0.01 --set alpha=0.1 --json out.json",
        "verify fuzzed.py:make() --first c.json --second d.npy --paper --set test_runs=1e6 --set events=cell --quiet",
        "verify --first a.txt --second c.json --shape 2,1 --timeout 3 --unseeded --detects 1.5 --epsilon 1 -- perl x",
        "study study.toml --workers 2 --folder kept --quiet",
        "report report.json",
        "--version",
    )
    VALUES = (
        *("-1", "0", "nan", "inf", "1e999", "x", "", "-", "--", "2,x", "1,2,3", "0x2", "9" * 40, "9" * 5000, "\udcff"),
        *("self=1", "=", "alpha", "alpha=[", "alpha=" + "(" * 500, "seed=1e400", "block=None", "events=x:y"),
        *("events=()", "partition={}", "joint=1", "resolution=2.5", "seed=" + "9" * 400, "a.b=c", "nonfinite=event"),
        *("fuzzed:nothing", "fuzzed:", ":", "fuzzed.py", "no.py:x", "..:x", "a:b()", "fuzzed:laplace()", "\0:x", "é:é"),
        *("a.txt", "b.csv", "c.json", "d.npy", "x.npy", ".json", "x" * 300 + ".txt", "a.txt/b.csv", "\0.txt"),
        *("--help", "--first", "--set", "--detects", "--paper", "--dask", "--workers", "--json", "--shape", "--html"),
    )

    def __init__(self, place):
        self.place, report = place, reports()[0]
        self.report = small(report, place)
        array = io.BytesIO()
        np.save(array, np.arange(4.0))
        self.files = {
            "a.txt": b"0 1\n2 3\n",
            "b.csv": b"0,1\n2,3\n",
            "c.json": b"[[0, 1], [2, 3.5]]",
            "d.npy": array.getvalue(),
            "report.json": json.dumps(self.report).encode(),
            "study.toml": Studies.TEXT.encode(),
        }
        Studies(place)
        for name, content in self.files.items():
            (place / name).write_bytes(content)

        def verify(mechanism, first, second, epsilon=None, delta=0.0, **rest):
            check_claim(rest["settings"], epsilon, delta)
            return report.against(epsilon, delta) if epsilon is None else report

        def run_study(file, folder, **rest):
            read_study(file)
            return dpv.Study(
                place,
                ({"mechanism": "laplace", "pair": "p", **report.row(), "report": "report.json", "problem": None},),
            )

        self.stand_ins = ((dpv, "verify", verify), (commands, "run_study", run_study))

    def example(self, rng):
        words = rng.choices(self.BASES, (8, 8, 5, 2, 2, 1))[0].split()
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            index = rng.randrange(len(words) + 1)
            kind = rng.randrange(5)
            if kind == 0:
                del words[index : index + 1]
            elif kind < 3 and index < len(words):
                words[index] = rng.choice(self.VALUES)
            elif kind == 3:
                words[index:index] = [rng.choice(self.VALUES)]
            elif index < len(words):
                words[index] = os.fsdecode(change_bytes(os.fsencode(words[index]), rng))
        damaged = None
        if rng.random() < 0.4:
            name = rng.choice([name for name in self.files if name in words] or ["a.txt"])
            damaged = name, change_bytes(self.files[name], rng)
        return words, damaged

    def whole(self):
        return [(base.split(), None) for base in self.BASES]

    def read(self, example):
        words, damaged = example
        # A command writes to the paths that it is given. Here every output stays in this folder.
        # No network is used, and no figures are drawn, because each takes a second.
        words = [word for word in words if not word.startswith(("--da", "--ht"))]
        words = ["out.json" if index and words[index - 1] == "--json" else word for index, word in enumerate(words)]
        if damaged:
            (self.place / damaged[0]).write_bytes(damaged[1])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as stack:
            for stand_in in self.stand_ins:
                stack.enter_context(mock.patch.object(*stand_in))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            try:
                status = main(words)
            except SystemExit as stop:  # argparse exits for wrong usage, help and version
                status = stop.code
        if damaged:
            (self.place / damaged[0]).write_bytes(self.files[damaged[0]])
        message = err.getvalue()
        if "Traceback" in message or status not in (0, 1, 2, 3):
            raise Broken(f"status {status}: {message}")
        if status == 2:
            if message.count("\n") != 1:
                raise Broken(f"not one line: {message}")
            raise InputError("refused")
