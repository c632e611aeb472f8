"""run_study: reports, table, failures, and resuming after a kill."""

import csv
import dataclasses
import errno
import os
import re
import sys
from pathlib import Path

import pytest

import dpverify as dpv
from dpverify.cli import main
from dpverify.errors import StopReason

MINE = """
import os
from dataclasses import dataclass
import numpy as np

@dataclass(frozen=True)
class Response:
    truth: float

    def __post_init__(self):
        if self.truth > 1:
            raise ValueError("more than\\nthe truth")

    def __call__(self, data, runs, rng):
        if "DRAWN" in os.environ:
            with open(os.environ["DRAWN"], "a") as log:
                log.write("block\\n")
        return np.where(rng.random((runs, 1)) < self.truth, np.sum(data), 1 - np.sum(data))

def plain(data, runs, rng):
    return Response(0.6)(data, runs, rng)

def fixed_seed(data, runs, rng):
    return Response(0.6)(data, runs, np.random.default_rng(0))

def raises(data, runs, rng):
    raise KeyError("no key")

def pair(value, exact=False):
    return (0.0, value, np.zeros((1, 1))) if exact else (0.0, value)

def nothing():
    return None
"""
STUDY = """
seeds = 2
epsilon = 1.0

[pairs.files]
first = "a.txt"
second = "b.csv"

[pairs.made]
use = "mine.py:pair"
value = 1.0
exact = [true, false]

[mechanisms.response]
use = "mine.py:Response"
truth = [0.6, 0.9, 2.0]

[mechanisms.plain]
use = "mine:plain"

[settings]
select_runs = 200
test_runs = 400
block = 500
partition = "atoms"
events = "union"
seed = 3
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("mine", None)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "mine.py").write_text(MINE)
    (tmp_path / "inner" / "a.txt").write_text("0\n")
    (tmp_path / "inner" / "b.csv").write_text("1\n")
    (tmp_path / "inner" / "study.toml").write_text(STUDY)
    yield tmp_path / "inner"
    sys.modules.pop("mine", None)


def table(folder):
    with (folder / "table.csv").open() as file:
        return list(csv.DictReader(file))


def change(place, old, new):
    text = (place / "study.toml").read_text()
    assert old in text
    (place / "study.toml").write_text(text.replace(old, new))


@pytest.mark.filterwarnings("default:.*failed")
def test_every_combination_has_a_report_and_a_row(place, capsys):
    """The study is run from another folder; the files that it names are beside it."""
    assert main(["study", "inner/study.toml"]) == 2
    out, err = capsys.readouterr()
    lines = table(place / "study")
    assert len(lines) == (3 + 1) * (1 + 2) * 2
    assert "24 verifications: 6 failed, 6 refuted, 12 too weak." in out
    assert err.count("ValueError: more than the truth") == 6 + 1
    assert {line["seed"] for line in lines} == {"3", "4"}
    assert [line["mechanism"] for line in lines[:18]] == ["response"] * 18
    for line in lines:
        failed = line["mechanism.truth"] == "2.0"
        assert failed == ("more than the truth" in line["problem"])
        assert failed == (line["report"] == "")
        if not failed:
            report = dpv.Report.from_json(place / "study" / line["report"])
            assert report.digest == line["digest"]
            assert report.settings.seed == int(line["seed"])
            assert (report.error is not None) == (line["pair.exact"] == "True")
            assert report.refuted == (line["mechanism.truth"] == "0.9")
            assert repr(report.epsilon_lower) == line["epsilon_lower"]
    assert not (place / "study" / "running").exists()


@pytest.mark.filterwarnings("default:.*failed")
def test_the_exit_status_needs_a_refutation_of_all_rows_together(place, capsys, monkeypatch):
    """A row whose p-value is just below alpha is refuted by itself; a study of 24 such tests is not."""
    main(["study", "inner/study.toml", "--quiet"])
    study = dpv.run_study(place / "study.toml")
    rows = [
        {**row, "p_value": 0.04 if row in study.refuted else 0.9, "too_weak": None}
        for row in study.rows
        if row["problem"] is None
    ]
    weak = dataclasses.replace(study, rows=tuple(rows))
    assert len(weak.refuted) == 6
    assert weak.certain == ()
    monkeypatch.setattr("dpverify.cli.commands.run_study", lambda *_, **__: weak)
    assert main(["study", "inner/study.toml"]) == 0
    assert "Each claim is tested at its own alpha; 0 are refuted together (Holm)." in capsys.readouterr().out
    assert len(study.certain) == 6  # their p-values are far below alpha


@pytest.mark.filterwarnings("default:.*failed")
def test_a_finished_study_writes_its_table_again_and_a_page_per_report(place, capsys):
    """The page has one row for each of three reports and one for a failure."""
    change(place, "[0.6, 0.9, 2.0]", "[0.6, 2.0]")
    change(place, "seeds = 2", "seeds = 1")
    change(place, '[mechanisms.plain]\nuse = "mine:plain"\n', "")
    assert main(["study", "inner/study.toml", "--quiet"]) == 2
    lines = table(place / "study")
    (place / "study" / "table.csv").unlink()
    capsys.readouterr()
    assert main(["study", "inner/study.toml", "--quiet", "--html", "page.html"]) == 2
    assert table(place / "study") == lines
    assert capsys.readouterr().out == ""
    page = Path("page.html").read_text()
    assert re.search(r"<h1>\d+ of \d+ claims ", page)
    assert ">exact</button></th>" in page
    assert ">error</button></th>" in page
    links = re.findall(r'href="(inner/study/pages/[^"]*)"', page)
    assert len(links) == sum(line["report"] != "" for line in lines) == 3
    assert all("<h1>" in Path(link).read_text() for link in links)
    assert "Bars are two standard errors." in page
    assert page.count("<tr>") > sum(line["error_first"] != "" for line in lines)


def test_finished_combinations_are_not_drawn_again(place, monkeypatch):
    change(place, "[0.6, 0.9, 2.0]", "0.6")
    change(place, "seeds = 2", "seeds = 1")
    monkeypatch.setenv("DRAWN", str(place / "drawn"))
    done = dpv.run_study(place / "study.toml", place / "kept")
    assert not done.failed
    assert done.rows[0]["mechanism.truth"] == 0.6
    assert done.rows[1]["pair.exact"] is True
    assert done.rows[0]["pair.exact"] is None
    assert done.rows[0]["epsilon"] == 1.0
    assert list(done.rows[0]) == list(table(place / "kept")[0])
    assert done.report(done.rows[0]).digest == done.rows[0]["digest"]
    before = (place / "kept" / "table.csv").read_bytes()
    (place / "kept" / done.rows[4]["report"]).unlink()
    drawn = (place / "drawn").stat().st_size
    assert dpv.run_study(place / "study.toml", place / "kept") == done
    assert (place / "kept" / "table.csv").read_bytes() == before
    assert drawn < (place / "drawn").stat().st_size < drawn * 1.3  # one combination of six


@pytest.mark.filterwarnings("ignore:.*failed")
def test_the_printed_study_is_an_aligned_table(place):
    headline, claimed, summary, together, weak, header, *lines = str(dpv.run_study(place / "study.toml")).splitlines()
    assert headline.startswith("6 of 24 claims are refuted: response, files, truth 0.9, seed 3, response, ")
    assert "6 of 24 claims could not be verified: " in headline
    assert "12 of 24 claims had too few runs: " in headline
    assert claimed == "  Claimed: epsilon 1, delta 0."
    assert summary.startswith("  24 verifications: 6 failed, 6 refuted, 12 too weak.")
    assert together.endswith("6 are refuted together (Holm).")
    assert "too few to notice a violation" in weak
    assert header.split()[:6] == ["mechanism", "pair", "truth", "value", "exact", "seed"]
    assert len(lines) == 20 + 1
    assert lines[0][header.index("verdict") :].startswith("TOO WEAK")
    assert lines[12][header.index("verdict") :].startswith("FAILED")
    assert lines[-1] == "  and 4 more"


def test_a_full_disk_stops_the_study(place, capsys, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dpverify.report.report.Report.to_json", full)
    assert main(["study", "inner/study.toml"]) == 3
    line = "dpverify: the disk failed (No space left on device) after 0 of 24 jobs; they are kept in "
    assert capsys.readouterr().err.startswith(line)


def test_a_mechanism_that_fails_has_a_row_with_the_reason(place):
    change(place, 'use = "mine:plain"', 'use = "mine:raises"')
    change(place, "truth = [0.6, 0.9, 2.0]", "truth = 0.6")
    change(place, 'use = "mine.py:pair"\nvalue = 1.0\nexact = [true, false]', 'use = "mine.py:nothing"')
    with pytest.warns(dpv.DPVerifyWarning, match="failed"):
        done = dpv.run_study(place / "study.toml")
    assert [row["problem"] is None for row in done.rows] == [True, True] + [False] * 6
    assert "no tuple; expected (first, second)" in done.rows[2]["problem"]
    assert "KeyError: 'no key'" in done.rows[4]["problem"]


def test_a_study_with_too_few_runs_is_no_answer(tmp_path, monkeypatch, capsys):
    """A randomised response with epsilon 0.41 cannot show whether a claim of 1 holds; it can for a claim of 0.5."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    study = (
        'epsilon = 1.0\n[pairs.made]\nuse = "mine.py:pair"\nvalue = 1.0\n[mechanisms.plain]\nuse = "mine.py:plain"\n'
    )
    for epsilon, status in (("1.0", 3), ("0.5", 0)):
        place = tmp_path / f"study{status}.toml"
        place.write_text(study.replace("1.0\n[pairs", f"{epsilon}\n[pairs"))
        assert main(["study", str(place)]) == status
        out, err = capsys.readouterr()
        assert ("1 too weak" in out, "the witness is so frequent" in err) == (status == 3,) * 2


