"""Calibration of the W2-MHE agrees with the calibration of a ten times longer run."""

import functools

import numpy as np
import pytest

import dpverify as dpv
from dpverify.estimation import W2MHE, adjacent_pair, oscillator


def mechanism(system, s):
    return W2MHE(system, 5, s, 1.4e-5)


@pytest.mark.slow
def test_ten_times_the_runs_give_the_same_parameter():
    """Both calibrations use the same delta and the same partition, the paper's grid with two bins."""
    system = oscillator()
    first, second = adjacent_pair(system, system.h, 0, 3.0, np.random.default_rng(0))
    family = functools.partial(mechanism, system)
    grid = {"partition": "grid", "resolution": 2, "block": 8192}
    call = (family, (0.5, 0.95), first, second, 1.0, 0.01)
    short = dpv.calibrate(*call, select_runs=16_384, test_runs=32_768, **grid)
    long = dpv.calibrate(*call, select_runs=163_840, test_runs=327_680, seed=1, **grid)
    for calibration in (short, long):
        print(calibration.sufficient, calibration.parameter, calibration.insufficient)
    assert short.parameter == pytest.approx(long.parameter, rel=0.05)
    assert short.insufficient > short.parameter
    assert short.sufficient is None or short.sufficient < short.parameter
