"""From counts to results: the bounds on the partition, the evaluation of a claim, and the next step.

All results are computed from the counts of the test runs. Another claim can therefore be evaluated later on the same
counts, without new runs.
"""

from __future__ import annotations

import math
from types import NoneType
from typing import NamedTuple, TypedDict

import numpy as np

from dpverify.events.partition import Partition
from dpverify.events.scores import Levels
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.power import estimate_share, witness_epsilon
from dpverify.report.sequence import Sequence
from dpverify.report.statements import OnPartition, Paper, Verdict, Witness, check_claim
from dpverify.sampling.counts import Counts, occupied_codes
from dpverify.settings import Settings
from dpverify.stats.binomial import clopper_pearson_lower
from dpverify.stats.claim_kinds import Approximate, Claim
from dpverify.stats.curve_power import runs_to_refute
from dpverify.stats.curve_test import parameter_lower_bound
from dpverify.stats.lower_bound import epsilon_lower_bound, is_rejected, score_lower_bound
from dpverify.stats.paper_test import critical_epsilon, p_values, paper_lambda
from dpverify.stats.power import MAX_PLANNED_RUNS, plan_runs
from dpverify.stats.profile import small_curve_p_value
from dpverify.util.formatting import format_count, format_number

# The upper bounds share alpha: this part bounds the region's mass, the rest bounds delta on the partition.
REGION_SHARE = 0.1
THINNING_KEY, SWEEP_KEY = 100, 101  # spawn keys of the paper's randomised p-values; the stages use smaller ones
LARGEST_EVENT_PROBABILITY = 1 - 1e-12  # plan_runs needs a probability below 1
REPEATED_TEST_MARGIN = 2.0  # more runs for a verification that selects its event again
ROUNDING_FACTOR = 1 + 1e-12  # a p-value larger by this factor is larger whatever the rounding
MAX_PACKED_RUNS = 1 << 31  # a pair of counts below this fits into one 64-bit integer


class Etas(NamedTuple):
    """The paper's eta, and the upper confidence bound on the probability that it estimates (`Paper` explains both)."""

    eta: float
    eta_upper: float | None


class Evaluation(TypedDict):
    """The fields of a report that depend on the claim."""

    verdict: Verdict
    witness: Witness
    others: tuple[Witness, ...]
    claim: Claim | None
    claim_lower: float | None
    epsilon: float | None
    delta: float
    epsilon_lower: float
    p_value: float | None
    epsilon_critical: float
    epsilon_detectable: float
    paper: Paper
    next_step: str


