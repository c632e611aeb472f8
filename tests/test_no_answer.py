"""A void test is never a result: every table, page and file names it first, with its reason and without a number.

The mechanism ignores its generator: its counts give a bound above 5, which must not be seen anywhere.
"""

import csv
import json
import re

import numpy as np
import pytest

import dpverify as dpv
from dpverify.ci.check import run_check
from dpverify.cli import main
from mechanisms import ONE, ZERO, ignores_generator, laplace

pytestmark = pytest.mark.filterwarnings("ignore:different blocks contain the same outputs")
FEW = {"select_runs": 500, "test_runs": 2000}
CAUSE = dpv.Diagnostic.REPEATED_BLOCKS.cause
OWN = """
import numpy as np

def noisy(data, runs, rng):
    return data + rng.laplace(size=(runs, 1))

def fixed(data, runs, rng):
    return data + np.random.default_rng(5).laplace(size=(runs, 1))
"""
STUDY = """
{claim}
pairs.one = {{ first = "first.csv", second = "second.csv" }}
mechanisms.noisy = {{ use = "own.py:noisy" }}
mechanisms.fixed = {{ use = "own.py:fixed" }}
settings = {{ select_runs = 500, test_runs = 2000 }}
"""
MANIFEST = """
claims = [
    { name = "noisy", mechanism = "noisy", pair = "one", epsilon = 0.3 },
    { name = "fixed", mechanism = "fixed", pair = "one", epsilon = 0.3 },
]
pairs.one = { first = "first.csv", second = "second.csv" }
mechanisms.noisy = { use = "own.py:noisy" }
mechanisms.fixed = { use = "own.py:fixed" }
settings = { select_runs = 500, test_runs = 2000 }
"""


def numbers_above_2(text):
    """Return the decimal numbers from 2 to 20 in a text; the bound of the void test is one of them."""
    return [number for number in re.findall(r"(?<![\w.-])\d+\.\d+(?![\w.%])", text) if 2 < float(number) < 20]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "first.csv").write_text("0.0\n")
    (tmp_path / "second.csv").write_text("1.0\n")
    return tmp_path


def shown(page):
    """Return the text of a page without its style, script and positions in figures."""
    text = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", " ", text)


@pytest.fixture(scope="module")
def void():
    with pytest.warns(dpv.DPVerifyWarning):
        return dpv.verify(ignores_generator, ZERO, ONE, 0.3, error=dpv.rmse(ZERO), **FEW)


def test_a_log_line_has_no_bound(caplog):
    with caplog.at_level("INFO", logger="dpverify"):
        dpv.verify(ignores_generator, ZERO, ONE, 0.3, **FEW)
    assert "<Report ignores_generator: NO_ANSWER>" in caplog.text
    assert "epsilon >=" not in caplog.text


@pytest.mark.parametrize("claim", ["epsilon = 0.3", ""], ids=["claim", "measured"])
def test_a_study(claim, place, capsys):
    (place / "study.toml").write_text(STUDY.format(claim=claim))
    assert main(["study", "study.toml", "--html", "page.html"]) == (1 if claim else 3)
    printed = capsys.readouterr().out
    assert printed.startswith(("1 of 2 claims has no answer: fixed.", "1 of 2 verifications has no answer: fixed."))
    assert f"No answer for fixed one: {CAUSE}." in printed
    (fixed,) = [line for line in printed.splitlines() if line.startswith("  fixed")]
    assert fixed.split() == ["fixed", "one", "0", "NO", "ANSWER"]
    page = (place / "page.html").read_text()
    assert re.search("<h1>1 of 2 (claims|verifications) has no answer: fixed.", page)
    assert f"No answer for fixed one: {CAUSE}." in shown(page)
    assert "(fixed" not in page
    assert not numbers_above_2(shown(page))
    rows = {row["mechanism"]: row for row in csv.DictReader((place / "study" / "table.csv").read_text().splitlines())}
    assert (rows["fixed"]["verdict"], rows["fixed"]["diagnostic"]) == ("NO_ANSWER", "REPEATED_BLOCKS")
    assert [rows["fixed"][name] for name in ("epsilon_lower", "epsilon_upper_on_partition", "p_value")] == [""] * 3
    assert float(rows["noisy"]["epsilon_lower"]) > 0.3
    title = dpv.run_study("study.toml").plot().get_suptitle()
    assert "1 without an answer" in title.replace("\n", " ")


def test_a_check(place):
    (place / "claims.toml").write_text(MANIFEST)
    check = run_check("claims.toml", release="1")
    printed = str(check)
    assert printed.splitlines()[1] == f"  No answer for fixed: {CAUSE}."
    assert not numbers_above_2(printed)
    page = (place / "claims" / "page.html").read_text()
    assert "<h1>1 of 2 claims has no answer: fixed. 1 of 2 claims is refuted: noisy.</h1>" in page
    assert CAUSE in shown(page)
    assert not numbers_above_2(shown(page))
    junit = (place / "claims" / "junit.xml").read_text()
    assert f'<error type="NO_ANSWER" message="{CAUSE}' in junit
    assert not numbers_above_2(junit.replace(str(check.rows[0]["epsilon_lower"]), ""))
    rows = {row["name"]: row for row in json.loads((place / "claims" / "results.json").read_text())["claims"]}
    assert rows["fixed"]["epsilon_lower"] is rows["fixed"]["epsilon_detectable"] is None
    assert rows["noisy"]["epsilon_lower"] > 0.3
    own = (place / "claims" / rows["fixed"]["page"]).read_text()
    assert "<figure" not in own
    assert f"<h1>No answer: {CAUSE}.</h1>" in own


