"""Readings of the paper's experiment: what is varied, how a reading is scored, and the ceiling of the procedure."""

import math

import numpy as np
import pytest
from scipy.stats import hypergeom, ks_2samp

import dpverify as dpv
from reproduction.experiment import SetUp, input_covariance
from reproduction.fit import (
    RUNS,
    best_joint,
    ceiling_sweep,
    cell_probability,
    disjoint_epsilons,
    fit_row,
    log_probability,
    make_rankings,
    ranking_tasks,
    summarise,
)
from reproduction.measure import BLOCK, RowResult, RowTask, SeedResult, ceiling, run_paper
from reproduction.paper import BASE, CELL, MECHANISMS, PLAN, all_readings, computed_constants, difference, relevant

FIRST_ROW = "Q1, W2-MHE, s 0.8"
ALPHA = 0.05


# What is printed, and what is varied


def test_all_printed_numbers_are_present_and_consistent():
    finite = [cell.epsilon_c for cell in CELL.values() if math.isfinite(cell.epsilon_c)]
    assert len(finite) == 11
    assert len(computed_constants()) == 13
    for name, constant in computed_constants().items():
        digits = len(str(constant.printed).partition(".")[2])
        assert f"{constant.ours:.{digits}f}" == str(constant.printed), name
        assert constant.agrees


def test_26_of_the_39_printed_numbers_are_independent():
    """Lambda follows from eta and epsilon_c, and an error that fixed a parameter predicts nothing."""
    numbers = [fit for key in CELL for fit in fit_row(made_result(key), "all").fits]
    assert len(numbers) == 39
    assert sum(fit.independent for fit in numbers) == 26
    assert not any(fit.independent for fit in numbers if fit.name == "lambda")


def test_every_choice_that_the_paper_leaves_open_is_varied():
    for name, words in PLAN["choices"].items():
        if name not in ("tau", "test_runs", "error_runs", "complement"):  # the last two vary without new runs
            values = {getattr(reading, name) for mechanism in MECHANISMS for reading in all_readings(mechanism)}
            assert values == set(words) - {"what"}, name
    assert set(RUNS) == {1000, 2000, 3000, 5000, 10_000}
    numbers = [(len(all_readings(mechanism)), len(all_readings(mechanism, True))) for mechanism in MECHANISMS]
    assert numbers == [(22, 7), (20, 2), (7, 2)]
    for mechanism in MECHANISMS:
        readings = all_readings(mechanism)
        assert all(reading == relevant(reading, mechanism) for reading in readings)  # nothing else is varied
        assert set(all_readings(mechanism, quick=True)) <= set(readings)
    changed = BASE._replace(noise="window", prior="start")
    assert difference(changed, BASE) == "prior not carried, input noise anew for every window"
    assert difference(BASE, BASE) == "base"


def test_no_row_is_measured_twice():
    tasks = [task for group in ranking_tasks("full") for task in group]
    assert len(set(tasks)) == len(tasks) == 22 * 4 + 20 * 4 + 7 * 3


def test_the_covariances_are_semidefinite_and_the_printed_matrix_is_not():
    assert np.linalg.eigvalsh(input_covariance("blocks"))[0] > 0
    for kind in ("clipped", "shifted"):
        assert np.linalg.eigvalsh(input_covariance(kind))[0] == pytest.approx(0, abs=1e-12)
    clipped, shifted = input_covariance("clipped"), input_covariance("shifted")
    assert np.linalg.eigvalsh(clipped - shifted)[-1] < 1e-9  # the shift adds noise in every direction
    assert np.linalg.eigvalsh(input_covariance("mean")).round(9).tolist() == [1.0] * 19 + [11.0]


# The fit


@pytest.mark.parametrize("reflect", [True, False])
def test_predictive_probabilities_add_up_to_one(reflect):
    values = np.random.default_rng(0).integers(0, 30, 50).astype(float)
    cells = range(0 if reflect else -60, 200)
    assert sum(cell_probability(values, cell, reflect) for cell in cells) == pytest.approx(1, abs=1e-6)


def test_a_vague_reading_is_not_rewarded():
    """All three contain the printed value; the one that says least else has the best fit; a miss has the worst."""
    rng = np.random.default_rng(0)
    sharp, vague = 0.4 + 0.02 * rng.standard_normal(200), rng.uniform(0, 1.5, 200)
    missed = 1.4 + 0.02 * rng.standard_normal(200)
    fits = [log_probability("epsilon_c", values, 0.39947) for values in (sharp, vague, missed)]
    assert fits[0] > fits[1] + 1.5 > fits[2] + 3
    assert fits[2] == pytest.approx(math.log(0.01 / 160))  # the broad distribution alone
    fifty = np.ones(50)
    assert log_probability("eta", 0.011 * fifty, 0.011) > log_probability("eta", 0.011 * fifty, 0.013)
    assert log_probability("error", 0.004 * fifty, 0.00402) > log_probability("error", 0.004 * fifty, 0.006)


def test_the_fit_is_calibrated():
    """The expected log probability is largest for the distribution that the value comes from."""
    rng = np.random.default_rng(1)
    values = {spread: 0.5 + spread * rng.standard_normal(200) for spread in (0.05, 0.15, 0.45)}
    printed = 0.5 + 0.15 * rng.standard_normal(300)
    means = {
        spread: np.mean([log_probability("epsilon_c", one, max(value, 0.001)) for value in printed])
        for spread, one in values.items()
    }
    assert means[0.15] > max(means[0.05], means[0.45]) + 0.1


