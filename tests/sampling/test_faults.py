"""Faults seen in other tools, each a test that this one passes."""

import math

import numpy as np
import pytest
from limits import least, most
from scipy.stats import binom

import dpverify as dpv
from dpverify.report.statements import small_p_value
from dpverify.stats.lower_bound import claim_p_value
from mechanisms import ONE, ZERO, laplace


def test_the_direction_is_not_chosen_on_the_test_sample():
    """Chosen there, equal laws at epsilon 0 are rejected more often than stated: by enumeration, 20 runs a side."""
    m, p = 20, 0.3
    c1, c2 = (c.ravel() for c in np.meshgrid(np.arange(m + 1), np.arange(m + 1)))
    law = binom.pmf(c1, m, p) * binom.pmf(c2, m, p)
    forward = claim_p_value(c1, c2, m, 0.0) <= 0.05
    backward = claim_p_value(c2, c1, m, 0.0) <= 0.05
    assert law[forward].sum() <= 0.05 < law[forward | backward].sum()


def test_counts_of_workers_are_added_cell_by_cell():
    """Sorted before they are summed, equal laws look different."""
    from dpverify.sampling.counts import Counts

    first = Counts(np.array([0, 1, 5]), np.array([9, 1, 2]))
    second = Counts(np.array([1, 5, 7]), np.array([8, 2, 1]))
    total = Counts.merge([first, second])
    assert dict(zip(total.codes.tolist(), total.counts.tolist(), strict=True)) == {0: 9, 1: 9, 5: 4, 7: 1}


@pytest.mark.parametrize(("c1", "c2"), [(0, 0), (0, 50), (50, 0), (50, 50), (1, 0), (0, 1)])
def test_zero_and_full_counts_have_an_answer_and_never_nan(c1, c2):
    for value in (
        dpv.epsilon_lower_bound(c1, c2, 50),
        dpv.delta_lower_bound(c1, c2, 50, 0.0),
        dpv.critical_epsilon(c1, c2, 50),
        dpv.delta_upper_bound([c1, 50 - c1], [c2, 50 - c2], 50, 0.5),
        small_p_value(c1, c2, 50, 0.0, 0.0, 0.05),
        *dpv.p_values(c1, c2, 50, 0.0, np.random.default_rng(0)),
    ):
        assert not math.isnan(value)
    assert not math.isnan(dpv.epsilon_upper_bound([c1, 50 - c1], [c2, 50 - c2], 50))


def test_a_certain_difference_is_not_read_as_no_difference():
    """One side always, the other never: a statistic that is 0/0 there must not pass for 'not rejected'."""
    assert small_p_value(1000, 0, 1000, 1.0, 0.0, 0.05) < 1e-9
    assert dpv.epsilon_lower_bound(1000, 0, 1000) > 5


@pytest.mark.slow
def test_the_level_is_used_and_not_wasted():
    """Averaged over thinnings, p-values reject .015 at .05 on the boundary; this test rejects close to .05."""
    rng = np.random.default_rng(1)
    m, p2 = 2000, 0.05
    c1, c2 = rng.binomial(m, math.e * p2, 1000), rng.binomial(m, p2, 1000)
    rejected = int((claim_p_value(c1, c2, m, 1.0) <= 0.05).sum())
    assert least(1000, 0.04) <= rejected <= most(1000, 0.05)


def test_no_fixed_event_mass_caps_the_answer():
    """Events held at mass .01 never say more than ln 100."""

    def little_noise(data, runs, rng):
        return data + rng.laplace(scale=0.1, size=runs)

    report = dpv.verify(little_noise, 0.0, 1.0, 0.1, select_runs=200_000, test_runs=1_000_000)
    assert math.log(100) < 8 < report.epsilon_lower < 10


def test_no_law_is_assumed():
    """A bound that assumes Gaussian noise says 4.4 of a 1-private Laplace mechanism."""
    reports = [dpv.verify(laplace, ZERO, ONE, select_runs=8000, test_runs=20_000, seed=s) for s in range(20)]
    assert sum(report.epsilon_lower > 1 for report in reports) <= most(20, 0.05)


def test_a_small_p_value_is_a_p_value():
    """Also below the floor of the test at level alpha: no more often than it says."""
    rng = np.random.default_rng(2)
    m, p2 = 300, 0.2
    c1, c2 = rng.binomial(m, p2, 400), rng.binomial(m, p2, 400)
    values = np.array([small_p_value(int(a), int(b), m, 0.0, 0.0, 0.5) for a, b in zip(c1, c2, strict=True)])
    for level in (0.001, 0.01, 0.05, 0.2, 0.5):
        assert (values <= level).sum() <= most(400, level)
    assert 1e-15 <= small_p_value(900, 400, 2000, 0.0, 0.0, 0.05) < 1e-9
