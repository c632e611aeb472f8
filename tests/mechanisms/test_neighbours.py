"""Neighbouring datasets of tables and balls: every pair is adjacent, and the whole neighbourhood is covered."""

import itertools

import numpy as np
import pytest

import dpverify as dpv
from dpverify.mechanisms.neighbours import add_or_remove_one, ball, group, replace_one
from dpverify.util.arrays import enable_x64

TABLE = np.array([[1, 0], [0, 1], [1, 1]])
VALUES = np.array([[0, 0], [1, 1]])


def differing_records(first, second):
    return int((first != second).reshape(len(first), -1).any(1).sum())


def test_replacing_one_record_covers_every_record_and_value():
    pairs = replace_one(TABLE, VALUES)
    assert len(pairs) == 3 * 2 - 1  # the last record is a value already
    assert all(differing_records(*pair) == 1 and pair[0].shape == pair[1].shape for pair in pairs.values())
    assert np.array_equal(pairs["record 0 becomes value 1"][1], [[1, 1], [0, 1], [1, 1]])
    assert list(replace_one(TABLE, [[0.5, 0.5]], records=[2])) == ["record 2 becomes value 0"]
    assert replace_one(TABLE, [[0.5, 0.5]])["record 0 becomes value 0"][1][0].tolist() == [0.5, 0.5]  # no rounding


def test_adding_or_removing_one_record_changes_the_size_by_one():
    pairs = add_or_remove_one(TABLE, VALUES)
    assert [len(second) - len(first) for first, second in pairs.values()] == [-1, -1, -1, 1, 1]
    for number in range(3):
        kept = [record for record in range(3) if record != number]
        assert np.array_equal(pairs[f"without record {number}"][1], TABLE[kept])
    assert np.array_equal(pairs["with value 0"][1][-1], VALUES[0])


def test_a_group_has_exactly_so_many_records_and_a_draw_has_different_groups():
    data = np.zeros(12)
    pairs = group(data, [1.0], 3)
    expected = {f"records {a}, {b}, {c} become value 0" for a, b, c in itertools.combinations(range(12), 3)}
    assert set(pairs) == expected
    assert all(differing_records(*pair) == 3 for pair in pairs.values())
    some = group(data, [1.0], 3, most=50, seed=1)
    assert len(some) == 50
    assert set(some) <= expected
    assert some.keys() == group(data, [1.0], 3, most=50, seed=1).keys() != group(data, [1.0], 3, most=50).keys()


@pytest.mark.parametrize(("norm", "order"), [(1, 1), (2, 2), ("inf", np.inf), (np.inf, np.inf)])
def test_a_ball_contains_exactly_the_changes_of_limited_norm(norm, order):
    """The surface of the box becomes the surface of the ball, and every change in the ball is reached."""
    data, rng = np.arange(8.0).reshape(4, 2), np.random.default_rng(0)
    around = ball(data, 3.0, norm, where=np.s_[1:, 0])
    assert around.bounds == [(-1.0, 1.0)] * 3
    for theta in rng.uniform(-1, 1, (50, 3)):
        first, second = around(theta)
        change = second - first
        assert np.array_equal(first, data)
        assert not change[0].any()
        assert not change[:, 1].any()
        assert np.isclose(np.linalg.norm(change[1:, 0], order), 3.0 * np.abs(theta).max())
        assert np.allclose(np.cross(change[1:, 0], theta), 0)  # along the ray of theta
    assert np.array_equal(around(np.zeros(3))[1], data)


def test_a_ball_of_a_jax_point_is_the_same_and_has_a_gradient():
    jax = pytest.importorskip("jax")
    around, theta = ball(np.zeros((2, 2)), 2.0), np.array([0.5, -0.25, 0.1, 0.9])
    with enable_x64():
        point = jax.numpy.asarray(theta)
        assert np.allclose(around(point)[1], around(theta)[1])
        slope = jax.grad(lambda x: around(x)[1].sum())(point)
    step = 1e-6 * np.eye(4)
    differences = [(around(theta + h)[1].sum() - around(theta - h)[1].sum()) / 2e-6 for h in step]
    assert np.allclose(slope, differences, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace_one(1.0, [0.0]), "data: found 1.0; expected an array, a list or a table"),
        (lambda: replace_one(TABLE, [0, 1]), r"values: found shape \(2,\); expected records of shape \(2,\)"),
        (lambda: replace_one([1.0], [1.0]), "values: found no value that differs"),
        (lambda: replace_one(TABLE, VALUES, records=[3]), "records: found 3; expected at most 2"),
        (lambda: add_or_remove_one(TABLE, records=[]), "records must have at least one"),
        (lambda: group(TABLE, VALUES, 4), "size: found 4; expected at most 3"),
        (lambda: group(TABLE, VALUES, 0), "size must be"),
        (lambda: ball(TABLE, 0), "radius: found 0; expected a positive number"),
        (lambda: ball("text", 1), "data: found 'text'; expected an array of numbers"),
        (lambda: ball(TABLE, 1, 3), "norm: found 3; expected 1, 2"),
        (lambda: ball(TABLE, 1, where=7), "where: found 7; expected an index"),
        (lambda: ball(TABLE, 1, where=np.s_[:0]), "where: found no position"),
    ],
)
def test_invalid_neighbourhoods_are_refused(make, message):
    with pytest.raises(dpv.InputError, match=message):
        make()
