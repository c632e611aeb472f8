"""Files of all formats in tests/kept: they stay readable, or are refused in one line that says what to do.

The files are never written again. A new format gets new files, which a version of that format writes.
"""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import dpverify as dpv
from dpverify.cli import main
from dpverify.demo import laplace_sum
from dpverify.studies.files.folder_check import check_folder
from dpverify.studies.releases.history import read_history
from dpverify.studies.releases.ledger import read_ledger

KEPT = Path(__file__).parent / "kept"
FEW = {"select_runs": 500, "test_runs": 1000, "block": 250}


@pytest.fixture
def kept(tmp_path):
    """A copy of the files, because a folder that is read is locked."""
    return shutil.copytree(KEPT, tmp_path / "kept")


@pytest.mark.parametrize("name", ["folder-2-interrupted", "folder-2-finished"])
def test_a_folder_of_format_2_is_refused_in_one_line(name, kept, capsys):
    expected = (
        "dpverify.json: found format 2, written by an earlier version of dpverify; expected format 3; finish it with "
        "that version or start in a new folder"
    )
    before = {path.name: path.read_bytes() for path in (kept / name).iterdir()}
    with pytest.raises(dpv.FolderError, match=re.escape(expected)):
        dpv.verify(laplace_sum, np.zeros(1), np.ones(1), 0.5, folder=kept / name, **FEW)
    assert main(["verify-folder", str(kept / name)]) == 2
    complaint = capsys.readouterr().err
    assert expected in complaint
    assert complaint.count("\n") == 1
    assert before == {path.name: path.read_bytes() for path in (kept / name).iterdir() if path.name != "lock"}


@pytest.mark.parametrize("name", ["folder-3-interrupted", "folder-3-finished", "study-2"])
def test_folders_of_the_current_formats_belong_together(name, kept, capsys):
    assert check_folder(kept / name).problems == ()
    assert main(["verify-folder", str(kept / name)]) == 0
    assert "everything belongs together" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(path.name for path in KEPT.glob("report-*.json")))
def test_reports_are_read(name, capsys):
    report = dpv.Report.from_json(KEPT / name)
    assert report.epsilon_lower > 0
    assert main(["report", str(KEPT / name)]) == 0
    assert capsys.readouterr().out


def test_a_report_with_several_events_and_a_checksum_is_read():
    report = dpv.Report.from_json(KEPT / "report-2-checksum.json")
    assert report.refuted
    assert sum(one.share for one in report.tested) == pytest.approx(1)
    assert report.delta_events is not None
    assert json.loads((KEPT / "report-2-checksum.json").read_text())["checksum"]


def test_a_ledger_of_format_1_is_read(capsys):
    ledger = read_ledger(KEPT / "ledger-1.json")
    assert [(record.name, len(record.runs), record.alarm) for record in ledger.records] == [
        ("sum", 2, None),
        ("far", 1, "v1"),
    ]
    assert main(["ledger", str(KEPT / "ledger-1.json")]) == 1
    assert "ALARM at version v1" in capsys.readouterr().out


def test_a_history_of_format_1_is_read():
    assert [(one.release, one.claims["laplace-p"]["state"]) for one in read_history(KEPT / "history-1.json")] == [
        ("1.0", "REFUTED"),
        ("1.1", "REFUTED"),
    ]


def test_a_result_over_time_of_schema_1_is_read():
    result = dpv.PrivacyOverTime.from_json(KEPT / "over-time-1.json")
    assert len(result.epsilon_lower) == 3
    assert (np.diff(result.epsilon_lower) >= 0).all()
