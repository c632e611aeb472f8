"""Readings of the paper's experiment: what is varied, how a reading is scored, and the ceiling of the procedure."""

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp

from dpverify import Settings, verify
from dpverify.mechanisms.accuracy import rmse
from dpverify.paper.plan import read_plan
from dpverify.paper.printed import read_printed
from dpverify.paper.readings import fit as reading_fit
from dpverify.paper.readings.definitions import (
    BASE,
    CANDIDATE,
    FIELDS,
    RUNS,
    all_readings,
    best_joint,
    difference,
    relevant,
)
from dpverify.paper.readings.fit import (
    ceiling_by_runs,
    ceiling_sweep,
    cell_probability,
    fit_row,
    log_probability_of_epsilon,
    log_probability_of_error,
    log_probability_of_eta,
    log_probability_of_fitted_error,
)
from dpverify.paper.readings.results import ReadingFit
from dpverify.paper.readings.runs import (
    BLOCK,
    FittedParameter,
    SeedResult,
    SetUp,
    input_covariance,
    run_seed,
    sweep_with_ceiling,
)
from dpverify.paper.readings.study import ReadingTask, ranking_tasks
from dpverify.stats.paper_test import PAPER_EPSILON_SWEEP, critical_epsilon

ROWS = {cell.key: cell for cell in read_printed().cells}
FIRST_ROW = ROWS["Q1, W2-MHE, s 0.8"]


def box(data, runs, rng):
    """Uniform noise on four steps of two coordinates: 256 nearly equal cells."""
    return data + rng.uniform(-1, 1, size=(runs, 4, 2))


def box_setup(shift):
    return SetUp(None, np.zeros((4, 2)), np.full((4, 2), shift), np.zeros((4, 2)))


def test_every_choice_that_the_paper_leaves_open_is_varied():
    for name, wanted in {
        "law": {"blend", "gibbs"},
        "support": {"constant", "growing"},
        "prior": {"carried", "start"},
        "span": {"closed", "open"},
        "angle": {"paper", "exact"},
        "covariance": {"blocks", "clipped", "shifted", "mean", "identity"},
        "noise": {"run", "window"},
        "filter": {"true", "model", "data"},
        "test_runs": set(RUNS),
    }.items():
        values = {getattr(reading, name) for mechanism in FIELDS for reading in all_readings(mechanism)}
        assert values == wanted, name
    for mechanism in FIELDS:
        readings = all_readings(mechanism)
        assert len(readings) == len(set(readings))
        assert all(reading == relevant(reading, mechanism) for reading in readings)  # nothing else is varied
        assert set(all_readings(mechanism, quick=True)) <= set(readings)
    assert difference(CANDIDATE, BASE) == "prior not carried, input noise anew for every window"
    assert difference(BASE, BASE) == "base"


def test_no_row_is_measured_twice_and_names_differ():
    tasks = [task for group in ranking_tasks(read_plan().full.readings) for task in group]
    assert len({task.name for task in tasks}) == len(tasks)
    assert ReadingTask("row", BASE, 0, 3).name != ReadingTask("row", BASE, 0, 4).name


def test_the_covariances_are_semidefinite_and_the_printed_matrix_is_not():
    printed = input_covariance("blocks")
    assert np.linalg.eigvalsh(printed)[0] > 0
    for kind in ("clipped", "shifted"):
        assert np.linalg.eigvalsh(input_covariance(kind))[0] == pytest.approx(0, abs=1e-12)
    clipped, shifted = input_covariance("clipped"), input_covariance("shifted")
    assert np.linalg.eigvalsh(clipped - shifted)[-1] < 1e-9  # the shift adds noise in every direction
    assert np.linalg.eigvalsh(input_covariance("mean")).round(9).tolist() == [1.0] * 19 + [11.0]


# The fit.


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
    fits = [log_probability_of_epsilon(list(values), 0.39947) for values in (sharp, vague, missed)]
    assert fits[0] > fits[1] + 1.5 > fits[2] + 3
    assert fits[2] == pytest.approx(math.log(0.01 / 160))  # the broad distribution alone
    assert log_probability_of_eta([0.011] * 50, 0.011) > log_probability_of_eta([0.011] * 50, 0.013)
    assert log_probability_of_error([0.004] * 50, 0.00402) > log_probability_of_error([0.004] * 50, 0.006)


def test_the_fit_is_calibrated():
    """The expected log probability is largest for the distribution that the value comes from."""
    rng = np.random.default_rng(1)
    values = {spread: list(0.5 + spread * rng.standard_normal(200)) for spread in (0.05, 0.15, 0.45)}
    printed = 0.5 + 0.15 * rng.standard_normal(300)
    means = {
        spread: np.mean([log_probability_of_epsilon(one, max(value, 0.001)) for value in printed])
        for spread, one in values.items()
    }
    assert means[0.15] > max(means[0.05], means[0.45]) + 0.1


def test_a_fitted_parameter_costs_what_its_range_says():
    assert log_probability_of_fitted_error(FittedParameter(0.75, math.log(0.25))) == pytest.approx(
        math.log(0.99 * 0.01 * 0.25 + 0.01 * 0.01 / math.log(1e4))
    )
    unattainable = log_probability_of_fitted_error(FittedParameter(0.0, -math.inf))
    assert unattainable < log_probability_of_fitted_error(FittedParameter(0.99, math.log(1e-3)))


def result(seed=0, epsilon_c=0.4, eta=0.011, error=0.004, counts=(10, 0), ceiling=0.4):
    lambda_ = 0.05 + 2 * eta * math.exp(epsilon_c)
    return SeedResult(seed, epsilon_c, eta, lambda_, error, 0.02, ceiling, counts, 1.5 * error, 0.03)


