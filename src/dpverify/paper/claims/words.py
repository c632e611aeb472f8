"""The paper's four claims in words: what it says, where, and how it restricts itself; and answers made from results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dpverify.paper.claims.decision_rule import Answer, Claim, Comparison


class ClaimWords(NamedTuple):
    """A claim in our own words.

    Attributes
    ----------
    number : int
        Its number in section I of the paper.
    statement : str
        What the paper says.
    place : str
        Where it says so.
    hedges : tuple of str
        How the paper restricts it.
    yardstick : str
        What the paper itself compares.
    """

    number: int
    statement: str
    place: str
    hedges: tuple[str, ...]
    yardstick: str


CLAIM_WORDS = {
    "theory": ClaimWords(
        1,
        "The theorem's sufficient condition for the W2-MHE seems to hold, and may be rather conservative.",
        "Section I, (i); section V, last part",
        (
            "“seems” and “may”: one set-up (Q2, s 0.8, T 7) is compared",
            "the measured ε_c is called a necessary condition for the given partition, and it grows on finer ones",
        ),
        "the theorem's 6474.3 against ε_c = 0.89281, and up to 1.9939 on finer partitions",
    ),
    "output or input": ClaimWords(
        2,
        "There is an indication that perturbing the output of the estimator is better than perturbing its input data.",
        "Section I, (ii); section V, input perturbation and Table I",
        (
            "“an indication”",
            "it holds in 2 of 3 set-ups; on Q1 the paper finds the input better, with a third of the error at a "
            "similar ε_c",
            "“more simulation results are needed” for a reliable conclusion",
        ),
        "ε_c and E_correct at one parameter value for each mechanism, on three set-ups",
    ),
    "sensors": ClaimWords(
        3,
        "Privacy depends on where the sensors are.",
        "Section I, (iii); section V, Table I",
        ("three set-ups with one verification each; no spread is printed",),
        "ε_c on Q1, Q2 and Q3",
    ),
    "EKF": ClaimWords(
        4,
        "The W2-MHE does better than a differentially private EKF, in privacy and in RMSE, for all three set-ups.",
        "Section I, (iv); section V, Table II",
        (
            "one noise level ŝ for each set-up, which is not printed",
            "it is explained by the W2-MHE's advantage for distributions with several modes",
        ),
        "ε_c and E_correct of Table II against those of the W2-MHE",
    ),
}


ASSUMPTION_WORDS = {
    "distribution": "the distribution of the W2-MHE's estimate",
    "prior": "whether the prior is carried from window to window",
    "covariance": "the covariance of the input noise",
    "input noise": "whether the input noise is drawn once a run or for every window",
    "compared at": "whether privacy or accuracy is made equal",
}


def answer_sentence(claim: Claim) -> str:
    """Return the answer in words: how many comparisons and readings agree, and what the answer depends on."""
    deciding = [comparison for comparison in claim.comparisons if comparison.decides]
    readings = {comparison.reading for comparison in deciding}
    answers = [comparison.answer for comparison in deciding]
    told = [f"{answers.count(answer)} {answer.value}" for answer in Answer if answer in answers]
    text = f"{_count(len(deciding), 'comparison')} under {_count(len(readings), 'reading')}: {', '.join(told)}."
    if claim.name == "theory":
        text += (
            " The theorem is compared under this reading only: in the paper the estimator has a prior that is "
            "carried from window to window, and the theorem's factor s/(1 - s) belongs to a Gibbs distribution."
        )
    if claim.answer is Answer.DEPENDS:
        parts = [ASSUMPTION_WORDS.get(name, f"the {name}") for name in claim.depends_on]
        text += f" The answer depends on {'; on '.join(parts)}."
    return f"{text} {_outside_sentence(deciding)}".strip()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _outside_sentence(comparisons: Sequence[Comparison]) -> str:
    """Say where a comparison at equal privacy or accuracy needs a parameter outside the paper's range."""
    outside = [comparison for comparison in comparisons if comparison.outside_range > 0]
    if not outside:
        return ""
    largest = max(comparison.outside_range for comparison in outside)
    return (
        f"In {len(outside)} of the {len(comparisons)} comparisons the matched parameter lies outside the range [0, 1] "
        f"that the paper allows, in up to {largest:.0%} of the draws; there the mechanism is an extension of the "
        "paper's."
    )


def yardstick_sentence(claim: Claim) -> str:
    """Return what the paper's own yardstick says on our draws, over all readings."""
    wins = [c.wins for c in claim.comparisons if not c.decides and not math.isnan(c.wins)]
    words = CLAIM_WORDS[claim.name]
    if not wins:
        return f"The paper's own yardstick is {words.yardstick}."
    share = f"{min(wins):.0%}" if len(wins) == 1 else f"{min(wins):.0%} to {max(wins):.0%}"
    return (
        f"The paper's own yardstick is {words.yardstick}. By it, the claim is true in {share} of the draws, "
        "depending on the reading."
    )
