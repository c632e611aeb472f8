"""The plan of the reproduction, and the numbers that the paper prints."""

import math
import tomllib

from dpverify.paper.measurements import CalibratedNumbers
from dpverify.paper.page.output import computed_constants
from dpverify.paper.plan import read_plan, study_tasks, to_toml
from dpverify.paper.printed import is_calibration_cell, is_on_sweep, read_printed
from dpverify.paper.sensor_draws import FAMILY_READINGS
from dpverify.stats.paper_test import paper_lambda

CALIBRATED = CalibratedNumbers(tau=1.4e-5, s_hat=0.993, says="")


def test_all_printed_numbers_are_present_and_consistent():
    finite = [value for value in read_printed().critical_epsilons if math.isfinite(value)]
    assert len(finite) == 14
    assert sum(map(is_on_sweep, finite)) == 8
    for cell in read_printed().cells:
        if cell.eta is not None:
            assert round(paper_lambda(0.05, cell.eta, cell.epsilon_c), 4) == cell.lambda_


def test_computed_constants_equal_the_printed_ones():
    for name, constant in computed_constants().items():
        printed = str(constant.printed)
        digits = len(printed.partition(".")[2])
        assert f"{constant.ours:.{digits}f}" == printed, name


def test_two_cells_are_used_for_calibration():
    cells = [(cell, name) for cell in read_printed().cells for name in ("gibbs", "blend", "perturbed", "ekf")]
    used = {(cell.setup, name, cell.error) for cell, name in cells if is_calibration_cell(cell, name)}
    assert ("Q1", "gibbs", 0.0040408) in used
    assert ("Q1", "ekf", 0.0066205) in used
    assert all(setup == "Q1" and name in ("gibbs", "ekf") for setup, name, _ in used)


def test_every_study_is_a_file_that_reads_back():
    plan = read_plan()
    for effort in (plan.quick, plan.full):
        tasks = list(study_tasks(plan, effort, CALIBRATED))
        assert {task.name for task in tasks} >= {"certified-Q2", "map-Q1"}
        for task in tasks:
            assert tomllib.loads(to_toml(task.document)) == task.document
        assert set(effort.draw_families) <= set(FAMILY_READINGS) == set(plan.yardstick)
        assert all(len(effort.values(family)) >= 2 for family in effort.draw_families)
    assert plan.full.readings.best == 200
    assert plan.full.draws >= 60
