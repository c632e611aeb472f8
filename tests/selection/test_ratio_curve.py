"""Smooth log-ratios of level sets: their errors, with common random numbers and with independent runs."""

import numpy as np
import pytest
from limits import most
from scipy.stats import norm

from dpverify.selection.ratio_curve import fit_nested_curve, fit_ratio_curve

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


def test_independent_counts_need_no_table():
    """Rare level sets of independent runs: both functions give nearly the same curve."""
    table = joint_table(0, is_coupled=False)
    whole = fit_ratio_curve(table)
    counts = fit_nested_curve(whole.counts, RUNS)
    rare = whole.shares < 0.1
    np.testing.assert_allclose(counts.mean[rare], whole.mean[rare], atol=0.03)
    np.testing.assert_allclose(counts.deviation[rare], whole.deviation[rare], rtol=0.1)


@pytest.mark.parametrize(("shift", "level"), [(0.3, 0.05), (1.0, 0.2), (2.0, 0.05)])
def test_the_standard_deviation_of_nested_counts_holds(shift, level):
    """Also where the other data set has few runs or none; the largest log-ratio here is 8.

    The log-ratio of Gaussian noise is a curved function of rarity. The prior prefers straight lines, so that the
    estimate is biased, and 20% of the errors may exceed 1.96 standard deviations for a shift of 1.
    """
    standardised = []
    thresholds = np.linspace(4.0 + shift, 0.0, 60)
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        sides = [np.sort(rng.standard_normal(RUNS) + one) for one in (shift, 0.0)]
        counts = RUNS - np.stack([np.searchsorted(side, thresholds, side="right") for side in sides])
        used = np.unique(np.searchsorted(counts.sum(0), 8 * 1.25 ** np.arange(30)))
        curve = fit_nested_curve(counts[:, used], RUNS)
        rare = int(np.searchsorted(curve.counts[0], 60))
        threshold = thresholds[used][rare]
        truth = norm.logsf(threshold - shift) - norm.logsf(threshold)
        standardised.append(abs(curve.mean[rare] - truth) / curve.deviation[rare])
    standardised = np.array(standardised)
    assert (standardised > 1.96).sum() <= most(SEEDS, level)
    assert (standardised > 1.96 / 4).sum() > most(SEEDS, level)  # the negative control: a quarter of the deviation


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


def test_a_leak_in_nested_counts_is_not_smoothed_away():
    """60 against 0 runs lie beyond level sets that have equal counts."""
    counts = np.array([[60, 2530, 10_060, 40_060], [0, 2470, 10_000, 40_000]])
    curve = fit_nested_curve(counts, 100_000)
    assert curve.mean[0] > 2.0
    assert abs(curve.mean[-1]) < 0.02


def test_disjoint_level_sets_have_a_finite_ratio():
    """The log-odds are so large that 1 - probability would be rounded to 0."""
    counts = np.array([[5000, 15_000, 19_990], [0, 0, 5]])
    curve = fit_nested_curve(counts, RUNS)
    assert np.isfinite(curve.mean).all()
    assert np.isfinite(curve.deviation).all()
    assert curve.mean[0] > 5
