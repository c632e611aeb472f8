"""Which events are tested together, and how they share the level alpha.

Two rules judge the proposals (docs/method.md, section 5.3). The cautious rule takes the event whose bound is large even
if the selection runs overestimated it. The expected rule takes the event with the largest mean of the bound, given the
decision runs alone. The cautious rule misses events that are too rare to be certain about, and the expected rule alone
prefers rare events that looked good by chance. Up to three events are therefore frozen together. The test of event i
has level `share_i * alpha` and the shares add up to 1, so that all statements together hold at level alpha.

Bounds on delta have events of their own: for each of some epsilons, a level set of one score.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from dpverify.events.event import WITNESS, DeltaAims
from dpverify.events.scores import Levels
from dpverify.selection.objective import (
    PRIOR_COUNT,
    QUANTILES,
    TUNING,
    SelectionObjective,
    approximate_bound,
    posterior_quantiles,
)
from dpverify.selection.proposals import Candidate, JudgedProposal, threshold_counts
from dpverify.stats.upper import PROFILE_EPSILONS

PERMUTATION_SEED = 0  # pairs the quantiles of different events


class Allotted(NamedTuple):
    """A proposal that is tested, and its share of alpha."""

    judged: JudgedProposal
    share: float


def choose_portfolio(
    selected: JudgedProposal,
    judged: list[JudgedProposal],
    objective: SelectionObjective,
    max_events: int,
) -> list[Allotted]:
    """Return the events that are tested, with their shares of alpha.

    Parameters
    ----------
    selected : JudgedProposal
        The first event: that of the cautious rule.
    judged : list of JudgedProposal
        All proposals.
    objective : SelectionObjective
        The planned test.
    max_events : int
        The largest number of events.
    """
    if max_events == 1:
        return [Allotted(selected, 1.0)]
    quantiles, offset = _draw_probabilities(judged), objective.claimed_mu
    possible = approximate_bound(*quantiles, objective)
    expected, chance = possible.mean(-1), (possible > 0).mean(-1)
    compared = [number for number in _best_of_each_size(judged, expected) if chance[number] >= TUNING.min_chance]
    first = next(i for i, one in enumerate(judged) if one is selected)
    rng = np.random.default_rng(PERMUTATION_SEED)
    orders = [rng.permutation(QUANTILES.size**2) for _ in range(2)]

    def are_similar(number: int, member: int) -> bool:
        """Return whether two events have about the same size and bound; a clean event differs from a diluted one."""
        smaller, larger = sorted((expected[number], expected[member]))
        return _have_same_size(judged[number], judged[member]) and larger <= TUNING.similar_bound_ratio * smaller

    def bounds(numbers: list[int], shares: list[float]) -> list[np.ndarray]:
        pairs = quantiles[0][numbers], quantiles[1][numbers]
        tested = approximate_bound(*pairs, objective, np.array(shares)[:, None])
        # The errors of events in one direction are treated as dependent: these events often contain each other.
        directions = [judged[number].proposal.event.direction for number in numbers]
        return [values[orders[direction]] for values, direction in zip(tested, directions, strict=True)]

    further_bounds = {
        share: dict(zip(compared, bounds(compared, [share] * len(compared)), strict=True))
        for share in (*TUNING.further_shares, TUNING.large_share)
    }
    scores = [id(getattr(one.proposal.event.partition, "score", None)) for one in judged]
    members, shares = [first], [1.0]
    if selected.standard_error > TUNING.rare_error:
        safe = max(range(len(judged)), key=lambda number: judged[number].safe_bound)
        if judged[safe].safe_bound > 0 and not are_similar(safe, first):
            members, shares = [first, safe], [1 - TUNING.safe_share, TUNING.safe_share]
    while len(members) < max_events:
        distinct = [n for n in compared if not any(are_similar(n, member) for member in members)]
        kept = np.max(bounds(members, shares), axis=0).mean()
        before, best, chosen = kept, kept * (1 + TUNING.min_gain), None
        for share, own_bounds in further_bounds.items():
            rest = [(1 - share) * one for one in shares]
            kept = np.max(bounds(members, rest), axis=0)
            for number in distinct:
                value = np.maximum(kept, own_bounds[number]).mean()
                value *= 1.0 if scores[number] in {scores[n] for n in members} else 1 - TUNING.new_score_cost
                # A distance from a curve is nearly 0 where the claim is tight. Bounds on mu have a meaningful ratio.
                is_larger = expected[number] + offset > TUNING.large_ratio * (before + offset)
                is_clear = is_larger and chance[number] >= TUNING.large_chance
                is_moderate = share < TUNING.large_share and rest[0] >= (1 - TUNING.safe_share) * TUNING.min_first_share
                if (is_clear or is_moderate) and value > best:
                    best, chosen = value, (number, [*rest, share])
        if chosen is None:
            break
        members, shares = [*members, chosen[0]], chosen[1]
    return [Allotted(judged[number], share) for number, share in zip(members, shares, strict=True)]


def _best_of_each_size(judged: list[JudgedProposal], expected: np.ndarray) -> list[int]:
    """Return the proposal with the largest expected bound for each direction and size, the best ones first.

    Events of one size in one direction are often nearly the same event, of which one is enough.
    """
    best: dict[tuple[int, int], int] = {}
    for number in np.argsort(-expected, kind="stable").tolist():
        one = judged[number]
        size = int(np.log(one.decided[0] + 1.0) / np.log(TUNING.size_ratio))
        best.setdefault((one.proposal.event.direction, size), number)
    return list(best.values())


def _have_same_size(one: JudgedProposal, other: JudgedProposal) -> bool:
    """Return whether two events have the same direction and about as many runs."""
    if one.proposal.event.direction != other.proposal.event.direction:
        return False
    counts, others = (sum(x.proposal.counts) + sum(x.decided) for x in (one, other))
    return max(counts, others) <= TUNING.similar_ratio * min(counts, others)


def _draw_probabilities(judged: list[JudgedProposal]) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of quantiles of the two probabilities of every proposal, given the decision runs alone.

    Where a fit to many proposal runs knows the ratio of the two probabilities, it is used too.
    """
    exceeding, other = np.array([one.decided for one in judged]).T
    runs = judged[0].decision_runs
    predicted = np.array([one.proposal.predicted for one in judged])
    # A prediction that is smaller than the runs can confirm is used only if they do not contradict it.
    is_used = (predicted * runs >= TUNING.min_confirmed_count) | (np.isfinite(predicted) & (other == 0))
    prior = np.where(is_used, TUNING.prior_strength, PRIOR_COUNT)
    p1 = posterior_quantiles(exceeding, runs)
    p2 = posterior_quantiles(other, runs, prior, np.where(is_used, prior / np.nan_to_num(predicted, nan=1.0), 0.0))
    shape = len(judged), QUANTILES.size, QUANTILES.size
    first = np.broadcast_to(p1[:, :, None], shape).reshape(len(judged), -1)
    second = np.broadcast_to(p2[:, None, :], shape).copy()
    for i, one in enumerate(judged):
        if one.proposal.equivalent is not None:
            c1, c2 = one.proposal.equivalent.exceeding + exceeding[i], one.proposal.equivalent.other + other[i]
            log_ratios = np.log(c1 / c2) - scipy.special.ndtri(QUANTILES) * np.sqrt(1 / c1 + 1 / c2)
            second[i] = np.minimum(p1[i][:, None] * np.exp(-log_ratios), 1.0)
    return first, second.reshape(len(judged), -1)


