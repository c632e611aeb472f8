"""The command `dpverify gallery`: its table, its page, resuming, and missing programs."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpverify.cli import main
from dpverify.errors import FolderError, InputError
from dpverify.gallery import catalogue, programs, run
from dpverify.gallery.catalogue import ENTRIES
from dpverify.gallery.run import run_gallery
from dpverify.report.statements import Verdict

NAMES = ["quantiser", "bounded-laplace"]


def table(folder):
    """The table without the seconds, which differ from run to run."""
    with open(folder / "table.csv", newline="") as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    return folder, run_gallery(folder, NAMES, quick=True, workers=1)


def test_a_row_per_case_and_a_figure_per_mechanism(finished):
    folder, results = finished
    assert [result.entry.name for result in results] == ["quantiser", "bounded-laplace"]
    rows = table(folder)
    assert len(rows) == sum(len(result.entry.cases) for result in results)
    for row in rows:
        assert row["verdict"] == ("REFUTED" if row["role"] == "control" else row["verdict"])
        assert row["verdict"] in ("REFUTED", "BOUNDED", "NOT_REFUTED")
        if row["role"] != "control":
            assert row["verdict"] != "REFUTED"
        assert float(row["proved"]) <= float(row["exact"])
    assert len(json.loads((folder / "table.json").read_text())) == len(rows)
    assert all((folder / "figures" / f"{name}.png").stat().st_size > 5000 for name in NAMES)
    assert not (folder / "running").exists()


def test_the_page_states_verdicts_about_the_mechanism_as_specified_here(finished):
    page = (finished[0] / "index.html").read_text()
    assert page.count("fails for the mechanism as specified here") == 3
    assert "Holohan" in page
    assert "<script" not in page
    text = (finished[0] / "gallery.md").read_text()
    assert "| case | claim | verdict |" in text
    assert text.count("Witness:") == 3


def test_a_finished_run_is_read_and_other_code_or_another_form_is_refused(finished, monkeypatch):
    folder, results = finished
    monkeypatch.setattr(run, "verify", None)  # nothing is verified again
    again = run_gallery(folder, NAMES, quick=True, workers=1)
    assert [report.digest for result in again for report in result.reports] == [
        report.digest for result in results for report in result.reports
    ]
    with pytest.raises(FolderError, match="quick"):
        run_gallery(folder, NAMES)
    monkeypatch.setattr(run, "_code_hash", lambda: "other")
    with pytest.raises(FolderError, match="code"):
        run_gallery(folder, NAMES, quick=True)


def test_an_unknown_name_gets_one_line(capsys):
    assert main(["gallery", "binari", "--out", "nowhere"]) == 2
    assert "found 'binari'; the nearest is binary; expected kalman, " in capsys.readouterr().err
    assert not Path("nowhere").exists()
    assert main(["gallery", "--list"]) == 0
    assert capsys.readouterr().out.count("\n") == len(ENTRIES)
    with pytest.raises(InputError, match="found 'x'"):
        catalogue.choose_entries(["x"])


def test_a_program_that_is_not_installed_is_skipped_with_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(programs.LOCATION_GUARD, str(tmp_path / "no clone"))
    (result,) = run_gallery(tmp_path / "out", ["location-guard"], quick=True, workers=1, progress=True)
    assert result.reports == ()
    assert "dpverify: location-guard: skipped; " in capsys.readouterr().err
    assert "Skipped: " in (tmp_path / "out" / "index.html").read_text()
    assert table(tmp_path / "out")[0]["mechanism"] == "location-guard"


def test_a_killed_gallery_resumes_to_the_same_table(finished, tmp_path):
    """The command and its workers are killed after the first report; the same command finishes the rest."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "dpverify", "gallery", NAMES[0], "--quick", "--workers", "1", "--out", str(out)]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while not list((out / "reports").glob("*.json")) and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = {path.name: path.stat().st_mtime_ns for path in (out / "reports").glob("*.json")}
    assert 1 <= len(before) < 4
    assert not (out / "table.csv").exists()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(out / "index.html")
    assert table(out) == [row for row in table(finished[0]) if row["mechanism"] == NAMES[0]]
    assert len(table(out)) == 4
    after = {path.name: path.stat().st_mtime_ns for path in (out / "reports").glob("*.json")}
    assert all(after[name] == written for name, written in before.items())


@pytest.mark.slow
def test_the_quick_gallery_refutes_false_claims_and_proves_nothing_above_the_truth(tmp_path):
    """DSAT without its likelihood ratio is left out: only the runs of the full form refute it."""
    names = [entry.name for entry in ENTRIES if entry.requirement is None]
    results = run_gallery(tmp_path, names, quick=True, workers=2)
    for row in table(tmp_path):
        if row["exact"]:
            assert float(row["proved"]) <= float(row["exact"]), row["case"]
            false = float(row["exact"]) > float(row["claimed"]) + 1e-9
            assert row["case"] == "dsat" or false == (row["verdict"] == "REFUTED"), row["case"]
    verdicts = {report.verdict for result in results for report in result.reports}
    assert verdicts == {Verdict.REFUTED, Verdict.BOUNDED, Verdict.NOT_REFUTED}