def evaluate_claim(
    tested: tuple[Witness, ...],
    on_partition: OnPartition,
    etas: Etas,
    settings: Settings,
    claim: Claim | None,
    delta: float,
    diagnostics: tuple[Diagnostic, ...] = (),
    sequence: Sequence | None = None,
) -> Evaluation:
    """Evaluate a claim on the counts of the tested events.

    Each event is tested with its share of alpha, so that all of them together have level alpha. The p-value is the
    smallest p-value of an event divided by its share, and the bounds are the largest ones.

    Parameters
    ----------
    tested : tuple of Witness
        The tested events. The one that proves most becomes the witness.
    on_partition : OnPartition
        The counts of the partition.
    etas : Etas
        The probability of the most frequent cell, from which the paper's lambda is computed.
    settings : Settings
        Level and kind of the test.
    claim : Claim or None
        The claim; None states no claim.
    delta : float
        The delta at which epsilon is bounded. It is the claimed one if the claim has a delta.
    diagnostics : tuple of Diagnostic
        A voiding diagnostic makes the verdict `NO_ANSWER`.
    sequence : Sequence or None
        The bets of a verification that may stop early. They share alpha with the exact test of the witness, which is
        made only if the first budget was spent.
    """
    epsilon = claim.epsilon if isinstance(claim, Approximate) else None
    check_claim(settings, epsilon, delta, claim)
    alpha = settings.alpha
    level = alpha if sequence is None else sequence.exact_alpha(alpha)
    is_tested = sequence is None or sequence.exact_runs > 0
    bounds = bound_by_event(tested, sequence, delta, alpha)
    lower = max(bounds)
    proof, p_value = tested[int(np.argmax(bounds[: len(tested)]))], None
    if len(tested) > 1 and max(bounds[: len(tested)]) <= 0:  # the event that could have shown most
        proof = min(tested, key=lambda one: witness_epsilon(one, claim, delta, one.share * alpha))
    if settings.test == "exact" and claim is not None:
        by_event = p_value_by_event(tested, proof, claim, level) if is_tested else [1.0]
        p_value = min(by_event)
        if sequence is not None:  # the wealth and the exact test have a share of alpha each
            by_wealth = min(sequence.p_value(claim) / sequence.early_share, 1.0)
            by_test = divide_p_value(p_value, 1 - sequence.early_share, alpha) if is_tested else 1.0
            p_value = min(by_wealth, by_test)
        if not isinstance(claim, Approximate):
            proof = tested[int(np.argmin(by_event))]
    witness, others = proof, tuple(one for one in tested if one is not proof)
    runs, critical, thinned = witness.runs, lower, None
    if epsilon is not None:
        thinned = thinned_p_values(witness, settings, epsilon)
    if settings.test == "thinned":
        critical = sweep_epsilon(witness.counts, runs, settings)
        p_value = min(thinned) if thinned else None
    if any(diagnostic.voids for diagnostic in diagnostics):
        verdict = Verdict.NO_ANSWER
    elif claim is None or p_value is None:
        verdict = Verdict.MEASURED
    elif p_value <= alpha:
        verdict = Verdict.REFUTED
    elif on_partition.meets_claim(claim):
        verdict = Verdict.BOUNDED
    else:
        verdict = Verdict.NOT_REFUTED
    detectable = witness_epsilon(witness, claim, delta, witness.share * alpha)
    claim_lower = lower if epsilon is not None else None
    if claim is not None and epsilon is None:
        lowers = [
            parameter_lower_bound(*one.ordered, (runs, runs), claim, one.share * level)
            for one in (tested if is_tested else ())
        ]
        lowers += [] if sequence is None else [sequence.parameter_lower(claim, alpha)]
        claim_lower = max((bound for bound in lowers if bound is not None), default=None)
    return {
        "verdict": verdict,
        "witness": witness,
        "others": others,
        "claim": claim,
        "claim_lower": claim_lower,
        "epsilon": epsilon,
        "delta": float(delta),
        "epsilon_lower": lower,
        "p_value": p_value,
        "epsilon_critical": critical,
        "epsilon_detectable": detectable,
        "paper": Paper(thinned, etas.eta, paper_lambda(settings.beta, etas.eta, critical), etas.eta_upper),
        "next_step": next_step(verdict, witness, claim, delta, witness.share * alpha),
    }


def bound_by_event(tested: tuple[Witness, ...], sequence: Sequence | None, delta: float, alpha: float) -> list[float]:
    """Return the lower bounds on epsilon at this delta by each tested event, and by the bets if there are any.

    Only the largest one is exact: an event that proves less than another one may have the bound 0. The largest one
    holds with confidence 1 - alpha. The counts of an event prove a bound only if it was fixed before these runs. After
    an early stop they are the runs that selected it, and its own bound is 0.
    """
    bounds: list[float] = []
    if sequence is not None and not sequence.exact_runs:
        bounds = [0.0] * len(tested)
    else:
        level = alpha if sequence is None else sequence.exact_alpha(alpha)
        tests = [(*one.ordered, one.runs, delta, one.share * level) for one in tested]
        bounds = [0.0] * len(tested)
        # A bound that does not exceed an earlier one has no effect, and the test of one claim is enough to see it. So
        # the event that probably proves most comes first.
        by_score = sorted(range(len(tests)), key=lambda event: -score_lower_bound(*tests[event]))
        for event in by_score:
            c1, c2, runs, _, own_level = tests[event]
            if event == by_score[0] or is_rejected(c1, c2, runs, max(bounds), delta, own_level):
                bounds[event] = epsilon_lower_bound(*tests[event])
    if sequence is not None:
        bounds.append(sequence.parameter_lower(Approximate(0.0, delta), alpha) or 0.0)
    return bounds


def p_value_by_event(tested: tuple[Witness, ...], proof: Witness, claim: Claim, level: float) -> list[float]:
    """Return the p-value of a claim by each event, divided by its share of the level of all events together.

    Only the smallest one is exact: a larger one need not be computed. So the event that proves most comes first.
    """
    p_values = [1.0] * len(tested)
    for event in sorted(range(len(tested)), key=lambda number: tested[number] is not proof):
        one = tested[event]
        limit = ROUNDING_FACTOR * one.share * min(p_values)
        p_value = small_curve_p_value(*one.ordered, one.runs, claim, one.share * level, limit)
        p_values[event] = divide_p_value(p_value, one.share, level)
    return p_values


def divide_p_value(p_value: float, share: float, level: float) -> float:
    """Return a p-value divided by a share of the level; the result is at most the level only if the event rejects."""
    if p_value <= share * level:
        return min(p_value / share, level)
    return min(1.0, max(p_value / share, math.nextafter(level, 1.0)))


