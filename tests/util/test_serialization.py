"""Plain data to and from JSON: the reader and the JSON Schema accept the same data."""

import enum
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Union

import jsonschema
import numpy as np
import pytest
from schema import json_schema

from dpverify.util.serialization import from_plain, nested_kinds, to_plain


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    """A point of the plane."""

    x: float
    y: float = 0.0


class Leaf(NamedTuple):
    values: np.ndarray


class Node(NamedTuple):
    left: Union["Node", Leaf]
    right: Union["Node", Leaf]


@dataclass(frozen=True)
class Shape:
    """A shape with all kinds of fields."""

    name: str
    colour: Colour
    corners: tuple[Point, ...]
    size: tuple[int, float]
    closed: bool
    tree: Node | None
    score: Callable[[Any], Any] | str
    weights: dict[str, float]
    extra: Any = None


KINDS = (*nested_kinds(Shape), Colour)
SHAPE = Shape(
    "inf",
    Colour.BLUE,
    (Point(0.5), Point(math.inf, -math.inf)),
    (2, 3),
    True,
    Node(Leaf(np.array([1.0, -np.inf])), Node(Leaf(np.arange(3)), Leaf(np.zeros((2, 0), bool)))),
    "score",
    {"a": 1.5, "b": math.inf},
)


def validator(kind, implementations=None):
    schema = json_schema(kind, implementations)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def written():
    return json.loads(json.dumps(to_plain(SHAPE), allow_nan=False))


def reads(document):
    try:
        from_plain(document, KINDS)
    except (ValueError, TypeError, KeyError):
        return False
    return True


def test_what_is_written_is_valid_and_is_read_back():
    assert validator(Shape).is_valid(written())
    back = from_plain(written(), KINDS)
    assert (back.name, back.colour, back.corners, back.weights) == (
        SHAPE.name,
        SHAPE.colour,
        SHAPE.corners,
        SHAPE.weights,
    )
    np.testing.assert_array_equal(back.tree.left.values, SHAPE.tree.left.values)
    assert to_plain(back) == to_plain(SHAPE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("name",), 3),
        (("name",), None),
        (("name",), "inf"),
        (("colour",), "RED"),
        (("colour", "name"), "GREEN"),
        (("colour", "kind"), "Color"),
        (("corners",), [1.0]),
        (("corners",), {}),
        (("corners", 0, "x"), "0.5"),
        (("corners", 0, "x"), None),
        (("corners", 0, "x"), True),
        (("corners", 0, "kind"), "Leaf"),
        (("size",), [2]),
        (("size",), [2, 3, 4]),
        (("size", 0), 2.5),
        (("closed",), 1),
        (("tree",), 0),
        (("tree", "left"), None),
        (("tree", "left", "values"), [1.0]),
        (("tree", "left", "values", "values"), ["x", 1.0]),
        (("score",), 1),
        (("weights",), []),
        (("weights", "a"), "x"),
    ],
)
def test_wrong_data_are_refused_by_the_reader_and_by_the_schema(path, value):
    document = written()
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    assert not reads(document)
    assert not validator(Shape).is_valid(document)


def test_unknown_entries_and_missing_defaults_are_accepted():
    document = written() | {"unknown": 1}
    del document["extra"], document["corners"][0]["y"]
    assert reads(document)
    assert validator(Shape).is_valid(document)


def test_a_report_satisfies_the_schema_of_its_class():
    import dpverify as dpv
    from dpverify.events.scores import SCORE_KINDS, Score

    def laplace(data, runs, rng):
        return data + rng.laplace(size=runs)

    report = dpv.verify(laplace, 0.0, 1.0, 0.5, select_runs=200, test_runs=400)
    document = json.loads(json.dumps(to_plain(report)))
    check = validator(dpv.Report, {Score: SCORE_KINDS})
    check.validate(document)
    for field in ("tested", "cell_counts", "delta"):
        assert not check.is_valid(document | {field: "wrong"})


def test_data_without_a_json_form_are_refused():
    with pytest.raises(ValueError, match="found NaN"):
        to_plain([math.nan])
    with pytest.raises(TypeError, match="found a value of type set; expected plain data"):
        to_plain({1})
    with pytest.raises(ValueError, match="dtype: found object; expected an array of numbers"):
        from_plain({"kind": "array", "dtype": "object", "shape": [1], "values": [1]}, ())
