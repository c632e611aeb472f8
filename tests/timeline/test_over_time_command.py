"""The command `dpverify over-time`: records, output files, exit statuses, errors in one line."""

import json

import pytest

import dpverify as dpv
from dpverify.cli import main

STREAM = """
import numpy as np

def stream(data, runs, rng):
    data = np.asarray(data).reshape(len(data), -1)
    return data + rng.laplace(size=(runs, *data.shape))
"""
FEW = ["--set", "select_runs=1000", "--set", "test_runs=4000"]


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_stream.py").write_text(STREAM)
    (tmp_path / "data.csv").write_text("0,0\n0,0\n0,0\n")
    (tmp_path / "column.csv").write_text("0\n0\n0\n")
    (tmp_path / "rows.json").write_text("[[0, 0], [0, 0], [0, 0]]")
    (tmp_path / "other.csv").write_text("0,0\n3,0\n0,0\n")


def test_one_pair_is_measured_and_written(capsys, tmp_path):
    files = ["--json", "result.json", "--html", "page.html"]
    pair = ["--first", "data.csv", "--second", "other.csv", "--until", "1"]
    assert main(["over-time", "own_stream.py:stream", *pair, *FEW, *files]) == 0
    printed = capsys.readouterr().out
    assert "leaks by step 1: epsilon at least" in printed
    assert "2 steps or more exceed it" in printed
    assert dpv.PrivacyOverTime.from_json(tmp_path / "result.json").start == 1
    assert "<svg" in (tmp_path / "page.html").read_text()


def test_records_are_made_from_one_stream(capsys, tmp_path):
    records = ["--data", "data.csv", "--hide", "window:2", "--change", "2", "--epsilon", "1", "--json", "-"]
    assert main(["over-time", "own_stream.py:stream", *records, *FEW]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [curve["record"] for curve in document["result"]["curves"]] == ["readings 0 to 1", "readings 1 to 2"]


def test_every_sensor_may_have_a_change_of_its_own(tmp_path):
    records = ["--data", "data.csv", "--hide", "sensor", "--change=-3,1", "--json", "result.json", "--quiet"]
    assert main(["over-time", "own_stream.py:stream", *records, *FEW]) == 0
    large, small = dpv.PrivacyTable.from_json(tmp_path / "result.json").final
    assert 3 * small < 2 * large  # the first sensor changes by 3 at every step, the second by 1


ERRORS = {
    "--change 1 --data data.csv --hide all": "--hide: found 'all'; expected reading, sensor, stream or window:W",
    "--data data.csv": "--change is missing",
    "--data data.csv --change 1,2,3": "found 3 numbers; expected 1, or one for each of 2 columns",
    "--data column.csv --change 1,2,3": "--change: found 3 numbers; expected 1, or one for each of 1 columns",
    "--data rows.json --change 1,2,3": "found 3 numbers; expected 1, or one for each of 2 columns",
    "--data data.csv --change 1 --steps 3": "steps: found 3; expected at most 2",
    "--data data.csv --change 1 --first data.csv": "use --data, or --first and --second, not both",
    "--first data.csv --second other.csv --until -1": "--until must be 0 or more and finite, not -1.0",
    "--first data.csv": "there are no datasets; use --first and --second, or --data",
}


@pytest.mark.parametrize("options", ERRORS)
def test_a_wrong_command_gives_one_line(capsys, options):
    assert main(["over-time", "own_stream.py:stream", *options.split()]) == 2
    complaint = capsys.readouterr().err
    assert ERRORS[options] in complaint
    assert complaint.count("\n") == 1


def test_a_change_that_is_no_number_gives_one_line(capsys):
    with pytest.raises(SystemExit):
        main(["over-time", "own_stream.py:stream", "--data", "data.csv", "--change", "1,x"])
    complaint = capsys.readouterr().err
    assert "--change: found '1,x'; expected a number, or one number per sensor, for example 3,1" in complaint
    assert complaint.count("\n") == 1
