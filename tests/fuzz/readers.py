"""Readers of what programs write. Each is a class that makes examples in a folder and reads them.

`read` returns if the input is accepted, and raises an error of this library if it is refused.
"""

import contextlib
import dataclasses
import functools
import json
import math
import os
import shutil

import numpy as np

import dpverify as dpv
from dpverify.adapters.program import Child, Program
from dpverify.events.event import (
    SELECTION_KINDS,
    WITNESS,
    DeltaAims,
    Event,
    SelectedEvents,
    read_selected,
    store_selected,
)
from dpverify.events.partition import Atoms
from dpverify.events.region import Region
from dpverify.events.scores import (
    Additive,
    Banded,
    CellScore,
    Extreme,
    Features,
    Interaction,
    Levels,
    Linear,
    Patterned,
    Piecewise,
    Quadratic,
    Shared,
    Transformed,
)
from dpverify.events.scores.transformed import Circular, Distances, Folded, LowBits, OrderStatistics
from dpverify.mechanisms.outputs import validate_output
from dpverify.report.json import with_checksum
from dpverify.sampling.checkpoint import Record, open_checkpoint, pack_record, unpack_record
from dpverify.sampling.context import read_record, read_region
from dpverify.sampling.count import Block, KeptSamples
from dpverify.sampling.stages import StageSums, restore_sums
from dpverify.util.serialization import nested_kinds, to_plain
from fuzz.changes import change_bytes, change_document, change_tree


class Broken(AssertionError):
    """A reader did something that is forbidden."""


class Reports:
    """`Report.from_json`; an accepted report must also be printable and give a row.

    The checksum finds every change of a result. The parts that are never read back may be anything.
    """

    def __init__(self, place):
        self.path, self.documents = place / "report.json", [small(report, place) for report in reports()]

    def example(self, rng):
        document = rng.choice(self.documents)
        return change_document(document, rng) if rng.random() < 0.7 else change_unread(document, rng)

    def whole(self):
        return [json.dumps(document).encode() for document in self.documents]

    def read(self, text):
        self.path.write_bytes(text)
        report = dpv.Report.from_json(self.path)
        shown = str(report)
        if not all(line.isprintable() for line in shown.split("\n")):
            raise Broken("the printed text contains control characters")
        if len(text) % 8 == 0:  # only some inputs, because it is slow
            report.row()


def change_unread(document, rng):
    """Return a document with a valid checksum in which a part is changed that no result is computed from."""
    part = rng.choice(("summary", "provenance"))
    changed = {**document, part: change_tree(document[part], rng)}
    with contextlib.suppress(Exception):  # NaN has no checksum
        changed = with_checksum(changed)
    return json.dumps(changed).encode()


class Folders:
    """The files of a checkpoint folder; most changed files get a valid checksum."""

    def __init__(self, place):
        self.place, made = place / "kept", place / "made"
        self.run = {"test_runs": 500, "seed": 0, "probe": "0" * 64}
        report = reports()[0]
        region = report.picture["region"]
        with open_checkpoint(made) as store:
            store.acquire(self.run, {"name": "laplace"})
            self.step = StageSums.empty((0,), (KeptSamples(),))
            self.step.merge([(0, 0)], {0: [KeptSamples().measure(Block(np.zeros((2, 1, 1))))]})
            store.write("region", Record(to_plain({"region": region})))
            for number, selected in enumerate(selections()):
                store.write(f"events-{number}", Record(to_plain(store_selected(selected))))
            store.write("pilot-1", self.step.to_record("x"))
        self.files = {path.name: path.read_bytes() for path in made.iterdir() if path.name != "lock"}
        self.pages = {name: unpack_record(text) for name, text in self.files.items() if name.endswith(".record")}
        self.owner = json.loads(self.files["dpverify.json"])
        shutil.copytree(made, self.place)

    def example(self, rng):
        name = rng.choice(sorted(self.files))
        if name == "dpverify.json":
            return name, change_document(self.owner, rng)
        if rng.random() < 0.4:
            return name, change_bytes(self.files[name], rng)
        head, arrays = self.pages[name]
        head = change_tree(head, rng)
        content = pack_record(head if isinstance(head, dict) else {}, [_change_array(array, rng) for array in arrays])
        return name, change_bytes(content, rng) if name == "pilot-1.record" else bytes(content)  # only we write sums

    def whole(self):
        return list(self.files.items())

    def read(self, example):
        name, content = example
        (self.place / name).write_bytes(content)
        try:
            with open_checkpoint(self.place) as store:
                store.acquire(self.run, {})
                read_record(store, "region", nested_kinds(Region), read_region)
                for number in range(len(selections())):
                    examples = np.zeros((1, 1, 1)) if number == 0 else np.zeros((1, 2, 2))
                    read_record(
                        store, f"events-{number}", SELECTION_KINDS, functools.partial(read_selected, examples=examples)
                    )
                page = store.read("pilot-1")
                if page is not None:
                    restore_sums(StageSums.empty((0,), (KeptSamples(),)), page, "x", "pilot-1")
        finally:
            (self.place / name).write_bytes(self.files[name])


