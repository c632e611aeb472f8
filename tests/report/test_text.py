"""Sentences of a report: its text, its page, and the call that repeats it."""

import dataclasses
import functools
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import dpverify as dpv
from dpverify.ci.junit import junit_xml
from dpverify.render import report_page
from dpverify.render.pages import bounds_figure
from dpverify.report.power import detectable_factor
from dpverify.report.text import (
    as_sentence,
    describe_event,
    facts,
    headline,
    report_text,
    reproduction_command,
    summary,
)
from dpverify.studies.tables import lower_text, upper_text
from dpverify.util.formatting import format_lower, format_upper
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace

SMALL = {"select_runs": 2000, "test_runs": 10_000, "block": 1000}  # few blocks take less time


def test_without_a_command_the_page_shows_the_call():
    data = np.zeros((3, 2)), np.full((3, 2), 0.4)
    report = dpv.verify(gaussian_trajectory, *data, 0.5, settings=dpv.Settings.paper())
    call = reproduction_command(report).replace("mechanism, first, second", "gaussian_trajectory, *data")
    assert "Settings.paper()" in call
    names = {"dpv": dpv, "gaussian_trajectory": gaussian_trajectory, "data": data}
    assert eval(call.splitlines()[-1], names) == report


def test_a_report_without_an_answer_gives_the_reason_first():
    report = dpv.verify(laplace, ZERO, ZERO, 0.5, **SMALL)
    assert headline(report) == f"No answer: {report.voiding[0].cause}."
    lines = dict(summary(report))
    assert lines["This means"].lower().startswith(report.voiding[0].cause)
    assert lines["What to do"].lower().startswith(report.voiding[0].remedy)
    assert as_sentence(dpv.Diagnostic.SHORTENED.value) in report_page(report).html()