def sweep_epsilon(counts: tuple[int, int], runs: int, settings: Settings) -> float:
    """Return the paper's critical epsilon; its random stream depends on the seed only, so that it is reproducible."""
    return float(critical_epsilon(*counts, runs, settings.alpha, _generator(settings, SWEEP_KEY)))


def thinned_p_values(witness: Witness, settings: Settings, epsilon: float) -> tuple[float, float]:
    """Return the paper's two p-values; their random stream depends on the seed only, so that they are reproducible."""
    first, second = p_values(*witness.counts, witness.runs, epsilon, _generator(settings, THINNING_KEY))
    return float(first), float(second)


def _generator(settings: Settings, key: int) -> np.random.Generator:
    """Return the generator of one random quantity of the paper's test."""
    return np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(key,)))


def next_step(verdict: Verdict, witness: Witness, claim: Claim | None, delta: float, alpha: float) -> str:
    """Return one sentence that says what to do next."""
    if verdict is Verdict.NO_ANSWER:
        return "fix the cause that is named above, then verify again"
    is_curve = not isinstance(claim, (Approximate, NoneType))
    if verdict is Verdict.REFUTED and witness.ordered[1] == 0:
        return (
            "only one data set produced the outputs of the witness, which is a sign of missing noise or of exact "
            "values; a larger scale of the present noise may not hide them: look for a number that is published "
            "without noise, then verify again"
        )
    if verdict is Verdict.REFUTED:
        weaker = "claim less privacy" if is_curve else "claim a larger epsilon"
        return (
            f"the witness shows which outputs distinguish the data sets; increase the noise, or {weaker}, then verify "
            "again"
        )
    if claim is None:
        return "pass epsilon=... to test a claim; more select_runs and test_runs give tighter bounds"
    runs = witness.runs
    p1, p2 = (estimate_share(count, runs) for count in witness.ordered)
    other = "to search further, use more selection runs (select_runs) or another pair of data sets"
    if p1 <= float(claim.boundary(p2)):
        return other
    # A second test on the same claim shares alpha with the first one.
    if isinstance(claim, Approximate):
        observed = math.log((p1 - delta) / p2)
        needed = plan_runs(claim.epsilon, observed, min(p1, LARGEST_EVENT_PROBABILITY), delta, alpha / 2)
        assumption = f"if the observed epsilon of {format_number(observed)} is the true one"
    else:
        needed = math.ceil(min(runs_to_refute(p1, p2, claim, alpha / 2), 2.0 * MAX_PLANNED_RUNS))
        assumption = "if the observed frequencies are the true ones"
    if needed > MAX_PLANNED_RUNS:
        return other
    # These runs refute the claim with probability 80% by the same event. A new verification selects its event again.
    needed = math.ceil(REPEATED_TEST_MARGIN * needed)
    return f"test again at alpha/2 with test_runs={format_count(needed)}: {assumption}, this probably refutes the claim"


def bound_partition(
    partition: Partition | Levels, cells: tuple[Counts, Counts], inside: tuple[Counts, Counts], settings: Settings
) -> OnPartition:
    """Return the statement about unions of the partition's cells.

    Parameters
    ----------
    partition
        The partition, for its number of cells.
    cells : pair of Counts
        Test counts of the cells, for each data set.
    inside : pair of Counts
        Test counts of the region: code 1 is inside.
    settings : Settings
        Number of test runs and level.
    """
    codes = occupied_codes(*cells)
    runs, alpha = settings.test_runs, settings.alpha
    c1, c2, number = distinct_pairs(cells[0].of(codes), cells[1].of(codes), runs)
    # The data set with the smaller mass is unknown but fixed, so that the limit needs no correction for two data sets.
    counts_inside = [counts.of(np.array([1]))[0] for counts in inside]
    mass = min(float(clopper_pearson_lower(count, runs, REGION_SHARE * alpha)) for count in counts_inside)
    return OnPartition(c1, c2, number, runs, (1 - REGION_SHARE) * alpha, partition.n_cells, mass)


def distinct_pairs(c1: np.ndarray, c2: np.ndarray, runs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct pairs of counts, and how many cells have each pair."""
    if runs >= MAX_PACKED_RUNS:
        pairs, number = np.unique(np.stack([c1, c2]), axis=1, return_counts=True)
        return pairs[0], pairs[1], number
    # Sorting single integers is much faster than sorting pairs.
    packed, number = np.unique(c1 * (runs + 1) + c2, return_counts=True)
    return packed // (runs + 1), packed % (runs + 1), number