STREAM = np.zeros((3, 1))


def fixed_stream(data, runs, rng):
    return data + np.random.default_rng(5).laplace(size=(runs, *data.shape))


def mixed_stream(data, runs, rng):
    """Noise that is fixed where a value is 2 or more."""
    return data + (np.random.default_rng(5) if data.max() >= 2 else rng).laplace(size=(runs, *data.shape))


def test_over_time(tmp_path):
    result = dpv.privacy_over_time(fixed_stream, STREAM, STREAM + 1.0, epsilon=0.1, **FEW)
    names = ("epsilon_lower", "epsilon_upper", "claim_lower", "p_values", "start", "final", "increments", "spent")
    assert [getattr(result, name) for name in names] == [None] * 8
    assert result.on_partition(0) is None
    assert not result.holds_on_cells
    assert result.counts.sum() > 0  # what was counted is kept
    assert {row["epsilon_lower"] for row in result.rows} == {None}
    assert {row["diagnostic"] for row in result.rows} == {"REPEATED_BLOCKS"}
    result.to_json(tmp_path / "result.json")
    assert dpv.PrivacyOverTime.from_json(tmp_path / "result.json") == result
    result.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert CAUSE in shown(page).replace("Different", "different")
    assert "<figure" not in page
    assert "<td" not in page
    assert not numbers_above_2(shown(page))
    with pytest.raises(dpv.InputError, match="plot: found no verification with an answer"):
        result.plot()


def test_over_time_of_several_records(tmp_path):
    pairs = {"good": (STREAM, STREAM + 1.0), "bad": (STREAM + 2.0, STREAM + 3.0)}
    table = dpv.privacy_over_time(mixed_stream, pairs=pairs, epsilon=0.1, **FEW)
    good, bad = table.curves
    assert (good.refuted, bool(bad.voiding)) == (True, True)
    assert np.isnan(table.final).tolist() == [False, True]
    assert str(table).splitlines()[1].startswith("no answer for bad; good leaks by step 0")
    assert f"  bad: no answer; {CAUSE}" in str(table)
    (line,) = [line for line in str(table).splitlines() if line.startswith("  bad  ")]
    assert line.split() == ["bad", "NO", "ANSWER"]
    table.to_html(tmp_path / "page.html")
    page = shown((tmp_path / "page.html").read_text())
    assert "No answer for bad" in page
    assert "No answer: bad. The largest epsilon is" in page
    (row,) = re.findall(r"<tr><td[^>]*>bad</td>.*?</tr>", (tmp_path / "page.html").read_text())
    void = '<strong class="NO_ANSWER">NO ANSWER</strong>'  # the style has a hollow mark
    assert re.findall(r"<td[^>]*>(.*?)</td>", row) == ["bad", void, *[""] * 7]
    assert table.plot() is not None


def test_many_pairs():
    many = dpv.verify_pairs(mixed_stream, {"a": (STREAM, STREAM + 1.0), "b": (STREAM + 2.0, STREAM + 3.0)}, 0.3, **FEW)
    lines = str(many).splitlines()
    assert lines[0].endswith("No answer in 1 of 2 pairs; 0 of 1 pairs passed (epsilon 0.3, delta 0)")
    assert lines[1] == f"  No answer for b: {CAUSE}."
    assert many.worst == 0
    assert (many.share, many.share_interval[1]) == (0.0, pytest.approx(0.9874, abs=1e-3))  # as if it had passed
    none = dpv.verify_pairs(ignores_generator, [(ZERO, ONE)], 0.3, **FEW)
    assert (none.worst, none.epsilon_lower, none.share) == (None, None, None)
    assert not re.search("Worst|epsilon >=|confidence", str(none))
    with pytest.raises(dpv.InputError, match="no verification with an answer"):
        none.plot()


def test_a_search():
    found = dpv.search_pairs(ignores_generator, [(ZERO, ONE)], 0.3, runs=2000, **FEW)
    assert str(found).splitlines()[0].endswith(": NO ANSWER")
    assert str(found).splitlines()[1] == f"  No answer for 0: {dpv.Diagnostic.REPEATED_BLOCKS.cause}."
    assert not numbers_above_2(str(found))


def test_a_tradeoff(tmp_path):
    def family(scale):
        return ignores_generator if scale > 1 else laplace

    table = dpv.tradeoff({"Laplace": (family, [1.0, 2.0])}, ZERO, ONE, 0.01, dpv.rmse(ZERO), **FEW)
    assert str(table).splitlines()[1] == f"  No answer for Laplace 2: {CAUSE}."
    assert str(table).splitlines()[-1].split() == ["Laplace", "2", "NO", "ANSWER"]
    good, bad = table.rows
    assert good["epsilon_lower"] > 0.5
    assert {value for name, value in bad.items() if name.startswith(("epsilon", "error"))} == {None}
    table.to_html(tmp_path / "page.html")
    page = shown((tmp_path / "page.html").read_text())
    assert f"No answer for Laplace 2: {CAUSE}." in page
    assert not numbers_above_2(page)


def test_a_comparison(void, tmp_path):
    compared = dpv.compare_reports(dpv.verify(laplace, ZERO, ONE, 0.3, **FEW), void)
    assert compared.finding == f"No answer after: {CAUSE}. So the two cannot be compared."
    compared.to_html(tmp_path / "page.html")
    page = shown((tmp_path / "page.html").read_text())
    assert compared.finding in page


def test_a_calibration_stops():
    with pytest.raises(dpv.InputError, match=f"family.*: {CAUSE}"):
        dpv.calibrate(lambda scale: ignores_generator, (0.5, 2.0), ZERO, ONE, 1.0, 0.01, **FEW)
