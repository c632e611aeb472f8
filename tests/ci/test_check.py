"""Checks: all claims of a manifest, in all forms, continued after a kill, and compared with the last release."""

import csv
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest
from pages import PROJECT, blocks

import dpverify as dpv
from dpverify.ci.check import run_check
from dpverify.ci.history import Change, Release, compare_releases, read_history
from dpverify.ci.junit import junit_xml
from dpverify.ci.manifest import read_manifest
from dpverify.cli import main

MODULE = """
import os
import time

import numpy as np


class Sum:
    def __init__(self, scale=1.0, seconds=0.0):
        self.scale, self.seconds = scale, seconds

    def __call__(self, data, runs, rng):
        time.sleep(self.seconds)
        return np.sum(data) + rng.laplace(scale=self.scale, size=runs)


def fails(data, runs, rng):
    raise ValueError("no answer today")


def ends_the_process(data, runs, rng):
    os._exit(0)


def same(data, runs, rng):
    return np.random.default_rng(0).normal(size=runs)


def one():
    return np.zeros(3), np.array([0.0, 0.0, 1.0])
"""
MANIFEST = """
[mechanisms]
true = {use = "mine.py:Sum", scale = 1.0}
false = {use = "mine.py:Sum", scale = 0.4}
fails = {use = "mine.py:fails"}
ends = {use = "mine.py:ends_the_process"}
same = {use = "mine.py:same"}
[pairs.one]
use = "mine.py:one"
[settings]
select_runs = 500
test_runs = 6000
"""
CLAIMS = {
    "loose": 'mechanism = "true", pair = "one", epsilon = 2.5, detects = 4',
    "false": 'mechanism = "false", pair = "one", epsilon = 1.0',
    "weak": 'mechanism = "true", pair = "one", epsilon = 1.05, detects = 1.01',
    "fails": 'mechanism = "fails", pair = "one", epsilon = 1.0',
    "ends": 'mechanism = "ends", pair = "one", epsilon = 1.0',
    "same": 'mechanism = "same", pair = "one", epsilon = 1.0',
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODULE)

    def write_manifest(*names, text=MANIFEST, **claims):
        listed = {**{name: CLAIMS[name] for name in names}, **claims}
        tables = ",\n".join(f'{{name = "{name}", {claim}}}' for name, claim in listed.items())
        (tmp_path / "claims.toml").write_text(f"claims = [{tables}]\n{text}")
        return tmp_path / "claims.toml"

    return write_manifest


def test_every_state_and_every_form(write, tmp_path, capsys):
    write(*CLAIMS)
    status = main(["check", "claims.toml", "--workers", "2", "--release", "1.0", "--no-pages"])
    printed = capsys.readouterr()
    assert status == 2, printed.err
    assert "6 claims: 2 failed, 1 refuted, 1 no answer, 1 too weak, 1 not refuted" in printed.out
    assert "6 of 6: " in printed.err
    states = {"loose": "NOT_REFUTED", "false": "REFUTED", "weak": "TOO_WEAK", "same": "NO_ANSWER"}
    states |= {"fails": "FAILED", "ends": "FAILED"}
    results = json.loads((tmp_path / "claims" / "results.json").read_text())
    assert {row["name"]: row["state"] for row in results["claims"]} == states
    problems = {row["name"]: row["problem"] or "" for row in results["claims"]}
    assert "no answer today" in problems["fails"]
    assert "the process ended" in problems["ends"]
    assert "too weak: " in problems["weak"]
    with (tmp_path / "claims" / "results.csv").open() as file:
        assert [row["state"] for row in csv.DictReader(file)] == [states[name] for name in CLAIMS]
    suite = ElementTree.parse(tmp_path / "claims" / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("6", "2", "3")
    cases = {case.get("name"): case for case in suite}
    assert cases["false"].find("failure").get("type") == "REFUTED"
    assert cases["loose"].find("failure") is None
    row = next(row for row in results["claims"] if row["name"] == "false")
    report = dpv.Report.from_json(tmp_path / "claims" / row["report"])
    assert report.refuted
    assert report.alpha == 0.05 / 6  # alpha is shared by all claims


def test_few_runs_do_not_pass_without_a_statement_of_what_they_detect(write, capsys):
    few = MANIFEST.replace("test_runs = 6000", "test_runs = 50")
    write(true='mechanism = "true", pair = "one", epsilon = 1.0', text=few)
    assert main(["check", "claims.toml", "--no-pages"]) == 3
    assert "1 too weak, the first: too weak: " in capsys.readouterr().err


def test_two_releases_are_compared(write, tmp_path):
    path = write("loose", other='mechanism = "true", pair = "one", epsilon = 2.5, detects = 4')
    first = run_check(path, release="1.0", pages=False)
    assert (first.previous, first.changes) == (None, ())
    text = MANIFEST.replace("scale = 1.0", "scale = 0.3")
    path = write(loose=CLAIMS["loose"], new=CLAIMS["loose"], text=text)
    second = run_check(path, release="1.1", pages=False)
    changes = {change.name: change for change in second.changes}
    assert changes["loose"].is_worse
    assert "NOT REFUTED before, REFUTED now; a larger privacy loss is proved" in changes["loose"].text
    assert changes["new"].text == "new: REFUTED"
    assert changes["other"].text == "no longer claimed"
    assert "since 1.0: 3 changed" in str(second)
    again = run_check(path, release="1.1", pages=False)  # the same release is compared with the one before it
    assert again.changes == second.changes
    assert [entry.release for entry in read_history(tmp_path / "claims" / "history.json")] == ["1.0", "1.1"]


def test_finished_claims_are_not_verified_again(write, tmp_path):
    path = write("loose")
    run_check(path, release="1", pages=False)
    report = next((tmp_path / "claims").glob("verified/reports/loose.json"))
    before = report.stat().st_mtime_ns
    assert run_check(path, release="2", pages=False).changes == ()
    assert report.stat().st_mtime_ns == before


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_a_killed_check_continues(kills, write, tmp_path):
    text = MANIFEST.replace("true = {", 'slow = {use = "mine.py:Sum", seconds = 0.02},\ntrue = {'.replace("},", "}"))
    write("loose", slow='mechanism = "slow", pair = "one", epsilon = 2.5, detects = 4', text=text)
    command = [sys.executable, "-m", "dpverify", "check", "claims.toml", "--no-pages", "--release", "1"]
    running = tmp_path / "claims" / "verified" / "running" / "slow" / "dpverify.json"
    for _ in range(kills):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=tmp_path)
        end = time.monotonic() + 60
        while not running.exists() and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "claims" / "results.json").exists()
    subprocess.run(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=tmp_path, check=True)
    rows = json.loads((tmp_path / "claims" / "results.json").read_text())["claims"]
    assert [row["state"] for row in rows] == ["NOT_REFUTED", "NOT_REFUTED"]


