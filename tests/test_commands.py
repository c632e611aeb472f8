"""Every command on a small example, and the exit status of every command in every situation (docs/usage.md)."""

import re
from pathlib import Path

import pytest

import dpverify as dpv
from dpverify.ci.ledger import Ledger, VersionRun, read_ledger, write_ledger
from dpverify.cli import main

MODULE = """
import numpy as np


class Sum:
    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, data, runs, rng):
        return np.sum(data) + rng.laplace(scale=self.scale, size=runs)


def fails(data, runs, rng):
    raise KeyError("no key")


def fixed(data, runs, rng):
    return np.sum(data) + np.random.default_rng(1).laplace(size=runs)


def repeats(data, runs, rng):
    return stream(data, runs, np.random.default_rng(1))


def Fails(scale):
    return fails


def Fixed(scale):
    return fixed


def stream(data, runs, rng):
    return np.asarray(data).reshape(1, -1, 1) + rng.laplace(size=(runs, np.size(data), 1))


pairs = [(0.0, 0.2), (0.0, 1.5), (0.0, 0.5)]


def make_pairs():
    return {"near": (0.0, 0.2), "far": (0.0, 1.5)}


def pair_at(point):
    return 0.0, float(point[0])
"""
FEW = ["--set", "select_runs=500", "--set", "test_runs=3000"]
PAIR = ["--first", "a.csv", "--second", "b.csv"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "a.csv").write_text("1,2")
    (tmp_path / "b.csv").write_text("1,3")
    (tmp_path / "truth.csv").write_text("3")
    return tmp_path


def run(capsys, *arguments):
    status = main(list(arguments))
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_watch_shows_the_evidence_and_stops(capsys, place):
    few = [*FEW, "--json", "report.json"]
    status, out, err = run(capsys, "watch", "mine.py:Sum()", *PAIR, "--epsilon", "0.3", *few)
    assert status == 1
    assert "REFUTED" in out
    assert re.search(r"dpverify: \d+ runs per dataset: wealth \S+, refuted at 100", err)
    assert dpv.Report.from_json("report.json").stopped == "refuted"
    assert run(capsys, "watch", "mine.py:Sum()", *PAIR, "--epsilon", "3", *FEW, "--quiet") == (0, "", "")


def test_plan(capsys):
    status, out, _ = run(capsys, "plan", "--epsilon", "0.5", "--margin", "2", "--event-mass", "0.3")
    assert status == 0
    assert out.startswith("231 test runs per dataset refute epsilon 0.5 with probability 0.8")
    assert "favourable" not in out
    assert run(capsys, "plan", "--epsilon", "0.5", "--margin", "1")[0] == 2


def test_a_bad_claim_lists_all_kinds(capsys):
    status, _, err = run(capsys, "verify", "mine.py:Sum()", *PAIR, "--claim", "laplace(1)")
    assert status == 2
    kinds = ("pure", "approximate", "points", "gaussian", "zcdp", "renyi", "profile", "tradeoff")
    assert all(kind in err for kind in kinds)


def test_calibrate(capsys):
    few = ["--set", "select_runs=500", "--set", "test_runs=8000"]
    few += ["--set", "partition=grid", "--set", "events=union", "--set", "block=500"]  # fast
    required = ["--range", "0.2", "10", "--epsilon", "1", "--delta", "0.01"]
    status, out, _ = run(capsys, "calibrate", "mine.py:Sum", *required, *PAIR, *few)
    assert status == 0
    assert "parameter" in out
    status, out, _ = run(
        capsys, "calibrate", "mine.py:Sum", *required, "--pairs", "mine.py:pairs", "--runs", "500", *few
    )
    assert status == 0
    assert "of the worst pair, " in out


def test_search(capsys):
    status, out, _ = run(capsys, "search", "mine.py:Sum()", "mine.py:pairs", "--runs", "2000", "--epsilon", "1", *FEW)
    assert status == 1
    assert "REFUTED" in out
    status, _, err = run(capsys, "search", "mine.py:Sum()", "mine.py:pair_at", *FEW)
    assert status == 2
    assert "--box must have an interval for each coordinate" in err
    status, *_ = run(capsys, "search", "mine.py:Sum()", "mine.py:make_pairs", "--runs", "2000", "--epsilon", "1", *FEW)
    assert status == 1


def test_tradeoff(capsys, place):
    values = ["--values", "0.5", "1", "--truth", "truth.csv", "--csv", "table.csv"]
    status, out, _ = run(capsys, "tradeoff", "mine.py:Sum", *values, *PAIR, *FEW)
    assert status == 0
    assert "Sum" in out
    assert (place / "table.csv").read_text().count("\n") == 3


