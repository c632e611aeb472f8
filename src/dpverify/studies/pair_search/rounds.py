"""Rounds of a search in a list: the items that may still be the best one are evaluated again with more runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dpverify.studies.pair_search.pair_value import PairValue

FIRST_SHARE = 0.5  # of all runs, for the first round: estimates from few runs say little about rare events
MIN_GROWTH = 2  # a round has at least so many times the runs per item of the round before


class Rounds(NamedTuple):
    """What the rounds have found.

    Attributes
    ----------
    best : int
        The index of the best item.
    evaluations : list of (int, PairValue)
        Every evaluation, in order.
    runs_per_item : tuple of int
        For each round, how many runs an item was evaluated with.
    unused_runs : int
        The runs that were not needed.
    """

    best: int
    evaluations: list[tuple[int, PairValue]]
    runs_per_item: tuple[int, ...]
    unused_runs: int


def search_in_rounds(evaluate: Callable[[int, int], PairValue], number: int, runs: int) -> Rounds:
    """Return the best of `number` items; `evaluate(item, runs)` estimates the value of an item from so many runs.

    At most half of the items stay, or two: those with the largest lower estimates, and the one of the others with the
    largest upper estimate. An item whose upper estimate is below the largest lower one does not stay. If the runs that
    are left would not allow two more rounds with growing runs, they are divided among the items that stay, and the next
    round is the last.
    """
    remaining, left, per_item = list(range(number)), runs, int(FIRST_SHARE * runs / max(number, 1))
    evaluations: list[tuple[int, PairValue]] = []
    runs_per_item: list[int] = []
    best = 0
    while len(remaining) > 1:
        values = {item: evaluate(item, per_item) for item in remaining}
        evaluations += values.items()
        runs_per_item.append(per_item)
        left -= per_item * len(remaining)
        by_lower = sorted(remaining, key=lambda item: -values[item].lower)
        best, surest = by_lower[0], max(1, (len(remaining) - 1) // 2)
        uncertain = max(by_lower[surest:], key=lambda item: values[item].upper)
        others = [item for item in [*by_lower[1:surest], uncertain] if values[item].upper > values[best].lower]
        remaining = [best, *others]
        two_rounds = (MIN_GROWTH + MIN_GROWTH**2) * per_item * len(remaining)
        grown = MIN_GROWTH * per_item if left >= two_rounds else left // len(remaining)
        if grown < MIN_GROWTH * per_item:
            break
        per_item = grown
    return Rounds(best, evaluations, tuple(runs_per_item), left)