def test_a_row_counts_every_printed_number_and_lambda_only_once():
    row = fit_row(FIRST_ROW, BASE, 0.8, [result(seed) for seed in range(20)])
    assert [fit.name for fit in row.fits] == ["epsilon_c", "eta", "lambda", "error", "error_adjacent"]
    assert [fit.name for fit in row.fits if fit.log_probability is None] == ["lambda"]
    assert row.saturated
    one = fit_row(FIRST_ROW, BASE._replace(error_runs="one"), 0.8, [result(seed) for seed in range(20)])
    assert one.error.median == 1.5 * row.error.median
    assert not fit_row(FIRST_ROW, BASE, 0.8, [result(counts=(10, 1), ceiling=0.5)] * 20).saturated
    assert ROWS["Q1, input perturbation, s̄ 0.944"].implied_eta == 0.026  # from the printed lambda


def test_the_best_reading_has_one_value_for_what_two_mechanisms_share():
    """The best W2-MHE reading alone needs m 1000, the best input reading alone m 5000: together, 3000 wins."""

    def fit(mechanism, runs, printed_value):
        name = {"W2-MHE": "Q1, W2-MHE, s 0.8", "input perturbation": "Q1, input perturbation, s̄ 0.944"}[mechanism]
        reading = BASE._replace(test_runs=runs)
        return ReadingFit(
            mechanism, reading, "", (fit_row(ROWS[name], reading, 0.8, [result(epsilon_c=printed_value)] * 9),)
        )

    good, fair, bad = 0.39947, 0.40, 1.4
    rankings = {
        "W2-MHE": (fit("W2-MHE", 1000, good), fit("W2-MHE", 3000, 0.418), fit("W2-MHE", 5000, bad)),
        "input perturbation": (
            fit("input perturbation", 5000, 0.70306),
            fit("input perturbation", 3000, 0.722),
            fit("input perturbation", 1000, bad + fair),
        ),
    }
    best = best_joint(rankings)
    assert best.reading.test_runs == 3000
    assert best.log_probability == pytest.approx(sum(ranking[1].log_probability for ranking in rankings.values()))


# The ceiling.


@pytest.mark.parametrize("shift", [10.0, 0.8])
def test_one_seed_has_the_numbers_of_verify(shift):
    settings = Settings.paper(seed=5, block=BLOCK, test_runs=2000)
    data = box_setup(shift)
    ours = run_seed(box, data, settings)
    report = verify(box, data.first, data.second, settings=settings, error=rmse(data.truth))
    assert (ours.epsilon_c, ours.eta, ours.lambda_) == (report.epsilon_critical, report.paper.eta, report.paper.lambda_)
    assert ours.counts == report.witness.counts
    assert (ours.error, ours.error_adjacent) == (report.error[0][0], report.error[1][0])


def test_disjoint_distributions_give_their_ceiling_and_others_less():
    for seed in range(5):
        disjoint = run_seed(box, box_setup(10.0), Settings.paper(seed=seed, block=BLOCK, test_runs=2000))
        assert disjoint.counts[1] == 0
        assert disjoint.epsilon_c == disjoint.ceiling
        assert disjoint.epsilon_c < 1.0  # although epsilon is infinite: 256 cells share the runs
    similar = [run_seed(box, box_setup(0.05), Settings.paper(seed=seed, block=BLOCK)) for seed in range(20)]
    assert np.mean([one.epsilon_c < one.ceiling for one in similar if min(one.counts) > 0]) > 0.8


def test_the_ceiling_follows_the_more_frequent_side():
    settings = Settings.paper(seed=1)
    forward, ceiling = sweep_with_ceiling((30, 6), settings)
    assert forward < ceiling == sweep_with_ceiling((30, 0), settings)[0]
    assert sweep_with_ceiling((6, 30), settings)[1] == sweep_with_ceiling((0, 30), settings)[0] > 1


@pytest.mark.parametrize("count", [0, 4, 6, 12, 40])
def test_the_fast_sweep_of_one_count_has_the_distribution_of_the_general_one(count):
    rng = np.random.default_rng(2)
    fast = ceiling_sweep(np.full(400, count), 3000, rng)
    general = [critical_epsilon(count, 0, 3000, rng=rng) for _ in range(150)]
    assert ks_2samp(fast, general).pvalue > 1e-4
    wrong = ceiling_sweep(np.full(400, count + 6), 3000, rng)  # negative control
    assert ks_2samp(wrong, general).pvalue < 1e-4


def test_fully_distinguishable_laws_explain_the_printed_values_best_with_about_3000_runs():
    printed = [ROWS[key].epsilon_c for key in ROWS if ROWS[key].mechanism == "W2-MHE" and ROWS[key].lambda_]
    assert printed == [0.39947, 0.11485, 0.53229, 0.98768]
    models = {model.test_runs: model for model in ceiling_by_runs(RUNS, printed, 2000)}
    assert max(models, key=lambda m: models[m].log_probability) == 3000
    assert models[3000].log_probability > models[1000].log_probability + 3
    assert models[3000].log_probability > models[10_000].log_probability + 3
    assert models[3000].epsilon_c.low < 0.39947 < models[3000].epsilon_c.high
    assert 0.009 <= models[3000].eta.median <= 0.012
    assert models[3000].epsilon_c.median == pytest.approx(0.55, abs=0.1)
    assert PAPER_EPSILON_SWEEP[1] - PAPER_EPSILON_SWEEP[0] == reading_fit.SWEEP_STEP
