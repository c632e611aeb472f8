"""The words of results over time, as text and on pages: what is proved, what is not, claims, and grammar."""

import dataclasses

import numpy as np
import pytest
from streams import laplace_stream

import dpverify as dpv

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
    assert unproved.headline == f"nothing is proved about the difference of the datasets: {NOTHING}"
    assert f"Nothing is proved about the difference of the datasets: {NOTHING}." in page_of(unproved, tmp_path)
    table = dpv.PrivacyTable((dataclasses.replace(unproved, record="reading 1"),), False)
    assert table.headline == f"nothing is proved about reading 1: {NOTHING}"


def test_the_step_of_a_proof_is_not_called_the_first_visible_step(tmp_path):
    second = DATA + np.array([[1e-6], [3.0], [0.0]])  # visible at step 0 already, but these runs cannot show it
    result = dpv.privacy_over_time(laplace_stream, DATA, second, **RUNS)
    assert "the difference of the datasets leaks by step 1: epsilon at least" in str(result)
    assert "first proved loss: step 1" in page_of(result, tmp_path)


PAIRS = dpv.neighbours.one_reading(DATA, 3.0, steps=[0, 2])
VERDICTS = {
    0.5: ("refuted for 2 of 2 records, each at its own alpha, 2 together (Holm, alpha 0.05)", "REFUTED"),
    2.95: ("not refuted for 2 of 2 records, which does not prove that it holds", "NOT REFUTED"),
}


@pytest.mark.parametrize("epsilon", VERDICTS)
def test_a_table_states_the_claim_and_its_verdict(epsilon, tmp_path):
    words, verdict = VERDICTS[epsilon]
    table = dpv.privacy_over_time(laplace_stream, pairs=PAIRS, epsilon=epsilon, **RUNS)
    printed, page = str(table), page_of(table, tmp_path)
    assert f"  claim: {table.curves[0].claim.describe()}: {words}" in printed.splitlines()
    assert words.replace("alpha 0", "α = 0").replace("alpha,", "α,") in page
    assert f">{verdict}" in page
    assert any(verdict in line for line in printed.splitlines() if "reading 2" in line)


def test_one_record_is_in_the_singular_and_without_a_claim_there_is_no_verdict(unproved, tmp_path):
    table = dpv.PrivacyTable((dataclasses.replace(unproved, record="a"),), False)
    for text in (str(table), page_of(table, tmp_path)):
        assert "privacy of 1 record over 3 steps" in text
        assert "claim:" not in text
        assert "NOT REFUTED" not in text


def test_several_readings_take_the_plural():
    table = dpv.privacy_over_time(laplace_stream, pairs=dpv.neighbours.window(DATA, 2, 3.0), **RUNS)
    assert table.curves[0].headline.startswith("readings 0 to 1 leak by step 0: epsilon at least ")


def test_a_window_of_one_row_is_no_range():
    assert list(dpv.neighbours.window(DATA, 1, 3.0)) == ["reading 0", "reading 1", "reading 2"]
    assert list(dpv.neighbours.window(np.zeros((2, 2)), 1, 3.0)) == ["readings of step 0", "readings of step 1"]


def test_a_long_output_is_printed_at_evenly_spaced_steps(unproved):
    counts = np.repeat(unproved.counts, 17, axis=1)
    events = unproved.events._replace(
        **{name: np.repeat(getattr(unproved.events, name), 17, axis=0) for name in unproved.events._fields[1:]}
    )
    result = dataclasses.replace(unproved, counts=counts, events=events, shape=(51, 1))
    assert [row["step"] for row in result.printed_rows(20)] == [*range(2, 51, 3)]
    assert "  and 34 more" in str(result)


def test_a_missing_upper_bound_is_not_called_a_bound(unproved, tmp_path):
    result = dataclasses.replace(unproved, counts=unproved.counts.copy(), claim=dpv.claims.pure(0.001))
    last = result.counts[:, -1]
    last[0, 1] += last[0, 0]
    last[0, 0] = 0  # a cell that one dataset never reached
    assert np.isinf(result.epsilon_upper[-1])
    for text in (str(result), page_of(result, tmp_path)):
        assert "infinity" not in text
        assert "none" in text
    assert result.verdict is dpv.Verdict.NOT_REFUTED
    assert "not refuted in 3 steps; this does not prove that it holds" in str(result)  # and no confidence