def test_the_page_begins_with_the_finding(write, tmp_path):
    path = write("false")
    check = run_check(path, release="1.0")
    row = check.rows[0]
    page = (tmp_path / "claims" / "page.html").read_text()
    assert "<h1>1 of 1 claims is refuted: false.</h1>" in page
    assert f'href="{row["page"]}"' in page
    assert (tmp_path / "claims" / row["page"]).exists()
    assert "What changed" not in page
    changes = (Change("false", "NOT REFUTED before, REFUTED now", True),)
    dataclasses.replace(check, previous=Release("1.0", {}), changes=changes).to_html("page.html")
    assert "What changed since 1.0" in (tmp_path / "page.html").read_text()


BAD = {
    'mechanism = "other", pair = "one", epsilon = 1': "claim 1: found mechanism 'other'; expected one of true, false",
    'mechanism = "true", pair = "one"': "claim 1: there is no claim; set epsilon or claim",
    'mechanism = "true", pair = "one", epsilom = 1': "claim 1: unknown key 'epsilom'; did you mean 'epsilon'?",
    'mechanism = "true", pair = "one", epsilon = -1': "claim 1: epsilon must be",
    'mechanism = "true", pair = "one", epsilon = 1, detects = 1': "claim 1: detects: found 1",
}


@pytest.mark.parametrize("claim", BAD)
def test_a_bad_claim_is_reported_in_one_line(write, claim, capsys):
    write(bad=claim)
    assert main(["check", "claims.toml", "--no-pages"]) == 2
    error = capsys.readouterr().err
    assert BAD[claim] in error
    assert error.count("\n") == 1


def test_a_bad_manifest_is_reported(write, tmp_path, capsys):
    path = write("loose", text=MANIFEST.replace("scale = 1.0", "scale = [1.0, 2.0]"))
    with pytest.raises(dpv.InputError, match=r"mechanisms.true: found 2 combinations of parameters; expected one"):
        read_manifest(path)
    (tmp_path / "claims.toml").write_text("claims = []" + MANIFEST)
    with pytest.raises(dpv.InputError, match=r"there must be at least one \[\[claims\]\]"):
        read_manifest(path)
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "history.json").write_text('{"format": 1, "content": [], "checksum": "0"}')
    write("loose")
    assert main(["check", "claims.toml", "--no-pages"]) == 2
    assert "another checksum" in capsys.readouterr().err


