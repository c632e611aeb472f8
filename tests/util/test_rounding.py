"""Noise in plain doubles leaks through rounding (examples/rounding.py); correct mechanisms are not refuted."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

import dpverify as dpv

RUNS = {"select_runs": 1000, "test_runs": 4000, "alpha": 1e-6}
pytest.importorskip("opendp", reason="the example compares with OpenDP")


@pytest.fixture(scope="module")
def rounding():
    path = Path(__file__).parents[2] / "examples" / "rounding.py"
    spec = importlib.util.spec_from_file_location("rounding", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["textbook", "numpys"])
def test_a_score_of_the_last_bits_refutes_noise_in_plain_doubles(rounding, name):
    mechanism = getattr(rounding, name)
    report = dpv.verify(mechanism, 0.0, 1.0, 1.0, events=rounding.finer, **RUNS)
    assert report.refuted
    assert report.epsilon_lower > 4
    first, second = report.witness.counts
    assert first > 0.2 * report.witness.runs
    assert second == 0  # always: one plus a double is a multiple of 2^-53
    assert not dpv.verify(mechanism, 0.0, 1.0, 1.0, **RUNS).refuted  # the sizes of the outputs do not violate the claim


def test_one_plus_a_double_has_no_finer_bits(rounding):
    noise = np.random.default_rng(0).laplace(size=200_000)
    assert not rounding.finer((1.0 + noise)[:, None, None]).any()
    assert rounding.finer(noise[:, None, None]).mean() > 0.2


def coarse(data, runs, rng):
    """Add noise on one grid (Mironov's snapping mechanism is a refined form of it)."""
    noise = np.round(rng.laplace(size=runs) * 2.0**20)
    return (data * 2.0**20 + noise) / 2.0**20


def test_noise_on_one_grid_is_not_refuted(rounding):
    report = dpv.verify(coarse, 0.0, 1.0, 1.0, events=rounding.finer, **RUNS)
    assert not report.refuted
    assert report.witness.counts in ((0, 0), (4000, 4000))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:this mechanism can't be seeded")
def test_the_noise_of_opendp_is_not_refuted(rounding):
    """OpenDP adds exact noise and rounds the sum; rounding the sum reveals no more than the sum."""
    mechanism = rounding.opendp_measurement(rounding.opendps)
    claim = mechanism.claim(1.0)
    assert math.isclose(claim, 1.0)
    report = dpv.verify(mechanism, 0.0, 1.0, claim, events=rounding.finer, **RUNS)
    assert not report.refuted
    assert min(report.witness.counts) > 0.05 * report.witness.runs  # both datasets have such bits
