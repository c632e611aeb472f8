"""Sentences and tables of a report page."""

import dataclasses

import numpy as np
import pytest

import dpverify as dpv
from dpverify.render.page import report_page
from dpverify.report.page import event_note, p_values_by_event, page_content
from dpverify.report.text import as_sentence, reproduction_command
from dpverify.util.formatting import format_upper
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
    content = page_content(report)
    assert content.verdict == "NO_ANSWER"
    assert content.findings is None  # there is nothing that the page could draw
    assert content.headline == f"No answer: {report.voiding[0].cause}."
    summary = dict(content.summary)
    assert summary["Found"].lower().startswith(report.voiding[0].cause)
    assert "this page has no bounds" in summary["This means"]
    assert summary["What to do"].lower().startswith(report.voiding[0].remedy)
    assert content.notes == (as_sentence(dpv.Diagnostic.SHORTENED.value),)
    answered = page_content(dpv.verify(laplace, ZERO, ONE, 0.5, **SMALL))
    assert answered.findings is not None


def test_the_note_compares_the_counts_of_the_event():
    report = dpv.verify(laplace, ZERO, ONE, 0.5, **SMALL)

    def note(larger, smaller):
        first, second = (larger, smaller) if report.witness.direction == (1, 2) else (smaller, larger)
        witness = dataclasses.replace(report.witness, counts=(first, second))
        return event_note(dataclasses.replace(report, tested=(witness,)))

    assert "occurred 2 times as often with the" in note(2000, 1000)
    assert "occurred as often with the" in note(1000, 1000)
    assert note(10, 0).startswith("The event never occurred with the")
    assert note(0, 0).startswith("The event never occurred in the test runs")


def upper_detail(mechanism, delta, **runs):
    (detail,) = [
        track.detail
        for track in page_content(dpv.verify(mechanism, ZERO, ONE, delta=delta, **runs)).findings.bounds.tracks
        if track.kind == "cells" and track.statement.startswith("no upper bound")
    ]
    return detail


def mostly_constant(data, runs, rng):
    """Return the data in one of four runs, otherwise a fair coin, so that some cells have one data set only."""
    return np.where(rng.random(runs) < 0.25, 10.0 * data, 20.0 + rng.integers(2, size=runs))


def test_too_few_runs_are_named_only_where_more_of_them_could_give_an_upper_bound():
    """At every number of runs a quarter of them lies in cells of one data set, far more than delta."""
    one_sided = "some cells occurred with one data set only; confidence 95%"
    assert upper_detail(mostly_constant, 0.01, **SMALL) == one_sided
    assert upper_detail(mostly_constant, 1e-5, **SMALL) == one_sided
    assert upper_detail(rarely_different, 1e-5, **SMALL) == "too few runs for this δ; confidence 95%"


def rarely_different(data, runs, rng):
    """Return 5 in one of 5000 runs with the second data set, otherwise a fair coin."""
    return np.where(rng.random(runs) < 2e-4 * data, 5.0, rng.integers(2, size=runs))


def test_a_name_from_code_keeps_its_first_letter():
    assert as_sentence("more runs help") == "More runs help."
    assert as_sentence("test_runs=100 is too small.") == "test_runs=100 is too small."


def test_the_page_of_the_paper_has_its_test_and_its_numbers():
    data = np.zeros((2, 2)), np.full((2, 2), 0.4)
    report = dpv.verify(gaussian_trajectory, *data, 0.5, settings=dpv.Settings.paper())
    content = page_content(report).findings
    assert "The paper's test checks both directions" in content.event_note
    rows = {row.name: row.value for table in content.tables for row in table.rows}
    assert rows["η of the paper"] == f"{report.paper.eta:.4g}"
    assert rows["λ of the paper"] == f"{report.paper.lambda_:.4g}"


def test_the_page_of_an_early_stop_says_what_its_runs_were_used_for():
    report = dpv.verify(laplace, ZERO, ONE, 0.2, stop_early=True, **SMALL)
    assert report.stopped == "refuted"
    content = page_content(report).findings
    assert "These runs also selected the event" in content.event_note
    rows = {row.name: row for table in content.tables for row in table.rows}
    assert rows["runs"].explanation == "per data set; ended by: refuted"
    assert content.wealth is not None
    assert content.wealth.runs[-1] == report.sequence.runs[-1]


def test_a_delta_and_a_lipschitz_constant_have_their_sentences():
    report = dpv.verify(laplace, ZERO, ONE, 0.5, 0.05, log_lipschitz=1.0, **SMALL)
    assert "times the smaller share is" in event_note(report)
    certified = [track for track in page_content(report).findings.bounds.tracks if track.kind == "certified"]
    assert [track.statement for track in certified] == [
        f"ε is at most {format_upper(report.certificate.epsilon_upper(0.05))} over all events"
    ]


def test_the_curve_of_p_values_has_the_p_value_of_the_report():
    report = dpv.verify(laplace, ZERO, ONE, 0.9, **SMALL)
    assert len(report.tested) > 1
    epsilons = np.array([0.0, 0.5, 0.9, 0.95, 1.0, 1.05, 1.1, 1.5])
    expected = [report.against(float(epsilon)).p_value for epsilon in epsilons]
    assert p_values_by_event(report, epsilons).min(0) == pytest.approx(expected)


def test_a_page_without_a_claim_or_an_answer_explains_no_power():
    measured = dpv.verify(laplace, ZERO, ONE, **SMALL)
    void = dpv.verify(laplace, ZERO, ZERO, 1.0, **SMALL)
    assert void.voiding
    for report in (measured, void):
        page = report_page(page_content(report))
        assert "detectable" not in page
        assert "probability about 80%" not in page


def test_a_refutation_just_below_alpha_is_called_weak():
    report = dpv.verify(laplace, ZERO, ONE, 0.9, **SMALL)
    weak = next(found for claim in np.arange(1.0, 0.3, -0.002) if (found := report.against(float(claim))).refuted)
    assert 0.005 < weak.p_value <= 0.05
    content = page_content(weak)
    assert content.headline.startswith("Refuted at 95% confidence, weak evidence: ")
    assert "refuted at 95% confidence, weak evidence" in str(weak)
    assert weak.next_step.startswith("verify again with alpha=0.0005 and a new seed")
    strong = report.against(0.3)
    assert "strong evidence" in str(strong)
    assert "new seed" not in strong.next_step
    for text in (str(weak), str(strong), content.headline):
        assert "is false" not in text
