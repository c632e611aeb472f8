"""Rounds of a search in a list: the items that may still be the best one are evaluated again with more runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dpverify.studies.pair_search.pair_value import PairValue

FIRST_SHARE = 0.4  # of all runs, for the first round: estimates from few runs say little about rare events
MIN_GROWTH = 2  # a round has at least so many times the runs per item of the round before
EQUAL_WITHIN = 0.03  # relative; items whose estimates differ less are equally good, and one of them is enough


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

    The runs of an item in one round are a part of its runs in the next one, so that only the further runs count. At
    most half of the items stay, or two: those with the largest lower estimates, and the one of the others with the
    largest upper estimate. An item does not stay if its upper estimate is below the largest lower one. It does not stay
    either if both of its estimates are nearly those of the best item, because little is lost if the wrong one of the
    two is chosen. If the runs that are left would not allow two more rounds with growing runs, they are divided among
    the items that stay, and the next round is the last.
    """
    remaining, left, before, per_item = list(range(number)), runs, 0, int(FIRST_SHARE * runs / max(number, 1))
    evaluations: list[tuple[int, PairValue]] = []
    runs_per_item: list[int] = []
    best = 0
    while len(remaining) > 1:
        values = {item: evaluate(item, per_item) for item in remaining}
        evaluations += values.items()
        runs_per_item.append(per_item)
        left -= (per_item - before) * len(remaining)
        by_lower = sorted(remaining, key=lambda item: -values[item].lower)
        best, surest = by_lower[0], _number_of_surest(len(remaining))
        uncertain = max(by_lower[surest:], key=lambda item: values[item].upper)
        others = [item for item in [*by_lower[1:surest], uncertain] if _may_be_better(values[item], values[best])]
        remaining = [best, *others]
        most = per_item + left // len(remaining)
        if most < MIN_GROWTH * per_item:
            break
        grown = MIN_GROWTH * per_item
        after = left - (grown - per_item) * len(remaining)
        is_last = after < (MIN_GROWTH - 1) * grown * (1 + _number_of_surest(len(remaining)))
        before, per_item = per_item, most if is_last else grown
    return Rounds(best, evaluations, tuple(runs_per_item), left)


def _may_be_better(value: PairValue, best: PairValue) -> bool:
    """Return whether more runs could show that an item is clearly better than the best one so far."""
    is_equal = best.lower > 0 and all(abs(a - b) <= EQUAL_WITHIN * b for a, b in zip(value, best, strict=True))
    return value.upper > best.lower and not is_equal


def _number_of_surest(number: int) -> int:
    """Return how many of so many items stay because of their lower estimates; one more may stay."""
    return max(1, (number - 1) // 2)
