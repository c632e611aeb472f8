"""The words of results over time, as text and on pages: what is proved, what is not, claims, and grammar."""

import dataclasses

import numpy as np
import pytest
from streams import laplace_stream

import dpverify as dpv
from dpverify.report.text import as_sentence

RUNS = {"select_runs": 1000, "test_runs": 4000}
DATA = np.zeros((3, 1))
NOTHING = "no lower bound above 0 in 3 steps, which does not prove that nothing leaks"


def page_of(result, tmp_path):
    result.to_html(tmp_path / "page.html")
    return (tmp_path / "page.html").read_text()


@pytest.fixture(scope="module")
def unproved():
    """Return a result of a difference that is too small for these runs."""
    result = dpv.privacy_over_time(laplace_stream, DATA, DATA + 1e-6, **RUNS)
    assert result.start is None
    return result


def test_without_a_lower_bound_nothing_is_called_proved(unproved, tmp_path):
    (line,) = [line for line in str(unproved).splitlines() if line.startswith("  proved")]
    assert line == f"  proved      nothing: {NOTHING}"
    page = page_of(unproved, tmp_path)
    assert f"Nothing is proved about the difference of the data sets: {NOTHING}." in page
    assert "not become visible" not in str(unproved) + page


def test_a_record_without_a_lower_bound_is_not_called_invisible(tmp_path):
    table = dpv.privacy_over_time(laplace_stream, pairs={"reading 1": (DATA, DATA + 1e-6)}, **RUNS)
    assert table.sentences == (f"nothing is proved about reading 1: {NOTHING}",)
    assert f"Nothing is proved about reading 1: {NOTHING}." in page_of(table, tmp_path)


def test_the_step_of_a_proof_is_not_called_the_first_visible_step(tmp_path):
    second = DATA + np.array([[1e-6], [3.0], [0.0]])  # visible at step 0 already, but these runs cannot show it
    result = dpv.privacy_over_time(laplace_stream, DATA, second, **RUNS)
    assert "the difference of the data sets leaks by step 1: epsilon at least" in str(result)
    assert "the first step at which a loss is proved: step 1" in page_of(result, tmp_path)


PAIRS = dpv.neighbours.one_reading(DATA, 3.0, steps=[0, 2])
VERDICTS = {
    0.5: "refuted for 2 of 2 records, each at its own alpha, 2 together (Holm, alpha 0.05)",
    2.95: "not refuted for 2 of 2 records, which does not prove that it holds for them",
    9.0: "not refuted for 2 of 2 records, which does not prove that it holds for them",
}
CELLS = {0.5: "refuted from step 2 on", 2.95: "not refuted", 9.0: "not refuted"}


@pytest.mark.parametrize("epsilon", VERDICTS)
def test_a_table_states_the_claim_and_its_verdict(epsilon, tmp_path):
    table = dpv.privacy_over_time(laplace_stream, pairs=PAIRS, epsilon=epsilon, **RUNS)
    printed, page = str(table), page_of(table, tmp_path)
    sentence = f"{table.curves[0].claim.describe()}: {VERDICTS[epsilon]}"
    assert f"  claim       {sentence}" in printed.splitlines()
    assert as_sentence(f"claim: {sentence}") in page
    assert f">{CELLS[epsilon]}</td>" in page
    assert any(line.endswith(CELLS[epsilon]) for line in printed.splitlines() if "reading 2" in line)


def test_a_claim_about_one_record_is_answered_in_the_words_of_one_pair(tmp_path):
    table = dpv.privacy_over_time(laplace_stream, pairs={"a": (DATA, DATA + 1e-6)}, epsilon=0.01, **RUNS)
    assert "not refuted in 3 steps; this does not prove that it holds" in str(table)
    page = page_of(table, tmp_path)
    assert "not refuted in 3 steps; this does not prove that it holds." in page
    assert "privacy of 1 record over 3 steps" in str(table)
    assert "1 record, 3 steps" in page
    assert "1 records" not in str(table) + page


def test_without_a_claim_no_verdict_is_shown(unproved, tmp_path):
    table = dpv.privacy_over_time(laplace_stream, pairs={"a": (DATA, DATA + 1e-6)}, **RUNS)
    assert "claim" not in str(table)
    assert ">not refuted" not in page_of(table, tmp_path)


def test_several_readings_take_the_plural():
    table = dpv.privacy_over_time(laplace_stream, pairs=dpv.neighbours.window(DATA, 2, 3.0), **RUNS)
    assert table.sentences[0].startswith("readings 0 to 1 leak by step 0: epsilon at least ")


def test_a_window_of_one_row_is_no_range():
    assert list(dpv.neighbours.window(DATA, 1, 3.0)) == ["reading 0", "reading 1", "reading 2"]
    assert list(dpv.neighbours.window(np.zeros((2, 2)), 1, 3.0)) == ["readings of step 0", "readings of step 1"]


def test_a_page_says_the_largest_losses_in_words_and_the_rest_in_the_table(tmp_path):
    data = np.zeros((7, 1))
    changes = np.array([3.0, 1e-6, 2.0, 3.0, 1e-6, 2.0, 3.0])
    table = dpv.privacy_over_time(laplace_stream, pairs=dpv.neighbours.one_reading(data, changes[:, None]), **RUNS)
    page = page_of(table, tmp_path)
    assert [step for step in range(7) if f">Reading {step} leaks by" in page.partition("In words")[2]] == [
        0,
        2,
        3,
        5,
        6,
    ]
    assert "These are the 5 records with the largest lower bounds; the table has all 7 records." in page
    assert page.count(">Nothing is proved") == 0
    assert ">reading 1</td>" in page
    few = dpv.PrivacyTable(table.curves[:5], table.jointly)
    assert "the table has all" not in page_of(few, tmp_path)


def test_a_missing_upper_bound_is_not_called_a_bound(unproved, tmp_path):
    result = dataclasses.replace(unproved, counts=unproved.counts.copy(), claim=dpv.claims.pure(1.0))
    last = result.counts[:, -1]
    last[0, 1] += last[0, 0]
    last[0, 0] = 0  # a cell that one data set never reached
    assert np.isinf(result.epsilon_upper[-1])
    lines = str(result).splitlines()
    assert "  cells       no finite upper bound at the last step, over the cells" in lines
    table = dpv.PrivacyTable((result,), False)
    for page in (page_of(result, tmp_path), page_of(table, tmp_path)):
        assert "infinity" not in page
        assert ">none</td>" in page


def test_what_is_not_refuted_has_no_confidence(unproved):
    result = dataclasses.replace(unproved, claim=dpv.claims.pure(0.001))
    assert result.verdict is dpv.Verdict.NOT_REFUTED
    (line,) = [line for line in str(result).splitlines() if line.startswith("  claim")]
    assert line.endswith("not refuted in 3 steps; this does not prove that it holds")


def test_the_upper_bounds_are_not_said_to_hold_over_all_events(unproved, tmp_path):
    page = page_of(unproved, tmp_path)
    assert "so do the upper bounds" not in page
    assert "for all steps together, with confidence 95%. The upper bounds hold over the cells" in page
