"""The four claims of the paper on made-up draws whose answer is known, and the rule that answers them."""

import math

import numpy as np
import pytest
from limits import most
from made_reproduction import make_draw
from scipy.stats import binom

from reproduction.claims import (
    Answer,
    Claim,
    answer_sentence,
    compare,
    epsilon_at_error,
    error_at_epsilon,
    judge_claims,
    median_interval,
    subtract,
    yardstick_sentence,
)
from reproduction.measure import CurvePoint
from reproduction.tables import claim_table

# The rule


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
        answers = [compare("x", row, {}).answer for row in values]
        assert answers.count(Answer.CONFIRMED) + answers.count(Answer.CONTRADICTED) <= most(400, 0.05)
    assert all(compare("x", row, {}).answer is Answer.CONFIRMED for row in samples[0][:50] + 3)
    assert all(compare("x", row, {}).answer is Answer.CONTRADICTED for row in samples[0][:50] - 3)
    assert compare("x", [math.inf] * 20, {}).answer is Answer.CONFIRMED
    assert compare("x", np.ones(19), {}).answer is Answer.UNDECIDED  # fewer draws than the rule requires


def made_claim(signs, outside=0.0):
    """Return claim 2 with one reading for each sign: every draw confirms (1) or contradicts (-1) the claim."""
    comparisons = [
        compare(
            "error ratio",
            [sign * (0.1 + 0.01 * k) for k in range(30)],
            {"covariance": str(number)},
            outside=[k < 30 * outside for k in range(30)],
        )
        for number, sign in enumerate(signs)
    ]
    own = compare("yardstick", [0.5, -0.5, 0.5, 0.5], {"covariance": "0"}, decides=False)
    return Claim("output or input", (*comparisons, own))


def test_readings_that_agree_confirm_a_claim():
    claim = made_claim([1, 1, 1])
    assert claim.answer is Answer.CONFIRMED
    assert answer_sentence(claim) == "3 comparisons under 3 readings: 3 confirmed."
    assert "true in 75% of the draws" in yardstick_sentence(claim)
    assert made_claim([-1, -1]).answer is Answer.CONTRADICTED


def test_readings_that_disagree_name_the_assumption():
    claim = made_claim([1, -1, 1], outside=0.4)
    assert claim.answer is Answer.DEPENDS
    sentence = answer_sentence(claim)
    assert "2 confirmed, 1 contradicted" in sentence
    assert "depends on the covariance of the input noise" in sentence
    assert "outside the range [0, 1]" in sentence
    assert "40% of the draws" in sentence
    rows = claim_table(claim).rows
    assert len(rows) == 3
    assert "claim true in 100%, false in 0% of 30 draws" in rows[0][1].below
    assert "claim true in 0%, false in 100% of 30 draws" in rows[1][1].below


def test_an_interval_without_ends_gives_its_reason():
    few, many = (
        claim_table(Claim("EKF", (compare("ratio", [1.0] * n + [math.inf] * n, {}),))).rows[0][1].below for n in (1, 30)
    )
    assert "too few draws" in few
    assert "some ε are infinite" in many


# The claims


def test_interpolation_along_a_curve():
    def curve(*points):
        return [CurvePoint(0.5, epsilon, error) for epsilon, error in points]

    measured = curve(*((4 / error, error) for error in (1.0, 2.0, 4.0)))
    assert error_at_epsilon(measured, 1.5) == pytest.approx(4 / 1.5)
    assert epsilon_at_error(measured, 8.0) == pytest.approx(0.5)  # extrapolated from the nearest two points
    steep = curve((math.inf, 1.0), (1.0, 2.0))
    assert epsilon_at_error(steep, 0.5) == math.inf  # less noise than where epsilon is infinite
    assert epsilon_at_error(curve((math.inf, 1.0), (math.inf, 2.0)), 1.5) == math.inf
    assert subtract(math.inf, math.inf) == 0


def test_the_four_claims_on_draws_whose_answer_is_known():
    rng = np.random.default_rng(1)
    claims = judge_claims([make_draw(rng, 2.0, 1.0) for _ in range(40)])
    assert [claim.answer for claim in claims] == [Answer.CONFIRMED] * 4
    claims = judge_claims([make_draw(rng, 0.5) for _ in range(40)])
    assert claims[1].answer is claims[3].answer is Answer.CONTRADICTED


def test_no_difference_is_found_where_there_is_none():
    rng, repetitions = np.random.default_rng(2), 40
    all_claims = [judge_claims([make_draw(rng, 1.0, 0.0) for _ in range(20)]) for _ in range(repetitions)]
    for claim in (1, 2, 3):
        for comparison in (0, 1):
            answers = [claims[claim].comparisons[comparison].answer for claims in all_claims]
            wrong = sum(answer is not Answer.UNDECIDED for answer in answers)
            assert wrong <= most(repetitions, 0.05), (claim, comparison)


def with_family(draw, name, like, factor):
    """Return a draw with one more family, whose epsilon is `factor` times that of another."""
    points = [point._replace(epsilon=factor * point.epsilon) for point in draw.curves[like]]
    return draw._replace(curves=draw.curves | {name: points}, paper=draw.paper | {name: draw.paper[like]})


def test_a_claim_that_readings_answer_differently_depends_on_the_assumption():
    """An EKF with the covariances of the noise needs twice the epsilon; one that trusts its model a quarter of it."""
    rng = np.random.default_rng(3)
    draws = [with_family(make_draw(rng, 2.0), "ekf-model", "ekf", 0.25) for _ in range(30)]
    claim = judge_claims(draws)[3]
    assert claim.answer is Answer.DEPENDS
    assert claim.depends_on == ("covariances of the EKF",)
    deciding = {comparison.assumptions["covariances of the EKF"]: comparison for comparison in claim.deciding}
    assert deciding["those of the paper's noise"].answer is Answer.CONFIRMED
    assert deciding["trust the model"].answer is Answer.CONTRADICTED
    assert deciding["those of the paper's noise"].wins > 0.9 > 0.1 > deciding["trust the model"].wins
    agreeing = [with_family(make_draw(rng, 2.0), "ekf-model", "ekf", 1.5) for _ in range(30)]
    assert judge_claims(agreeing)[3].answer is Answer.CONFIRMED
    few = judge_claims(draws[:8])[3]
    assert (few.answer, few.depends_on) == (Answer.UNDECIDED, ())


def test_readings_of_two_mechanisms_must_agree_where_they_share_an_assumption():
    """Four states for the output and positions alone for the input are no reading of one experiment."""
    rng = np.random.default_rng(4)
    claim = judge_claims([make_draw(rng, 2.0) for _ in range(20)])[1]
    assert {comparison.assumptions["estimate"] for comparison in claim.comparisons} == {"positions"}


def test_a_matched_parameter_outside_the_papers_range_is_counted():
    """The noise is 1 - s_bar: half of the draws need s_bar below 0."""
    rng, draws = np.random.default_rng(5), []
    for k in range(20):
        draw, factor = make_draw(rng, 1.0, 0.0), 1.0 if k % 2 else 3.0
        noise = {"perturbed": lambda error, factor=factor: factor * error / 0.016}
        curves = {
            name: [p._replace(parameter=1 - noise.get(name, lambda error: 0.5 + error)(p.error)) for p in points]
            for name, points in draw.curves.items()
        }
        draws.append(draw._replace(curves=curves))
    assert judge_claims(draws)[1].deciding[0].outside_range == 0.5
