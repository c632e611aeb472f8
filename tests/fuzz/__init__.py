"""Damaged files for everything that reads them: `make fuzz`, or `python -m fuzz [inputs] [seed]` in tests/.

Valid files are changed at random, in their bytes or in their structure with a valid checksum. A reader must accept the
result, or refuse it with an error of this library in one line.
"""

import functools
import json
import random
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

import dpverify as dpv
from dpverify.ci.check import run_check
from dpverify.ci.ledger import read_ledger, verify_version
from dpverify.demo import laplace_sum
from dpverify.errors import FolderError, InputError
from dpverify.events.event import SELECTION_KINDS, SelectedEvents, read_selected, store_selected
from dpverify.events.region import Region
from dpverify.report.json import with_checksum
from dpverify.sampling.checkpoint import Record, open_checkpoint, pack_record, unpack_record
from dpverify.studies.study import read_study
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import nested_kinds, to_plain

FEW = {"select_runs": 200, "test_runs": 500, "block": 250}
SHOWN = 5  # failures that are printed for each reader
HOSTILE = [
    *(None, True, False, 0, -1, 1, 2, 3.5, -0.5, 0.0, 1e308, -1e-308, 10**30, 2**63, -(2**63), float("inf")),
    *("", "inf", "-inf", "nan", "x", "\ud800", "\x1b[2J", "a\nb", "../../x", "x" * 300, "__class__", "é☃", "0"),
    *([], {}, [[]], [[1], [2, 3]], [None], {"kind": "array"}, {"kind": "os.system", "argv": "x"}, {"kind": []}),
    {"kind": "array", "dtype": "O", "values": [1], "shape": [1]},
    {"kind": "array", "dtype": "float64", "values": [1.0], "shape": [-1]},
    {"kind": "array", "dtype": "float64", "values": [], "shape": [0, 10**9]},
    {"kind": "array", "dtype": "(3,)f8,(", "values": [1], "shape": [1]},
    {"kind": "Settings"},
    {"kind": "Verdict", "name": "CERTIFIED"},
]


class Broken(AssertionError):
    """A reader did something else than accepting or refusing."""


class Reports:
    """`Report.from_json`; an accepted report must also be printable."""

    def __init__(self, place):
        self.path, plane = place / "report.json", np.zeros((2, 2))

        def noisy(data, runs, rng):
            return data + rng.standard_normal((runs, *data.shape))

        found = (
            dpv.verify(laplace_sum, np.zeros(1), np.ones(1), 0.5, log_lipschitz=1.0, error=dpv.rmse(0.0), **FEW),
            dpv.verify(noisy, plane, plane + 1, 0.5, partition="tree", **FEW),
            dpv.verify(noisy, plane, plane + 1, 0.5, events="score", delta=0.01, **FEW),
        )
        self.documents = []
        for report in found:
            report.to_json(self.path)
            self.documents.append(json.loads(self.path.read_text()))

    def pack(self, document):
        return json.dumps(with_checksum(document)).encode()

    def read(self, content):
        self.path.write_bytes(content)
        text = str(dpv.Report.from_json(self.path))
        if not all(line.isprintable() for line in text.split("\n")):
            raise Broken(f"control characters in {text!r:.500}")


class Ledgers:
    """`read_ledger`, of a ledger with versions, watched cells and an alarm."""

    def __init__(self, place):
        self.path = place / "ledger.json"
        for number, claim in enumerate((2.0, 2.0, 0.01)):
            call = {"name": str(claim), "version": f"v{number}", "ledger": self.path, "seed": number, **FEW}
            verify_version(laplace_sum, np.zeros(1), np.ones(1), claim, **call)
        self.documents = [json.loads(self.path.read_text())]

    def pack(self, document):
        return json.dumps({**document, "checksum": fingerprint(document["content"])}).encode()

    def read(self, content):
        self.path.write_bytes(content)
        str(read_ledger(self.path))


