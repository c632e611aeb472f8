"""search_pairs: the pair with the largest privacy loss is found, in a list and in a box, and then verified."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from limits import most

import dpverify as dpv
from dpverify.sampling.blocks import SampleSource, draw_block
from dpverify.selection.objective import SelectionObjective
from dpverify.studies.search import TUNING, PairSearch, PairValue, search_box, search_in_rounds
from mechanisms import gaussian_trajectory, laplace

ALPHA = 0.05


def bump(theta):
    """The shift is largest, 1.2, at (.7, .3)."""
    return 0.0, 1.2 * math.exp(-4 * float(np.sum((theta - np.array([0.7, 0.3])) ** 2)))


def test_the_best_pair_of_a_box_is_found_and_verified():
    box, small = [(0.0, 1.0), (0.0, 1.0)], {"select_runs": 4000, "test_runs": 8000, "events": "union"}
    search = dpv.search_pairs(laplace, bump, 0.5, bounds=box, runs=40_000, **small)
    assert bump(search.pair)[1] > 0.9 * 1.2
    assert search.report.refuted
    assert all(0 <= x <= 1 for point, _ in search.tried for x in point)
    assert dpv.verify(laplace, *bump(search.pair), 0.5, coupled_selection=True, **small) == search.report


def test_the_best_pair_of_a_list_is_found_and_printed():
    pairs = [(0.0, shift) for shift in (0.1, 0.5, 2.0, 0.3, 1.0)]
    search = dpv.search_pairs(laplace, pairs, 0.5, runs=5000, select_runs=1000, test_runs=4000, alpha=0.0125)
    assert search.pair == 2
    assert dpv.verify(laplace, *pairs[2], 0.5, settings=search.report.settings) == search.report
    assert search.runs_per_pair[0] == 400  # two fifths of the runs, for five pairs
    title, proved, step, header, *lines = str(search).splitlines()
    assert title == f"laplace: pair 2 after {len(search.tried)} evaluations: REFUTED"
    assert proved.endswith("for these two datasets, from the witness (confidence 98.75%).")
    assert step.startswith("  Next: change the mechanism or the claim")
    assert header.split() == ["pair", "left", "in", "round", "runs", *["lower", "estimate", "of", "the", "bound"]]
    assert lines[0].split()[:2] == ["2", "chosen"]
    assert sorted(line.split()[0] for line in lines) == ["0", "1", "2", "3", "4"]  # each pair once
    rounds = Counter(str(candidate.pair) for candidate in search.tried)
    left = [int(line.split()[1]) for line in lines[1:]]
    assert left == [rounds[line.split()[0]] for line in lines[1:]] == sorted(left, reverse=True)
    assert [int(line.split()[2]) for line in lines[1:]] == [search.runs_per_pair[number - 1] for number in left]


def test_runs_that_the_search_does_not_need_are_selection_runs():
    pairs, small = [(0.0, 0.1), (0.0, 2.0)], {"select_runs": 500, "test_runs": 1000}
    clear = dpv.search_pairs(laplace, pairs, runs=8000, **small)
    assert clear.runs_per_pair == (1600,)  # two fifths of the runs, for two pairs
    assert clear.report.settings.select_runs == 500 + 8000 - 2 * 1600
    assert clear.report.settings.coupled_selection
    alike = [(0.0, 1.0 + k / 10) for k in range(4)]  # the negative control
    unclear = dpv.search_pairs(laplace, alike, runs=8000, **small)
    assert unclear.report.settings.select_runs < clear.report.settings.select_runs


def test_a_search_with_early_stopping_does_not_couple_the_selection():
    small = {"runs": 1000, "select_runs": 500, "test_runs": 1000, "stop_early": True}
    assert not dpv.search_pairs(laplace, [(0.0, 0.1), (0.0, 2.0)], 0.5, **small).report.settings.coupled_selection


@pytest.mark.parametrize(
    ("is_box", "ending"), [(False, "or test all pairs with verify_pairs."), (True, "leak rarely.")]
)
def test_a_search_that_refutes_nothing_says_that_one_pair_was_tested(is_box, ending):
    small = {"select_runs": 500, "test_runs": 1000, "runs": 4000, "bounds": [(0.0, 1.0)] * 2}
    search = dpv.search_pairs(laplace, bump if is_box else [(0.0, 0.1), (0.0, 0.2)], 4.0, **small)
    (advice,) = (line for line in str(search).splitlines() if line.startswith("  Next: "))
    assert advice.startswith("  Next: only this pair was tested; increase runs")
    assert advice.endswith(ending)


@pytest.mark.parametrize(
    ("pairs", "best"),
    [
        ({"small": (0.0, 0.1), "large": (0.0, 2.0)}, "large"),
        ((pair for pair in [(0.0, 0.1), (0.0, 2.0)]), 1),
        ([(0.0, 2.0)], 0),
    ],
    ids=["mapping", "generator", "one pair"],
)
def test_pairs_may_come_in_several_forms(pairs, best):
    search = dpv.search_pairs(laplace, pairs, runs=1000, select_runs=500, test_runs=1000)
    assert search.pair == best
    assert len(search.rows) == 2 if search.tried else 1


@pytest.mark.parametrize("box", [None, [], [(1, 0)], [(0, math.inf)], [(0, 1, 2)], 3])
def test_an_invalid_box_is_refused(box):
    with pytest.raises(dpv.InputError, match=r"bounds: found .* expected \(low, high\)"):
        dpv.search_pairs(laplace, bump, bounds=box, runs=10_000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (((laplace, bump), {"bounds": [(0, 1), (0, 1)], "runs": 100}), "runs: found 100; expected at least"),
        (((laplace, [(0.0, 1.0)] * 2), {"runs": 63}), "pairs: found 2 pairs and runs=63; expected at least one pair"),
        (((laplace, [(0.0, 1.0)]), {"settings": dpv.Settings.paper()}), r"selection_epsilon: found 1\.0; expected"),
        ((([(0.0, 1.0)], laplace), {}), r"mechanism: found list; expected a callable \(data, runs, rng\)"),
        (((laplace, (0.0, 1.0)), {}), r"pairs: found float as pair 0; .* \[\(first, second\)\]"),
    ],
)
def test_what_cannot_be_searched_is_refused(call, message):
    with pytest.raises(dpv.InputError, match=message):
        dpv.search_pairs(*call[0], **call[1])


@pytest.mark.slow
def test_a_search_does_not_increase_the_type_one_error():
    """All pairs have equal distributions. A test on the runs that selected the pair would often refute the claim."""
    seeds, small = 60, {"runs": 16_000, "select_runs": 500, "test_runs": 1000, "events": "union"}
    refuted = sum(
        dpv.search_pairs(laplace, lambda theta: (0.0, 0.0), 0, bounds=[(0, 1)], seed=s, **small).report.refuted
        for s in range(seeds)
    )
    assert refuted <= most(seeds, ALPHA)


# The value of a pair.


def search_of(mechanism, pair, delta=0.0, **settings):
    """Open a search on a pair, without a claim."""
    changed = dpv.Settings(**settings)
    objective = SelectionObjective(changed.test_runs, delta, changed.alpha, 0.0)
    return PairSearch.open(mechanism, pair, objective, 4000, changed, None)


def value_of(mechanism, pair, runs, delta=0.0, **settings):
    with search_of(mechanism, pair, delta, **settings) as search:
        return search.evaluate(pair, runs)


def rare_leak(data, runs, rng):
    """Data above 1 appear in the output with probability 1/500; smaller data are the mean of noise."""
    noise = data * (data < 1) + rng.standard_normal((runs, 1))
    return np.where((rng.random((runs, 1)) < 0.002) & (data > 1), data, noise)


def test_coupled_datasets_share_their_random_numbers_except_in_test_runs():
    source = SampleSource(laplace, (0.0, 1.0), 7, 64)._replace(is_coupled=True)
    for stage in ("pilot", "train", "propose", "decide"):
        first, second = (np.asarray(draw_block(source, stage, side, 0)) for side in (0, 1))
        np.testing.assert_allclose(second - first, 1.0)
    for one in (source, source._replace(is_coupled=False)):
        first, second = (np.asarray(draw_block(one, "test", side, 0)) for side in (0, 1))
        assert np.ptp(second - first) > 1.0


def test_kept_runs_are_not_drawn_again():
    drawn = []

    def counted(data, runs, rng):
        drawn.append(runs)
        return laplace(data, runs, rng)

    pair, kept = (0.0, 1.0), ({}, {})
    with search_of(counted, pair, block=256) as search:
        drawn.clear()
        search.evaluate(pair, 4096, kept)
        value = search.evaluate(pair, 12_288, kept)
        assert sum(drawn) == 2 * 12_288
        assert value == search.evaluate(pair, 12_288)


def test_the_value_is_near_the_bound_of_the_planned_test():
    value = value_of(laplace, (0.0, 1.0), 40_000, test_runs=100_000)
    assert 0.9 < value.lower < 1.1
    assert value.lower < value.upper < 1.4  # events with few runs could still turn out to be better


def test_a_rare_leak_is_above_a_small_frequent_difference():
    """The leak has 20 runs in each half."""
    rare, frequent = (value_of(rare_leak, (0.0, shift), 20_000, test_runs=10**6) for shift in (9.0, 0.2))
    assert rare.lower > frequent.lower
    assert rare.upper > 4.0  # the runs allow a large bound, although they do not show it


def test_without_an_expected_bound_the_total_variation_decides():
    near, far = (value_of(laplace, (0.0, shift), 2000, delta=0.3).lower for shift in (0.05, 0.2))
    assert -1 <= near < far < 0


@pytest.mark.parametrize("changes", [{"events": "union"}, {"partition": "equal-mass"}, {"events": "cell"}, {}])
def test_the_value_follows_the_events_that_the_settings_name(changes):
    assert value_of(gaussian_trajectory, (np.zeros((2, 2)), np.ones((2, 2))), 4000, **changes).lower > 1.0


def test_the_slopes_point_to_what_the_output_depends_on():
    weights = np.array([3.0, -2.0, 0.0, 1.0, 0.0, -1.0])

    def mechanism(data, runs, rng):
        return np.array([weights @ data]) + rng.laplace(size=(runs, 1))

    with search_of(mechanism, (np.zeros(6), np.ones(6)), block=64) as search:
        slopes = search.slopes(lambda theta: (np.zeros(6), theta), np.full(6, 0.2), 0.1, 32_000)
    assert slopes @ weights > 0.98 * np.linalg.norm(slopes) * np.linalg.norm(weights)


# The rounds of a list.


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
    assert all(later >= TUNING.min_growth * each for each, later in itertools.pairwise(found.runs_per_item))


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


# The climbs in a box, on functions of the unit cube whose maximum is known.

DIMENSION, FUNCTIONS = 10, 40
CORNERS = np.array(list(itertools.product([-1.0, 1.0], repeat=DIMENSION)))


def climb(value, slopes):
    """Return the best point, all evaluations, and the runs that were used."""
    spent, runs = [0], 40 * TUNING.box_shares

    def counted(function):
        def call(position, *arguments):
            spent[0] += arguments[-1]
            return function(2 * position - 1)

        return call

    best, evaluations = search_box(counted(value), counted(slopes), DIMENSION, runs, 0)
    assert spent[0] <= runs
    return 2 * np.array(best) - 1, evaluations, spent[0]


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_convex_function_is_nearly_maximal_at_the_corner_that_is_found(is_exact):
    """In nine of ten quadratic functions the value is within 5% of the largest one. A random direction is no use."""
    misses = 0
    for seed in range(FUNCTIONS):
        rng = np.random.default_rng(seed)
        factor = rng.standard_normal((DIMENSION, DIMENSION)) * np.exp(-np.arange(DIMENSION) / 2)
        quadratic = factor @ factor.T
        best, _, _ = climb(
            lambda x, q=quadratic: float(x @ q @ x),
            lambda x, q=quadratic, rng=rng: 2 * q @ x if is_exact else rng.standard_normal(DIMENSION),
        )
        largest = np.einsum("ij,ij->i", CORNERS @ quadratic, CORNERS).max()
        misses += best @ quadratic @ best < 0.95 * largest
    assert (misses <= most(FUNCTIONS, 0.1)) == is_exact


def test_a_maximum_in_the_interior_is_approached():
    target = np.linspace(-0.5, 0.5, DIMENSION)
    best, evaluations, _ = climb(lambda x: -float(np.sum((x - target) ** 2)), lambda x: -2 * (x - target))
    assert np.sum((best - target) ** 2) < -0.5 * max(value for _, value in evaluations[: TUNING.starts])


def test_a_flat_function_ends_at_a_starting_point():
    _, evaluations, spent = climb(lambda x: 0.0, np.zeros_like)
    assert len(evaluations) == TUNING.starts + TUNING.finalists
    assert spent < 40 * TUNING.box_shares
