"""Readings of the paper's experiment: what is varied, and how a reading is scored."""

import math

import numpy as np
import pytest

from reproduction.experiment import clipped_covariance, noiseless_states, positions_only, seeded_setup
from reproduction.fit import (
    best_joint,
    cell_probability,
    fit_row,
    log_probability,
    make_rankings,
    make_trend,
    mechanism_reading,
    ranking_tasks,
)
from reproduction.measure import RowResult, RowTask, SeedResult, errors_of_means, fit_s_hat
from reproduction.paper import BASE, CELL, ERROR_RUNS, MECHANISMS, PLAN, all_readings, computed_constants, difference

FIRST_ROW = "Q1, W2-MHE, s 0.8"
STEP = 1.499 / 79


# What is printed, and what is varied


def test_all_printed_numbers_are_present_and_consistent():
    finite = [cell.epsilon_c for cell in CELL.values() if math.isfinite(cell.epsilon_c)]
    assert len(finite) == 11
    assert len(computed_constants()) == 13
    for name, constant in computed_constants().items():
        digits = len(str(constant.printed).partition(".")[2])
        assert f"{constant.ours:.{digits}f}" == str(constant.printed), name
        assert constant.agrees


def test_31_printed_numbers_are_independent():
    """Lambda follows from eta and epsilon_c, and the error that fixed the EKF's parameter predicts nothing."""
    finite = [key for key, cell in CELL.items() if math.isfinite(cell.epsilon_c)]
    names = [fit.name for key in finite for fit in fit_row(made_result(key), 1).fits]
    assert len(names) == 31
    assert (names.count("epsilon_c"), names.count("eta"), names.count("error")) == (11, 8, 10)


def test_the_readings_are_those_of_the_plan():
    for mechanism in MECHANISMS:
        readings = all_readings(mechanism)
        assert all(reading == mechanism_reading(reading, mechanism) for reading in readings)  # nothing else is varied
        assert set(all_readings(mechanism, quick=True)) <= set(readings)
        assert all(reading.recording == "quiet" and reading.prior == "start" for reading in readings)
    laws = [reading.law for reading in all_readings("W2-MHE")]
    assert laws.count("gibbs") >= laws.count("blend")
    changed = BASE._replace(noise="run", tau=1.4e-5)
    assert difference(changed, BASE) == "tau 1.4e-05, input noise once per run"
    assert difference(BASE, BASE) == "base"
    tasks = [task for group in ranking_tasks("full") for task in group]
    assert len(set(tasks)) == len(tasks)
    assert all(CELL[task.row].setup == "Q1" for task in tasks)
    for name in PLAN["choices"]:
        assert name in BASE._fields


def test_a_recording_is_adjacent_in_degrees_and_not_in_radians():
    for angle, low, high in (("degrees", 0.5, 3.0), ("radians", 40.0, 150.0), ("exact", 9.999, 10.001)):
        data = seeded_setup("Q1", 0, angle, "quiet")
        assert low < np.linalg.norm(data.first - data.second) < high
        np.testing.assert_allclose(data.truth, noiseless_states()[:4, :2], atol=1e-9)
        assert seeded_setup("Q1", 0, angle, "quiet") is data


def test_an_estimator_of_positions_knows_the_velocities():
    data = seeded_setup("Q1", 0, "degrees", "quiet")
    model = positions_only(data.system)
    states = noiseless_states()
    for k in range(4):
        np.testing.assert_allclose(model.step(states[k, :2], k), states[k + 1, :2], atol=1e-6)


def test_the_printed_covariance_is_indefinite_and_the_clipped_one_is_not():
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert np.linalg.eigvalsh(clipped_covariance(rng))[0] == pytest.approx(0, abs=1e-12)


def test_errors_are_norms_of_the_error_of_means():
    truth = np.zeros((4, 2))
    samples = np.random.default_rng(0).standard_normal((400, 8))
    samples[0] = np.nan  # an abandoned run
    errors = errors_of_means(samples, truth)
    assert errors[0] == pytest.approx(np.linalg.norm(samples[1]))
    assert errors[ERROR_RUNS.index(100)] == pytest.approx(np.linalg.norm(samples[1:101].mean(0)))


