"""Claims that are curves: text, page and tables show the claim's own parameter, and no epsilon at delta 0."""

import functools
import re
import xml.etree.ElementTree as ElementTree

import pytest

import dpverify as dpv
from dpverify.ci.junit import junit_xml
from dpverify.report.page import epsilon_bounds, result_tables
from dpverify.report.power import detectable_factor
from dpverify.report.text import headline, summary
from dpverify.studies.tables import bound_columns
from dpverify.util.formatting import format_lower
from mechanisms import ONE, ZERO


def gaussian(data, runs, rng):
    return data + rng.normal(size=(runs, 1))


@functools.cache
def measured():
    return dpv.verify(gaussian, ZERO, ONE, claim=dpv.claims.gaussian(1.2), select_runs=2000, test_runs=10_000)


CLAIMS = {
    "mu": (dpv.claims.gaussian(1.2), dpv.claims.gaussian(0.5)),
    "rho": (dpv.claims.zcdp(0.7), dpv.claims.zcdp(0.05)),
    "Renyi epsilon of order 4": (dpv.claims.renyi(4, 3.0), dpv.claims.renyi(4, 0.2)),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_the_main_number_is_the_parameter_of_the_claim(name):
    for claim in CLAIMS[name]:
        report = measured().against(claim)
        text, lower = str(report), f"{report.claim_lower:.2f}"[:3]
        assert re.search(rf"proved    {name} >= {lower}", text)
        assert "at delta 0" not in text
        assert re.search(r"cells     (the claim (holds|is not shown to hold)|no bound) over the \d+ cells", text)
        page = f"{headline(report)} {' '.join(text for _, text in summary(report, 1.0))}"
        assert "ε" not in page
        assert f"{name} is at least {lower}" in page
        drawn = epsilon_bounds(report, 1.0, 2.0)
        assert (drawn.claimed, drawn.name, drawn.tracks[0].end) == (claim.parameter, name, report.claim_lower)
        rows = [row.name for table in result_tables(report) for row in table.rows if "ε" in row.name]
        assert all("at δ = 0" in row for row in rows)
    approximate = measured().against(1.0, 1e-3)  # the same counts with an epsilon, which is the main number there
    assert "proved    epsilon >= " in str(approximate)
    assert "ε" in headline(approximate)


def test_a_profile_has_no_parameter_and_no_epsilon_at_delta_0():
    report = measured().against(dpv.claims.points([(1.0, 0.3), (3.0, 0.1)]))
    assert "at delta 0" not in str(report)
    assert "if the true epsilon and delta of the witness were " in str(report)
    assert "ε is at least" not in headline(report)


def test_the_power_line_speaks_of_the_parameter():
    report = measured()
    level = report.witness.share * report.alpha
    parameter = report.claim.parameter * detectable_factor(report.witness, report.claim, report.delta, level)
    assert f"if the true mu of the witness were {parameter:.4g}, these runs would refute" in str(report)
    assert parameter > 1.2


def test_tables_and_junit_show_the_parameter():
    curve, plain = measured().against(dpv.claims.gaussian(0.5)).row(), measured().against(0.1, 1e-3).row()
    rows = [{**row, "name": name, "state": row["verdict"]} for name, row in (("curve", curve), ("plain", plain))]
    header, cells = bound_columns(rows)
    assert header == ("proved", "over the cells")
    assert cells[0] == (f"mu >= {format_lower(curve['claim_lower'])}", "not bounded")
    assert cells[1][0].startswith("epsilon >= ")
    assert bound_columns(rows[1:])[0] == ("epsilon >=", "over the cells <=")
    cases = ElementTree.fromstring(junit_xml("claims", rows).encode()).findall("testcase")
    messages = [case.find("failure").get("message") for case in cases]
    assert re.fullmatch(r"Gaussian .* mu 0\.5: REFUTED, strong evidence: mu >= \d\.\d{1,4}", messages[0])
    assert re.fullmatch(r"epsilon .*: REFUTED, strong evidence: epsilon >= \d\.\d{1,4}", messages[1])
    names = {prop.get("name") for prop in cases[0].iter("property")}
    assert "claim_lower" in names
    assert not any(name.startswith("epsilon") for name in names)
