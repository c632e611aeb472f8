"""Every result has the same six forms; cells that a spreadsheet would execute are quoted; words of a row."""

import csv
import math
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

import dpverify as dpv
from dpverify.studies import Job, Results, verify_many, write_csv
from dpverify.studies.tables import lower_text, verdict_text
from dpverify.util.formatting import format_lower
from mechanisms import laplace

FEW = {"select_runs": 500, "test_runs": 2000}
FAST = {"partition": "grid", "events": "union", "block": 500, **FEW}
FILES = """
[mechanisms.laplace]
use = "dpverify.demo:laplace_sum"
[pairs.p]
first = "a.csv"
second = "b.csv"
[settings]
select_runs = 500
test_runs = 2000
"""


def family(scale):
    return lambda data, runs, rng: data + rng.laplace(scale=scale, size=(runs, 1))


def stream(data, runs, rng):
    return np.asarray(data)[:, None] + rng.laplace(size=(runs, len(data), 1))


def a_study(place, files=FILES):
    (place / "study.toml").write_text("epsilon = 0.5\n" + files)
    return dpv.run_study(place / "study.toml")


def a_check(place, files=FILES):
    (place / "claims.toml").write_text(f'claims = [{{mechanism = "laplace", pair = "p", epsilon = 0.5}}]\n{files}')
    return dpv.run_check(place / "claims.toml", pages=False)


def a_comparison(place):
    return dpv.compare_reports(*(dpv.verify(laplace, 0.0, shift, 0.5, **FEW) for shift in (1.0, 2.0)))


def results(place, mechanism=laplace):
    job = Job("one", mechanism, 0.0, 1.0, dpv.claims.pure(0.5), dpv.Settings(**FEW))
    return Results.of([job], verify_many([job]))


