"""The leak of plain doubles through their rounding: examples/rounding.py, and that its score accuses nobody else."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

import dpverify as dpv

RUNS = {"select_runs": 1000, "test_runs": 4000, "alpha": 1e-6}
pytest.importorskip("opendp", reason="the example lays OpenDP beside it")


@pytest.fixture(scope="module")
def rounding():
    path = Path(__file__).parents[2] / "examples" / "rounding.py"
    spec = importlib.util.spec_from_file_location("rounding", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["textbook", "numpys"])
def test_a_score_on_the_last_bits_refutes_noise_in_plain_doubles(rounding, name):
    mechanism = getattr(rounding, name)
    report = dpv.verify(mechanism, 0.0, 1.0, 1.0, events=rounding.finer, **RUNS)
    assert report.refuted
    assert report.epsilon_lower > 4
    first, second = report.witness.counts
    assert first > 0.2 * report.witness.runs
    assert second == 0  # by arithmetic, not by luck: one plus a double is a multiple of 2^-53
    assert not dpv.verify(mechanism, 0.0, 1.0, 1.0, **RUNS).refuted  # by their size nothing can be told


def test_one_plus_a_double_has_no_bit_below(rounding):
    noise = np.random.default_rng(0).laplace(size=200_000)
    assert not rounding.finer((1.0 + noise)[:, None, None]).any()
    assert rounding.finer(noise[:, None, None]).mean() > 0.2


def coarse(data, runs, rng):
    """Mended: noise and sum on one grid (Mironov's snapping is a finer form of it)."""
    noise = np.round(rng.laplace(size=runs) * 2.0**20)
    return (data * 2.0**20 + noise) / 2.0**20


def test_rounded_to_one_grid_nothing_leaks(rounding):
    report = dpv.verify(coarse, 0.0, 1.0, 1.0, events=rounding.finer, **RUNS)
    assert not report.refuted
    assert report.witness.counts in ((0, 0), (4000, 4000))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the mechanism cannot be seeded")
def test_opendps_noise_stands(rounding):
    """It is drawn exactly and rounded at the end: rounding the sum can't tell more than the sum."""
    mechanism = rounding.opendp_measurement(rounding.opendps)
    claim = mechanism.claim(1.0)
    assert math.isclose(claim, 1.0)
    report = dpv.verify(mechanism, 0.0, 1.0, claim, events=rounding.finer, **RUNS)
    assert not report.refuted
    assert min(report.witness.counts) > 0.05 * report.witness.runs  # both sides have such bits
