"""What the test runs can detect on the witness, and how many runs are enough. All numbers are normal approximations.

The rarer data set is the one for which the witness is expected to be less likely. Its share of runs in the witness is
kept, and the share of the other data set is varied: it is what the claim limits.
"""

from __future__ import annotations

import math

import numpy as np

from dpverify.report.statements import Verdict, Witness
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.claim_kinds import Approximate, Claim
from dpverify.stats.curve_power import detectable_probability, runs_to_refute
from dpverify.stats.power import MAX_PLANNED_RUNS, detectable_epsilon, plan_runs
from dpverify.util.formatting import format_number, format_percent

FREQUENCY_RISK = 0.01  # of an error of the lower limit on a frequency from which a number of runs is planned
SELECTION_MARGIN = 1.25  # more runs for an event that is somewhat rarer than the witness
CORNER_POINTS = 65  # frequencies at which a curve with corners is evaluated
LARGEST_FINITE_PARAMETER = 1e6  # of a claim; a larger one is taken as infinite
ORDINALS = {1: "first", 2: "second"}


def estimate_share(count: int, runs: int) -> float:
    """Return an estimate of a probability that is neither 0 nor 1."""
    return (count + 0.5) / (runs + 1)


def witness_epsilon(witness: Witness, claim: Claim | None, delta: float, alpha: float) -> float:
    """Return the smallest epsilon of the witness, at this delta, that the test runs would refute the claim with."""
    q = estimate_share(witness.ordered[1], witness.runs)
    if claim is None or isinstance(claim, Approximate):
        return detectable_epsilon(witness.runs, q, claim.epsilon if claim else 0.0, delta, alpha)
    p = detectable_probability(witness.runs, q, claim, alpha)
    if p == math.inf:
        return math.inf
    return max(0.0, math.log((p - delta) / q)) if p > delta else 0.0


def reaches(witness: Witness, claim: Claim, target: Claim, alpha: float) -> bool:
    """Return whether the test runs detect it if the witness reaches the boundary of the target claim."""
    q = estimate_share(witness.ordered[1], witness.runs)
    if isinstance(claim, Approximate) and isinstance(target, Approximate):
        return detectable_epsilon(witness.runs, q, claim.epsilon, claim.delta, alpha) <= target.epsilon
    return detectable_probability(witness.runs, q, claim, alpha) <= float(target.boundary(q))


def is_too_frequent(witness: Witness, claim: Claim) -> bool:
    """Return whether the witness cannot violate a claim, because the other probability would have to be above 1."""
    return float(claim.boundary(estimate_share(witness.ordered[1], witness.runs))) >= 1


def required_runs(q: float, claim: Claim, target: Claim, alpha: float) -> int:
    """Return the runs that refute the claim with probability 80% on an event that reaches the boundary of the target.

    Parameters
    ----------
    q : float
        The probability of the event with the rarer data set. If it is too large for the target, an event is taken whose
        larger probability is one half; with a claimed delta it is in the middle between delta and 1.
    claim, target : Claim
        The claim, and the same claim with a larger parameter.
    alpha : float
        The level of the test.
    """
    unlimited = 10 * MAX_PLANNED_RUNS
    p = float(target.boundary(q))
    if p >= 1:
        p = (1 + float(target.boundary(0.0))) / 2
        q = _smaller_probability(target, p)
    if q <= 0 or p <= float(claim.boundary(q)):
        return unlimited
    if isinstance(claim, Approximate) and isinstance(target, Approximate):
        return min(plan_runs(claim.epsilon, target.epsilon, p, claim.delta, alpha), unlimited)
    return math.ceil(min(runs_to_refute(p, q, claim, alpha), float(unlimited)))


