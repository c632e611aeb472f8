"""Order statistics are the numbers of the sorted array."""

import numpy as np
import pytest

from dpverify.util.order_statistics import OrderStatistics

LAWS = {
    "normal": lambda rng: rng.normal(size=5000),
    "cauchy": lambda rng: rng.standard_cauchy(5000),
    "repeated": lambda rng: rng.integers(1, 9, 5000) / 3,
    "constant": lambda rng: np.full(50, 0.1),
    "huge": lambda rng: np.append(rng.normal(size=50), [1.7e308, -1.7e308]),
    "tiny": lambda rng: rng.normal(size=50) * 1e-310,
    "one": lambda rng: np.array([2.0]),
}


@pytest.mark.parametrize("law", LAWS)
def test_all_ranks_are_those_of_the_sorted_numbers(law):
    rng = np.random.default_rng(0)
    numbers = LAWS[law](rng)
    order, expected = OrderStatistics(numbers), np.sort(numbers)
    assert order.size == numbers.size
    for ranks in (np.arange(numbers.size), rng.integers(0, numbers.size, (2, 7)), np.array([0, numbers.size - 1])):
        np.testing.assert_array_equal(order[ranks], expected[ranks])
