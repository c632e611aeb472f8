"""Planned numbers of runs, power and the detectable epsilon."""

import math

import numpy as np
import pytest
from limits import least, most

import dpverify as dpv
from dpverify.stats.power import detectable_epsilon, power


@pytest.mark.parametrize(
    ("epsilon", "true", "mass", "delta"),
    [(0.5, 1.0, 0.3, 0.0), (0.0, 0.2, 0.5, 0.0), (1.0, 2.0, 0.02, 0.0), (0.5, 1.0, 0.3, 0.05)],
)
def test_planned_runs_reach_their_power(epsilon, true, mass, delta):
    m = dpv.plan_runs(epsilon, true, mass, delta)
    rng = np.random.default_rng(0)
    c1 = rng.binomial(m, mass, 200)
    c2 = rng.binomial(m, (mass - delta) * math.exp(-true), 200)
    refuted = int((dpv.epsilon_lower_bound(c1, c2, m, delta) > epsilon).sum())
    assert least(200, 0.7) <= refuted <= most(200, 0.9)


def test_less_power_needs_fewer_runs():
    assert (
        dpv.plan_runs(0.5, 1.0, 0.3, power=0.01)
        <= dpv.plan_runs(0.5, 1.0, 0.3, power=0.3)
        < dpv.plan_runs(0.5, 1.0, 0.3)
    )


def test_half_of_the_planned_runs_have_less_power():
    m = dpv.plan_runs(0.5, 1.0, 0.3) // 2
    rng = np.random.default_rng(1)
    c1, c2 = rng.binomial(m, 0.3, 200), rng.binomial(m, 0.3 * math.exp(-1), 200)
    assert (dpv.epsilon_lower_bound(c1, c2, m) > 0.5).sum() < least(200, 0.8)


def test_the_detectable_epsilon_is_refuted_with_the_stated_power():
    m, p2 = 5000, 0.1
    detectable = detectable_epsilon(m, p2, 0.5, 0.0, 0.05)
    assert power(m, p2 * math.exp(detectable), p2, 0.5) == pytest.approx(0.8, abs=1e-6)
    assert 0.5 < detectable < detectable_epsilon(m // 4, p2, 0.5, 0.0, 0.05)
    assert detectable_epsilon(5, 0.9, 3.0, 0.0, 0.05) == math.inf
    assert detectable_epsilon(143, 0.01, 1.0, 0.0, 0.81) == 1.0  # the level exceeds the power


def test_the_report_states_the_detectable_epsilon():
    from mechanisms import ONE, ZERO, laplace

    report = dpv.verify(laplace, ZERO, ONE, 1.1, select_runs=10_000, test_runs=20_000)
    assert not report.refuted
    assert 1.1 < report.epsilon_detectable < 1.4
    assert "with probability about 80%" in str(report)


@pytest.mark.parametrize(
    "arguments", [(1.0, 0.5, 0.1), (0.5, 1.0, 0.1, 0.2), (-1, 1, 0.5), (0.5, 1.0, 1.5), (0.5, 1.0, 0.5, 0.0, 0.0)]
)
def test_impossible_plans_are_refused(arguments):
    with pytest.raises(dpv.InputError, match="found"):
        dpv.plan_runs(*arguments)
