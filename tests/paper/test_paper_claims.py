"""The four claims of the paper on made-up draws whose answer is known."""

import math

import numpy as np
import pytest
from limits import most
from made_draws import make_draw

from dpverify.paper.claims import epsilon_at_error, error_at_epsilon, judge_claims, subtract
from dpverify.paper.decision_rule import Answer
from dpverify.paper.measurements import CurvePoint
from dpverify.paper.plan import read_plan


def make_curve(*points):
    """Return curve points from pairs (epsilon, error)."""
    return [CurvePoint("gibbs", 0.5, epsilon, error) for epsilon, error in points]


def test_interpolation_along_a_curve():
    curve = make_curve(*((4 / error, error) for error in (1.0, 2.0, 4.0)))
    assert error_at_epsilon(curve, 1.5) == pytest.approx(4 / 1.5)
    assert epsilon_at_error(curve, 8.0) == pytest.approx(0.5)  # extrapolated from the nearest two points
    steep = make_curve((math.inf, 1.0), (1.0, 2.0))
    assert epsilon_at_error(steep, 0.5) == math.inf  # less noise than where epsilon is infinite
    assert epsilon_at_error(make_curve((math.inf, 1.0), (math.inf, 2.0)), 1.5) == math.inf


def test_two_infinities_have_no_difference():
    assert subtract(math.inf, math.inf) == 0


def test_the_four_claims_on_draws_whose_answer_is_known():
    rng, matched = np.random.default_rng(1), read_plan().matched
    claims = judge_claims([make_draw(k, rng, 2.0, 1.0) for k in range(40)], matched, ["gibbs"])
    assert [claim.answer for claim in claims] == [Answer.CONFIRMED] * 4
    claims = judge_claims([make_draw(k, rng, 0.5) for k in range(40)], matched, ["gibbs"])
    assert claims[1].answer is claims[3].answer is Answer.CONTRADICTED


def test_no_difference_is_found_where_there_is_none():
    rng, matched, repetitions = np.random.default_rng(2), read_plan().matched, 40
    all_claims = [
        judge_claims([make_draw(k, rng, 1.0, 0.0) for k in range(20)], matched, ["gibbs"]) for _ in range(repetitions)
    ]
    for claim in (1, 2, 3):
        for comparison in (0, 1):
            answers = [claims[claim].comparisons[comparison].answer for claims in all_claims]
            wrong = sum(answer is not Answer.UNDECIDED for answer in answers)
            assert wrong <= most(repetitions, 0.05), (claim, comparison)
