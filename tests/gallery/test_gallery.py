"""`python -m gallery`: its rows, its page, resuming, and missing programs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gallery import __main__ as command
from gallery import location_guard
from gallery.__main__ import STORED, main, run_gallery
from gallery.catalogue import ENTRIES
from gallery.page import make_page

NAMES = ["quantiser", "bounded-laplace"]
FEW = tuple(entry for entry in ENTRIES if entry.name in (*NAMES, "posterior", "location-guard"))
CASES = {case.name: case for entry in FEW for case in entry.cases}
PROJECT = Path(__file__).parent.parent.parent


def rows_of(folder):
    return {row["case"]: row for row in json.loads((folder / "rows.json").read_text())}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Some entries, because the figures of all of them take seconds."""
    folder = tmp_path_factory.mktemp("gallery")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "ENTRIES", FEW)
        yield folder, run_gallery(folder, NAMES, quick=True, workers=None)


def verified(rows):
    return [rows[case.name] for entry in FEW if entry.name in NAMES for case in entry.cases]


def test_a_control_is_refuted_and_nothing_is_proved_above_the_truth(finished):
    folder, rows = finished
    for row in verified(rows):
        role = CASES[row["case"]].role
        assert row["verdict"] == ("REFUTED" if role == "control" else "NOT_REFUTED"), row["case"]
        assert row["proved"] <= row["exact"]
    assert list(rows_of(folder)) == list(CASES)
    assert rows_of(folder).items() <= rows.items()


def test_the_page_states_verdicts_about_the_mechanism_as_specified_here(finished):
    page, text = (finished[0] / "index.html").read_text(), (finished[0] / "gallery.md").read_text()
    for shown in (page, text):
        assert shown.count("is refuted for the mechanism as specified here") == shown.count("Witness: ") == 5
        assert "Holohan" in shown
        assert "BOUNDED" not in shown.split("</style>")[-1]
    assert all(f"## {entry.title}" in text for entry in FEW)
    assert "| case | claim | verdict |" in text
    assert all((finished[0] / "figures" / f"{entry.name}.png").stat().st_size > 5000 for entry in FEW)


def test_what_is_not_verified_keeps_its_stored_row(finished):
    stored = {row["case"]: row for row in json.loads(STORED.read_text())}
    new = {row["case"] for row in verified(finished[1])}
    assert list(stored) == [case.name for entry in ENTRIES for case in entry.cases]
    assert {name: row for name, row in finished[1].items() if name not in new} == {
        name: row for name, row in stored.items() if name not in new
    }


def test_a_missing_program_never_replaces_a_result(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "ENTRIES", FEW[-1:])
    monkeypatch.setenv(location_guard.LOCATION_GUARD, str(tmp_path / "no clone"))
    rows = run_gallery(tmp_path / "out", ["location-guard"], quick=True, workers=None)
    assert rows["location-guard"]["verdict"] == "REFUTED"
    assert rows["location-guard"]["proved"] > 9
    text = (tmp_path / "out" / "gallery.md").read_text()
    date = rows["location-guard"]["date"]
    assert f"The result is that of {date}, because the program is not installed here" in text
    empty = tmp_path / "rows.json"
    empty.write_text("[]")
    assert run_gallery(tmp_path / "other", ["location-guard"], workers=None, stored=empty) == {}
    assert (
        "There is no result, because the program is not installed here" in (tmp_path / "other/gallery.md").read_text()
    )


def test_the_page_of_the_documentation_is_that_of_the_stored_rows():
    rows = {row["case"]: row for row in json.loads(STORED.read_text())}
    shown = (PROJECT / "docs" / "gallery.md").read_text().splitlines()
    table = next(line for line in shown if line.startswith("| case |"))
    page = make_page(ENTRIES, rows, {}).blocks
    (section,) = [block for block in page if getattr(block, "title", "") == "All mechanisms"]
    lines = section.blocks[-1].markdown(None).splitlines()
    assert shown[shown.index(table) : shown.index(table) + len(lines)] == lines


def test_a_finished_gallery_is_read(finished):
    folder, rows = finished
    written = {path.name: path.stat().st_mtime_ns for path in (folder / "quick" / "reports").iterdir()}
    assert run_gallery(folder, NAMES, quick=True, workers=None) == rows
    assert {path.name: path.stat().st_mtime_ns for path in (folder / "quick" / "reports").iterdir()} == written


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(PROJECT)
    monkeypatch.setattr(command, "ENTRIES", ENTRIES)
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.count("\n") == len(ENTRIES)
    with pytest.raises(SystemExit):
        main(["binari"])
    assert "found 'binari'; the nearest is binary; expected kalman, " in capsys.readouterr().err
    done = subprocess.run([sys.executable, "-m", "gallery", "--list"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("kalman  ")
    monkeypatch.setattr(command, "ENTRIES", FEW[:1])
    assert main([FEW[0].name, "--quick", "--workers", "1", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "index.html")
    assert (tmp_path / "quick" / "table.csv").read_text().count("\n") == 1 + len(FEW[0].cases)


@pytest.mark.slow
def test_the_quick_gallery_refutes_false_claims_and_proves_nothing_above_the_truth(tmp_path):
    """DSAT without its likelihood ratio is left out: only the runs of the full form refute it."""
    names = [entry.name for entry in ENTRIES if entry.requirement is None]
    rows = run_gallery(tmp_path, names, quick=True, workers=2)
    for entry in (entry for entry in ENTRIES if entry.name in names):
        for case in entry.cases:
            row = rows[case.name]
            if row["exact"] is not None and row["is_exact"]:
                exact = float(row["exact"])
                assert row["proved"] <= exact, case.name
                assert case.name == "dsat" or (exact > row["claimed"] + 1e-9) == (row["verdict"] == "REFUTED"), (
                    case.name
                )