STUDY = """
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
use = "dpverify.demo:laplace_sum"

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
MANIFEST = """
claims = [{mechanism = "laplace", pair = "p", epsilon = 0.5}]
[pairs.p]
first = "a.txt"
second = "b.csv"
[mechanisms.laplace]
use = "dpverify.demo:laplace_sum"
[settings]
select_runs = 200
test_runs = 500
"""


def write_study(place):
    """Write what a study and a manifest name."""
    (place / "fuzzed.py").write_text("def pair(**a): ...\ndef make(**a): ...\n")
    (place / "a.txt").write_text("0\n")
    (place / "b.csv").write_text("1\n")


class Histories(Ledgers):
    """`run_check` with a finished folder, whose history is damaged."""

    def __init__(self, place):
        write_study(place)
        self.manifest, self.folder = place / "claims.toml", place / "claims"
        self.manifest.write_text(MANIFEST)
        for release in ("1.0", "1.1"):
            self.rows = run_check(self.manifest, self.folder, release=release, pages=False).rows
        self.path = self.folder / "history.json"
        self.documents = [json.loads(self.path.read_text())]

    def read(self, content):
        self.path.write_bytes(content)
        if run_check(self.manifest, self.folder, release="1.1", pages=False).rows != self.rows:
            raise Broken("another answer")


class Studies:
    """`read_study`: everything that a study does before its first verification. Its structure is its lines."""

    VALUES = (
        *("1", "-1", "0", "nan", "inf", "-inf", "1e400", "9" * 30, "true", '""', '"x"', "[]", "[1, 'x', []]", "{}"),
        *("1979-05-27", "[[" * 300, '"fuzzed:nothing"', '"../a.txt"', '"\\u0000.txt"', f'"{"x" * 300}.txt"', "0x7f"),
        *('"a.txt:b"', '"fuzzed.py:"', '":x"', '"a/b.py:c"', '"fuzzed.laplace:x"', '"grid"', "{ a = 1 }", "seeds"),
    )

    def __init__(self, place):
        write_study(place)
        self.path = place / "study.toml"
        self.documents = [dict(enumerate(STUDY.split("\n")))]

    def pack(self, document):
        rng = random.Random(str(document))
        lines = [line if isinstance(line, str) else rng.choice(self.VALUES) for line in document.values()]
        number = rng.randrange(len(lines))
        if "=" in lines[number] and rng.random() < 0.7:
            lines[number] = f"{lines[number].partition('=')[0]}= {rng.choice(self.VALUES)}"
        return "\n".join(lines).encode()

    def read(self, content):
        self.path.write_bytes(content)
        read_study(self.path)


class Records:
    """The files of a checkpoint folder."""

    def __init__(self, place):
        self.place, self.owner = place / "kept", {"test_runs": 500, "seed": 0, "probe": "0" * 64}
        report = dpv.verify(laplace_sum, np.zeros(1), np.ones(1), 0.5, **FEW)
        selected = SelectedEvents((report.witness.event,), (1.0,), report.witness.event.partition)
        with open_checkpoint(self.place) as store:
            store.acquire(self.owner, {"name": "laplace"})
            store.write("region", Record(to_plain(report.picture["region"])))
            store.write("events", Record(to_plain(store_selected(selected))))
        self.files = {name: (self.place / f"{name}.record").read_bytes() for name in ("region", "events")}
        self.documents = [{"name": name, "head": unpack_record(self.files[name])[0]} for name in self.files]

    def pack(self, document):
        name = document["name"] if document.get("name") in self.files else "region"
        return name.encode() + b" " + bytes(pack_record(document["head"], unpack_record(self.files[name])[1]))

    def read(self, content):
        name, _, record = content.partition(b" ")
        name = name.decode() if name.decode(errors="ignore") in self.files else "region"
        (self.place / f"{name}.record").write_bytes(record)
        try:
            with open_checkpoint(self.place) as store:
                store.acquire(self.owner, {})
                store.read_choice("region", nested_kinds(Region))
                store.read_choice(
                    "events", SELECTION_KINDS, functools.partial(read_selected, examples=np.zeros((1, 1, 1)))
                )
        finally:
            (self.place / f"{name}.record").write_bytes(self.files[name])


READERS = {"report": Reports, "folder": Records, "study": Studies, "ledger": Ledgers, "history": Histories}


def change_bytes(text, rng):
    """Return a copy with a few random changes."""
    text = bytearray(text)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        index, length = rng.randrange(len(text) + 1), rng.choice((1, 1, 2, 8, 40))
        kind = rng.randrange(5)
        if kind == 0 and index < len(text):
            text[index] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del text[index : index + length]
        elif kind == 2:
            text[index:index] = rng.randbytes(length)
        elif kind == 3:
            text[index:index] = rng.choice((b"-", b"9" * length, b"[" * length * 50, b'"', b"e9", b"\\", b"\n", b"\0"))
        else:
            del text[index:]
    return bytes(text)


def change_tree(value, rng):
    """Return a copy in which one node is replaced, removed, repeated or exchanged with another."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key, kind, changed = rng.choice(keys), rng.randrange(12), value.copy()
        if kind == 0:
            del changed[key]
        elif kind == 1:
            other = rng.choice(keys)
            changed[key], changed[other] = value[other], value[key]
        elif kind == 2 and isinstance(value, list):
            changed.insert(key, value[key])
        else:
            changed[key] = change_tree(value[key], rng)
        return changed
    if isinstance(value, (int, float)) and rng.random() < 0.5:
        return rng.choice((value + 1, -value, value * 10**6, value / 3, value * 0))
    return rng.choice(HOSTILE)


def example(reader, rng):
    """Return a damaged file."""
    document = rng.choice(reader.documents)
    valid = reader.pack(document)
    if rng.random() < 0.3:
        return change_bytes(valid, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        document = change_tree(document, rng)
    try:
        return reader.pack(document)
    except Exception:  # it has no checksum
        return change_bytes(valid, rng)


def attempt(reader, content):
    """Return "taken", or the name of the permitted error; raise Broken for anything else."""
    try:
        reader.read(content)
    except (InputError, FolderError) as problem:
        if "\n" in str(problem) or len(str(problem)) > 3000:
            raise Broken(f"not one line: {problem!s:.500}, from {content!r:.3000}") from problem
        return type(problem).__name__
    except Exception as problem:
        raise Broken(f"{type(problem).__name__}: {problem}, from {content!r:.3000}") from problem
    return "taken"


def fuzz(name, inputs, seed, place):
    """Give so many inputs to one reader; return the number of each outcome, the failures, and the longest time."""
    outcomes, broken, slowest, reader = Counter(), [], 0.0, READERS[name](Path(place))
    for number in range(inputs):
        content = example(reader, random.Random(f"{name} {seed} {number}"))
        start = time.perf_counter()
        try:
            outcomes[attempt(reader, content)] += 1
        except Broken as problem:
            broken.append(problem)
        slowest = max(slowest, time.perf_counter() - start)
    return outcomes, broken, slowest


def main(inputs=100_000, seed=0):
    """Print the outcomes of each reader, and some failures; return 1 if there is a failure."""
    failures = 0
    for name in READERS:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
            outcomes, broken, slowest = fuzz(name, inputs, seed, place)
        for problem in broken[:SHOWN]:
            traceback.print_exception(problem)
        failures += len(broken)
        print(f"{name:8} {dict(outcomes)}, {len(broken)} broke it, the slowest took {slowest:.1f} s", flush=True)
    return 1 if failures else 0