def test_smaller_and_larger_losses_are_told_apart():
    def release(low, high):
        return Release("x", {"a": {"state": "NOT_REFUTED", "epsilon_lower": low, "epsilon_upper_on_partition": high}})

    assert compare_releases(release(0.9, 1.1), release(1.0, 1.2)) == ()
    smaller = compare_releases(release(0.9, 1.1), release(0.4, 0.6))
    assert "no longer found: epsilon >= 0.4, and >= 0.9 before; now it is at most 0.6 over the cells" in smaller[0].text
    assert not smaller[0].is_worse
    assert compare_releases(release(0.9, "inf"), release(1.5, "inf")) == ()


def test_no_change_is_reported_that_the_old_lower_bound_had_reached():
    def release(low, high, **columns):
        answer = {"state": "REFUTED", "epsilon_lower": low, "epsilon_upper_on_partition": high, **columns}
        return Release("x", {"a": answer})

    beyond_its_cells = release(2.666, 0.6178)
    assert compare_releases(beyond_its_cells, beyond_its_cells) == ()
    assert compare_releases(beyond_its_cells, release(2.667, 0.6178)) == ()
    assert compare_releases(release(2.667, 2.8), beyond_its_cells) == ()
    larger = compare_releases(release(0.5, 0.6178), beyond_its_cells)  # the negative control
    assert larger[0].is_worse
    assert "epsilon >= 2.666, and >= 0.5 before, when it was at most 0.6178 over the cells" in larger[0].text


def test_bounds_at_different_deltas_or_without_an_answer_are_not_compared():
    def release(low, high, **columns):
        answer = {"state": "REFUTED", "epsilon_lower": low, "epsilon_upper_on_partition": high, **columns}
        return Release("x", {"a": answer})

    assert compare_releases(release(0.5, 0.6, delta=0.1), release(2.0, 2.1, delta=0.0)) == ()
    assert compare_releases(release(0.5, 0.6, delta=0.1), release(2.0, 2.1, delta=0.1)) != ()
    claims = [
        change.text
        for change in compare_releases(release(0.5, 0.6, claim="a"), release(2.0, 2.1, claim="b", delta=0.1))
    ]
    assert claims == ["the claim was a, and is b"]
    void = {"state": "NO_ANSWER"}
    assert compare_releases(release(0.5, 0.6, **void), release(2.0, 2.1, **void)) == ()


def test_junit_xml_is_valid_for_every_character():
    text = junit_xml("a<b>\x00", [{"name": "\x1b[0m & \ud800", "state": "FAILED", "problem": 'no "answer"\x07'}])
    case = ElementTree.fromstring(text.encode()).find("testcase")
    assert case.find("error").get("message") == 'no "answer"?'


def test_the_manifest_of_the_documentation(tmp_path, monkeypatch):
    toml = next(block.code for block in blocks(PROJECT / "docs" / "checks.md") if block.language == "toml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "claims.toml").write_text(toml)
    (tmp_path / "mine.py").write_text("NoisySum = tracker = pair_at = print")
    for name in ("first.csv", "second.csv"):
        (tmp_path / name).write_text("1,2")
    first, second = read_manifest("claims.toml").combinations
    assert (first.name, first.detects, second.name) == ("sum-one_person", 1.25, "tracker-step-3")
    assert first.settings.alpha == 0.025
    assert second.claim == dpv.claims.approximate(0.8, 1e-6)


def test_the_page_says_which_results_are_not_new(write):
    path = write("loose")
    run_check(path, release="1.0", pages=False)
    run_check(path, release="1.1")
    page = (path.parent / "claims" / "page.html").read_text()
    assert "loose: result of release 1.0, not run again." in page


def test_a_history_that_cannot_be_written_is_noticed_before_the_work(write, tmp_path):
    path = write("loose")
    (tmp_path / "history").mkdir()
    for history in (tmp_path / "history", tmp_path / "no" / "folder" / "history.json"):
        with pytest.raises(dpv.InputError, match="history"):
            run_check(path, history=history, pages=False)
        assert not list((tmp_path / "claims").glob("loose-*"))


def test_results_are_written_before_the_history(write, tmp_path):
    path = write("loose")

    def remove_folder(line):
        shutil.rmtree(tmp_path / "shared")

    (tmp_path / "shared").mkdir()
    with pytest.raises(dpv.InputError, match="shared"):
        run_check(path, history=tmp_path / "shared" / "history.json", pages=False, notify=remove_folder)
    assert {"results.json", "results.csv", "junit.xml"} <= {each.name for each in (tmp_path / "claims").iterdir()}


def test_two_checks_with_one_history_keep_both_releases(write, tmp_path):
    path = write("loose")
    history = tmp_path / "history.json"

    def other_check(line):
        run_check(path, tmp_path / "other", release="2", history=history, pages=False)

    run_check(path, release="1", history=history, pages=False, notify=other_check)  # before the first one has ended
    assert [entry.release for entry in read_history(history)] == ["2", "1"]
