"""The edges below each number are found exactly, wherever the steps of the guide table lie."""

import numpy as np
import pytest

from dpverify.util.arrays import digitize

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


def hard_numbers(edges):
    """Return numbers on the edges, next to them, between them and beyond them, also zeros of both signs."""
    near = [np.nextafter(edges, -np.inf), edges, np.nextafter(edges, np.inf)]
    others = [RNG.normal(size=5000), RNG.integers(-9, 10, 3000), [0.0, -0.0, 1e308, -1e308, np.inf, -np.inf]]
    return np.concatenate([*near, *others])


@pytest.mark.parametrize("kind", EDGES)
def test_edges_below_each_number_are_found(kind):
    numbers = hard_numbers(EDGES[kind])
    np.testing.assert_array_equal(digitize(EDGES[kind], numbers), np.searchsorted(EDGES[kind], numbers))
