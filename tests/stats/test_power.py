"""Planned numbers of runs, power and the detectable epsilon."""

import math

import numpy as np
import pytest
import scipy
from limits import least

import dpverify as dpv
from dpverify.stats.exact import detectable_epsilon, exact_power, is_rejected, power

# Rare and frequent events, few and many runs, and rare events of which delta is the larger part.
PLANS = [
    (0.5, 1.0, 0.3, 0.0, 0.05, 0.8),
    (0.0, 0.2, 0.5, 0.0, 0.05, 0.8),
    (0.5, 1.0, 0.3, 0.05, 0.05, 0.8),
    (1.0, 2.0, 0.02, 0.0, 0.05, 0.8),
    (1.0, 3.0, 0.01, 0.0, 0.05, 0.8),
    (1.0, 2.0, 0.03, 0.02, 0.05, 0.8),
    (1.0, 4.0, 0.5, 0.0, 0.01, 0.9),
    (1.0, 5.0, 0.9, 0.1, 0.05, 0.5),
    (1.0, 1.5, 0.2, 0.0, 1e-4, 0.8),
]


def share_refuted(runs, epsilon, true, mass, delta, alpha, trials):
    """Simulate the exact test; each pair of counts is tested once."""
    rng = np.random.default_rng(0)
    counts = rng.binomial(runs, [mass, (mass - delta) * math.exp(-true)], (trials, 2))
    pairs, times = np.unique(counts, axis=0, return_counts=True)
    return times @ [is_rejected(*pair, runs, epsilon, delta, alpha) for pair in pairs.tolist()]


@pytest.mark.parametrize("plan", PLANS)
def test_planned_runs_reach_their_power(plan):
    *question, delta, alpha, target = plan
    runs = dpv.plan_runs(*question, delta, alpha, target)
    assert share_refuted(runs, *question, delta, alpha, 400) >= least(400, target)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_planned_runs_reach_their_power_in_many_trials(plan):
    *question, delta, alpha, target = plan
    runs = dpv.plan_runs(*question, delta, alpha, target)
    assert share_refuted(runs, *question, delta, alpha, 5000) >= least(5000, target)


@pytest.mark.parametrize("plan", PLANS[:1] + PLANS[4:7])
def test_no_runs_are_planned_in_vain(plan):
    *question, delta, alpha, target = plan
    fewer = dpv.plan_runs(*question, delta, alpha, target) * 3 // 5
    assert share_refuted(fewer, *question, delta, alpha, 1000) < least(1000, target)


def test_the_exact_power_is_that_of_the_exact_test():
    runs, p1, p2, question = 100, 0.3, 0.05, (0.5, 0.1, 0.05)
    exact = 0.0
    for c2 in range(20):
        least_rejected = next(c1 for c1 in range(runs + 1) if is_rejected(c1, c2, runs, *question))
        exact += float(scipy.stats.binom.pmf(c2, runs, p2) * scipy.stats.binom.sf(least_rejected - 1, runs, p1))
    assert exact_power(runs, p1, p2, *question) == pytest.approx(exact, abs=0.01)
    assert power(runs, p1, p2, *question) != pytest.approx(exact, abs=0.01)  # the normal approximation


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
    assert "about 80% of the time" in str(report)


@pytest.mark.parametrize(
    "arguments", [(1.0, 0.5, 0.1), (0.5, 1.0, 0.1, 0.2), (-1, 1, 0.5), (0.5, 1.0, 1.5), (0.5, 1.0, 0.5, 0.0, 0.0)]
)
def test_impossible_plans_are_refused(arguments):
    with pytest.raises(dpv.InputError, match=r"found| must be "):
        dpv.plan_runs(*arguments)