STREAM = np.zeros(3)
RESULTS = {
    "Report": lambda place: dpv.verify(laplace, 0.0, 1.0, 0.5, **FEW),
    "PrivacyOverTime": lambda place: dpv.privacy_over_time(stream, STREAM, STREAM + 1, **FEW),
    "PrivacyTable": lambda place: dpv.privacy_over_time(stream, pairs={"a": (STREAM, STREAM + 1)}, **FEW),
    "ManyPairs": lambda place: dpv.verify_pairs(laplace, [(0.0, 1.0), (0.0, 2.0)], 0.5, **FEW),
    "Search": lambda place: dpv.search_pairs(laplace, [(0.0, 1.0), (0.0, 2.0)], 0.5, runs=1000, **FEW),
    "Calibration": lambda place: dpv.calibrate(family, (0.3, 5.0), 0.0, 1.0, 1.0, 0.01, **FAST),
    "Tradeoff": lambda place: dpv.tradeoff({"a": (family, [1.0])}, 0.0, 1.0, 0.0, dpv.rmse([[0.0]]), **FEW),
    "Comparison": a_comparison,
    "Results": results,
    "Study": a_study,
    "Check": a_check,
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_has_the_six_forms(name, tmp_path):
    (tmp_path / "a.csv").write_text("1,2")
    (tmp_path / "b.csv").write_text("1,3")
    result = RESULTS[name](tmp_path)
    assert type(result).__name__ == name
    assert "REFUTED" in str(result) or "epsilon" in str(result) or "ε" in str(result)
    result.to_csv(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    frame = result.to_dataframe()
    assert len(rows) == len(frame) > 0
    assert list(rows[0]) == list(frame)
    result.to_json(tmp_path / "out.json")
    assert '"format"' in (tmp_path / "out.json").read_text()
    result.to_html(tmp_path / "out.html")
    assert "<h1>" in (tmp_path / "out.html").read_text()
    assert result._repr_html_().startswith("<iframe srcdoc=")
    assert isinstance(result.plot(), Figure)


def ignores_generator(data, runs, rng):
    return data + np.random.default_rng(0).laplace(size=(runs, 1))


VOID_FILES = FILES.replace("dpverify.demo:laplace_sum", "void_of_tables.py:ignores_generator")
VOID = {
    "ManyPairs": lambda place: dpv.verify_pairs(ignores_generator, [(0.0, 1.0)], 0.5, **FEW),
    "Search": lambda place: dpv.search_pairs(ignores_generator, [(0.0, 1.0), (0.0, 2.0)], 0.5, runs=1000, **FEW),
    "Tradeoff": lambda place: dpv.tradeoff(
        {"a": (lambda scale: ignores_generator, [1.0])}, 0.0, 1.0, 0.0, dpv.rmse([[0.0]]), **FEW
    ),
    "Comparison": lambda place: dpv.compare_reports(*[dpv.verify(ignores_generator, 0.0, 1.0, 0.5, **FEW)] * 2),
    "Results": lambda place: results(place, ignores_generator),
    "Study": lambda place: a_study(place, VOID_FILES),
    "Check": lambda place: a_check(place, VOID_FILES),
    "PrivacyOverTime": lambda place: dpv.privacy_over_time(void_stream, STREAM, STREAM + 1, **FEW),
    "PrivacyTable": lambda place: dpv.privacy_over_time(void_stream, pairs={"a": (STREAM, STREAM + 1)}, **FEW),
}


def void_stream(data, runs, rng):
    return stream(data, runs, np.random.default_rng(0))


@pytest.mark.filterwarnings("ignore::dpverify.DPVerifyWarning")
@pytest.mark.parametrize("name", VOID)
def test_a_void_test_has_no_number_in_text_and_csv(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a.csv").write_text("1")
    (tmp_path / "b.csv").write_text("2")
    (tmp_path / "void_of_tables.py").write_text(
        "import numpy as np\n\ndef ignores_generator(data, runs, rng):\n"
        "    return data + np.random.default_rng(0).laplace(size=(runs, 1))\n"
    )
    result = VOID[name](tmp_path)
    assert re.search("no answer", str(result), re.IGNORECASE)
    assert not re.search(r"(epsilon|ε) (>=|≥|at least)", str(result))
    result.to_csv(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["diagnostic"]]
    assert rows
    for row in rows:
        assert not any(value for column, value in row.items() if column.startswith(("epsilon_l", "epsilon_u", "p_val")))


ROWS = [
    {"mechanism": "=HYPERLINK(1)", "scale": -1.5, "note": "-cmd|x", "count": 3, "=1+1": ""},
    {"mechanism": "@sum", "scale": 2e-9, "note": "+1", "count": -4, "pair": "plain"},
    {"mechanism": "'quoted", "scale": float("inf"), "note": "-inf", "count": 0},
]


def test_formulas_are_quoted_and_numbers_are_not(tmp_path):
    write_csv(tmp_path / "table.csv", ROWS)
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert lines[:3] == [
        "mechanism,scale,note,count,'=1+1,pair",
        "'=HYPERLINK(1),-1.5,'-cmd|x,3,,",
        "'@sum,2e-09,+1,-4,,plain",
    ]


def test_a_refutation_has_the_digits_that_show_it():
    row = {"claim": "epsilon 0.6, delta 0", "epsilon": 0.6, "epsilon_lower": 0.600035}
    assert lower_text(row) == "epsilon >= 0.60003"
    assert lower_text({**row, "epsilon": 0.61}) == "epsilon >= 0.6"
    for excess in 10.0 ** -np.arange(1.0, 15.0):
        for claim in (0.6, 1 / 3, 1.1, math.log(3), 12.0):
            text = format_lower(claim + excess, claim)
            assert claim < float(text) <= claim + excess


def test_the_verdict_of_a_row_says_how_strong_its_evidence_is():
    words = [verdict_text({"verdict": "REFUTED", "p_value": p, "alpha": 0.05}) for p in (0.02, 0.005, 0.0005)]
    assert words == ["REFUTED, weak evidence", "REFUTED, moderate evidence", "REFUTED, strong evidence"]
