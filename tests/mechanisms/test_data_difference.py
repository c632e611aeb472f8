"""How two datasets differ, in words, and which neighbour relation that looks like."""

import functools

import numpy as np
import pandas as pd
import pytest

from dpverify.mechanisms.neighbours import Relation, are_equal, describe_difference

TABLE = np.arange(12.0).reshape(4, 3)
PANDAS = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}, index=["p", "q"])


def changed(index, value):
    other = TABLE.copy()
    other[index] = value
    return other


CASES = [
    (0.0, 1.0, Relation.ONE_NUMBER, "1 of 1 number: from 0 to 1"),
    ([0.0, 0.3], [0.0, 0.8], Relation.ONE_NUMBER, "1 of 2 numbers: data[1] from 0.3 to 0.8"),
    ([1.00001, 2.5], [1.00002, 2.5], Relation.ONE_NUMBER, "1 of 2 numbers: data[0] from 1.00001 to 1.00002"),
    (
        [0.1, 0.3, 1.5],
        [0.2, 0.4, 2.5],
        Relation.OTHER,
        "3 of 3 numbers: data[0] from 0.1 to 0.2, data[1] from 0.3 to 0.4, ...",
    ),
    (TABLE, changed((1, 2), -1), Relation.ONE_NUMBER, "1 of 12 numbers: data[1, 2] from 5 to -1"),
    (TABLE, changed(1, -1), Relation.ONE_ROW, "3 of 12 numbers: data[1, 0] from 3 to -1, data[1, 1] from 4 to -1, ..."),
    (
        TABLE,
        changed((slice(None), 1), -1),
        Relation.ONE_COLUMN,
        "4 of 12 numbers: data[0, 1] from 1 to -1, data[1, 1] from 4 to -1, ...",
    ),
    (TABLE, TABLE + 1, Relation.OTHER, "12 of 12 numbers: data[0, 0] from 0 to 1, data[0, 1] from 1 to 2, ..."),
    (
        TABLE,
        np.delete(TABLE, 2, 0),
        Relation.ONE_MORE_ROW,
        "row 2 is in the first dataset only; shapes (4, 3) and (3, 3)",
    ),
    (TABLE[:3], TABLE, Relation.ONE_MORE_ROW, "row 3 is in the second dataset only; shapes (3, 3) and (4, 3)"),
    (TABLE, TABLE[:3] + 1, Relation.OTHER, "shapes (4, 3) and (3, 3)"),
    (TABLE, TABLE[:2], Relation.UNKNOWN, "shapes (4, 3) and (2, 3)"),
    ([], [1.0], Relation.ONE_MORE_ROW, "row 0 is in the second dataset only; shapes (0,) and (1,)"),
    (TABLE[:1], TABLE[:0], Relation.ONE_MORE_ROW, "row 0 is in the first dataset only; shapes (1, 3) and (0, 3)"),
    ([3, 5, 0], [3, 6, 0], Relation.COUNT_PLUS_ONE, "1 of 3 numbers: data[1] from 5 to 6"),
    ([3, 5, 0], [3, 4, 1], Relation.COUNT_MOVED, "2 of 3 numbers: data[1] from 5 to 4, data[2] from 0 to 1"),
    ([0, 1, 1], [0, 1, 0], Relation.ONE_NUMBER, "1 of 3 numbers: data[2] from 1 to 0"),
    ([np.nan, 1.0], [np.nan, 2.0], Relation.ONE_NUMBER, "1 of 2 numbers: data[1] from 1 to 2"),
    (TABLE, TABLE, Relation.EQUAL, "equal, 12 numbers"),
    ({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 3.0}, Relation.ONE_NUMBER, "entry 'b': 1 of 1 number: from 2 to 3"),
    ({"a": 1.0}, {"b": 1.0}, Relation.OTHER, "2 of 2 entries: 'a', 'b'"),
    ({"a": 1.0}, {"a": 1.0}, Relation.EQUAL, "equal, 1 entry"),
    ("left", "right", Relation.OTHER, "4 and 5 characters"),
    (["a", "b"], ["a", "c"], Relation.ONE_ROW, "1 of 2 records: record 1"),
    (["a", "b"], ["b"], Relation.ONE_MORE_ROW, "record 0 is in the first dataset only"),
    ({"a", "b"}, {"a"}, Relation.ONE_MORE_ROW, "member 'b' is in the first dataset only"),
    (PANDAS, PANDAS.iloc[:1], Relation.ONE_MORE_ROW, "row 'q' is in the first dataset only"),
    (PANDAS, PANDAS.assign(b=["x", "z"]), Relation.ONE_ROW, "1 of 2 records: row 'q'"),
    (object(), 1.0, Relation.UNKNOWN, "objects of type object and objects of type float, which are not compared"),
    (None, object, Relation.UNKNOWN, "objects of type NoneType and objects of type type, which are not compared"),
]


@pytest.mark.parametrize(("first", "second", "relation", "text"), CASES, ids=[text for *_, text in CASES])
def test_a_difference_is_described(first, second, relation, text):
    assert describe_difference(first, second) == (found := describe_difference(first, second))
    assert (found.relation, found.text) == (relation, text)


def test_data_that_cannot_be_compared_does_not_fail():
    class Odd:
        def __array__(self, *_, **__):
            raise RuntimeError

    assert describe_difference(Odd(), Odd()).relation is Relation.UNKNOWN
    assert describe_difference({"a": Odd()}, {"a": Odd()}).relation is Relation.UNKNOWN


def test_a_replaced_value_is_not_taken_for_an_added_record():
    """A list of categories looks like a histogram. The sentence names both readings, because the claims differ."""
    relation = describe_difference([0, 1, 1, 2], [0, 1, 2, 2]).relation
    assert relation.value == "one value replaced; or, if the numbers are counts, one record added or removed"
    assert "replaced" not in describe_difference([0, 1, 1, 2], [0, 1, 1]).relation.value


def test_equal_data_of_any_kind_is_noticed():
    pandas = pytest.importorskip("pandas")

    def make():
        table = pandas.DataFrame({"name": ["u", "v"], "age": [30, 40]})
        return [table, table["name"], [("a", 1), ("b", 2)], [np.zeros(2), "a"], {"t": table}, {"a", "b"}, ("x",)]

    for first, second in zip(make(), make(), strict=True):
        assert are_equal(first, second)
    others = [[("a", 1), ("b", 3)], [np.ones(2), "a"], {"a", "c"}, make()[1][::-1]]
    for first in make():
        assert not any(are_equal(first, other) for other in others)
    ages = pandas.DataFrame({"age": [30, 40]})
    assert not are_equal(ages, ages.rename(index={0: "u"}))
    assert not are_equal(ages, ages.rename(columns={"age": "size"}))
    assert not are_equal(*(np.ma.array([1.0, 2.0], mask=mask) for mask in ([0, 0], [0, 1])))
    assert not are_equal(*(functools.partial(int, base=base).__call__ for base in (2, 3)))
