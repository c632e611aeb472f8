"""Smooth log-ratios of counts in bins."""

import numpy as np
import pytest

from dpverify.events.scores import additive, summarise
from dpverify.events.scores.additive import smooth_ratio, smooth_steps


def gaussian_counts(seed):
    """Counts of N(1, 1) and N(0, 1) in 200 bins of about equal shares, and the true log-ratio in the middle of each."""
    rng = np.random.default_rng(seed)
    sides = rng.standard_normal(20_000) + 1, rng.standard_normal(20_000)
    edges = np.quantile(np.concatenate(sides), np.arange(1, 200) / 200)
    centres = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    return [np.bincount(np.searchsorted(edges, x), minlength=200) for x in sides], edges, centres - 0.5


def test_a_smooth_ratio_is_closer_to_the_truth_than_counts():
    """Without a penalty it is the log-ratio of the counts: the control."""
    counts, _, truth = gaussian_counts(0)
    joined = np.ones(199, bool)
    smooth, raw = (smooth_ratio(*counts, joined, penalty) for penalty in (1.0, 0.0))
    inner = slice(5, -5)
    np.testing.assert_allclose(raw[inner], np.log(counts[0] / counts[1])[inner], atol=0.2)
    errors = [np.sqrt(np.mean((ratio - truth)[inner] ** 2)) for ratio in (smooth, raw)]
    assert errors[0] < 0.75 * errors[1]


def test_steps_follow_the_smooth_ratio():
    counts, edges, _ = gaussian_counts(1)
    new_edges, steps = smooth_steps(counts[0][None], counts[1][None], edges[None])
    assert (np.diff(new_edges[0]) >= 0).all()
    x = np.linspace(-1, 2, 50)
    values = steps[0][np.searchsorted(new_edges[0], x)]
    np.testing.assert_allclose(values, x - 0.5, atol=0.5)
    assert np.abs(values - (x - 0.5)).mean() < 0.2


def test_an_atom_has_a_value_of_its_own():
    """Half of the first dataset is exactly 0. Without a bin for it the value is spread: the control."""
    edges = np.sort(np.concatenate([np.linspace(-2, 2, 20), [np.nextafter(0.0, -1), 0.0]]))
    first = np.full(23, 100)
    second = np.full(23, 100)
    first[np.searchsorted(edges, 0.0)] = 1000
    second[np.searchsorted(edges, 0.0)] = 10
    new_edges, steps = smooth_steps(first[None], second[None], edges[None])
    at_zero, beside = (steps[0][np.searchsorted(new_edges[0], x)] for x in (0.0, 0.05))
    assert at_zero == pytest.approx(np.log(100), abs=0.3)
    assert beside == pytest.approx(0.0, abs=0.3)
    spread_edges, spread = smooth_steps(first[None], second[None], np.linspace(-2, 2, 22)[None])
    assert spread[0][np.searchsorted(spread_edges[0], 0.2)] > 1


def test_features_with_different_numbers_of_bins_do_not_affect_each_other():
    counts, edges, _ = gaussian_counts(2)
    alone = smooth_steps(counts[0][None], counts[1][None], edges[None])
    padded = np.full((2, 199), np.inf)
    padded[0], padded[1, :1] = edges, 0.0
    tables = [np.stack([one, np.r_[500, 700, np.zeros(198, int)]]) for one in counts]
    together = smooth_steps(*tables, padded)
    x = np.linspace(-3, 4, 100)
    for (own_edges, own), row in ((alone, 0), (together, 0)):
        assert own_edges.shape[1] + 1 == own.shape[1]
        values = own[row][np.searchsorted(own_edges[row], x)]
        np.testing.assert_allclose(values, alone[1][0][np.searchsorted(alone[0][0], x)], atol=1e-2)
    assert np.ptp(together[1][1]) < 1e-9  # equal counts


@pytest.mark.parametrize("control", [False, True])
def test_a_rare_atom_stands_out(control, monkeypatch):
    """Six runs of the first dataset are exactly 0. Without smooth ratios no score separates them from the others."""
    if control:
        monkeypatch.setattr(additive, "smooth_steps", lambda first, second, edges: (edges, np.zeros(first.shape)))
    rng = np.random.default_rng(0)
    sides = [rng.standard_normal((10_000, 1, 3)) for _ in range(2)]
    sides[0][:6, 0, 1] = 0.0
    training = summarise(sides)
    learner = next(one for one in additive.additive_learners(training) if one.statistic.features.whiten is None)
    scores = learner.fit(*(learner.statistic.measure(side) for side in sides))
    fresh = rng.standard_normal((10_000, 3))
    leaked = fresh[:100].copy()
    leaked[:, 1] = 0.0
    separated = [np.median(score.values(leaked)) > np.quantile(score.values(fresh), 0.999) for score in scores]
    assert any(separated) is not control
