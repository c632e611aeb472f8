"""The four claims of the paper on made-up draws whose answer is known."""

import math

import numpy as np
import pytest
from limits import most
from made_draws import make_draw

from dpverify.paper.claims.decision_rule import Answer
from dpverify.paper.claims.judgement import epsilon_at_error, error_at_epsilon, judge_claims, subtract
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


def with_family(draw, name, like, factor):
    """Return a draw with one more family, whose epsilon is `factor` times that of another."""
    points = [
        point._replace(mechanism=name, epsilon_estimate=factor * point.epsilon_estimate) for point in draw.curve(like)
    ]
    measured = draw.at_paper_value(like)._replace(mechanism=name)
    return draw._replace(curves=(*draw.curves, *points), paper=(*draw.paper, measured))


def test_a_claim_that_readings_answer_differently_depends_on_the_assumption():
    """With 2 x 2 blocks the input needs twice the epsilon; with the clipped matrix it needs a quarter of it."""
    rng, matched = np.random.default_rng(3), read_plan().matched
    draws = [with_family(make_draw(k, rng, 2.0), "perturbed-clipped", "perturbed", 0.25) for k in range(30)]
    claim = judge_claims(draws, matched)[1]
    assert claim.answer is Answer.DEPENDS
    assert claim.depends_on == ("covariance",)
    deciding = {dict(c.assumptions)["covariance"]: c for c in claim.comparisons if c.decides}
    assert deciding["2 x 2 blocks"].answer is Answer.CONFIRMED
    assert deciding["20 x 20, clipped"].answer is Answer.CONTRADICTED
    assert deciding["2 x 2 blocks"].wins > 0.9 > 0.1 > deciding["20 x 20, clipped"].wins
    assert deciding["2 x 2 blocks"].loses == 1 - deciding["2 x 2 blocks"].wins
    low, high = deciding["2 x 2 blocks"].spread
    assert low < deciding["2 x 2 blocks"].median < high
    agreeing = [with_family(make_draw(k, rng, 2.0), "perturbed-clipped", "perturbed", 1.5) for k in range(30)]
    assert judge_claims(agreeing, matched)[1].answer is Answer.CONFIRMED
    few = judge_claims(draws[:8], matched)[1]
    assert (few.answer, few.depends_on) == (Answer.UNDECIDED, ())


def test_readings_of_two_mechanisms_must_agree_where_they_share_an_assumption():
    """A prior that is carried for the output and not for the input is no reading of one experiment."""
    rng, matched = np.random.default_rng(4), read_plan().matched
    draws = [with_family(make_draw(k, rng, 2.0), "perturbed-start", "perturbed", 1.0) for k in range(20)]
    claim = judge_claims(draws, matched)[1]
    assert {dict(comparison.assumptions)["prior"] for comparison in claim.comparisons} == {"carried"}


def test_a_matched_parameter_outside_the_papers_range_is_counted():
    """The noise is 1 - s_bar: half of the draws need s_bar below 0."""
    rng, matched = np.random.default_rng(5), read_plan().matched
    draws = []
    for k in range(20):
        draw, factor = make_draw(k, rng, 1.0, 0.0), 1.0 if k % 2 else 3.0
        curves = [
            point._replace(parameter=1 - factor * point.error_first / 0.016)
            if point.mechanism == "perturbed"
            else point._replace(parameter=0.5 - point.error_first)
            for point in draw.curves
        ]
        draws.append(draw._replace(curves=tuple(curves)))
    comparison = next(c for c in judge_claims(draws, matched)[1].comparisons if c.decides)
    assert comparison.outside_range == 0.5
