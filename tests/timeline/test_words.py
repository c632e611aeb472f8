"""The words of results over time, as text and on pages: what is proved, what is not, claims, and grammar."""

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
    assert "the difference of the data sets is visible at step 1 at the latest and costs at least" in str(result)
    assert "the first step with a proved loss: step 1" in page_of(result, tmp_path)
