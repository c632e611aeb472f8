"""search_pairs: the pair with the largest privacy loss is found, in a list and in a box."""

import math
from collections import Counter

import numpy as np
import pytest
from limits import most

import dpverify as dpv
from mechanisms import laplace

ALPHA = 0.05


def bump(theta):
    """The shift is largest, 1.2, at (.7, .3)."""
    return 0.0, 1.2 * math.exp(-4 * float(np.sum((theta - np.array([0.7, 0.3])) ** 2)))


def test_the_best_pair_of_a_box_is_found_and_verified():
    box, small = [(0.0, 1.0), (0.0, 1.0)], {"select_runs": 4000, "test_runs": 8000, "events": "union"}
    search = dpv.search_pairs(laplace, bump, 0.5, bounds=box, runs=40_000, **small)
    assert bump(search.pair)[1] > 0.9 * 1.2
    assert search.report.refuted
    assert len(search.tried) > 30
    assert all(0 <= x <= 1 for point, _ in search.tried for x in point)
    assert dpv.verify(laplace, *bump(search.pair), 0.5, coupled_selection=True, **small) == search.report


def test_exchanged_arguments_and_a_single_pair_are_named():
    with pytest.raises(dpv.InputError, match=r"mechanism: found list; expected a callable \(data, runs, rng\)"):
        dpv.search_pairs([(0.0, 1.0)], laplace)
    with pytest.raises(dpv.InputError, match=r"pairs: found float as pair 0; .* \[\(first, second\)\]"):
        dpv.search_pairs(laplace, (0.0, 1.0))


def test_the_best_pair_of_a_list_is_found_and_printed():
    pairs = [(0.0, shift) for shift in (0.1, 0.5, 2.0, 0.3, 1.0)]
    search = dpv.search_pairs(laplace, pairs, 0.5, runs=5000, select_runs=1000, test_runs=4000, alpha=0.0125)
    assert search.pair == 2
    assert dpv.verify(laplace, *pairs[2], 0.5, settings=search.report.settings) == search.report
    title, proved, header, *lines, advice = str(search).splitlines()
    assert title == f"laplace: pair 2 after {len(search.tried)} evaluations: REFUTED"
    assert proved.endswith("at delta 0; for this pair of data sets, by the witness, confidence 98.75%")
    assert header.split() == ["pair", "left", "in", "round", "runs", *["cautious", "estimate", "of", "the", "bound"]]
    assert lines[0].split()[:2] == ["2", "chosen"]
    assert sorted(line.split()[0] for line in lines) == ["0", "1", "2", "3", "4"]  # each pair once
    rounds = Counter(str(candidate.pair) for candidate in search.tried)
    left = [int(line.split()[1]) for line in lines[1:]]
    assert left == [rounds[line.split()[0]] for line in lines[1:]] == sorted(left, reverse=True)
    assert [int(line.split()[2]) for line in lines[1:]] == [search.runs_per_pair[number - 1] for number in left]
    assert search.runs_per_pair[0] == 400  # two fifths of the runs, for five pairs
    assert advice.startswith("  next      change the mechanism or the claim")


def test_runs_that_the_search_does_not_need_are_selection_runs():
    pairs, small = [(0.0, 0.1), (0.0, 2.0)], {"select_runs": 500, "test_runs": 1000}
    clear = dpv.search_pairs(laplace, pairs, runs=8000, **small)
    assert clear.runs_per_pair == (1600,)  # two fifths of the runs, for two pairs
    assert clear.report.settings.select_runs == 500 + 8000 - 2 * 1600
    alike = [(0.0, 1.0 + k / 10) for k in range(4)]  # the negative control
    unclear = dpv.search_pairs(laplace, alike, runs=8000, **small)
    assert unclear.report.settings.select_runs < clear.report.settings.select_runs


def test_only_a_search_without_early_stopping_couples_the_selection():
    pairs, small = [(0.0, 0.1), (0.0, 2.0)], {"runs": 1000, "select_runs": 500, "test_runs": 1000}
    assert dpv.search_pairs(laplace, pairs, 0.5, **small).report.settings.coupled_selection
    assert not dpv.search_pairs(laplace, pairs, 0.5, stop_early=True, **small).report.settings.coupled_selection


def test_a_search_that_refutes_nothing_says_that_one_pair_was_tested():
    small = {"select_runs": 500, "test_runs": 1000}
    for pairs, ending in (([(0.0, 0.1), (0.0, 0.2)], "or test all pairs with verify_pairs"), (bump, "may leak rarely")):
        search = dpv.search_pairs(laplace, pairs, 4.0, bounds=[(0.0, 1.0)] * 2, runs=4000, **small)
        advice = str(search).splitlines()[-1]
        assert advice.startswith("  next      only this pair was tested; increase runs")
        assert advice.endswith(ending)
    one = dpv.search_pairs(laplace, [(0.0, 1.0)], runs=100, **small)
    assert len(str(one).splitlines()) == 3  # no table: nothing was compared


def test_a_pair_of_a_mapping_is_named():
    pairs = {"small": (0.0, 0.1), "large": (0.0, 2.0)}
    search = dpv.search_pairs(laplace, pairs, runs=1000, select_runs=500, test_runs=1000)
    assert search.pair == "large"
    assert {candidate.pair for candidate in search.tried} == {"small", "large"}


def test_pairs_may_come_from_a_generator():
    pairs = ((0.0, shift) for shift in (0.1, 2.0))
    assert dpv.search_pairs(laplace, pairs, runs=1000, select_runs=500, test_runs=1000).pair == 1


@pytest.mark.parametrize("box", [None, [], [(1, 0)], [(0, math.inf)], [(0, 1, 2)], 3])
def test_an_invalid_box_is_refused(box):
    with pytest.raises(dpv.InputError, match=r"bounds: found .* expected \(low, high\)"):
        dpv.search_pairs(laplace, bump, bounds=box, runs=10_000)


def test_too_few_runs_are_refused():
    with pytest.raises(dpv.InputError, match="runs: found 100; expected at least"):
        dpv.search_pairs(laplace, bump, bounds=[(0, 1), (0, 1)], runs=100)
    with pytest.raises(dpv.InputError, match="pairs: found 2 pairs and runs=63; expected at least one pair"):
        dpv.search_pairs(laplace, [(0.0, 1.0)] * 2, runs=63)


def test_the_selector_of_the_paper_is_refused():
    with pytest.raises(dpv.InputError, match=r"selection_epsilon: found 1\.0; expected None"):
        dpv.search_pairs(laplace, [(0.0, 1.0)], runs=100, settings=dpv.Settings.paper())


@pytest.mark.slow
def test_a_search_does_not_increase_the_type_one_error():
    """All pairs have equal distributions. A test on the runs that selected the pair would often refute the claim."""
    seeds, small = 60, {"runs": 16_000, "select_runs": 500, "test_runs": 1000, "events": "union"}
    refuted = sum(
        dpv.search_pairs(laplace, lambda theta: (0.0, 0.0), 0, bounds=[(0, 1)], seed=s, **small).report.refuted
        for s in range(seeds)
    )
    assert refuted <= most(seeds, ALPHA)
