"""Scores: equal values in NumPy, in JAX and after JSON; fits find differences and ignore noise."""

import json

import numpy as np
import pytest

import dpverify as dpv
from dpverify.events.partition import equal_mass, find_atoms, make_partition_of
from dpverify.events.region import RegionIndicator
from dpverify.events.scores import Additive, Features, Levels, Linear, Quadratic, UserScore, evaluate_scores, summarise
from dpverify.events.scores.additive import fit_additive, make_binning
from dpverify.events.scores.cell_score import fit_cell_score
from dpverify.events.scores.moments import fit_gaussian
from dpverify.events.scores.patterned import fit_patterned, make_pattern_binning
from dpverify.events.scores.training import fit_innovations
from dpverify.report.report import KINDS
from dpverify.sampling.count import count_cells, occupied_codes
from dpverify.selection.learn import grow_tree, level_cell_score
from dpverify.util import serialization as serial
from dpverify.util.arrays import cell_codes, enable_x64


def binned(features, flat):
    return make_binning(features, features.values(flat), find_atoms(flat))


def patterned(flat):
    return make_pattern_binning(flat, find_atoms(flat))


def two_sides(steps=3, dimension=2, shift=0.5, runs=4000, seed=0):
    rng = np.random.default_rng(seed)
    walk = np.cumsum(rng.standard_normal((2, runs, steps, dimension)), axis=2)
    walk[0, :, 1:, 0] += shift
    return walk


def learned(shift=0.5):
    first, second = two_sides(shift=shift)
    flats = first.reshape(len(first), -1), second.reshape(len(second), -1)
    features = fit_innovations(*flats)
    scores = fit_gaussian(summarise([first, second]))
    binning = binned(features, np.concatenate(flats))
    scores += fit_additive(binning, binning.measure(first), binning.measure(second))
    pilot = np.concatenate([first, second])[::8]
    cells = equal_mass(dpv.high_likely_set(pilot), pilot, 32)
    counts = count_cells(cells, first), count_cells(cells, second)
    codes = occupied_codes(*counts)
    scores.append(fit_cell_score(cells, codes, *(side.of(codes) for side in counts)))
    scores.append(level_cell_score(scores[0], [first, second], 16))
    return scores


SCORES = learned()


def test_scores_have_the_same_values_alone_and_together():
    fresh = two_sides(seed=1)[0]
    flat = fresh.reshape(len(fresh), -1)
    for score, values in zip(SCORES, evaluate_scores(SCORES, flat), strict=True):
        np.testing.assert_allclose(values, score.values(flat), rtol=1e-9, atol=1e-9)


def test_values_that_repeat_by_chance_are_no_atoms():
    rng = np.random.default_rng(0)
    runs = 100_000
    single = rng.standard_normal(runs).astype(np.float32).astype(float)
    rare = single.copy()
    rare[:10] = 0.25
    lattice = np.round(rng.standard_normal(runs), 2)
    counts = rng.geometric(0.3, runs).astype(float)
    assert np.unique(single).size < runs  # the numbers of single precision do repeat
    none, one, many, whole = find_atoms(np.stack([single, rare, lattice, counts], axis=1))
    assert none.size == 0
    assert one.tolist() == [0.25]
    assert many.size > 500
    values, number = np.unique(counts, return_counts=True)
    assert whole.tolist() == values[number > 1].tolist()


@pytest.mark.parametrize("score", SCORES, ids=lambda score: f"{type(score).__name__}-{score.n_parameters}")
def test_equal_in_numpy_in_jax_and_after_json(score):
    import jax.numpy as jnp

    fresh = two_sides(seed=1)[0]
    values = score.values(fresh.reshape(len(fresh), -1))
    levels = Levels(score, np.unique(np.quantile(values, np.linspace(0.1, 0.9, 9), method="inverted_cdf")))
    codes = levels.codes(fresh)
    assert codes.min() >= 0
    assert codes.max() < levels.size
    with enable_x64():
        device = jnp.asarray(fresh)
    moved = (
        cell_codes(levels, device) != codes
    )  # edges are score values, so a value on an edge may be rounded across it
    apart = np.abs(values[moved, None] - levels.edges).min(1)
    assert (apart <= 1e-12 * np.abs(values).max()).all()
    back = serial.from_plain(json.loads(json.dumps(serial.to_plain(levels))), KINDS)
    np.testing.assert_array_equal(back.codes(fresh), codes)


@pytest.mark.parametrize("score", SCORES, ids=lambda score: f"{type(score).__name__}-{score.n_parameters}")
def test_scores_are_larger_for_the_first_data_set(score):
    first, second = two_sides(seed=2)
    high, low = (score.values(side.reshape(len(side), -1)).mean() for side in (first, second))
    assert high > low


def test_innovations_are_white_and_in_the_order_of_time():
    first, second = (side.reshape(4000, -1) for side in two_sides(shift=0.0))
    features = fit_innovations(first, second)
    z = features.values(np.concatenate([first, second]))
    np.testing.assert_allclose(np.cov(z, rowvar=False), np.eye(6), atol=0.1)
    assert np.allclose(features.whiten, np.tril(features.whiten))
    # A random walk: what is new at a step is its last increment.
    steps = np.diff(first.reshape(4000, 3, 2), axis=1)[:, 1, 0]
    assert np.corrcoef(features.values(first)[:, 4], steps)[0, 1] > 0.99


def test_innovations_of_a_coordinate_that_the_others_determine():
    x = np.random.default_rng(0).standard_normal((1000, 1))
    flat = np.concatenate([x, 2 * x, np.ones((1000, 1))], axis=1)
    features = fit_innovations(flat, flat + [0.0, 0.0, 1.0])
    assert np.isfinite(features.values(flat)).all()


