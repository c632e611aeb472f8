"""Evidence over versions: false alarms over whole lives, faults after a long healthy time, and carried bets."""

import numpy as np
import pytest
from limits import most

from dpverify.claims import gaussian, sloped_boundary
from dpverify.stats.anytime import (
    STRATEGY_WEIGHTS,
    CarriedBet,
    carried_log_e_values,
    carry_bet,
    combine_versions,
    predict_faults,
    project,
    start_weight,
)
from dpverify.stats.boundaries import line_boundary

ALPHA = 0.05


def lognormal(rng, shape, spread):
    """Logarithms of e-values with mean exactly 1."""
    return rng.normal(-(spread**2) / 2, spread, shape)


def raises_alarm(log_e, weight):
    """Whether the mixture over starts with these weights ever reaches 1 / ALPHA; computed by its recursion."""
    mixture, later = 0.0, 1.0
    for number, factor in enumerate(np.exp(log_e), 1):
        mixture, later = (mixture + weight(number)) * factor, later - weight(number)
        if mixture + max(later, 0.0) >= 1 / ALPHA:
            return True
    return False


def test_weights_sum_to_one():
    assert sum(STRATEGY_WEIGHTS) == 1
    assert sum(map(start_weight, range(1, 10_001))) == pytest.approx(1 - 1 / 10_001)


def test_the_mixture_agrees_with_its_recursion():
    log_e = lognormal(np.random.default_rng(0), (30, 1), 1.5)
    mixture, later = 0.0, 1.0
    for number, factor in enumerate(np.exp(log_e[:, 0]), 1):
        mixture, later = (mixture + start_weight(number)) * factor, later - start_weight(number)
        assert combine_versions(log_e[:number], [1.0]).log_value == pytest.approx(np.log(mixture + later))


def test_false_alarms_over_whole_lives():
    rng = np.random.default_rng(1)
    lives = [lognormal(rng, 300, spread) for spread in (0.5, 1.5, 3.0) for _ in range(300)]
    assert sum(raises_alarm(life, start_weight) for life in lives) <= most(len(lives), ALPHA)
    wrong = sum(raises_alarm(life, lambda number: 1.0) for life in lives)  # weights that do not sum to 1
    assert wrong > most(len(lives), ALPHA)


def test_a_fault_after_many_healthy_versions_is_seen_and_dated():
    rng = np.random.default_rng(2)
    healthy, faulty = rng.normal(-1.8, 1.5, (500, 1)), rng.normal(4.0, 1.5, (6, 1))
    evidence = combine_versions(np.concatenate([healthy, faulty]), [1.0])
    assert evidence.log_value > np.log(1 / ALPHA)
    assert abs(evidence.start - 500) <= 1
    assert np.sum(healthy) + np.sum(faulty) < -500  # the plain product would never show it


@pytest.mark.parametrize("boundary", [line_boundary(1.0), line_boundary(0.3, 0.05), sloped_boundary(gaussian(1.0))])
@pytest.mark.parametrize("counts", [(500, 184), (300, 290), (950, 940), (40, 0), (1000, 1000)])
def test_a_carried_bet_has_mean_one_at_most_if_the_claim_is_true(boundary, counts):
    predictions = predict_faults(*counts, 1000, 20_000, boundary)
    q = np.concatenate([np.geomspace(1e-7, 0.1, 100), np.linspace(0.1, 1, 100)])
    for a, b in predictions:
        assert a > float(boundary(np.array(b))) or a > 0.999  # it predicts a violation
        nearest = project(a, b, boundary)
        largest = np.max(_log_mean(a, b, float(nearest.q1), float(nearest.q2), boundary(q), q))
        assert largest <= float(nearest.log_excess) + 1e-12
    a, b = predictions[-1]
    if a < 0.99:  # negative control: probabilities that are not the nearest ones
        nearest = project(a, b, boundary)
        wrong = np.max(_log_mean(a, b, float(nearest.q1) * 0.9, float(nearest.q2), boundary(q), q))
        assert wrong > 1e-3


def _log_mean(a, b, q1, q2, p1, p2):
    """The logarithm of the mean factor of one run per dataset with probabilities p1 and p2."""
    f = p1 * a / q1 + (1 - p1) * (1 - a) / (1 - q1)
    g = p2 * b / q2 + (1 - p2) * (1 - b) / (1 - q2)
    return np.log(f) + np.log(g)


def test_carried_bets_collect_evidence_of_a_small_fault():
    """2% less noise gives less than one nat per version of 20 000 runs; the bets of one version alone lose more."""
    rng, boundary = np.random.default_rng(3), line_boundary(1.0)

    def version(noise):
        """Counts in the cells of Laplace noise around 0 and 1."""
        edges = np.array([-1.0, 0.0, 0.5, 1.0, 2.0])
        draws = [centre + rng.laplace(scale=noise, size=20_000) for centre in (0.0, 1.0)]
        return np.array([np.bincount(np.searchsorted(edges, side), minlength=6) for side in draws])

    cells = sum(version(1.0) for _ in range(10))
    bet = carry_bet(cells, 200_000, 20_000, boundary)
    assert set(bet.cells) <= ({0, 1, 2}, {3, 4, 5})[bet.direction]
    table = [[0.0, *carried_log_e_values(version(0.98), 20_000, bet, boundary)] for _ in range(60)]
    assert combine_versions(table).log_value > np.log(1 / ALPHA)
    healthy = [[0.0, *carried_log_e_values(version(1.0), 20_000, bet, boundary)] for _ in range(60)]
    assert combine_versions(healthy).log_value < np.log(1 / ALPHA)


def test_a_bet_counts_its_own_direction():
    bet, swapped = CarriedBet((0,), 0, ((0.6, 0.15),)), CarriedBet((0,), 1, ((0.6, 0.15),))
    cells = np.array([[300, 200], [80, 420]])
    values = carried_log_e_values(cells, 500, bet, line_boundary(1.0))
    assert values == carried_log_e_values(cells[::-1], 500, swapped, line_boundary(1.0))
    assert values[0] > 4
