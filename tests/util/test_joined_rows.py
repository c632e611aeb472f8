"""Rows of several arrays as one array, without a copy where the arrays follow each other in memory."""

import numpy as np
import pytest

from dpverify.sampling.stages import join_and_release
from dpverify.util.arrays import join_rows

WHOLE = np.arange(24.0).reshape(6, 2, 2)


def test_parts_of_one_array_are_not_copied():
    flat = [part.reshape(len(part), -1) for part in np.split(WHOLE.copy(), [2])]
    joined = join_rows(flat)
    assert np.shares_memory(joined, flat[0])
    assert np.shares_memory(joined, flat[1])
    assert np.array_equal(joined, WHOLE.reshape(6, 4))


@pytest.mark.parametrize(
    "parts",
    [
        [WHOLE[:2], WHOLE[3:]],  # a row is missing
        [WHOLE[3:], WHOLE[:3]],  # another order
        [WHOLE[:3], WHOLE[3:5]],  # not all rows
        [WHOLE[:3], WHOLE[:3]],
        [WHOLE[:, :1], WHOLE[:, 1:]],  # not contiguous
        [WHOLE[:3], WHOLE[3:].copy()],
        [WHOLE[:3].copy(), WHOLE[3:].copy()],
        [WHOLE[:3].view(np.int64), WHOLE[3:].view(np.int64)],
        [WHOLE[1:4]],
    ],
)
def test_other_parts_are_joined_by_a_copy(parts):
    joined = join_rows(parts)
    assert np.array_equal(joined, np.concatenate(parts))
    assert not any(np.shares_memory(joined, part) for part in parts)


def test_released_parts_are_joined_in_their_order():
    parts = [WHOLE[:1], WHOLE[1:1], WHOLE[1:].astype(np.float32)]
    joined = join_and_release(parts)
    assert parts == []
    assert joined.dtype == np.float64
    assert np.array_equal(joined, WHOLE)
