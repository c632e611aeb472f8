"""The sentences about a claim agree with its comparisons."""

from dpverify.paper.claims.decision_rule import Answer, Claim, compare, deciding_assumptions
from dpverify.paper.claims.words import answer_sentence, yardstick_sentence
from dpverify.paper.page.tables import show_claim


def made_claim(signs, outside=0.0):
    """Return claim 2 with one reading for each sign: every draw confirms (1) or contradicts (-1) the claim."""
    comparisons = tuple(
        compare(
            "error ratio",
            [sign * (0.1 + 0.01 * k) for k in range(30)],
            reading=f"covariance: {number}",
            assumptions=(("covariance", str(number)),),
            outside_range=outside,
        )
        for number, sign in enumerate(signs)
    )
    own = compare("yardstick", [0.5, -0.5, 0.5, 0.5], decides=False, reading="covariance: 0")
    return Claim("output or input", "text", (*comparisons, own), depends_on=deciding_assumptions(comparisons))


def test_readings_that_agree_confirm_a_claim():
    claim = made_claim([1, 1, 1])
    assert claim.answer is Answer.CONFIRMED
    assert answer_sentence(claim) == "3 comparisons under 3 readings: 3 confirmed."
    assert "true in 75% of the draws" in yardstick_sentence(claim)


def test_readings_that_disagree_name_the_assumption():
    claim = made_claim([1, -1, 1], outside=0.4)
    assert claim.answer is Answer.DEPENDS
    sentence = answer_sentence(claim)
    assert "2 confirmed, 1 contradicted" in sentence
    assert "depends on the covariance of the input noise" in sentence
    assert "outside the range [0, 1]" in sentence
    assert "40% of the draws" in sentence
    shown = show_claim(claim)
    assert len(shown.table.rows) == 3
    assert "claim true in 100%, false in 0% of 30 draws" in str(shown.table.rows[0][1])
    assert "claim true in 0%, false in 100% of 30 draws" in str(shown.table.rows[1][1])