def planned_runs(witness: Witness, claim: Claim, target: Claim, alpha: float) -> int:
    """Return test runs per data set that are enough for the target claim on an event as frequent as the witness.

    The frequency with the rarer data set is only estimated, so the number is enough within its confidence limits. The
    lower limit is not below what the target allows for the other data set: a rarer event violates the target, and these
    runs refute the claim with it. A margin is added, because another verification selects its event anew.
    """
    p_low, q_low = (float(clopper_pearson_lower(count, witness.runs, FREQUENCY_RISK)) for count in witness.ordered)
    q_low = max(q_low, _smaller_probability(target, p_low))
    q_high = float(clopper_pearson_upper(witness.ordered[1], witness.runs, FREQUENCY_RISK))
    # The number is largest at a limit, except for a curve with corners.
    shares = np.linspace(0.0, 1.0, 2 if claim.parameter_name else CORNER_POINTS)
    needed = max(required_runs(q_low + float(share) * (q_high - q_low), claim, target, alpha) for share in shares)
    return max(math.ceil(SELECTION_MARGIN * needed), witness.runs + 1)


def _smaller_probability(claim: Claim, probability: float) -> float:
    """Return the smaller probability of an event that reaches the boundary of the claim with this larger one."""
    if float(claim.boundary(0.0)) >= probability:
        return 0.0
    if isinstance(claim, Approximate):
        return (probability - claim.delta) * math.exp(-claim.epsilon)
    low, high = 0.0, probability
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(claim.boundary(middle)) < probability else (low, middle)
    return high


def detectable_parameter(witness: Witness, claim: Claim, alpha: float) -> float | None:
    """Return the smallest parameter of a curve (mu, rho, ...) that the test runs detect; None if it has no parameter.

    The result is infinite where nothing is detectable.
    """
    q = estimate_share(witness.ordered[1], witness.runs)
    p = detectable_probability(witness.runs, q, claim, alpha)
    if claim.parameter_name is None:
        return None
    low = high = max(claim.parameter, 1e-9)
    while p == math.inf or float(claim.with_parameter(high).boundary(q)) < p:
        high *= 2
        if high > LARGEST_FINITE_PARAMETER:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(claim.with_parameter(middle).boundary(q)) < p else (low, middle)
    return high


def describe_power(
    verdict: Verdict, witness: Witness, claim: Claim | None, delta: float, detectable: float, alpha: float
) -> str | None:
    """Return what the test runs would detect on the witness, in the claim's own parameter; None if there is nothing.

    Parameters
    ----------
    verdict : Verdict
        The verdict of the report.
    witness : Witness
        The witness.
    claim : Claim or None
        The claim.
    delta : float
        The delta of the report.
    detectable : float
        The detectable epsilon of the report.
    alpha : float
        The level of the report.
    """
    if claim is None or verdict in (Verdict.REFUTED, Verdict.NO_ANSWER):
        return None
    # The probability of an event is at most 1, which limits the privacy loss of a frequent event.
    if is_too_frequent(witness, claim):
        return "the witness is so frequent with both data sets that it cannot violate the claim"
    result = "these runs would refute the claim with probability about 80%"
    if isinstance(claim, Approximate):
        if detectable < math.inf:
            return f"if the true epsilon of the witness were {format_number(detectable)}, {result}"
        q = estimate_share(witness.ordered[1], witness.runs)
        limit = f"the epsilon of the witness is at most {format_number(math.log((1 - delta) / q))}"
        return limit if verdict is Verdict.BOUNDED else f"{limit}, and these runs are too few to detect that"
    parameter = detectable_parameter(witness, claim, witness.share * alpha)
    if parameter is not None and parameter < math.inf:
        return f"if the true {claim.parameter_name} of the witness were {format_number(parameter)}, {result}"
    q = estimate_share(witness.ordered[1], witness.runs)
    p = detectable_probability(witness.runs, q, claim, witness.share * alpha)
    larger = ORDINALS[witness.direction[0]]
    if p < math.inf:
        return f"if the true probability of the witness with the {larger} data set were {format_percent(p)}, {result}"
    return (
        "these runs are too few to refute the claim with the witness, whatever its probability with the other data set"
    )