def test_compare(capsys, place):
    for number, scale in enumerate((1.0, 0.2)):
        report = dpv.verify(laplace(scale), 0.0, 1.0, 1.0, select_runs=500, test_runs=5000)
        report.to_json(place / f"{number}.json")
    status, out, _ = run(capsys, "compare", "0.json", "1.json", "--html", "change.html")
    assert status == 0
    assert out.startswith("A larger privacy loss is proved: ")
    assert "<h1>A larger privacy loss is proved" in (place / "change.html").read_text()
    assert [line.split()[0] for line in out.splitlines()[3:]] == ["before", "after"]
    same = run(capsys, "compare", "0.json", "0.json")[1]
    assert same.startswith("Both reports have the same result.")
    assert "The verdict is" in same


def test_an_upper_bound_over_cells_is_no_bound_over_all_events():
    few = {"delta": 0.1, "select_runs": 500, "test_runs": 20_000}
    old, new = (dpv.verify(laplace(s), 0.0, 1.0, **few) for s in (1.0, 0.2))
    finding = dpv.compare_reports(old, new).finding
    assert "over the cells" in finding
    assert "privacy loss is larger" not in finding
    back = dpv.compare_reports(new, old).finding
    assert back.startswith("The earlier privacy loss is no longer found: ")
    assert "over the cells" in back
    smooth = dpv.verify(laplace(1.0), 0.0, 1.0, **few, log_lipschitz=1.0)
    assert dpv.compare_reports(smooth, new).finding.startswith("The privacy loss is larger: ")
    assert dpv.compare_reports(new, smooth).finding.startswith("The privacy loss is smaller: ")
    assert "(confidence 90%)" in dpv.compare_reports(smooth, new).finding  # only this direction could be stated
    other = dpv.verify(laplace(4.0), 0.0, 1.0, **few, log_lipschitz=0.25)
    both = dpv.compare_reports(other, smooth).finding
    assert both.startswith("The privacy loss is larger: ")
    assert "(confidence 80%)" in both  # four bounds, because either direction could be stated
    assert dpv.compare_reports(smooth, old).finding == "No change of the privacy loss is shown."


def laplace(scale):
    return lambda data, runs, rng: data + rng.laplace(scale=scale, size=runs)


def test_ledger(capsys, place):
    assert run(capsys, "ledger", "ledger.json")[0] == 2
    ledger = Ledger(0.05).with_claim("a", "epsilon 1")
    ledger, _ = ledger.add(ledger.records[0], VersionRun("v1", 1, (50.0,) * 5))
    write_ledger(place / "ledger.json", ledger)
    status, out, _ = run(capsys, "ledger", "ledger.json")
    assert status == 1
    assert "ALARM at version v1" in out
    assert run(capsys, "ledger", "ledger.json", "--confirm", "a")[0] == 0
    assert read_ledger("ledger.json").records[0].confirmed == 1


ENTRIES = """
[pairs.one]
first = "a.csv"
second = "b.csv"
[mechanisms.good]
use = "mine.py:Sum()"
[mechanisms.fails]
use = "mine.py:fails"
[mechanisms.fixed]
use = "mine.py:fixed"
[settings]
select_runs = 500
test_runs = 6000
"""


def write_claims(*claims):
    """Write a manifest with claims such as "good 0.5", a mechanism and its epsilon."""
    lines = [
        f'{{mechanism = "{name}", pair = "one", epsilon = {epsilon}, detects = 3.0, name = "c{number}"}}'
        for number, (name, epsilon) in enumerate(map(str.split, claims))
    ]
    Path("claims.toml").write_text(f"claims = [{', '.join(lines)}]\n{ENTRIES}")


def write_study(epsilon, *mechanisms, detects=3.0):
    """Write a study of some of the mechanisms."""
    text = ENTRIES
    for name in {"good", "fails", "fixed"} - set(mechanisms):
        text = re.sub(rf"\[mechanisms.{name}\]\nuse = .*\n", "", text)
    Path("study.toml").write_text(f"epsilon = {epsilon}\ndetects = {detects}\n{text}")