def test_a_fitted_parameter_costs_what_its_range_says():
    expected = math.log(0.99 * 0.01 * 0.25 + 0.01 * 0.01 / math.log(1e4))
    assert log_probability("error", np.ones(9), 1.0, math.log(0.25)) == pytest.approx(expected)
    unattainable = log_probability("error", np.ones(9), 1.0, -math.inf)
    assert unattainable < log_probability("error", np.ones(9), 1.0, math.log(1e-3))


def made_result(key, epsilon=0.4, reading=BASE):
    """Return made-up seeds of a row, whose epsilon_c is near a value."""
    epsilons = epsilon + 0.05 * np.random.default_rng(7).standard_normal(20)
    seeds = [SeedResult(float(x), 0.011, 0.08, 0.004, 0.02, float(x), 13, 0, 0.005, 0.03) for x in epsilons]
    return RowResult(RowTask(key, reading, 0, 20), 0.9, None, tuple(seeds))


def test_a_row_has_its_ranges_and_its_share_at_the_ceiling():
    fit = fit_row(made_result(FIRST_ROW), "one")
    assert fit.at_ceiling == 1.0
    assert fit.numbers["error"].median == 0.005
    assert [number.name for number in fit.fits] == ["epsilon_c", "eta", "lambda", "error", "error_adjacent"]
    assert fit.fits[0].inside
    assert not fit_row(made_result(FIRST_ROW, 1.2), "one").fits[0].inside
    assert summarise([1.0] * 9 + [math.inf] * 11).median == math.inf


def test_the_joint_reading_has_one_value_of_what_mechanisms_share():
    """The EKF alone prefers the exact angle; the W2-MHE was not measured there, so the joint reading has the other."""
    exact = BASE._replace(angle="exact")
    results = [made_result(cell.key) for cell in CELL.values() if math.isfinite(cell.epsilon_c)]
    ekf = [cell.key for cell in CELL.values() if cell.mechanism == "private EKF"]
    results += [made_result(key, CELL[key].epsilon_c, exact) for key in ekf]
    rankings = make_rankings(results)
    assert rankings["private EKF"][0].reading.angle == "exact"
    best = best_joint(rankings)
    assert best.reading.angle == "paper"
    assert best.log_probability == pytest.approx(sum(row.log_probability or 0 for fit in best.rows for row in fit.fits))


# The ceiling


def box(data, runs, rng):
    """Uniform noise on four steps of two coordinates: 256 nearly equal cells."""
    return data + rng.uniform(-1, 1, size=(runs, 4, 2))


def run_box(shift, seed):
    data = SetUp(None, np.zeros((4, 2)), np.full((4, 2), shift), np.zeros((4, 2)))
    return run_paper(box, data, dpv.Settings.paper(seed=seed, block=BLOCK, test_runs=2000))


def test_disjoint_distributions_give_their_ceiling_and_others_less():
    model = summarise(disjoint_epsilons([2000], 4000)[2000])
    disjoint = [run_box(10.0, seed) for seed in range(12)]
    for one in disjoint:
        assert one.c2 == 0
        assert one.epsilon_c == one.ceiling
        assert one.epsilon_c < 1.0  # although epsilon is infinite: 256 cells share the runs
    assert sum(model.low <= one.epsilon_c <= model.high for one in disjoint) >= 8  # P[Bin(12, 0.9) < 8] < 0.005
    similar = [run_box(0.05, seed) for seed in range(20)]
    assert np.mean([one.epsilon_c < one.ceiling for one in similar if min(one.c1, one.c2) > 0]) > 0.8


def test_the_ceiling_follows_the_more_frequent_side():
    settings = dpv.Settings.paper(seed=1)
    assert ceiling((30, 6), settings) == ceiling((30, 0), settings) > 1
    assert ceiling((6, 30), settings) == ceiling((0, 30), settings) > 1


@pytest.mark.parametrize("runs", [1000, 3000, 10_000])
def test_the_ceiling_depends_on_the_count_alone(runs):
    """The p-value of counts (c', 0) is near 2^-c', so that the test rejects from 5 on, for every m."""
    accepted, rejected = hypergeom.sf([3, 4], 2 * runs, runs, [4, 5])
    assert rejected <= ALPHA < accepted
    medians = [np.median(ceiling_sweep(np.full(2000, c), runs, np.random.default_rng(0))) for c in (6, 10, 20, 60)]
    np.testing.assert_allclose(medians, [0.15, 0.48, 1.0, 2.0], atol=0.04)  # two steps of the sweep


@pytest.mark.parametrize("count", [0, 4, 6, 12, 40])
def test_the_fast_sweep_of_one_count_has_the_distribution_of_the_general_one(count):
    rng = np.random.default_rng(2)
    fast = ceiling_sweep(np.full(400, count), 3000, rng)
    general = [dpv.critical_epsilon(count, 0, 3000, rng=rng) for _ in range(150)]
    assert ks_2samp(fast, general).pvalue > 1e-4
    wrong = ceiling_sweep(np.full(400, count + 6), 3000, rng)  # negative control
    assert ks_2samp(wrong, general).pvalue < 1e-4
