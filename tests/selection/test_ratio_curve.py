"""Smooth log-ratios of level sets: their errors, with common random numbers and with independent runs."""

import numpy as np
import pytest
from limits import most
from scipy.stats import norm

from dpverify.selection.ratio_curve import fit_ratio_curve

SHIFT, RUNS, SEEDS = 0.3, 20_000, 200
THRESHOLDS = np.linspace(-1.0, 3.2, 22)
TRUE_RATIOS = (norm.logsf(THRESHOLDS - SHIFT) - norm.logsf(THRESHOLDS))[::-1]  # from rare level sets to frequent ones


def joint_table(seed, is_coupled=True):
    """Count normal noise with and without a shift, in pairs of intervals."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(RUNS)
    second = np.searchsorted(THRESHOLDS, noise if is_coupled else rng.standard_normal(RUNS))
    size = len(THRESHOLDS) + 1
    intervals = np.searchsorted(THRESHOLDS, noise + SHIFT) * size + second
    return np.bincount(intervals, minlength=size * size).reshape(size, size)


def true_ratios(curve, table):
    """Return the exact log-ratios of the level sets of a curve, which are those with enough runs."""
    first = np.cumsum(table.sum(1)[::-1])[:-1]
    return TRUE_RATIOS[np.searchsorted(first, curve.counts[0])]


def number_of_misses(curves, truths, deviations):
    """Count the level sets whose exact log-ratio is too far from the mean, among one rare level set of each seed."""
    return sum(abs(c.mean[2] - t[2]) > deviations * c.deviation[2] for c, t in zip(curves, truths, strict=True))


@pytest.fixture(scope="module")
def fitted():
    tables = [joint_table(seed) for seed in range(SEEDS)]
    curves = [fit_ratio_curve(table) for table in tables]
    return curves, [true_ratios(*pair) for pair in zip(curves, tables, strict=True)]


def test_the_standard_deviation_holds(fitted):
    assert number_of_misses(*fitted, 1.645) <= most(SEEDS, 0.1)
    assert number_of_misses(*fitted, 1.645 / 2) > most(SEEDS, 0.1)  # the negative control


def test_the_curve_is_more_exact_than_the_counts(fitted):
    def errors(ratios_of):
        return [ratios_of(c)[2] - t[2] for c, t in zip(*fitted, strict=True)]

    smooth, raw = errors(lambda c: c.mean), errors(lambda c: np.log(c.counts[0] / np.maximum(c.counts[1], 0.5)))
    assert np.std(smooth) < 0.7 * np.std(raw)


def test_common_random_numbers_make_the_curve_more_exact(fitted):
    independent = [fit_ratio_curve(joint_table(seed, is_coupled=False)) for seed in range(20)]
    coupled = fitted[0][:20]
    assert np.median([c.deviation[2] for c in coupled]) < 0.8 * np.median([c.deviation[2] for c in independent])


def test_a_leak_is_not_smoothed_away():
    """The ratio jumps from nothing to 60 against 0 runs."""
    table = np.zeros((4, 4), np.int64)
    table[[0, 1, 2], [0, 1, 2]] = 80_000, 15_000, 4_940
    table[3, 2] = 60
    curve = fit_ratio_curve(table)
    assert curve.mean[0] > 3.0
    assert abs(curve.mean[-1]) < 0.02
    p1, p2 = curve.probabilities(0.0, 0)
    assert p1[0] == pytest.approx(60 / 100_000, rel=0.1)
    assert p2[0] < p1[0] / 20


def test_without_runs_there_is_no_curve():
    assert fit_ratio_curve(np.diag([100, 0])) is None
