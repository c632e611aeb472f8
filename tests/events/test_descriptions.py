"""Descriptions of events, and values that are not plain data."""

import math

import numpy as np
import pytest

import dpverify as dpv
from dpverify.events.event import Event
from dpverify.events.partition import FIRST_CELL, OUTSIDE, make_partition
from dpverify.events.scores import Additive, CellScore, Features, Levels, Linear, Quadratic
from dpverify.events.wording import MAX_LISTED_PIECES, describe_intervals
from dpverify.sampling.probe import make_region
from dpverify.util import serialization as serial


def description(kind, shape, codes, resolution=None):
    pilot = np.random.default_rng(0).normal(size=(40, *shape))
    partition = make_partition(kind, dpv.high_likely_set(pilot), pilot, resolution)
    return Event(partition, np.array(codes), 0).describe(pilot)


def test_descriptions_of_cells():
    assert description("grid", (1, 2), [OUTSIDE]) == "an output outside the region of likely outputs"
    assert description("equal-mass", (1, 2), [FIRST_CELL], 1) == "an output inside the region of likely outputs"
    assert description("grid", (50, 2), [7], 4) == "one cell of the partition that no pilot run fell into"
    assert description("grid", (1, 10), [FIRST_CELL], 2).endswith(
        f"and {10 - 2 * MAX_LISTED_PIECES} more (inside the region of likely outputs)"
    )


def test_values_that_are_not_finite_are_named():
    pilot = np.random.default_rng(0).normal(size=(40, 1, 2))
    pilot[::4, 0, 1], pilot[1::4, 0, 1] = np.nan, -np.inf
    region, points, _ = make_region([pilot], "event")
    partition = make_partition("grid", region, points, 1)
    texts = {Event(partition, np.array([code]), 0).describe(points) for code in partition.codes(pilot)}
    inside = " (inside the region of likely outputs)"
    assert {f"x[1] is NaN{inside}", f"x[1] is -inf{inside}"} < texts


def test_descriptions_of_scores():
    plain, runs = Features(np.zeros(2), None), np.zeros((3, 1, 2))
    quadratic = Quadratic(plain, np.ones(2), np.eye(2))
    additive = Additive(plain, np.arange(2), np.zeros((2, 1)), np.array([[0.0, 1.0], [0.0, 5.0]]))
    for score, expected in (
        (quadratic, "a quadratic score of 2 output numbers > 1"),
        (additive, "an additive score of 2 output numbers (most weight on x[1], x[0]) > 1"),
    ):
        assert Event(Levels(score, np.array([1.0])), np.array([1]), 0).describe(runs) == expected


def test_an_additive_score_of_one_number_is_described_by_its_intervals():
    """The second feature is 2 (x[1] - 1) - (x[0] - 5); its unit is that of x[1]."""
    whitened = Features(np.array([5.0, 1.0]), np.array([[0.5, 0.0], [-1.0, 2.0]]))
    plain = Features(np.zeros(2), None)
    for features, coordinate, expected in (
        (plain, 1, "x[1] <= 3"),
        (whitened, 0, "x[0] <= 11"),
        (whitened, 1, "x[1] less its prediction <= 1.5"),
        (Features(np.zeros(2), np.array([[1.0, 1.0]])), 0, "an additive score of x[0] > 0"),  # a projection
    ):
        score = Additive(features, np.array([coordinate]), np.array([[3.0]]), np.array([[1.0, -1.0]]))
        event = Event(Levels(score, np.array([0.0])), np.array([1]), 0)
        assert event.describe(np.zeros((3, 1, 2))) == expected


def test_descriptions_of_level_set_cells():
    score = CellScore(Levels(Linear(np.array([1.0, 3.0])), np.arange(4.0)), np.arange(5), np.arange(5.0), np.zeros(()))
    for edge, expected in ((2.5, "a union of 2"), (3.5, "one")):
        event = Event(Levels(score, np.array([edge])), np.array([1]), 0)
        assert event.describe(np.zeros((3, 1, 2))) == (
            f"{expected} of the 5 ranges of a linear score of 2 output numbers (most weight on x[1], x[0])"
        )


def test_what_is_no_plain_data_is_refused():
    with pytest.raises(ValueError, match="found NaN; expected a number"):
        serial.to_plain({"a": [float("nan")]})
    with pytest.raises(TypeError, match="found a value of type complex"):
        serial.to_plain(1j)
    with pytest.raises(ValueError, match="dtype: found object; expected an array of numbers"):
        serial.from_plain({"kind": "array", "dtype": "object", "shape": [1], "values": [1]}, ())
    with pytest.raises(ValueError, match="kind: found 'Event'; expected one of"):
        serial.from_plain({"kind": "Event"}, ())


def test_a_union_without_one_value_says_so():
    """The value 25 is the interval between the number before it and itself."""
    before, infinity = math.nextafter(25.0, 0.0), math.inf
    assert describe_intervals([(-infinity, before), (25.0, infinity)], "x[0]") == "x[0] != 25"
    longer = [(-infinity, 3.0), (20.0, before), (25.0, 30.0), (40.0, infinity)]
    assert describe_intervals(longer, "x") == "x <= 3 or 20 < x <= 30 and x != 25 or x > 40"
    wider = [(-infinity, 24.9), (25.0, infinity)]
    assert describe_intervals(wider, "x") == "x <= 24.9 or x > 25"
    assert describe_intervals([(before, 25.0)], "x") == "x = 25"
