"""Structured scores through `verify`: they cause no false alarms, and they refute what the usual scores miss."""

import numpy as np
import pytest
from limits import most

import dpverify as dpv


def one_record(side, runs, rng):
    """Twelve exchangeable records; with dataset 0 one of them is large."""
    x = rng.standard_normal((runs, 12, 1))
    if side == 0:
        x[np.arange(runs), rng.integers(12, size=runs)] += 2.5
    return x


def refutations(first, second, seeds, epsilon):
    sizes = {"select_runs": 8000, "test_runs": 4000}
    return sum(dpv.verify(one_record, first, second, epsilon, seed=seed, **sizes).refuted for seed in range(seeds))


@pytest.mark.slow
def test_structured_scores_cause_no_false_alarms():
    assert refutations(1, 1, 60, 0.0) <= most(60, 0.05)
    assert refutations(0, 0, 60, 0.0) <= most(60, 0.05)
    assert refutations(0, 1, 10, 1.0) == 10  # negative control


def test_one_record_that_differs_is_found():
    report = dpv.verify(one_record, 0, 1, select_runs=20_000, test_runs=50_000)
    assert report.epsilon_lower > 4
    assert "records" in report.witness.text or "sorted" in report.witness.text