class Programs:
    """The output of a program, on real pipes without a process behind them."""

    RUNS = 20

    def __init__(self, place):
        self.program = Program(("fuzzed",), (2,), 5.0, True)
        self.any = Program(("fuzzed",), None, 5.0, True)
        self.answer = "".join(f"{run / 7} {-run}e-3\n" for run in range(self.RUNS)).encode()

    def example(self, rng):
        words = b"nan inf 1e999 0x10 1_0 --1 1,5 # Warning: 1+2j \xd9\xa1".split()
        answer = self.answer
        if rng.random() < 0.5:
            lines = answer.split(b"\n")
            for _ in range(rng.choice((1, 2, 5))):
                at = rng.randrange(len(lines))
                two = b" ".join(rng.choices(words, k=2))
                lines[at] = rng.choice((b"", two, lines[at] + b" 1", lines[at] + b"\r", rng.choice(words)))
            answer = b"\n".join(lines)
        if rng.random() < 0.6:
            answer = change_bytes(answer, rng)
        talk = b"" if rng.random() < 0.7 else rng.randbytes(rng.choice((3, 900)))
        return answer[:60_000], talk, rng.random() < 0.2, rng.choice((0, 1, -9, -999))

    def whole(self):
        return [(self.answer, b"", False, 0)]

    def read(self, example):
        answer, talk, early, status = example
        child = object.__new__(Child)
        (asked, ask), (out, say), (err, complain) = os.pipe(), os.pipe(), os.pipe()
        for pipe, words in ((say, answer), (complain, talk)):
            os.write(pipe, words)
            os.close(pipe)
        child._process = _Over(open(ask, "wb", 0), status)  # noqa: SIM115 (closed below)
        child._guard = child._process  # nothing is killed, because the process has ended
        child._answer_pipe, child._message_pipe = open(out, "rb", 0), open(err, "rb", 0)  # noqa: SIM115
        child._messages = b""
        if not early:
            child.unrequested_output = bytes
        try:
            program = self.any if len(answer) % 2 else self.program
            samples = program._ask(child, [[0.0]], self.RUNS, 1, math.inf)
            validate_output(samples, self.RUNS)
        finally:
            for pipe in (child._process.stdin, child._answer_pipe, child._message_pipe):
                pipe.close()
            os.close(asked)


class _Over:
    """Stands for a process that has ended."""

    def __init__(self, stdin, status):
        self.stdin, self.returncode, self._polls = stdin, status, iter((None,))

    def poll(self):
        """Return None once: the process still runs when its output is read."""
        return next(self._polls, self.returncode)


@functools.cache
def reports():
    """Return small reports of different kinds, and one with each kind of score."""

    def laplace(data, runs, rng):
        return data.sum() + rng.laplace(size=(runs, 1))

    def plane(data, runs, rng):
        return data + rng.standard_normal((runs, *data.shape))

    zero, few = np.zeros(1), {"select_runs": 200, "test_runs": 500}
    square = np.zeros((2, 2))
    found = (
        dpv.verify(laplace, zero, zero + 1, 0.5, **few),
        dpv.verify(laplace, zero, zero + 1, error=dpv.rmse(zero), log_lipschitz=1.0, **few),
        dpv.verify(plane, square, square + 1, 0.5, partition="tree", **few),
        dpv.verify(plane, square, square + 1, 0.5, settings=dpv.Settings.paper(beta=0.4)),
        dpv.verify(plane, square, square + 1, 0.5, events="score", delta=0.01, **few),
    )
    return found + tuple(with_score(found[-1], score) for score in scores())


