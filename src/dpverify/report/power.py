"""The power of a test: which violations its runs would notice on the witness, and how many runs are enough.

One rule decides whether a test can notice anything (`describe_weakness`): a violation of the claim by a factor would be
refuted with probability 80%, on an event as frequent as the witness and on one whose larger probability is beta. Beta
is the probability that the likely region may leave out: a test that sees only more frequent events can miss a violation
inside the region. The factor multiplies all parameters of the claim. All numbers are normal approximations. The share
of runs in the witness is kept for the dataset where it is rarer, and the share of the other dataset is varied: it is
what the claim limits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpverify.claims import Approximate, Claim
from dpverify.errors import InputError
from dpverify.report.statements import Witness
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.exact import MAX_PLANNED_RUNS

if TYPE_CHECKING:
    from dpverify.report.report import Report

DETECTS = 1.25  # the default of `detects`
FREQUENCY_RISK = 0.01  # of an error of a limit on a frequency that no certified statement depends on
SELECTION_MARGIN = 1.25  # more runs for an event that is somewhat rarer than the witness
PLANNED_POINTS = 65  # frequencies between two limits; with a delta or corners, one of them may need most runs
DOUBTFUL_P_VALUE = 1e-3  # a true claim has a smaller one in at most one of 1000 tests; it is not passed on
DOUBTFUL_FACTOR = 4  # so many runs probably refute the claim at alpha 1e-6 if these shares are the true ones
LARGEST_FACTOR = 1e6  # of a claim; a larger one is taken as infinite
SEEN_RUNS = 17  # selection runs in an event: with probability 80% three of them are in the quarter that decides


def planned_share(report: Report, target: Claim) -> float:
    """Return the smaller probability of the event that must be noticed: of the witness, or of a rarer one.

    The larger probability of the rarer event is beta more than what a delta allows by itself, and the two reach the
    boundary of the target.
    """
    larger = min(1.0, float(target.boundary(0.0)) + report.settings.beta)
    return min(report.witness.estimates[1], _smaller_probability(target, larger))


def witness_epsilon(witness: Witness, claim: Claim | None, delta: float, alpha: float) -> float:
    """Return the smallest epsilon of the witness, at this delta, that the test runs would refute the claim with."""
    q = witness.estimates[1]
    p = (claim or Approximate(0.0, delta)).noticed_probability(witness.runs, q, alpha)
    if p == math.inf:
        return math.inf
    return max(0.0, math.log((p - delta) / q)) if p > delta else 0.0


def obeys(witness: Witness, claim: Claim | None) -> bool:
    """Return whether the frequencies of the witness satisfy the claim even at their confidence limits."""
    high = float(clopper_pearson_upper(witness.ordered[0], witness.runs, FREQUENCY_RISK))
    low = float(clopper_pearson_lower(witness.ordered[1], witness.runs, FREQUENCY_RISK))
    return claim is not None and high <= float(claim.boundary(low))


def detectable_factor(witness: Witness, claim: Claim | None, delta: float, alpha: float) -> float:
    """Return the smallest factor of the claim that the test runs notice on the witness; infinite if there is none.

    Without a claim it is the smallest epsilon.
    """
    if claim is None:
        return witness_epsilon(witness, None, delta, alpha)
    q = witness.estimates[1]
    p = claim.noticed_probability(witness.runs, q, alpha)
    low = high = 1.0
    while high <= LARGEST_FACTOR and float(claim.scale(high).boundary(q)) < p:
        low, high = high, 2 * high
    if p == math.inf or high > LARGEST_FACTOR:
        return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if float(claim.scale(middle).boundary(q)) < p else (low, middle)
    return high


def check_detects(detects: float, claim: Claim | None) -> None:
    """Raise InputError unless `detects` is above 1 and there is a positive parameter of the claim to multiply."""
    if isinstance(detects, str) or not 1 < detects < math.inf:
        raise InputError(f"detects: found {detects!r}; expected a number above 1, a multiple of the claimed epsilon")
    if claim is None or (claim.parameter_name is not None and claim.parameter == 0):
        found = "no claim" if claim is None else f"a claimed {claim.parameter_name} of {claim.parameter}"
        raise InputError(
            f"detects: found {detects} with {found}; expected a claimed epsilon above 0, because detects is a multiple "
            "of it; call verify without detects"
        )


def needed_runs(report: Report, detects: float = DETECTS) -> int | None:
    """Return test runs per dataset that are enough for `detects` on events as frequent as the rule demands.

    The frequency with the rarer dataset is only estimated, so the number is enough within its confidence limits. The
    lower limit is not below what the violation allows for the other dataset: a rarer event violates the claim more,
    and these runs refute the claim with it. An event that is so frequent that it cannot violate the claim by this
    factor is replaced by the most frequent one that can. A margin is added, because another verification selects its
    event anew. None if the witness occurred too rarely, or if the runs are enough for a rarer event.
    """
    claim, witness = report.claim, report.witness
    assert claim is not None
    target, level = claim.scale(detects), witness.share * report.level
    p_low, q_low = (float(clopper_pearson_lower(count, witness.runs, FREQUENCY_RISK)) for count in witness.ordered)
    q_low = max(q_low, _smaller_probability(target, p_low))
    q_high = float(clopper_pearson_upper(witness.ordered[1], witness.runs, FREQUENCY_RISK))
    limits = np.minimum([q_low, q_high], planned_share(report, target))
    points = PLANNED_POINTS if claim.has_corners else 2
    needed = max(required_runs(q, claim, target, level) for q in np.linspace(limits[0], limits[1], points).tolist())
    needed = math.ceil(SELECTION_MARGIN * needed)
    if needed <= witness.runs and float(claim.boundary(witness.estimates[1])) >= 1:
        return None
    return max(needed, witness.runs + 1) if needed <= MAX_PLANNED_RUNS else None


def required_runs(q: float, claim: Claim, target: Claim, alpha: float) -> int:
    """Return the runs that refute the claim with probability 80% on an event that reaches the boundary of the target.

    Parameters
    ----------
    q : float
        The probability of the event with the rarer dataset.
    claim, target : Claim
        The claim, and the claim multiplied by a factor.
    alpha : float
        The level of the test.
    """
    p = min(float(target.boundary(q)), 1 - 1e-12)  # plan_runs needs a probability below 1
    q = max(q, 1e-9 * p)  # what a delta allows for an event that never happens with the other dataset
    unlimited = 10 * MAX_PLANNED_RUNS
    if q <= 0 or p <= float(claim.boundary(q)):
        return unlimited
    return math.ceil(min(claim.runs_to_refute(p, q, alpha), float(unlimited)))


def _smaller_probability(claim: Claim, probability: float) -> float:
    """Return the smaller probability of an event that reaches the boundary of the claim with this larger one."""
    low, high = 0.0, probability
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(claim.boundary(middle)) < probability else (low, middle)
    return 0.0 if float(claim.boundary(0.0)) >= probability else high
