"""The general learner: the same values everywhere, differences that no plain score describes, and no chance."""

import json

import numpy as np
import pytest

import dpverify as dpv
from dpverify.events.scores import General, Levels, summarise
from dpverify.events.scores.general import fit_general, fit_network, fit_trees
from dpverify.report.report import KINDS
from dpverify.selection.learn import separation
from dpverify.util import serialization as serial
from dpverify.util.arrays import cell_codes, enable_x64

RUNS = 2000


def spiral(side, runs, rng):
    """Points on a spiral; the turn at which it begins shows the dataset."""
    angle = rng.uniform(0, 4 * np.pi, runs)
    points = np.stack([np.cos(angle + 1.5 * side), np.sin(angle + 1.5 * side)], axis=1) * angle[:, None]
    return points + 0.3 * rng.standard_normal((runs, 2))


def two_sides(seed=0, sides=(0, 1)):
    rng = np.random.default_rng(seed)
    return [spiral(side, RUNS, rng)[:, None] for side in sides]


@pytest.fixture(scope="module")
def score():
    (fitted,) = fit_general(summarise(two_sides()))
    return fitted


def test_the_score_has_the_same_values_in_numpy_in_jax_and_after_json(score):
    jnp = pytest.importorskip("jax.numpy")
    levels = Levels(score, np.linspace(-2, 2, 9))
    stored = json.loads(json.dumps(serial.to_plain(levels)))
    again = serial.from_plain(stored, KINDS)
    fresh = two_sides(seed=1)[0]
    flat = fresh[:, 0]
    np.testing.assert_array_equal(again.score.values(flat), score.values(flat))
    np.testing.assert_allclose(score.values(flat[:7]), score.values(flat)[:7], rtol=1e-9, atol=1e-9)
    with enable_x64():
        assert (cell_codes(levels, jnp.asarray(fresh)) == cell_codes(levels, fresh)).mean() > 0.999


def test_the_trees_and_the_network_are_those_of_scikit_learn():
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = np.random.default_rng(0)
    z = rng.standard_normal((2000, 3))
    is_first = z[:, 0] * z[:, 1] + 0.5 * rng.standard_normal(2000) > 0
    trees = fit_trees(z, is_first)
    model = HistGradientBoostingClassifier(max_iter=300, max_depth=6, early_stopping=True, random_state=0)
    expected = model.fit(z, is_first).decision_function(z)
    difference = expected - trees.values(z)  # a constant: the score is a sum without the share of the first side
    np.testing.assert_allclose(difference, difference.mean(), atol=1e-9)
    probabilities = [1 / (1 + np.exp(-fit_network(z, is_first).values(z)))]
    assert (probabilities[0] > 0.5).mean() == pytest.approx(is_first.mean(), abs=0.1)


def test_the_same_runs_give_the_same_score(score):
    (again,) = fit_general(summarise(two_sides()))
    assert serial.to_plain(again) == serial.to_plain(score)


def test_the_score_finds_a_difference_of_shape_and_ignores_chance(score):
    first, second = (side[:, 0] for side in two_sides(seed=1))
    assert separation(score.values(first), score.values(second), 0.0) > 1.0
    same = summarise(two_sides(seed=2, sides=(0, 0)))
    (noise,) = fit_general(same)
    first, second = (side[:, 0] for side in two_sides(seed=3, sides=(0, 0)))
    assert separation(noise.values(first), noise.values(second), 0.0) < 0.1


def test_one_number_needs_no_general_learner():
    rng = np.random.default_rng(0)
    assert not fit_general(summarise([rng.standard_normal((500, 1, 1)) for _ in range(2)]))


def test_a_thorough_search_proves_more_and_its_report_can_be_read(tmp_path):
    sizes = {"select_runs": 8000, "test_runs": 20_000, "block": 2000}
    usual = dpv.verify(spiral, 0, 1, 0.5, delta=0.01, **sizes)
    thorough = dpv.verify(spiral, 0, 1, 0.5, delta=0.01, search="thorough", **sizes)
    assert thorough.epsilon_lower > usual.epsilon_lower
    thorough.to_json(tmp_path / "report.json")
    read = dpv.Report.from_json(tmp_path / "report.json")
    samples = spiral(0, 1000, np.random.default_rng(5))[:, None]
    assert isinstance(read.witness.event.partition.score, General)
    np.testing.assert_array_equal(read.witness.contains(samples), thorough.witness.contains(samples))