def scores():
    """Return one score of every kind, for four coordinates."""
    coordinates, linear = Features(np.zeros(4), None), Linear(np.arange(4.0))
    knots, heights = np.tile([0.0, 1.0], (4, 1)), np.ones((4, 2))
    atoms = Atoms(np.array([1]), np.array([[0.0, 1.0]]), np.array([1]))
    return (
        Quadratic(Features(np.zeros(4), np.eye(4)), np.ones(4), np.eye(4)),
        Additive(coordinates, np.array([0, 3]), np.array([[0.0, 1.0], [0.5, np.inf]]), np.arange(6.0).reshape(2, 3)),
        Piecewise(coordinates, knots, heights, np.full((4, 1), np.inf), np.zeros((4, 1))),
        Patterned(
            *(atoms, np.array([0, 2]), np.zeros(3), np.array([0]), np.array([2])),
            *(np.array([[0.0]]), np.array([[0.0, 1.0]])),
        ),
        CellScore(Levels(linear, np.zeros(1)), np.arange(2), np.arange(2.0), np.zeros(())),
        Extreme(coordinates, np.tile([[1.0], [-1.0]], (1, 4))),
        Banded(np.zeros(4), np.ones(4), np.ones((2, 4))),
        Shared(coordinates, np.arange(4)[:, None], Linear(np.ones(1)), np.ones(())),
        Interaction(coordinates, np.array([[0, 2]]), np.zeros((1, 2, 1)), np.arange(4.0)[None]),
        *(
            Transformed(transform, Linear(np.arange(float(columns))))
            for transform, columns in (
                (OrderStatistics(np.arange(4)), 4),
                (Distances(coordinates, np.zeros((2, 4))), 2),
                (Circular(np.arange(2), np.arange(2, 4), np.ones(2)), 6),
                (Folded(np.arange(4)[None], np.ones((1, 4)), np.zeros(0, int)), 4),
                (LowBits(np.array([1]), np.zeros(1)), 2),
            )
        ),
    )


@functools.cache
def selections():
    """Return a selection of one event, and one of several events with events for delta."""
    report, levels = reports()[0], Levels(Linear(np.arange(4.0)), np.arange(3.0))
    event = Event(levels, np.array([2, 3]), 0)
    cells = Event(reports()[2].witness.event.partition, np.array([1]), 1)
    aims = DeltaAims(levels, np.array([0.0, 0.5, 1.0]), np.array([1, 0, WITNESS]), np.array([0, 1, 0]))
    return (
        SelectedEvents((report.witness.event,), (1.0,), report.witness.event.partition),
        SelectedEvents((event, cells), (0.7, 0.3), levels, eta=0.2, aims=aims),
    )


def with_score(report, score):
    event = Event(Levels(score, np.array([0.5])), np.array([1]), report.witness.event.direction)
    return dataclasses.replace(report, tested=(dataclasses.replace(report.witness, event=event),))


def small(report, place):
    """Return the report as a document with three points per data set and a short summary."""
    report.to_json(place / "small.json")
    document = json.loads((place / "small.json").read_text())
    result, document["summary"] = document["result"], {"verdict": report.verdict.name, "notes": list(report.notes)}
    steps, dimension = report.witness.shape
    for side in ("first", "second"):
        points = result["picture"][side]
        points["shape"][0], points["values"] = 3, points["values"][: 3 * steps * dimension]
    return with_checksum(document)


def _change_array(array, rng):
    kind = rng.randrange(8)
    if kind == 0:
        return array[:-1] if array.ndim else array
    if kind == 1:
        return array.astype(rng.choice(("float32", "int8", "U3", "bool")))
    if kind == 2:
        return array.reshape(-1, 1)
    return -array if kind == 3 and array.dtype.kind in "if" else array