VERIFY = "{} --first a.csv --second b.csv --set select_runs=500 --set test_runs=6000 --epsilon {}"
MANY = "--first a.csv --second b.csv --set select_runs=500 --set test_runs=2000 --set partition=grid --set events=union"
STATUSES = [  # what happens, the command, its exit status, and what is written before
    ("refuted", VERIFY.format("verify mine.py:Sum()", 0.5), 1, None),
    ("refuted", VERIFY.format("watch mine.py:Sum()", 0.5), 1, None),
    (
        "refuted",
        "over-time mine.py:stream --data a.csv --change 4 --steps 1 --epsilon 0.5 --set test_runs=4000",
        1,
        None,
    ),
    ("refuted", "search mine.py:Sum() mine.py:pairs --runs 2000 --epsilon 0.5 --set test_runs=4000", 1, None),
    ("refuted", "study study.toml", 1, lambda: write_study(0.5, "good")),
    ("refuted", "check claims.toml --no-pages", 1, lambda: write_claims("good 1.5", "good 0.5")),
    ("not refuted", VERIFY.format("verify mine.py:Sum()", 1.5), 0, None),
    ("not refuted", VERIFY.format("watch mine.py:Sum()", 1.5), 0, None),
    ("not refuted", "search mine.py:Sum() mine.py:pairs --runs 2000 --set test_runs=4000", 0, None),
    ("not refuted", "study study.toml", 0, lambda: write_study(1.5, "good")),
    ("not refuted", "check claims.toml --no-pages", 0, lambda: write_claims("good 1.5")),
    ("no answer", VERIFY.format("verify mine.py:fixed", 0.5), 3, None),
    ("no answer", VERIFY.format("watch mine.py:fixed", 0.5), 3, None),
    ("no answer", "search mine.py:fixed mine.py:pairs --runs 2000 --epsilon 0.5 --set test_runs=4000", 3, None),
    ("no answer", f"tradeoff mine.py:Fixed --values 1 --truth truth.csv {MANY}", 3, None),
    ("no answer", f"calibrate mine.py:Fixed --range 0.5 5 --epsilon 1 {MANY}", 3, None),
    ("no answer", "over-time mine.py:repeats --data a.csv --change 4 --epsilon 0.5", 3, None),
    ("no answer", "study study.toml", 3, lambda: write_study(0.5, "fixed")),
    ("no answer", "check claims.toml --no-pages", 3, lambda: write_claims("good 1.5", "fixed 1.5")),
    ("too weak", VERIFY.format("verify mine.py:Sum() --detects 1.01", 1.1), 3, None),
    ("too weak", "study study.toml", 3, lambda: write_study(1.1, "good", detects=1.01)),
    ("refuted, and no answer", "study study.toml", 1, lambda: write_study(0.5, "good", "fixed")),
    ("refuted, and no answer", "check claims.toml --no-pages", 1, lambda: write_claims("fixed 1.5", "good 0.5")),
    ("failed", VERIFY.format("verify mine.py:fails", 0.5), 2, None),
    ("failed", VERIFY.format("watch mine.py:fails", 0.5), 2, None),
    ("failed", "over-time mine.py:fails --data a.csv --change 4 --epsilon 0.5", 2, None),
    ("failed", "search mine.py:fails mine.py:pairs --runs 2000", 2, None),
    ("failed", f"calibrate mine.py:Fails --range 0.5 5 --epsilon 1 {MANY}", 2, None),
    ("failed", f"tradeoff mine.py:Fails --values 1 --truth truth.csv {MANY}", 2, None),
    ("failed", "study study.toml", 2, lambda: write_study(0.5, "fails")),
    ("failed", "check claims.toml --no-pages", 2, lambda: write_claims("fails 1")),
    ("failed, and refuted", "study study.toml", 2, lambda: write_study(0.5, "good", "fails")),
    ("failed, and refuted", "check claims.toml --no-pages", 2, lambda: write_claims("fails 1", "good 0.5")),
    *[("bad input", f"{command} nothing.json", 2, None) for command in ("study", "check", "ledger", "report")],
    ("bad input", "compare nothing.json nothing.json", 2, None),
    ("bad input", "verify-folder nothing", 2, None),
    ("bad input", "plan --epsilon 1 --margin 1", 2, None),
]


@pytest.mark.filterwarnings("ignore::dpverify.DPVerifyWarning")
@pytest.mark.parametrize(
    ("situation", "line", "status", "prepare"), STATUSES, ids=lambda x: x if isinstance(x, str) else ""
)
def test_one_situation_has_one_exit_status(situation, line, status, prepare, capsys):
    if prepare is not None:
        prepare()
    found, out, err = run(capsys, *line.split(), "--quiet")
    assert found == status, err
    assert out == ""  # --quiet prints nothing except problems
    assert bool(err) == (status >= 2 or "no answer" in situation)
