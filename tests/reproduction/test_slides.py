"""What the figures on the authors' slides say, from the digitised numbers."""

import math

import numpy as np
import pytest

import dpverify as dpv
from reproduction import slides
from reproduction.measure import critical_epsilon
from reproduction.paper import CELL, CELLS, FINER, SLIDES, SWEEP, sweep_step


def test_the_average_over_thinnings_for_35_and_12_is_the_drawn_curve():
    own, second, disjoint = slides.curve_fits()
    assert own.counts == (35, 12)
    assert own.rms < 0.005
    assert round(own.end, 3) == 0.847
    assert f"{own.epsilon_c:.5f}" == "0.39947"
    assert second.rms > 2 * own.rms
    assert disjoint.rms > 0.1
    assert np.all(np.diff(SLIDES["curve"]) >= 0)  # one thinning for each epsilon would give many decreases


@pytest.mark.parametrize("runs", [1000, 10_000])
def test_the_curve_does_not_depend_on_the_number_of_runs(runs):
    values = [dpv.p_values(*SLIDES["counts"], runs, float(epsilon), None)[0] for epsilon in SWEEP]
    assert np.sqrt(np.mean(np.subtract(values, SLIDES["curve"]) ** 2)) < 0.005
    assert f"{critical_epsilon((35, 12), runs, (1.5, 80)):.5f}" == "0.39947"


def test_the_drawn_errors_are_norms_of_the_whole_error():
    """A marker is known to .0007 in the vertical direction, so a norm of eight differences to about .002."""
    for one in slides.drawn_errors():
        assert abs(one.norm - one.printed) < 0.0025
        assert one.rms < 0.6 * one.printed
    assert slides.drawn_ratio() == pytest.approx(1.1, abs=0.2)


def test_every_printed_epsilon_lies_on_its_sweep_in_every_digit():
    printed = [(cell.epsilon_c, cell.sweep) for cell in CELLS if math.isfinite(cell.epsilon_c)]
    printed += [(grid["epsilon_c"], grid.get("sweep", (1.5, 80))) for grid in FINER.values()]
    assert len(printed) == 14
    for value, sweep in printed:
        step = sweep_step(sweep)
        nearest = 0.001 + round((value - 0.001) / step) * step
        assert f"{nearest:.5g}" == f"{value:.5g}"
        assert value <= sweep[0]
    assert sum(map(len, slides.sweeps().values())) == 14


@pytest.mark.parametrize("counts", [(35, 12), (12, 27), (16, 0), (0, 40), (500, 20)])
def test_bisection_finds_the_first_point_of_the_sweep(counts):
    p = np.array([min(dpv.p_values(*counts, 1000, float(epsilon), None)) for epsilon in SWEEP])
    found = critical_epsilon(counts, 1000, (1.5, 80))
    if (p > 0.05).any():
        assert found == pytest.approx(SWEEP[np.argmax(p > 0.05)])
    else:
        assert found > SWEEP[-1]


def test_the_slides_print_another_version_of_one_row():
    cell = CELL["Q1, input perturbation, s̄ 0.894"]
    assert round(dpv.paper_lambda(0.05, 0.010, cell.slide["epsilon_c"]), 4) == cell.slide["lambda"]
    assert cell.implied_eta == 0.028