def test_coordinates_without_a_difference_get_no_weight():
    rng = np.random.default_rng(3)
    first, second = rng.standard_normal((2, 20_000, 5))
    first[:, 3] += 1
    binning = binned(Features(np.zeros(5), None), np.concatenate([first, second]))
    few = fit_additive(binning, binning.measure(first), binning.measure(second))[0]
    assert isinstance(few, Additive)
    assert 3 in few.coordinates
    assert np.ptp(few.steps, axis=1)[few.coordinates == 3] > 10 * np.ptp(few.steps, axis=1)[few.coordinates != 3].max(
        initial=0
    )


def test_an_atom_has_its_own_bin():
    x = np.array([0.0] * 9 + [1.0] * 9 + [*np.linspace(-1, 2, 200)])[:, None]
    binning = binned(Features(np.zeros(1), None), x)
    both = binning.measure(np.array([0.0, 1.0])[:, None])
    around = binning.measure(np.array([0.0, 1.0, 1e-9, -1e-9, 1 + 1e-9, 1 - 1e-9])[:, None])
    assert ((both == 1) & (around == 1)).sum() == 2


def test_the_quadratic_score_detects_a_change_of_variance():
    rng = np.random.default_rng(4)
    first, second = rng.standard_normal((20_000, 2)), 1.5 * rng.standard_normal((20_000, 2))
    linear, quadratic = fit_gaussian(summarise([first, second]))
    assert isinstance(linear, Linear)
    assert isinstance(quadratic, Quadratic)
    separation = [
        (score.values(first).mean() - score.values(second).mean()) / score.values(second).std()
        for score in (linear, quadratic)
    ]
    assert separation[1] > 0.4 > 0.1 > separation[0]


def test_a_tree_is_fine_where_the_distributions_differ():
    rng = np.random.default_rng(5)
    first, second = rng.random((2, 20_000, 2))
    first[:10_000] = first[:10_000] * [0.5, 0.5] + [0.5, 0.5]  # half of the first dataset's runs lie in one corner
    binning = binned(Features(np.zeros(2), None), np.concatenate([first, second]))
    tree = grow_tree(binning, first, second, 32, 25)
    assert 2 <= tree.leaf.max() + 1 <= 32
    both = np.concatenate([first, second])[:, None]
    partition = make_partition_of(dpv.high_likely_set(both), tree, [])
    c1, c2 = (np.bincount(partition.codes(side[:, None]), minlength=partition.size) for side in (first, second))
    assert np.maximum(c1 - c2, 0).sum() / 20_000 > 0.35  # the total variation is .375
    same = grow_tree(binning, second, rng.random((20_000, 2)), 32, 25)
    assert same.leaf.max() == 0  # equal distributions are not split


def test_the_region_indicator_puts_nan_outside():
    pilot = np.random.default_rng(6).standard_normal((300, 2, 2))
    region = dpv.high_likely_set(pilot)
    samples = 2 * np.random.default_rng(7).standard_normal((500, 2, 2))
    samples[0, 0, 0], samples[1, 1, 1] = np.nan, np.inf
    codes = RegionIndicator(region).codes(samples)
    assert codes[0] == codes[1] == 0
    np.testing.assert_array_equal(codes[2:], region.contains(samples[2:]))


def test_a_user_score_cannot_be_evaluated_after_json():
    score = UserScore(lambda samples: samples[:, 0, 0], (1, 1))
    back = serial.from_plain(serial.to_plain(score), KINDS)
    with pytest.raises(dpv.InputError, match="does not hold the function"):
        back.values(np.zeros((2, 1)))


def first_above(shift, runs, rng):
    """Return the first of three noisy numbers above 1; the others become the atoms -8 (below) and -9 (after)."""
    noisy = shift + rng.laplace(size=(runs, 3))
    above = noisy >= 1
    stopped = np.cumsum(above, axis=1) - above > 0
    return np.where(stopped, -9.0, np.where(above, noisy, -8.0))[:, :, None]


def test_each_pattern_of_atoms_has_its_own_score():
    """The true log-ratio is known: that of the atoms plus that of the density of the continuous coordinate."""
    import jax.numpy as jnp
    from scipy.stats import laplace

    rng = np.random.default_rng(4)
    first, second = (first_above(shift, 200_000, rng) for shift in (0.5, 0.0))
    binning = patterned(np.concatenate([first, second]).reshape(-1, 3))
    (score,) = fit_patterned(binning, binning.measure(first), binning.measure(second))
    assert len(score.patterns) == 4  # answered first, second, third, never
    fresh = first_above(0.5, 20_000, rng).reshape(-1, 3)
    below = np.log(laplace.cdf(0.5) / laplace.cdf(1))
    place = np.argmax(fresh > 0, axis=1)
    answered = (fresh > 0).any(1)
    value = np.where(answered, fresh[np.arange(len(fresh)), place], 0.0)
    true = np.where(answered, below * place + np.abs(value) - np.abs(value - 0.5), 3 * below)
    assert np.abs(score.values(fresh) - true).mean() < 0.05
    with enable_x64():
        device = np.asarray(score.values(jnp.asarray(fresh)))
    np.testing.assert_allclose(device, score.values(fresh))
    back = serial.from_plain(json.loads(json.dumps(serial.to_plain(score))), KINDS)
    np.testing.assert_array_equal(back.values(fresh), score.values(fresh))
    # A pattern that was not in the training runs gets the last offset.
    assert score.values(np.full((1, 3), -8.5)) == score.offsets[-1]


def test_no_patterns_without_atoms_or_without_continuous_values():
    rng = np.random.default_rng(5)
    assert patterned(rng.standard_normal((1000, 3))) is None
    assert patterned(rng.integers(2, size=(1000, 3)).astype(float)) is None
