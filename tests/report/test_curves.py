"""Numbers along epsilon: p-values and bounds on delta, as the page shows them."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.render import report_page
from dpverify.render.pages import compute_curves, evaluate_increasing, p_values_by_event, slider_columns
from dpverify.stats.exact import claim_p_value
from mechanisms import ONE, ZERO, laplace


@pytest.fixture(scope="module")
def report():
    return dpv.verify(laplace, ZERO, ONE, 0.5, select_runs=2000, test_runs=10_000)


def numbers(texts):
    return np.array([float(text.lstrip("≤≥ ")) for text in texts])


def test_the_numbers_of_the_slider_hold(report):
    curves = compute_curves(report, report.on_partition.epsilon_upper())
    columns, start = slider_columns(report, curves)
    epsilon, p_value, lower, upper = (numbers(texts) for _, texts in columns[:4])
    outcomes = np.array(["would be refuted" in text for text in columns[4][1]])
    np.testing.assert_array_equal(epsilon, curves.epsilon)
    away = np.abs(epsilon - report.epsilon_lower) > 1e-9
    np.testing.assert_array_equal((p_value <= report.alpha)[away], (epsilon < report.epsilon_lower)[away])
    np.testing.assert_array_equal(outcomes, curves.p_value <= report.alpha)
    assert epsilon[start] == 0.5
    assert columns[1][1][start] == "≤ 5e-11"
    assert (lower <= curves.delta_lower).all()
    assert (upper >= curves.delta_upper - 1e-12).all()
    for i in range(0, epsilon.size, 20):  # a bound that holds at all epsilons is wider than a bound at one epsilon
        curve = report.delta_events.curve(epsilon[[i]], 0.2 * report.alpha)[0]
        assert 0 <= curve <= report.delta_lower(epsilon[i])
        assert upper[i] >= report.on_partition.delta_upper(epsilon[i]) - 1e-9


def test_the_page_names_the_event_that_decides():
    """For a claim that is a curve the witness is not the event with the largest bound on epsilon."""

    def gaussian(data, runs, rng):
        return data + rng.standard_normal((runs, 1))

    claim = dpv.claims.gaussian(0.9)
    report = dpv.verify(gaussian, 0.0, 1.0, claim=claim, select_runs=4000, test_runs=20_000, seed=2)
    curves = compute_curves(report, report.on_partition.epsilon_upper())
    name, texts = slider_columns(report, curves)[0][-1]
    last = np.flatnonzero(curves.p_value <= report.alpha)[-1]
    one = report.tested[curves.decisive[last]]
    assert one is not report.witness
    bound = dpv.epsilon_lower_bound(*one.ordered, one.runs, 0.0, one.share * report.alpha)
    assert bound == report.epsilon_lower
    assert curves.epsilon[last] < bound <= curves.epsilon[last + 1]
    assert name == "the event that decides"
    assert one.text in texts[last]
    assert "tested events together" in report_page(report).html()


def test_the_p_values_of_the_page_are_those_of_the_report():
    exact = dpv.verify(laplace, ZERO, ONE, 0.9, select_runs=2000, test_runs=10_000, block=1000)
    assert len(exact.tested) > 1
    epsilons = np.array([0.0, 0.5, 0.9, 0.95, 1.0, 1.05, 1.1, 1.5])
    expected = [exact.against(float(epsilon)).p_value for epsilon in epsilons]
    assert p_values_by_event(exact, epsilons).min(0) == pytest.approx(expected)
    early = dpv.verify(laplace, ZERO, ONE, 1.0, stop_early=True, select_runs=300, test_runs=500)
    assert early.is_tested
    curves = compute_curves(early, early.on_partition.epsilon_upper())
    for i in np.flatnonzero((curves.p_value > 1e-3) & (curves.p_value < 1))[::5]:
        expected = early.against(float(curves.epsilon[i])).p_value
        assert curves.p_value[i] == pytest.approx(expected, rel=1e-5)


def test_skipping_constant_intervals_changes_no_value():
    grid = np.linspace(0, 2, 41)

    def p_value(epsilon):
        return claim_p_value(520, 200, 1000, epsilon)

    np.testing.assert_allclose(evaluate_increasing(p_value, grid), [p_value(e) for e in grid], rtol=1e-5)


def test_the_upper_bound_is_interpolated_linearly_in_the_exponential(report):
    """A chord in exp(epsilon) is a bound; one that is linear in epsilon falls below the bounds at single epsilons."""
    curves = compute_curves(report, report.on_partition.epsilon_upper())
    nodes, bounds = report.profile["eps"], report.profile["delta_upper"]
    factor = np.exp(curves.epsilon[:, None])
    c1, c2 = (np.repeat(c, report.cell_counts.number) / 10_000 for c in (report.cell_counts.c1, report.cell_counts.c2))
    observed = np.maximum(np.maximum(c1 - factor * c2, 0).sum(1), np.maximum(c2 - factor * c1, 0).sum(1))
    assert (curves.delta_upper >= observed).all()
    assert (np.interp(curves.epsilon, nodes, bounds) <= curves.delta_upper + 1e-12).all()
