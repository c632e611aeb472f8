"""What reads that which people have written: study files, command lines, data files (as in readers.py)."""

import contextlib
import io
import json
import os

import numpy as np

import dpverify as dpv
from dpverify import cli
from dpverify.errors import InputError
from dpverify.report.statements import check_claim
from dpverify.studies.plans import read_study
from fuzz.changes import change_bytes
from fuzz.readers import Broken, reports, small


class Studies:
    """`read_study`: all of a study up to its first verification."""

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
            at = rng.randrange(len(lines))
            name, equals, _ = lines[at].partition("=")
            kind = rng.randrange(5)
            if equals and kind < 3:
                lines[at] = f"{name}= {rng.choice(self.VALUES)}"
            elif kind == 3:
                strange = f"{rng.choice(self.WORDS)} = {rng.choice(self.VALUES)}"
                lines.insert(at, rng.choice((rng.choice(lines), strange)))
            else:
                del lines[at]
            lines = lines or [""]
        return "\n".join(lines).encode()

    def whole(self):
        return [self.TEXT.encode()]

    def read(self, text):
        self.path.write_bytes(text)
        read_study(self.path)


class Commands:
    """`dpverify ARGUMENTS`, with data files and a report that may be damaged too."""

    BASES = (
        "verify fuzzed:laplace --first a.txt --second b.csv --epsilon 0.5 --delta 0.01 --set alpha=0.1 --json out.json",
        "verify fuzzed.py:make() --first c.json --second d.npy --paper --set test_runs=1e6 --set events=cell --quiet",
        "verify --first a.txt --second c.json --shape 2,1 --timeout 3 --unseeded --detects 1.5 --epsilon 1 -- perl x",
        "study study.toml --workers 2 --folder kept --quiet",
        "report report.json",
        "reproduce --quick --out here --workers 1",
        "demo",
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

        def verify(mechanism, first, second, epsilon, delta, **rest):
            check_claim(rest["settings"], epsilon, delta)
            return report.against(epsilon, delta) if epsilon is None else report

        def run_study(file, folder, **rest):
            read_study(file)
            return dpv.Study(place, ())

        self.stand_ins = {"verify": verify, "run_study": run_study, "load_page_renderer": lambda: None}
        self.stand_ins |= {name: lambda arguments: 0 for name in ("_demo", "_reproduce")}

    def example(self, rng):
        words = rng.choices(self.BASES, (8, 8, 5, 2, 2, 1, 1, 1))[0].split()
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            at = rng.randrange(len(words) + 1)
            kind = rng.randrange(5)
            if kind == 0:
                del words[at : at + 1]
            elif kind < 3 and at < len(words):
                words[at] = rng.choice(self.VALUES)
            elif kind == 3:
                words[at:at] = [rng.choice(self.VALUES)]
            elif at < len(words):
                words[at] = os.fsdecode(change_bytes(os.fsencode(words[at]), rng))
        spoilt = None
        if rng.random() < 0.4:
            name = rng.choice([name for name in self.files if name in words] or ["a.txt"])
            spoilt = name, change_bytes(self.files[name], rng)
        return words, spoilt

    def whole(self):
        return [(base.split(), None) for base in self.BASES]

    def read(self, example):
        words, spoilt = example
        # What a user names is written where he says; here all of it stays in this folder.
        words = [word for word in words if not word.startswith(("--da", "--ht"))]  # a network; a figure takes a second
        words = ["out.json" if at and words[at - 1] == "--json" else word for at, word in enumerate(words)]
        if spoilt:
            (self.place / spoilt[0]).write_bytes(spoilt[1])
        out, err = io.StringIO(), io.StringIO()
        kept = {name: getattr(cli, name) for name in self.stand_ins}
        try:
            vars(cli).update(self.stand_ins)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    status = cli.main(words)
                except SystemExit as stop:  # argparse: mistakes, help, version
                    status = stop.code
        finally:
            vars(cli).update(kept)
            if spoilt:
                (self.place / spoilt[0]).write_bytes(self.files[spoilt[0]])
        said = err.getvalue()
        if "Traceback" in said or status not in (0, 1, 2, 3):
            raise Broken(f"status {status}: {said}")
        if status == 2:
            if said.count("\n") != 1:
                raise Broken(f"not one line: {said}")
            raise InputError("refused")
