"""The rule that answers a claim: coverage of the interval, type I error, power, and agreement of comparisons."""

import math

import numpy as np
import pytest
from limits import most
from scipy.stats import binom

from dpverify.paper.claims.decision_rule import Answer, Claim, compare, median_interval


@pytest.mark.parametrize("n", [10, 20, 21, 40, 100])
def test_median_interval_is_the_shortest_that_covers(n):
    """The interval between the ordered values `excluded` and n - 1 - `excluded` has an exact binomial coverage."""
    low, high = median_interval(np.arange(n))
    excluded = int(low)
    assert high == n - 1 - excluded
    assert 1 - 2 * binom.cdf(excluded, n, 0.5) >= 0.95
    assert 1 - 2 * binom.cdf(excluded + 1, n, 0.5) < 0.95


def test_type_i_error_and_power_of_the_rule():
    rng = np.random.default_rng(0)
    samples = (
        rng.standard_normal((400, 20)),
        rng.exponential(size=(400, 20)) - math.log(2),
        rng.standard_cauchy((400, 20)),
    )
    for values in samples:
        answers = [compare("x", row).answer for row in values]
        assert answers.count(Answer.CONFIRMED) + answers.count(Answer.CONTRADICTED) <= most(400, 0.05)
    assert all(compare("x", row).answer is Answer.CONFIRMED for row in samples[0][:50] + 3)
    assert all(compare("x", row).answer is Answer.CONTRADICTED for row in samples[0][:50] - 3)
    assert compare("x", [math.inf] * 20).answer is Answer.CONFIRMED
    assert compare("x", np.ones(19)).answer is Answer.UNDECIDED  # fewer draws than the rule requires


def test_a_claim_is_answered_only_if_its_deciding_comparisons_agree():
    positive = compare("x", np.full(20, 1.0))
    negative = compare("x", np.full(20, -1.0))
    not_deciding = compare("x", np.full(20, -1.0), decides=False)
    assert Claim("c", "t", (positive, not_deciding)).answer is Answer.CONFIRMED
    assert Claim("c", "t", (negative, negative)).answer is Answer.CONTRADICTED
    assert Claim("c", "t", (positive, negative)).answer is Answer.UNDECIDED