@pytest.mark.filterwarnings("default:different blocks contain the same outputs")
def test_a_voiding_diagnostic_is_no_answer_unless_another_claim_is_refuted(place, capsys):
    change(place, 'use = "mine:plain"', 'use = "mine:fixed_seed"')
    change(place, "[0.6, 0.9, 2.0]", "[0.6, 0.9]")
    change(place, "[true, false]", "true")
    (place / "b.csv").write_text("0\n")  # equal to the first dataset
    assert main(["study", "inner/study.toml"]) == 1  # a refuted claim counts before a missing answer
    out = capsys.readouterr().out
    assert "12 verifications: 2 refuted, 8 no answer, 2 too weak." in out
    assert "  No answer for response files 0.6, response files 0.9" in out
    voided = [(line["mechanism"] == "plain" or line["pair"] == "files") for line in table(place / "study")]
    assert voided == [line["diagnostic"] != "" for line in table(place / "study")]


def test_a_study_with_a_shortened_verification_is_resumed(place, capsys):
    """A void test is shortened, so the settings of its report differ from those of the study."""
    (place / "void.toml").write_text(
        'epsilon = 1.0\n[pairs.equal]\nfirst = "a.txt"\nsecond = "a.txt"\n[mechanisms.plain]\n'
        'use = "mine:plain"\n[settings]\nselect_runs = 2000\ntest_runs = 4000\n'
    )
    assert main(["study", "inner/void.toml"]) == 3
    reports = sorted(path.read_bytes() for path in (place / "void" / "reports").iterdir())
    first = table(place / "void")
    assert first[0]["test_runs"] == "1000"
    assert main(["study", "inner/void.toml"]) == 3
    assert table(place / "void") == first
    assert sorted(path.read_bytes() for path in (place / "void" / "reports").iterdir()) == reports
    assert "found other settings" not in capsys.readouterr().err


