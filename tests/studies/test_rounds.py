"""The rounds of a search in a list: what may still be the best stays, and the given runs are not exceeded."""

import itertools

import numpy as np
import pytest

from dpverify.studies.search import MIN_GROWTH, PairValue, search_in_rounds


def rounds_of(truth, runs, errors=1.0):
    """Search among known values whose estimates have the standard error `errors / sqrt(runs)`, and count the runs."""
    rng, spent = np.random.default_rng(0), dict.fromkeys(range(len(truth)), 0)

    def evaluate(item, each):
        spent[item] = each  # the earlier runs of the item are a part of these
        error = errors / np.sqrt(each)
        estimate = truth[item] + error * rng.standard_normal()
        return PairValue(estimate - error, estimate + error)

    return search_in_rounds(evaluate, len(truth), runs), sum(spent.values())


@pytest.mark.parametrize("number", [2, 3, 8, 40])
def test_the_rounds_use_at_most_the_given_runs_and_grow(number):
    found, spent = rounds_of(np.zeros(number), 100_000)
    assert spent + found.unused_runs <= 100_000
    each = found.runs_per_item
    assert all(later >= MIN_GROWTH * earlier for earlier, later in itertools.pairwise(each))


def test_a_clear_answer_needs_one_round():
    found, spent = rounds_of([0.0, 0.1, 5.0, 0.2], 40_000)
    assert (found.best, spent, len(found.runs_per_item)) == (2, 16_000, 1)


def test_an_item_that_may_still_win_stays_although_its_lower_estimate_is_the_smallest():
    """With few runs nothing is known about the last item. Halving by the lower estimates would drop it first."""

    def evaluate(item, each):
        if item == 3:
            return PairValue(0.0, 2.0) if each < 20_000 else PairValue(0.9, 1.1)
        return PairValue(0.3 + 0.01 * item, 0.4)

    found = search_in_rounds(evaluate, 4, 80_000)
    assert found.best == 3
    first_round = dict(found.evaluations[:4])
    assert min(first_round, key=lambda item: first_round[item].lower) == 3


def test_items_that_cannot_win_get_no_further_runs():
    found, _ = rounds_of([0.0, 0.0, 1.0, 0.95], 40_000, errors=10.0)
    assert sorted(item for item, _ in found.evaluations[4:6]) == [2, 3]


def test_at_most_half_of_the_items_stay():
    """Nothing is known about any item, so that every upper estimate exceeds every lower one."""
    found = search_in_rounds(lambda item, each: PairValue(-item / 100, 1.0 + item / 100), 8, 80_000)
    assert found.runs_per_item == (4000, 8000, 24_000)
    # The three largest lower estimates, and the largest upper one.
    assert [item for item, _ in found.evaluations[8:12]] == [0, 1, 2, 7]


def test_one_of_two_equal_items_is_enough():
    """More runs would only show which of the two estimates was luckier."""
    values = [PairValue(0.9, 1.2), PairValue(0.91, 1.19), PairValue(0.2, 0.3)]
    found = search_in_rounds(lambda item, each: values[item], 3, 30_000)
    assert (found.best, found.runs_per_item, found.unused_runs) == (1, (4000,), 18_000)
    values[0] = PairValue(0.5, 1.6)  # this one may still be much better
    assert len(search_in_rounds(lambda item, each: values[item], 3, 30_000).runs_per_item) > 1
