"""Numbers along epsilon: p-values and bounds on delta, as the page shows them."""

import json

import numpy as np
import pytest

import dpverify as dpv
from dpverify.render.page import report_page
from dpverify.report.page import compute_curves, evaluate_increasing, interpolate_delta_upper, page_content, slider_data
from dpverify.stats.exact import claim_p_value
from dpverify.stats.upper import PROFILE_EPSILONS
from mechanisms import ONE, ZERO, laplace


@pytest.fixture(scope="module")
def report():
    return dpv.verify(laplace, ZERO, ONE, 0.5, select_runs=2000, test_runs=10_000)


def test_the_numbers_of_the_slider_hold(report):
    curves = compute_curves(report, report.on_partition.epsilon_upper())
    numbers = json.loads(json.dumps(slider_data(report, curves)._asdict(), allow_nan=False))
    epsilon = np.array(numbers["epsilon"])
    tested = np.minimum(numbers["p_first"], numbers["p_second"])
    away = np.abs(epsilon - report.epsilon_lower) > 1e-9
    np.testing.assert_array_equal((tested <= report.alpha)[away], (epsilon < report.epsilon_lower)[away])
    assert epsilon[numbers["start"]] == 0.5
    assert f"{tested[numbers['start']]:.3g}" == f"{report.p_value:.3g}" == "5e-11"
    assert (np.array(numbers["delta_lower"]) <= curves.delta_lower).all()
    assert (np.array(numbers["delta_upper"]) >= curves.delta_upper - 1e-12).all()
    for i in range(0, epsilon.size, 20):  # a bound that holds at all epsilons is wider than a bound at one epsilon
        curve = report.delta_events.curve(epsilon[[i]], 0.2 * report.alpha)[0]
        assert 0 <= curve <= report.delta_lower(epsilon[i])
        assert numbers["delta_upper"][i] >= report.on_partition.delta_upper(epsilon[i]) - 1e-9


def test_the_page_names_the_event_that_decides():
    """For a claim that is a curve the witness is not the event with the largest bound on epsilon."""

    def gaussian(data, runs, rng):
        return data + rng.standard_normal((runs, 1))

    claim = dpv.claims.gaussian(0.9)
    report = dpv.verify(gaussian, 0.0, 1.0, claim=claim, select_runs=4000, test_runs=20_000, seed=2)
    curves = compute_curves(report, report.on_partition.epsilon_upper())
    numbers = slider_data(report, curves)
    refuted = np.flatnonzero(np.minimum(curves.p_first, curves.p_second) <= report.alpha)
    one = report.tested[numbers.decisive[refuted[-1]]]
    assert one is not report.witness
    bound = dpv.epsilon_lower_bound(*one.ordered, one.runs, 0.0, one.share * report.alpha)
    assert bound == report.epsilon_lower
    assert curves.epsilon[refuted[-1]] < bound <= curves.epsilon[refuted[-1] + 1]
    assert one.text in numbers.events[numbers.decisive[refuted[-1]]]
    assert "tested events together" in report_page(page_content(report))


def test_the_p_values_of_the_page_are_those_of_the_report_if_it_may_stop_early():
    report = dpv.verify(laplace, ZERO, ONE, 1.0, stop_early=True, select_runs=300, test_runs=500)
    curves = compute_curves(report, report.on_partition.epsilon_upper())
    assert report.is_tested
    for i in np.flatnonzero((curves.p_first > 1e-3) & (curves.p_first < 1))[::5]:
        expected = report.against(float(curves.epsilon[i])).p_value
        assert curves.p_first[i] == curves.p_second[i] == pytest.approx(expected, rel=1e-5)


def test_skipping_constant_intervals_changes_no_value():
    grid = np.linspace(0, 2, 41)

    def p_value(epsilon):
        return claim_p_value(520, 200, 1000, epsilon)

    np.testing.assert_allclose(evaluate_increasing(p_value, grid), [p_value(e) for e in grid], rtol=1e-5)


def test_the_upper_bound_is_interpolated_linearly_in_the_exponential():
    """Exact values at the nodes. Interpolation that is linear in epsilon would fall below the true delta."""
    p, q = np.array([0.02, 0.18, 0.3, 0.5]), np.array([0.001, 0.05, 0.349, 0.6])
    nodes, grid = PROFILE_EPSILONS, np.linspace(0, 5, 501)

    def delta(epsilons):
        return np.maximum(p - np.exp(np.asarray(epsilons))[:, None] * q, 0).sum(1)

    assert (interpolate_delta_upper(nodes, delta(nodes), grid) >= delta(grid) - 1e-12).all()
    assert (np.interp(grid, nodes, delta(nodes)) < delta(grid) - 1e-6).any()
