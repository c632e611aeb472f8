"""Finished combinations of a study: reports that do not belong are refused, and changed sources are noticed."""

import json
import shutil
import warnings

import pytest
from user_folder import forget_modules, make_user_folder, rewrite

import dpverify as dpv
from dpverify.cli import main

HELPERS = """
SCALE = 1.0

def shift(data):
    return float(data.sum())
"""
MINE = """
import numpy as np

def noise(data, runs, rng):
    import helpers
    return helpers.shift(data) + helpers.SCALE * rng.laplace(size=(runs, 1))

def unseeded(data, runs, rng):
    return noise(data, runs, np.random.default_rng())

unseeded.seeded = False

def pair(value):
    return np.zeros(1), np.full(1, value)
"""
STUDY = """
epsilon = 1.5
detects = 9

[pairs.files]
first = "a.txt"
second = "b.txt"

[mechanisms.noise]
use = "mine.py:noise"

[settings]
select_runs = 200
test_runs = 500
partition = "grid"
"""
AGAIN = "it is run again"


@pytest.fixture
def place(tmp_path, monkeypatch):
    files = {"mine.py": MINE, "helpers.py": HELPERS, "a.txt": "0\n", "b.txt": "1\n", "study.toml": STUDY}
    return make_user_folder(tmp_path, monkeypatch, files)


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    rewrite(path, text.replace(old, new))


def run(folder="study", **options):
    """Run the study; return its only row and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        study = dpv.run_study("study.toml", folder, **options)
    return study.rows[0], [str(warning.message) for warning in caught]


def report_path(place, folder="study"):
    return next((place / folder / "reports").glob("*.json"))


def old_reports(place):
    return sorted(path.name for path in (place / "study" / "reports").glob("*.old-*"))


@pytest.mark.parametrize("damage", ["{", None])
def test_a_report_that_is_damaged_or_of_another_job_is_run_again(damage, place):
    """A report never counts for a job that it does not belong to, whatever its file is called."""
    replace(place / "study.toml", "[settings]", '[pairs.made]\nuse = "mine.py:pair"\nvalue = [1.0, 2.0]\n[settings]')
    first = dpv.run_study("study.toml")
    one, two = sorted((place / "study" / "reports").glob("*made*"))
    one.write_text(two.read_text() if damage is None else damage)
    with pytest.warns(dpv.DPVerifyWarning, match="of another job; it is run again" if damage is None else "is damaged"):
        again = dpv.run_study("study.toml")
    assert again.rows == first.rows


@pytest.mark.parametrize(("field", "value"), [("seeded", False), ("delta", 0.123)])
def test_an_edited_report_is_run_again(field, value, place):
    row, _ = run()
    path = report_path(place)
    document = json.loads(path.read_text())
    document["result"][field] = value
    path.write_text(json.dumps(document))
    assert run() == (row, ["noise, files, seed 0: its report is damaged; it is run again"])


def test_an_unchanged_study_is_not_run_again(place):
    row, _ = run()
    forget_modules(place)
    assert run() == (row, [])
    assert old_reports(place) == []


def test_a_change_of_an_imported_file_is_noticed(place):
    """The import is inside a function of another file; the behaviour changes, so the report cannot be trusted."""
    before, _ = run()
    replace(place / "helpers.py", "SCALE = 1.0", "SCALE = 3.0")
    after, lines = run(trust_results=True)
    assert lines == [
        "noise, files, seed 0: helpers.py changed; its runs are others than in its report; it is run again"
    ]
    assert after["digest"] != before["digest"]
    (name,) = old_reports(place)
    shutil.copy(place / "study" / "reports" / name, place / "old.json")
    assert dpv.Report.from_json(place / "old.json").digest == before["digest"]
    assert run() == (after, [])


@pytest.mark.filterwarnings("default:.*changed")
def test_a_change_without_effect_is_run_again_unless_it_is_trusted(place, capsys):
    row, _ = run()
    replace(place / "helpers.py", "SCALE = 1.0", "SCALE = 1.0  # the scale")
    path = report_path(place)
    written = path.stat().st_mtime_ns
    assert run(trust_results=True) == (row, [])
    assert main(["study", "study.toml", "--quiet", "--trust-results"]) == 0
    assert path.stat().st_mtime_ns == written
    assert capsys.readouterr().err == ""
    assert main(["study", "study.toml", "--quiet"]) == 0
    err = capsys.readouterr().err
    assert "noise, files, seed 0: helpers.py changed; 64 runs per dataset are the same as in its report" in err
    assert "trust_results=True (--trust-results) would use it; it is run again" in err
    assert err.count("\n") == 1
    assert path.stat().st_mtime_ns != written
    assert old_reports(place) == [f"{path.name}.old-1"]
    assert run() == (row, [])


def test_changed_data_are_always_run_again(place):
    before, _ = run()
    (place / "b.txt").write_text("2\n")
    after, lines = run(trust_results=True)
    assert lines == ["noise, files, seed 0: its data changed; it is run again"]
    assert after["epsilon_lower"] > before["epsilon_lower"]
    assert len(old_reports(place)) == 1


@pytest.mark.filterwarnings("default:this mechanism cannot be seeded")
def test_an_unseeded_mechanism_is_run_again_unless_it_is_trusted(place):
    replace(place / "study.toml", "mine.py:noise", "mine.py:unseeded")
    row, _ = run()
    replace(place / "helpers.py", "SCALE = 1.0", "SCALE = 3.0")
    assert run(trust_results=True) == (row, [])
    after, lines = run()
    line = "noise, files, seed 0: helpers.py changed; runs without a seed cannot be compared and"
    assert any(each.startswith(line) for each in lines)
    assert after["digest"] != row["digest"]


def test_a_study_names_the_release_of_a_stored_result(place):
    assert "not run again" not in str(dpv.run_study("study.toml"))
    assert "1 not run again: results of " in str(dpv.run_study("study.toml"))


def test_a_change_outside_of_all_sources_is_noticed_by_the_first_runs(place):
    """The mechanism reads a file that nobody knows."""
    text = MINE.replace("helpers.SCALE", "float(np.loadtxt('scale.txt'))")
    rewrite(place / "mine.py", text)
    (place / "scale.txt").write_text("1.0")
    before, _ = run()
    (place / "scale.txt").write_text("3.0")
    after, lines = run(trust_results=True)
    assert lines == ["noise, files, seed 0: its runs are others than in its report; it is run again"]
    assert after["digest"] != before["digest"]


def test_a_combination_that_fails_after_a_change_keeps_its_report(place):
    before, _ = run()
    replace(place / "helpers.py", "return float(data.sum())", "raise ValueError('no sum')")
    row, lines = run()
    assert "no sum" in row["problem"]
    assert lines[0].endswith(AGAIN)
    assert dpv.Report.from_json(report_path(place)).digest == before["digest"]


def test_an_unfinished_combination_is_started_again_after_a_change(place, monkeypatch):
    def stop(*arguments, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpverify.pipeline.make_report", stop)
        with pytest.raises(dpv.Stopped):
            dpv.run_study("study.toml")
    assert list((place / "study" / "running").glob("noise*/test-1.record"))
    replace(place / "helpers.py", "SCALE = 1.0", "SCALE = 3.0")
    row, lines = run()
    assert lines[0].endswith("; it is started again")
    assert row["digest"] == run("fresh")[0]["digest"]