AIM_EPSILONS = PROFILE_EPSILONS[PROFILE_EPSILONS <= 10]


class AimOptions(NamedTuple):
    """What one score offers for bounds on delta.

    Attributes
    ----------
    candidate : Candidate
        The score.
    thresholds : ndarray of shape (n,)
        The best threshold for each epsilon.
    directions : ndarray of shape (n,)
        0 for {score > threshold}, 1 for {score <= threshold}.
    deltas : ndarray of shape (n,)
        The lower bounds on delta that the test runs are expected to prove.
    """

    candidate: Candidate
    thresholds: np.ndarray
    directions: np.ndarray
    deltas: np.ndarray


def aim_options(candidate: Candidate, objective: SelectionObjective) -> AimOptions:
    """Return the best level sets of one score."""
    runs = candidate.histogram.runs
    thresholds, above1, above2 = threshold_counts(candidate.histogram, candidate.binned.edges)
    values = np.stack(
        [
            expected_delta(above1, above2, runs, objective),
            expected_delta(runs - above2, runs - above1, runs, objective),
        ]
    )  # directions, epsilons, thresholds
    best = values.argmax(2)
    deltas = np.take_along_axis(values, best[..., None], 2)[..., 0]
    directions = deltas.argmax(0)
    columns = np.arange(AIM_EPSILONS.size)
    return AimOptions(
        candidate, thresholds[best[directions, columns]], directions, np.maximum(deltas[directions, columns], 0.0)
    )


def expected_delta(c1: np.ndarray, c2: np.ndarray, runs: int, objective: SelectionObjective) -> np.ndarray:
    """Return the expected lower bounds on delta for each aimed epsilon and each pair of counts.

    The errors of the selection and of the test are subtracted.
    """
    p1, p2 = (c1 + 0.5) / (runs + 1), (c2 + 0.5) / (runs + 1)
    growth = np.exp(AIM_EPSILONS)[:, None]
    variance = p1 * (1 - p1) + growth**2 * p2 * (1 - p2)
    error = np.sqrt(variance * (1 / objective.planned + 1 / runs))
    return p1 - growth * p2 + scipy.special.ndtri(objective.alpha) * error


def choose_aims(options: list[AimOptions], first: JudgedProposal, objective: SelectionObjective) -> DeltaAims:
    """Return the level sets of the score that offers most in relation to the best score, summed over the epsilons.

    An epsilon at which the first tested event offers more is assigned to that event.
    """
    deltas = np.stack([one.deltas for one in options])
    best = deltas.max(0)
    shares = np.divide(deltas, best, out=np.zeros_like(deltas), where=best > 0).sum(1)
    # The score of the first tested event is evaluated anyway.
    own_score = getattr(first.proposal.event.partition, "score", None)
    shares *= [1 + TUNING.same_score_bonus * (one.candidate.binned.score is own_score) for one in options]
    chosen = options[int(shares.argmax())]
    side = first.proposal.event.direction
    c1, c2 = (np.array([first.proposal.counts[k] + first.decided[k ^ side]]) for k in (side, 1 - side))
    own = expected_delta(c1, c2, chosen.candidate.histogram.runs, objective)[:, 0]
    levels = Levels(chosen.candidate.binned.score, np.unique(chosen.thresholds))
    edges = np.searchsorted(levels.edges, chosen.thresholds)
    return DeltaAims(
        levels, AIM_EPSILONS.copy(), np.where(own >= chosen.deltas, WITNESS, edges), chosen.directions.astype(np.int64)
    )
