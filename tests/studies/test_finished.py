"""Finished combinations of a study: reports that do not belong are refused, and changed sources are noticed."""

import importlib
import json
import shutil
import warnings

import numpy as np
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


def refused(capsys):
    """Run the study by the command, which must refuse it in one line; return the line."""
    assert main(["study", "study.toml", "--quiet"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


def test_the_report_of_another_claim_is_refused(place, capsys):
    run()
    replace(place / "study.toml", "epsilon = 1.5", "epsilon = 0.5")
    run("other")
    shutil.copy(report_path(place, "other"), report_path(place))
    replace(place / "study.toml", "epsilon = 0.5", "epsilon = 1.5")
    line = refused(capsys)
    assert "reports/0000-noise-files-seed0.json: found claim epsilon 0.5, delta 0; expected epsilon 1.5" in line


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("test_runs = 500", "test_runs = 600", "found other settings; expected those of the study; remove this file"),
        ("[mechanisms.noise]", "[mechanisms.other]", "found the report of another study or combination; expected the "),
    ],
)
def test_the_report_of_another_study_is_refused(old, new, message, place, capsys):
    run()
    replace(place / "study.toml", old, new)
    run("other")
    shutil.copy(report_path(place, "other"), report_path(place))
    replace(place / "study.toml", new, old)
    assert message in refused(capsys)


def test_the_report_of_another_combination_is_refused(place, capsys):
    replace(place / "study.toml", "[settings]", '[pairs.made]\nuse = "mine.py:pair"\nvalue = [1.0, 2.0]\n[settings]')
    dpv.run_study("study.toml")
    first, second = sorted((place / "study" / "reports").glob("*made*"))
    shutil.copy(second, first)
    line = refused(capsys)
    assert "expected the report of noise, made value=1.0, seed 0; remove this file to verify its combination" in line
    first.unlink()
    assert [row["problem"] for row in dpv.run_study("study.toml").rows] == [None] * 3


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("seeded", False, "found another checksum"),
        ("delta", 0.123, "found another checksum"),
    ],
)
def test_an_edited_report_is_refused(field, value, message, place, capsys):
    row, _ = run()
    assert row["verdict"] == "NOT_REFUTED"
    path = report_path(place)
    document = json.loads(path.read_text())
    document["result"][field] = value
    path.write_text(json.dumps(document))
    line = refused(capsys)
    assert message in line
    assert "remove this file to verify its combination again" in line


def test_an_edited_table_is_written_again(place):
    row, _ = run()
    table = place / "study" / "table.csv"
    before = table.read_text()
    table.write_text(before.replace("NOT_REFUTED", "REFUTED"))
    assert run()[0] == row
    assert table.read_text() == before


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
    name = "0000-noise-files-seed0.json.old-1"
    assert old_reports(place) == [name]
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
    assert "noise, files, seed 0: helpers.py changed; 64 runs per data set are the same as in its report; it is" in err
    assert "it is run again, unless the results are trusted (--trust-results, trust_results=True)" in err
    assert err.count("\n") == 1
    assert path.stat().st_mtime_ns != written
    assert old_reports(place) == [f"{path.name}.old-1"]
    assert run() == (row, [])


def test_changed_data_are_always_run_again(place):
    before, _ = run()
    (place / "b.txt").write_text("2\n")
    after, lines = run(trust_results=True)
    assert lines == [
        "noise, files, seed 0: b.txt changed; the data sets are others than in its report; it is run again"
    ]
    assert after["epsilon_lower"] > before["epsilon_lower"]
    assert len(old_reports(place)) == 1


@pytest.mark.filterwarnings("default:this mechanism cannot be seeded")
def test_an_unseeded_mechanism_is_run_again_unless_it_is_trusted(place):
    replace(place / "study.toml", "mine.py:noise", "mine.py:unseeded")
    row, _ = run()
    replace(place / "helpers.py", "SCALE = 1.0", "SCALE = 3.0")
    assert run(trust_results=True) == (row, [])
    after, lines = run()
    assert lines[0].startswith("noise, files, seed 0: helpers.py changed; runs without a seed cannot be compared; it")
    assert after["digest"] != row["digest"]


@pytest.mark.parametrize("use", ["noise", "unseeded"])
def test_a_folder_knows_the_installed_package_of_its_mechanism(use, tmp_path, monkeypatch):
    """The same comparison in `verify`: a change without effect is a warning with a seed, and a refusal without."""
    package = tmp_path / "site-packages" / "own_installed"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from own_installed.core import noise, unseeded\n")
    (package / "helpers.py").write_text(HELPERS)
    core = package / "core.py"
    core.write_text(MINE.replace("import helpers", "from own_installed import helpers"))
    monkeypatch.syspath_prepend(package.parent)

    def resume():
        forget_modules(tmp_path)
        mechanism = getattr(importlib.import_module("own_installed.core"), use)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            few = {"select_runs": 200, "test_runs": 500, "folder": tmp_path / "folder"}
            report = dpv.verify(mechanism, np.zeros(1), np.ones(1), 1.5, **few)
        return report, [str(warning.message) for warning in caught]

    report, _ = resume()
    assert resume()[0].digest == report.digest
    (package / "helpers.py").write_text(HELPERS + "# changed")
    if use == "unseeded":
        with pytest.raises(dpv.FolderError, match="the package own_installed changed; expected the sources"):
            resume()
    else:
        assert "the package own_installed changed since the folder was started" in resume()[1][0]
    forget_modules(tmp_path)


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
    assert (place / "study" / "running" / "0000" / "test-1.record").exists()
    replace(place / "helpers.py", "SCALE = 1.0", "SCALE = 3.0")
    row, lines = run()
    assert lines == [
        "noise, files, seed 0: its sources or its data changed while it was unfinished; it is started again"
    ]
    assert row["digest"] == run("fresh")[0]["digest"]


def test_a_folder_of_an_earlier_version_is_refused(place, capsys):
    run()
    owner = place / "study" / "dpverify.json"
    document = json.loads(owner.read_text())
    del document["run"]["study format"]
    owner.write_text(json.dumps(document))
    assert "found study format none; expected 2 as in this call" in refused(capsys)
