"""Readers of results, through the command: reports, folders of verifications and studies, histories, ledgers.

Most damaged documents get a valid checksum, so that the checks behind the checksum are reached. A document that is
accepted although its checksum was not made again must show the same text as the undamaged one.
"""

import contextlib
import io
import json
import shutil
from unittest import mock

import numpy as np

import dpverify as dpv
from dpverify.ci.check import run_check
from dpverify.ci.history import read_history
from dpverify.ci.ledger import Ledger, read_ledger, verify_version, write_ledger
from dpverify.cli import main
from dpverify.demo import laplace_sum
from dpverify.errors import InputError
from dpverify.util.hashing import fingerprint
from fuzz.changes import change_bytes, change_document, change_tree
from fuzz.readers import Broken, change_unread, reports, small

FEW = {"select_runs": 200, "test_runs": 500, "block": 250}
STUDY = """
epsilon = 0.5
[pairs.p]
first = "a.txt"
second = "b.txt"
[mechanisms.laplace]
use = "dpverify.demo:laplace_sum"
[settings]
select_runs = 200
test_runs = 500
"""
MANIFEST = STUDY.replace("epsilon = 0.5", 'claims = [{mechanism = "laplace", pair = "p", epsilon = 0.5}]')


def command(*words):
    """Run a command and return its text; raise InputError if it refuses in one line, Broken for anything else."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(map(str, words)))
    message, text = err.getvalue(), out.getvalue()
    if "Traceback" in message or status not in (0, 1, 2):
        raise Broken(f"status {status}: {message}")
    check_printable(text)
    if status == 2:
        if message.count("\n") != 1:
            raise Broken(f"not one line: {message}")
        raise InputError(message.rstrip("\n"))
    return text


def check_printable(text):
    """Raise Broken if a text contains control characters."""
    if not all(line.isprintable() for line in text.split("\n")):
        raise Broken(f"control characters in {text!r:.500}")


def signed(document):
    """Return the text of a document of a ledger or a history with its checksum, if it still is one."""
    with contextlib.suppress(Exception):
        document = {**document, "checksum": fingerprint(document["content"])}
    return json.dumps(document).encode()


class CommandReports:
    """`dpverify report` for reports of all kinds, and `from_json` of results over time."""

    def __init__(self, place):
        self.path = place / "report.json"
        self.documents = [small(report, place) for report in reports()]

        def stream(data, runs, rng):
            return data + rng.laplace(size=(runs, *data.shape))

        first = np.zeros((3, 1))
        over_time = dpv.privacy_over_time(stream, first, first + 1, **FEW)
        over_time.to_json(self.path)
        self.over_time = json.loads(self.path.read_text())
        self.texts = {}

    def example(self, rng):
        original = rng.choice([*self.documents, self.over_time, self.over_time])
        kind = rng.random()
        if kind < 0.25:
            return original, change_bytes(json.dumps(original).encode(), rng)
        if kind < 0.5:
            return original, change_document(original, rng)
        return original, change_unread(original, rng)

    def whole(self):
        return [(document, json.dumps(document).encode()) for document in (*self.documents, self.over_time)]

    def read(self, example):
        original, content = example
        text = self._text(content, original is self.over_time)
        key = id(original)
        if key not in self.texts:
            self.texts[key] = self._text(json.dumps(original).encode(), original is self.over_time)
        try:
            document = json.loads(content)
        except ValueError:
            raise Broken("accepted although it is no JSON") from None
        if isinstance(document, dict) and document.get("checksum") == original["checksum"] and text != self.texts[key]:
            raise Broken("accepted with another text and the old checksum")

    def _text(self, content, is_over_time):
        self.path.write_bytes(content)
        if is_over_time:
            return str(dpv.PrivacyOverTime.from_json(self.path))
        return command("report", self.path)


class ResultFolders:
    """`dpverify verify-folder` and the next call, for the folders of a verification and of a study."""

    def __init__(self, place):
        self.place = place / "results"
        self.place.mkdir()
        np.savetxt(self.place / "a.txt", [0.0])
        np.savetxt(self.place / "b.txt", [1.0])
        (self.place / "study.toml").write_text(STUDY)
        self.verified, self.study = self.place / "verified", self.place / "study"
        self.answers = {"verified": self._verify(), "study": self._run_study()}
        self.files = {
            path.relative_to(self.place): path.read_bytes()
            for folder in (self.verified, self.study)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "lock"
        }

    def _verify(self):
        return dpv.verify(laplace_sum, np.zeros(1), np.ones(1), 0.5, folder=self.verified, **FEW).digest

    def _run_study(self):
        with mock.patch("dpverify.studies.study.current_commit", return_value="1.0"):  # it would start git
            study = dpv.run_study(self.place / "study.toml", self.study)
        if study.failed:
            raise InputError(study.failed[0]["problem"])
        return study.rows[0]["digest"]

    def example(self, rng):
        name = rng.choice(sorted(self.files))
        content = self.files[name]
        if name.suffix == ".json" and rng.random() < 0.6:
            return name, change_document(json.loads(content), rng), rng.random() < 0.1
        return name, change_bytes(content, rng), rng.random() < 0.1

    def whole(self):
        return [(name, content, True) for name, content in self.files.items()]

    def read(self, example):
        name, content, repeats = example
        (self.place / name).write_bytes(content)
        try:
            command("verify-folder", self.place / name.parts[0])
            if content != self.files[name] and name.name not in ("table.csv", "dpverify.json"):
                self._compare_meaning(name, content)
            if repeats:
                found = self._verify() if name.parts[0] == "verified" else self._run_study()
                if found != self.answers[name.parts[0]]:
                    raise Broken(f"another digest after a change of {name}")
        finally:
            for path in list(self.place.rglob("*.old-*")):
                path.unlink()
            for file, old in self.files.items():
                (self.place / file).parent.mkdir(parents=True, exist_ok=True)
                (self.place / file).write_bytes(old)
            shutil.rmtree(self.study / "running", ignore_errors=True)

    def _compare_meaning(self, name, content):
        """A changed file that passes the check may differ in unused bytes only, for example in the head of a zip."""
        if name.suffix == ".json":
            found, old = json.loads(content), json.loads(self.files[name])
            if "checksum" in found and found != old:
                raise Broken(f"a changed {name} belongs together with the rest")


class Ledgers:
    """`dpverify ledger` for a ledger with versions, watched cells and an alarm."""

    def __init__(self, place):
        self.path = place / "ledger.json"
        pair = laplace_sum, np.zeros(1), np.ones(1)
        for number in range(2):
            verify_version(*pair, 2.0, name="sum", version=f"v{number}", ledger=self.path, seed=number, **FEW)
        verify_version(*pair, 0.01, name="far", version="v0", ledger=self.path, seed=0, select_runs=500, test_runs=5000)
        self.document = json.loads(self.path.read_text())
        ledger = read_ledger(self.path)
        assert any(record.alarm for record in ledger.records)
        write_ledger(self.path, Ledger(0.05))
        self.text = None

    def example(self, rng):
        if rng.random() < 0.3:
            return change_bytes(json.dumps(self.document).encode(), rng)
        document = self.document
        for _ in range(rng.choice((1, 1, 2, 4))):
            content = document.get("content") if isinstance(document, dict) else None
            if content is not None and rng.random() < 0.8:
                document = {**document, "content": change_tree(content, rng)}
            else:
                document = change_tree(document, rng)
        return signed(document) if rng.random() < 0.9 else json.dumps(document).encode()

    def whole(self):
        return [json.dumps(self.document).encode()]

    def read(self, content):
        if self.text is None:
            self.path.write_text(json.dumps(self.document))
            self.text = command("ledger", self.path)
        self.path.write_bytes(content)
        text = command("ledger", self.path)
        if json.loads(content)["checksum"] == self.document["checksum"] and text != self.text:
            raise Broken("accepted with another text and the old checksum")
        command("ledger", self.path, "--confirm", "far")


class Histories:
    """`run_check` with a finished folder, whose history is damaged. The command would start processes."""

    def __init__(self, place):
        self.place = place
        np.savetxt(place / "a.txt", [0.0])
        np.savetxt(place / "b.txt", [1.0])
        self.manifest = place / "claims.toml"
        self.manifest.write_text(MANIFEST)
        for release in ("1.0", "1.1"):
            self.check = run_check(self.manifest, place / "claims", release=release, pages=False)
        self.path = place / "claims" / "history.json"
        self.document = json.loads(self.path.read_text())

    def example(self, rng):
        if rng.random() < 0.3:
            return change_bytes(json.dumps(self.document).encode(), rng)
        document = self.document
        for _ in range(rng.choice((1, 1, 2, 4))):
            document = change_tree(document, rng)
        return signed(document) if rng.random() < 0.9 else json.dumps(document).encode()

    def whole(self):
        return [json.dumps(self.document).encode()]

    def read(self, content):
        self.path.write_bytes(content)
        check = run_check(self.manifest, self.place / "claims", release="1.1", pages=False)
        if check.rows != self.check.rows:
            raise Broken(f"another answer: {check}")
        check_printable(str(check))
        latest = read_history(self.path)[-1]
        if latest.claims["laplace-p"]["digest"] != self.check.rows[0]["digest"]:
            raise Broken("another digest in the history")
