"""The ceiling of the paper's procedure: what it reports for two distributions that share no output."""

import numpy as np
import pytest
from scipy.stats import hypergeom

import dpverify as dpv
from dpverify.paper.readings.fit import ceiling_by_runs, ceiling_sweep
from dpverify.settings import Settings
from dpverify.stats.paper_test import critical_epsilon


@pytest.mark.parametrize("runs", [1000, 3000, 10_000])
def test_the_ceiling_depends_on_the_count_alone(runs):
    """The p-value of counts (c', 0) is near 2^-c', so that the test rejects from 5 on, for every m."""
    accepted, rejected = hypergeom.sf([3, 4], 2 * runs, runs, [4, 5])
    assert rejected <= 0.05 < accepted
    medians = [np.median(ceiling_sweep(np.full(2000, c), runs, np.random.default_rng(0))) for c in (6, 10, 20, 60)]
    np.testing.assert_allclose(medians, [0.15, 0.48, 1.0, 2.0], atol=0.04)  # two steps of the sweep


def test_the_fast_sweep_has_the_distribution_of_the_papers_sweep():
    rng = np.random.default_rng(1)
    slow = [float(critical_epsilon(12, 0, 3000, rng=rng)) for _ in range(200)]
    fast = ceiling_sweep(np.full(5000, 12), 3000, rng)
    share = float(np.mean(np.array(slow) <= np.median(fast)))
    assert abs(share - 0.5) < 4 * np.sqrt(0.25 / 200)


class UniformCells:
    """Four steps, each uniform on a square; the second data set shifts every step out of the first one's square."""

    def __call__(self, data, runs, rng):
        return float(data) + rng.random((runs, 4, 2))


def test_disjoint_distributions_reach_the_ceiling():
    """Inside R only the first data set has runs; the critical epsilons are those of the model, far below infinity."""
    (model,) = ceiling_by_runs([Settings.paper().test_runs], [], 4000)
    epsilons, second_counts = [], []
    for seed in range(12):
        report = dpv.verify(UniformCells(), 0.0, 50.0, settings=Settings.paper(seed=seed))
        epsilons.append(report.epsilon_critical)
        second_counts.append(min(report.witness.counts))
    assert set(second_counts) == {0}
    inside = sum(model.epsilon_c.low <= epsilon <= model.epsilon_c.high for epsilon in epsilons)
    assert inside >= 8  # P[Bin(12, 0.9) < 8] is below 0.005
    # Negative control: with the complement as an event, the same distributions are told apart.
    with_complement = dpv.verify(UniformCells(), 0.0, 50.0, settings=Settings.paper(seed=0, complement=True))
    assert with_complement.epsilon_critical > 3 > model.epsilon_c.high
