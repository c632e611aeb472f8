"""Unions of intervals."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from dpverify.events.wording import merge_intervals

pairs = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple)


@given(st.lists(pairs, max_size=12))
def test_merged_intervals_cover_the_same_points_and_do_not_touch(intervals):
    merged = merge_intervals(intervals)
    points = {x for low, high in intervals for x in range(2 * low, 2 * high + 1)}  # halves distinguish 1-2 from 1, 2
    assert {x for low, high in merged for x in range(2 * low, 2 * high + 1)} == points
    assert all(first[1] < second[0] for first, second in itertools.pairwise(merged))
    assert merge_intervals(merged) == merged


def test_infinite_ends_are_allowed():
    assert merge_intervals([(0.0, math.inf), (-math.inf, 0.0)]) == [(-math.inf, math.inf)]
    assert merge_intervals([]) == []
