"""An argument `pairs`: what is a pair, what is a dataset, and what is ambiguous."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.studies.search import list_pairs
from mechanisms import laplace

ZERO, ONE = np.zeros(2), np.ones(2)
AN_ARRAY = "pairs: found an array as pair 0; expected (first, second); pass a list of pairs, [(first, second)]"


@pytest.mark.parametrize(
    "pairs",
    [
        (ZERO, ONE),
        [ZERO, ONE],
        np.array([[0.0, 1.0], [1.0, 2.0]]),
        (np.zeros((2, 3)), np.ones((2, 3))),
        ([0.0, 1.0], [1.0, 2.0]),
        [[0.0, 1.0], [1.0, 2.0]],
        ((0.0, 1.0), (1.0, 2.0)),
    ],
)
def test_a_data_set_is_no_pair(pairs):
    for function in (dpv.verify_pairs, dpv.search_pairs):
        with pytest.raises(dpv.InputError) as caught:
            function(laplace, pairs, 1.0)
        assert str(caught.value) == AN_ARRAY
    with pytest.raises(dpv.InputError) as caught:
        dpv.calibrate(lambda scale: laplace, (1.0, 2.0), epsilon=1.0, delta=0.0, pairs=pairs)
    assert str(caught.value) == AN_ARRAY


@pytest.mark.parametrize(
    ("pairs", "number"),
    [
        ([(0.0, 1.0), (1.0, 2.0)], 2),
        (((a, a + 1.0) for a in (0.0, 1.0)), 2),
        ([[0.0, 1.0]], 1),
        (((0.0, 1.0), (1.0, 2.0), (2.0, 3.0)), 3),
        ({"a": [0.0, 1.0], "b": [1.0, 2.0]}, 2),
        ([(ZERO, ONE)], 1),
        (((ZERO, ONE), [ONE, ZERO]), 2),
        ([([0.0, 0.0], [1.0, 0.0])], 1),
    ],
)
def test_what_is_unambiguous_stays_allowed(pairs, number):
    assert len(list_pairs(pairs)[1]) == number


@pytest.mark.parametrize(
    ("pairs", "found"),
    [(("ab", "cd"), "text as pair 0"), (({"x": 1, "y": 2}, {"x": 1, "y": 3}), "dict as pair 0"), ([0.5], "float as")],
)
def test_other_objects_of_length_two_are_no_pairs(pairs, found):
    with pytest.raises(dpv.InputError, match=f"pairs: found {found}"):
        list_pairs(pairs)


def test_the_records_of_a_mapping_are_checked_by_the_same_rule():
    with pytest.raises(dpv.InputError) as caught:
        dpv.privacy_over_time(laplace, pairs={"user": ZERO})
    assert str(caught.value) == (
        "pairs: found an array as pair user; expected (first, second); pass a mapping from names to pairs, "
        "{name: (first, second)}"
    )
