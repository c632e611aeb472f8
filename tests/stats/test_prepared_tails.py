"""Tails that are prepared or kept for several evaluations are those of a fresh evaluation, to the last bit."""

import math

import numpy as np
import pytest

from dpverify.stats import rejection_region as regions
from dpverify.stats.binomial import PreparedTails, binomial_tail
from dpverify.stats.largest_p_value import largest_p_value
from dpverify.stats.lower_bound import is_rejected


@pytest.mark.parametrize("runs", [30, 5000, 10**5, 10**9])
def test_prepared_tails_are_those_of_each_count(runs):
    rng = np.random.default_rng(0)
    counts = np.sort(np.append(rng.integers(0, runs + 2, 50), [0, 1, runs, runs + 1])).astype(float)
    index, p = rng.integers(0, counts.size, (6, 9)), rng.random((6, 1))
    tails = PreparedTails.of(counts, runs)
    np.testing.assert_array_equal(tails.at(index, p), binomial_tail(counts[index], runs, p))


@pytest.mark.parametrize("counts", [(49_000, 18_000), (1500, 900), (99_990, 99_000)])
def test_p_values_do_not_depend_on_kept_tails(counts, monkeypatch):
    claims = [math.exp(epsilon) for epsilon in (0.9, 0.9001, 0.95, 0.2, 0.9)]
    make = regions.rejection_region.__wrapped__
    region = make(*counts, (10**5, 10**5), 0.05, None, 0.0)
    kept = [largest_p_value(region, ratio, 0.0) for ratio in claims]
    monkeypatch.setattr(regions, "MAX_KEPT_ENTRIES", 0)
    fresh = make(*counts, (10**5, 10**5), 0.05, None, 0.0)
    assert kept == [largest_p_value(fresh, ratio, 0.0) for ratio in claims]
    assert not fresh._kept


def test_a_claim_is_rejected_where_its_p_value_is_at_most_the_level():
    region = regions.rejection_region(49_000, 18_000, (10**5, 10**5), 0.05, None, 0.0)
    decisions = set()
    for epsilon in np.linspace(0.95, 1.05, 12):
        decision = is_rejected(49_000, 18_000, 10**5, epsilon, 0.0, 0.05)
        assert decision == (largest_p_value(region, math.exp(epsilon), 0.0) <= 0.05)
        decisions.add(decision)
    assert decisions == {True, False}