def test_every_statement_is_one_line_that_is_continued_below_it():
    report = dpv.verify(laplace, ZERO, ONE, 0.5, **SMALL)
    long = report_text(report, width=1000)
    for width in (60, 88):
        text = report_text(report, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert text.split() == long.split()
    assert str(report) == report_text(report, width=88)
    assert [line[:12].strip() for line in long.splitlines()[2:]][:4] == ["claimed", "p-value", "data", ""]
    assert all(line.startswith("  ") and line.count(". ") == 0 for line in long.splitlines()[1:])


def test_the_page_compares_the_counts_of_the_event():
    report = dpv.verify(laplace, ZERO, ONE, 0.5, **SMALL)

    def note(larger, smaller):
        first, second = (larger, smaller) if report.witness.direction == (1, 2) else (smaller, larger)
        witness = dataclasses.replace(report.witness, counts=(first, second))
        return describe_event(dataclasses.replace(report, tested=(witness,)))[0]

    assert "occurred 2 times as often with the" in note(2000, 1000)
    assert "occurred 1 times as often with the" in note(1000, 1000)
    assert note(10, 0).startswith("The witness never occurred with the")
    assert note(0, 0).startswith("The witness never occurred with the")


def test_an_upper_bound_that_does_not_exist_has_a_reason():
    def one_sided(data, runs, rng):
        return np.where(rng.random(runs) < 0.25, 10.0 * data, 20.0 + rng.integers(2, size=runs))

    assert "in some cell one dataset has no run; a delta above 0 may" in report_text(
        dpv.verify(one_sided, ZERO, ONE, **SMALL), width=1000
    )
    with_delta = dpv.verify(one_sided, ZERO, ONE, delta=0.01, **SMALL)
    assert "in some cell one dataset has no run, or the runs are too few" in report_text(with_delta, width=1000)
    assert "in some cell" not in str(dpv.verify(laplace, ZERO, ONE, **SMALL))


def test_a_name_from_code_keeps_its_first_letter():
    assert as_sentence("more runs help") == "More runs help."
    assert as_sentence("test_runs=100 is too small.") == "test_runs=100 is too small."


def test_symbols_stand_in_sentences_and_not_in_names():
    assert as_sentence("at alpha 0.05 with delta >= 0.1") == "At α = 0.05 with δ ≥ 0.1."
    assert as_sentence("pass epsilon=... to test") == "Pass epsilon=... to test."


@pytest.mark.parametrize("test", ["thinned", "averaged"])
def test_the_page_of_the_paper_has_its_test_and_its_numbers(test):
    data = np.zeros((2, 2)), np.full((2, 2), 0.4)
    report = dpv.verify(gaussian_trajectory, *data, 0.5, settings=dpv.Settings.paper(test=test))
    html = report_page(report).html()
    assert f"eta {report.paper.eta:.4g}, lambda {report.paper.lambda_:.4g}" in " ".join(html.split())
    assert ("means over all thinnings" in html) == (test == "averaged")
    risk = {"thinned": "10%", "averaged": "20%"}[test]
    assert f"so a true claim is refuted with probability up to {risk}" in report_text(report, width=1000)


def test_the_page_of_an_early_stop_says_what_its_runs_were_used_for():
    report = dpv.verify(laplace, ZERO, ONE, 0.2, stop_early=True, **SMALL)
    assert report.stopped == "refuted"
    html = report_page(report).html()
    for words in (
        "These runs also selected the",
        "the claim was refuted after",
        "Evidence over the runs",
        "<td>none</td>",
    ):
        assert words in html
    assert report.observer_certainty is None


def test_a_lipschitz_constant_has_its_sentences():
    report = dpv.verify(laplace, ZERO, ONE, 0.5, 0.05, log_lipschitz=1.0, **SMALL)
    certified = (
        f"ε ≤ {format_upper(report.certificate.epsilon_upper(0.05))} at δ = 0.05 (95% confidence), over all events."
    )
    assert any(sentence.startswith(certified) for sentence in facts(report))


def test_a_page_without_a_claim_or_an_answer_explains_no_power():
    measured = dpv.verify(laplace, ZERO, ONE, **SMALL)
    void = dpv.verify(laplace, ZERO, ZERO, 1.0, **SMALL)
    assert void.voiding
    for report in (measured, void):
        page = report_page(report).html()
        assert "detectable" not in page
        assert "about 80% of the time" not in page


def test_a_refutation_just_below_alpha_is_called_weak():
    report = dpv.verify(laplace, ZERO, ONE, 0.9, **SMALL)
    weak = next(found for claim in np.arange(1.0, 0.3, -0.002) if (found := report.against(float(claim))).refuted)
    assert 0.005 < weak.p_value <= 0.05
    assert headline(weak).startswith("Refuted at 95% confidence, weak evidence: ")
    assert "refuted at 95% confidence, weak evidence" in str(weak)
    assert weak.next_step.startswith("verify again with alpha=0.0005 and a new seed")
    strong = report.against(0.3)
    assert "strong evidence" in str(strong)
    assert "new seed" not in strong.next_step
    for text in (str(weak), str(strong), headline(weak)):
        assert "is false" not in text


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
        text, lower = report_text(report, width=1000), f"{report.claim_lower:.2f}"[:3]
        assert re.search(rf"proved    {name} >= {lower}", text)
        assert "at delta 0" not in text
        assert re.search(r"cells     (the claim (holds|is not shown to hold)|no bound) over the \d+ cells", text)
        page = " ".join([headline(report), *(text for _, text in summary(report)), *facts(report)])
        assert "ε" not in page.replace("Renyi ε", "")
        assert f"{name} is at least {lower}" in page
        drawing = bounds_figure(report, 1.0)
        assert drawing.title == f"Bounds on {name}"
        assert f"The claim is {claim.parameter:.7g}." in drawing.description
    approximate = measured().against(1.0, 1e-3)  # the same counts with an epsilon, which is the main number there
    assert "proved    epsilon >= " in str(approximate)
    assert "ε" in headline(approximate)


def test_a_profile_has_no_parameter_and_no_epsilon_at_delta_0():
    report = measured().against(dpv.claims.points([(1.0, 0.3), (3.0, 0.1)]))
    assert "at delta 0" not in str(report)
    assert "if the true epsilon and delta of the witness were " in report_text(report, width=1000)
    assert "ε is at least" not in headline(report)


def test_the_power_line_speaks_of_the_parameter():
    report = measured()
    level = report.witness.share * report.alpha
    parameter = report.claim.parameter * detectable_factor(report.witness, report.claim, report.delta, level)
    assert f"refute the claim about 80% of the time if the true mu of the witness were {parameter:.4g}" in report_text(
        report, width=1000
    )
    assert parameter > 1.2


def test_tables_and_junit_show_the_parameter():
    curve, plain = measured().against(dpv.claims.gaussian(0.5)).row(), measured().against(0.1, 1e-3).row()
    rows = [{**row, "name": name, "state": row["verdict"]} for name, row in (("curve", curve), ("plain", plain))]
    assert (lower_text(rows[0]), upper_text(rows[0])) == (f"mu >= {format_lower(curve['claim_lower'])}", "not bounded")
    assert lower_text(rows[1]).startswith("epsilon >= ")
    cases = ElementTree.fromstring(junit_xml("claims", rows).encode()).findall("testcase")
    messages = [case.find("failure").get("message") for case in cases]
    assert re.fullmatch(r"Gaussian .* mu 0\.5: REFUTED, strong evidence: mu >= \d\.\d{1,4}", messages[0])
    assert re.fullmatch(r"epsilon .*: REFUTED, strong evidence: epsilon >= \d\.\d{1,4}", messages[1])
    names = {prop.get("name") for prop in cases[0].iter("property")}
    assert "claim_lower" in names
    assert not any(name.startswith("epsilon") for name in names)