def test_the_fitted_parameter_of_the_ekf_gives_the_printed_error():
    assert fit_s_hat(BASE) == pytest.approx(1 / (1 + 0.0066205 / math.sqrt(8) * 2), rel=2e-4)  # noise on the output


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
    fits = [log_probability("epsilon_c", values, 0.39947, STEP) for values in (sharp, vague, missed)]
    assert fits[0] > fits[1] + 1.5 > fits[2] + 3
    assert fits[2] == pytest.approx(math.log(0.01 * STEP / 3))  # the broad distribution alone
    fifty = np.ones(50)
    assert log_probability("eta", 0.011 * fifty, 0.011, STEP) > log_probability("eta", 0.011 * fifty, 0.013, STEP)
    assert log_probability("error", 0.004 * fifty, 0.00402, STEP) > log_probability("error", 0.004 * fifty, 0.006, STEP)


def test_a_printed_number_is_judged_by_the_step_of_its_sweep():
    values = 2.0 + 0.1 * np.random.default_rng(0).standard_normal(200)
    coarse, fine = (log_probability("epsilon_c", values, 1.9239, step) for step in (14.999 / 39, STEP))
    assert coarse > math.log(0.5) > fine


def test_the_fit_is_calibrated():
    """The expected log probability is largest for the distribution that the value comes from."""
    rng = np.random.default_rng(1)
    values = {spread: 0.5 + spread * rng.standard_normal(200) for spread in (0.05, 0.15, 0.45)}
    printed = 0.5 + 0.15 * rng.standard_normal(300)
    means = {
        spread: np.mean([log_probability("epsilon_c", one, max(value, 0.001), STEP) for value in printed])
        for spread, one in values.items()
    }
    assert means[0.15] > max(means[0.05], means[0.45]) + 0.1


def made_result(key, epsilon=0.4, reading=BASE, seed=7):
    """Return made-up seeds of a row, whose epsilon_c is near a value."""
    epsilons = epsilon + 0.05 * np.random.default_rng(seed).standard_normal(20)
    errors = tuple(0.005 / runs**0.5 for runs in ERROR_RUNS)
    seeds = [SeedResult(float(x), 0.011, errors, errors, 13, k % 4) for k, x in enumerate(epsilons)]
    return RowResult(RowTask(key, reading, 0, 20), 0.9, tuple(seeds))


def test_a_row_has_its_ranges():
    fit = fit_row(made_result(FIRST_ROW), 100)
    assert fit.both == 0.75
    assert fit.numbers["error"].median == pytest.approx(0.0005)
    assert [number.name for number in fit.fits] == ["epsilon_c", "eta", "error", "error_adjacent", "count"]
    assert fit.fits[0].inside
    assert not fit_row(made_result(FIRST_ROW, 1.2), 1).fits[0].inside


def test_the_joint_reading_has_one_value_of_what_mechanisms_share():
    """The EKF alone prefers another angle; the W2-MHE was not measured there, so the joint reading has the base's."""
    radians = BASE._replace(angle="radians")
    results = [made_result(key) for key, cell in CELL.items() if cell.setup == "Q1" and cell.epsilon_c < math.inf]
    results += [made_result(key, CELL[key].epsilon_c, radians) for key in CELL if "Q1, private EKF" in key]
    rankings = make_rankings(results)
    assert rankings["private EKF"][0].reading.angle == "radians"
    best = best_joint(rankings)
    assert best.reading.angle == "degrees"
    assert best.log_probability == pytest.approx(sum(fit.log_probability for row in best.rows for fit in row.fits))
    assert len({fit.reading.error_runs for fit in rankings["W2-MHE"]}) == len(ERROR_RUNS)


def test_a_direction_is_reproduced_where_its_interval_lies_on_the_printed_side():
    high, low = made_result(FIRST_ROW, 0.8, seed=1), made_result(FIRST_ROW, 0.4, seed=2)
    assert make_trend("falls", (0.4, 0.1), high, low).answer == "reproduced"
    assert make_trend("grows", (0.4, 2.0), high, low).answer == "contradicted"
    same = make_trend("falls", (0.4, 0.1), low, made_result(FIRST_ROW, 0.4, seed=3))
    assert same.answer == "undecided"
    assert 0 < same.share < 1
