"""Numbers between sorted edges are counted exactly, wherever the steps of the guide table lie."""

import numpy as np
import pytest

from dpverify.util import guide_table
from dpverify.util.guide_table import VALUES_COUNTED_TOGETHER, IntervalCounter, edge_finder

RNG = np.random.default_rng(0)
EDGES = {
    "one": np.array([0.0]),
    "two zeros of different sign": np.array([-0.0, 1.0]),
    "far from the numbers": np.append(np.sort(RNG.normal(size=50)), [130.0, 131.0, 1e9]),
    "many far from the numbers": np.append(np.linspace(-2, 2, 9), 1e6 + np.arange(200.0)),
    "all far from the numbers": 1e6 + np.arange(5.0),
    "many within one step": np.append(1.0 + np.arange(300) * np.spacing(1.0), 1e12),
    "whole numbers": np.arange(-9.0, 10.0),
    "smallest numbers": np.arange(-3.0, 4.0) * 5e-324,
    "largest numbers": np.array([-1.7e308, -1.0, 1.0, 1.7e308]),
}
FIRST_NUMBERS = {
    "normal": RNG.normal(size=2000),
    "on both sides of all edges": np.array([-np.inf, np.inf]),
    "one number": np.array([0.5]),
    "repeated": np.zeros(2000),
    "above all edges": np.full(10, 1.75e308),
    "none": np.zeros(0),
}


def hard_numbers(edges):
    """Return numbers on the edges, next to them, between them and beyond them, also zeros of both signs."""
    near = [np.nextafter(edges, -np.inf), edges, np.nextafter(edges, np.inf)]
    others = [RNG.normal(size=5000), RNG.integers(-9, 10, 3000), [0.0, -0.0, 1e308, -1e308, np.inf, -np.inf]]
    return np.concatenate([*near, *others])


@pytest.mark.parametrize("min_numbers", [1, guide_table.MIN_NUMBERS_WITH_STEPS])
@pytest.mark.parametrize("first", FIRST_NUMBERS)
@pytest.mark.parametrize("kind", EDGES)
def test_counts_do_not_depend_on_the_first_numbers(monkeypatch, kind, first, min_numbers):
    monkeypatch.setattr(guide_table, "MIN_NUMBERS_WITH_STEPS", min_numbers)
    edges, numbers = EDGES[kind], np.concatenate([FIRST_NUMBERS[first], hard_numbers(EDGES[kind])])
    counter = IntervalCounter(edges)
    for _ in range(2):  # reading begins anew
        for part in np.split(numbers, [FIRST_NUMBERS[first].size, 4000]):
            counter.add(part)
        expected = np.bincount(np.searchsorted(edges, numbers), minlength=edges.size + 1)
        np.testing.assert_array_equal(counter.read(), expected)
    np.testing.assert_array_equal(counter.read(), np.zeros(edges.size + 1))


def test_long_arrays_are_counted_in_pieces():
    edges = np.linspace(-2, 2, 40)
    numbers = RNG.normal(size=2 * VALUES_COUNTED_TOGETHER + 5)
    counter = IntervalCounter(edges)
    counter.add(numbers)
    np.testing.assert_array_equal(counter.read(), np.bincount(np.searchsorted(edges, numbers), minlength=41))


@pytest.mark.parametrize("kind", EDGES)
def test_edges_below_each_number_are_found(kind):
    numbers = hard_numbers(EDGES[kind])
    np.testing.assert_array_equal(edge_finder(EDGES[kind])(numbers), np.searchsorted(EDGES[kind], numbers))
