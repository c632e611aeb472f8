"""The examples in other languages, if the language is installed, compared with the exact epsilon.

A reading that differs by 1 changes the smoothed estimates by 1/2, 1/4, 1/8 and 1/16. At scale 1, epsilon is 0.9375.
"""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import dpverify as dpv

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FIRST, SECOND = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 2.0, 3.0, 4.0])
SMOOTHED = np.array([0.5, 1.25, 2.125, 3.0625])
EXACT = 0.9375
OCTAVE = ["octave-cli", "-q", "--path", str(EXAMPLES), "--eval"]
CALL = "smoother('{data}', {runs}, {seed}, '{out}')"


def needs(name):
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")


@pytest.fixture
def argv(request, tmp_path):
    if request.param != "C":
        return request.param
    built = tmp_path / "smoother"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", built, EXAMPLES / "smoother.c", "-lm"], check=True)
    return [built]


LANGUAGES = [
    pytest.param("C", marks=needs("cc"), id="C"),
    pytest.param(["perl", str(EXAMPLES / "smoother.pl")], marks=needs("perl"), id="Perl"),
    pytest.param([*OCTAVE, "smoother"], marks=[needs("octave-cli"), pytest.mark.slow], id="Octave"),
    pytest.param([*OCTAVE, CALL], marks=[needs("octave-cli"), pytest.mark.slow], id="Octave-files"),
]


@pytest.mark.parametrize("argv", LANGUAGES, indirect=True)
def test_the_bound_for_the_smoother_is_below_the_exact_value(argv):
    mechanism = dpv.program(argv, (4, 1))
    runs = mechanism(FIRST, 10_000, np.random.default_rng(0))
    assert np.abs(np.median(runs, axis=0).ravel() - SMOOTHED).max() < 0.05  # five standard errors
    report = dpv.verify(mechanism, FIRST, SECOND, EXACT / 2, select_runs=20_000, test_runs=50_000, block=10_000)
    assert report.refuted
    assert 0.6 < report.epsilon_lower < EXACT
    assert not report.against(EXACT).refuted
