"""Which events are tested together, and how they share the level alpha.

Two rules judge the proposals (docs/method.md, section 5.3). The cautious rule takes the event whose bound is large even
if the selection runs overestimated it. The expected rule takes the event with the largest mean of the bound, given the
decision runs alone. The cautious rule misses events that are too rare to be certain about, and the expected rule alone
prefers rare events that looked good by chance. Up to three events are therefore frozen together. The test of event i
has level `share_i * alpha` and the shares add up to 1, so that all statements together hold at level alpha.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from dpverify.selection.objective import (
    PRIOR_COUNT,
    QUANTILES,
    SelectionObjective,
    approximate_bound,
    posterior_quantiles,
)
from dpverify.selection.proposals import JudgedProposal

# The shares that are compared for a further event. The rest of alpha is divided as before.
FURTHER_SHARES = (0.1, 0.3, 0.5)
LARGE_SHARE = 0.9  # of an event whose expected bound is many times as large as that of the events before it
LARGE_RATIO, LARGE_CHANCE = 3.0, 0.9
MIN_FIRST_SHARE = 0.5  # of the cautious event, unless a further event is clearly better
MIN_CHANCE = 0.5  # probability of a positive bound that a further event needs
BESIDE_SHARE = 0.5  # of the event of the cautious rule beside one that smooth models chose
SAFE_SHARE = 0.1  # of the event that is chosen with a large penalty
RARE_ERROR = 0.1  # standard error of the log-ratio above which the cautious event needs a safer one beside it
SIZE_RATIO = 4.0  # counts within this ratio belong to events of about the same size
MIN_GAIN = 0.02  # relative gain of the expected bound that justifies a further event
NEW_SCORE_COST = 0.05  # relative; the test runs need longer for every further score
MIN_CONFIRMED_COUNT = 0.5  # decision runs
PRIOR_STRENGTH = 2.0  # how many counts a predicted probability is worth
SIMILAR_RATIO = 1.5  # events whose counts are within this ratio are nearly the same event
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
    beside: JudgedProposal | None = None,
) -> list[Allotted]:
    """Return the events that are tested, with their shares of alpha.

    Parameters
    ----------
    selected : JudgedProposal
        The first event: that of the smooth models if `beside` is given, otherwise that of the cautious rule.
    judged : list of JudgedProposal
        All proposals.
    objective : SelectionObjective
        The planned test.
    max_events : int
        The largest number of events.
    beside : JudgedProposal, optional
        The event of the cautious rule. It has half of alpha, unless it is similar to the first event. The expected
        bound of a further event must then be LARGE_RATIO times as large.
    """
    if max_events == 1:
        return [Allotted(selected, 1.0)]
    quantiles, offset = _draw_probabilities(judged), objective.claimed_mu
    possible = approximate_bound(*quantiles, objective)
    expected, chance = possible.mean(-1), (possible > 0).mean(-1)
    compared = [number for number in _best_of_each_size(judged, expected) if chance[number] >= MIN_CHANCE]
    first = next(i for i, one in enumerate(judged) if one is selected)
    rng = np.random.default_rng(PERMUTATION_SEED)
    orders = [rng.permutation(QUANTILES.size**2) for _ in range(2)]

    def bounds(numbers: list[int], shares: list[float]) -> list[np.ndarray]:
        pairs = quantiles[0][numbers], quantiles[1][numbers]
        tested = approximate_bound(*pairs, objective, np.array(shares)[:, None])
        # The errors of events in one direction are treated as dependent: these events often contain each other.
        directions = [judged[number].proposal.event.direction for number in numbers]
        return [values[orders[direction]] for values, direction in zip(tested, directions, strict=True)]

    further_bounds = {
        share: dict(zip(compared, bounds(compared, [share] * len(compared)), strict=True))
        for share in (*FURTHER_SHARES, LARGE_SHARE)
    }
    scores = [id(getattr(one.proposal.event.partition, "score", None)) for one in judged]
    members, shares = [first], [1.0]
    if selected.standard_error > RARE_ERROR:
        safe = max(range(len(judged)), key=lambda number: judged[number].safe_bound)
        if judged[safe].safe_bound > 0 and not _are_similar(judged[safe], selected):
            members, shares = [first, safe], [1 - SAFE_SHARE, SAFE_SHARE]
    if beside is not None and not _are_similar(beside, selected):
        second = next(i for i, one in enumerate(judged) if one is beside)
        members, shares = [first, second], [1 - BESIDE_SHARE, BESIDE_SHARE]
    while len(members) < max_events:
        distinct = [n for n in compared if not any(_are_similar(judged[n], judged[member]) for member in members)]
        kept = np.max(bounds(members, shares), axis=0).mean()
        before, best, chosen = kept, kept * (1 + MIN_GAIN), None
        for share, own_bounds in further_bounds.items():
            rest = [(1 - share) * one for one in shares]
            kept = np.max(bounds(members, rest), axis=0)
            for number in distinct:
                value = np.maximum(kept, own_bounds[number]).mean()
                value *= 1.0 if scores[number] in {scores[n] for n in members} else 1 - NEW_SCORE_COST
                # A distance from a curve is nearly 0 where the claim is tight. Bounds on mu have a meaningful ratio.
                is_larger = expected[number] + offset > LARGE_RATIO * (before + offset)
                is_clear = is_larger and chance[number] >= LARGE_CHANCE
                is_moderate = share < LARGE_SHARE and rest[0] >= (1 - SAFE_SHARE) * MIN_FIRST_SHARE
                is_allowed = is_clear or (is_moderate and beside is None)
                if is_allowed and value > best:
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
        size = int(np.log(one.decided[0] + 1.0) / np.log(SIZE_RATIO))
        best.setdefault((one.proposal.event.direction, size), number)
    return list(best.values())


def _are_similar(one: JudgedProposal, other: JudgedProposal) -> bool:
    """Return whether two events have the same direction and about as many proposal runs, so that one is enough."""
    if one.proposal.event.direction != other.proposal.event.direction:
        return False
    counts, others = (sum(x.proposal.counts) + sum(x.decided) for x in (one, other))
    return max(counts, others) <= SIMILAR_RATIO * min(counts, others)


def _draw_probabilities(judged: list[JudgedProposal]) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of quantiles of the two probabilities of every proposal, given the decision runs alone.

    Where a fit to many proposal runs knows the ratio of the two probabilities, it is used too.
    """
    exceeding, other = np.array([one.decided for one in judged]).T
    runs = judged[0].decision_runs
    predicted = np.array([one.proposal.predicted for one in judged])
    # A prediction that is smaller than the runs can confirm is used only if they do not contradict it.
    is_used = (predicted * runs >= MIN_CONFIRMED_COUNT) | (np.isfinite(predicted) & (other == 0))
    prior = np.where(is_used, PRIOR_STRENGTH, PRIOR_COUNT)
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