def test_combinations_are_added_and_removed(place):
    """The reports of combinations that stay are used again, also if the claim of a report has not changed its name."""
    change(place, "[0.6, 0.9, 2.0]", "[0.6, 0.9]")
    first = dpv.run_study(place / "study.toml")
    change(place, "[0.6, 0.9]", "[0.9, 0.8]")
    second = dpv.run_study(place / "study.toml")
    assert len(second.stored) == len(first.rows) - 6
    shared = [row for row in first.rows if row["mechanism.truth"] != 0.6]
    assert [row for row in second.rows if row["mechanism.truth"] != 0.8] == shared
    change(place, "epsilon = 1.0", "epsilon = 2.0")
    with pytest.warns(dpv.DPVerifyWarning, match="its claim, settings or options changed; it is run again"):
        third = dpv.run_study(place / "study.toml")
    assert {row["claim"] for row in third.rows} == {"epsilon 2, delta 0"}
    assert len(list((place / "study" / "reports").glob("*.old-1"))) == len(third.rows)


BAD = [
    ("seeds = 2", "seeds = 0", "found seeds 0"),
    ("seeds = 2", "seeds = ", "not TOML"),
    ("seeds = 2", "sedes = 2", "did you mean 'seeds'?"),
    ("epsilon = 1.0", "epsilon = -1", "epsilon must be"),
    ("test_runs", "test_rnus", "did you mean 'test_runs'?"),
    ("test_runs = 400", "epsilon = 1", "must be at the top of the file"),
    ("seed = 3", 'preset = "papers"', 'expected "paper"'),
    ("a.txt", "c.txt", "c.txt: no such file"),
    ("mine.py:Response", "mine.py:Absent", "has no Absent"),
    ("mine.py:Response", "nowhere.py:f", "no file nowhere.py"),
    ('use = "mine:plain"', "used = 1", "found use None"),
    ("truth = [0.6, 0.9, 2.0]", "truth = []", "found no value for truth"),
    ('second = "b.csv"', "", "expected the files first and second"),
    ("[mechanisms.plain]", '[mechanisms."a/b"]', "expected a table whose name has letters"),
    ("[mechanisms.plain]", f"[mechanisms.{'x' * 101}]", "expected at most 100; choose a shorter name"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[new or old for old, new, _ in BAD])
def test_a_bad_study_is_refused_in_one_line(place, capsys, old, new, message):
    change(place, old, new)
    assert main(["study", "inner/study.toml"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (place / "study").exists()


@pytest.mark.parametrize(
    "problem",
    [KeyboardInterrupt(), dpv.Stopped("any text", "folder", 9, StopReason.KEYBOARD)],
)
def test_an_interrupted_study_keeps_finished_combinations(place, capsys, monkeypatch, problem):
    verify = dpv.verify

    def interrupted(*arguments, **keywords):
        if keywords["settings"].seed == 4:
            raise problem
        return verify(*arguments, **keywords)

    monkeypatch.setattr("dpverify.studies.engine.verify", interrupted)
    assert main(["study", "inner/study.toml", "--folder", "kept"]) == 3
    line = "dpverify: stopped by the keyboard after 1 of 24 jobs; they are kept in kept; repeat the same"
    assert capsys.readouterr().err.startswith(line)
    assert len(table(place.parent / "kept")) == 1


def test_a_page_that_cannot_be_drawn_does_not_hide_the_answer(place, capsys, monkeypatch):
    def no_page(*arguments):
        raise dpv.InputError("a page: found no printer")

    monkeypatch.setattr("dpverify.studies.study.Study.page", no_page)
    (place / "one.toml").write_text(
        'epsilon = 0.1\n[pairs.one]\nuse = "mine.py:pair"\nvalue = 1.0\n[mechanisms.plain]\nuse = "mine:plain"\n'
        "[settings]\nselect_runs = 400\ntest_runs = 2000\n"
    )
    assert main(["study", "inner/one.toml", "--html", "page.html"]) == 2
    out, err = capsys.readouterr()
    assert "found no printer" in err
    assert "1 refuted" in out
