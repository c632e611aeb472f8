"""The paper's sufficient epsilon to its printed digits; our own bound against laws that are known."""

import numpy as np
import pytest

from dpverify.errors import InputError
from dpverify.estimation import W2MHE, System, adjacent_pair, oscillator
from dpverify.paper.demo import rows
from dpverify.estimation.theory import (
    gibbs_epsilon,
    gibbs_epsilon_within,
    sufficient_epsilon,
    w2mhe_epsilon,
    w2mhe_lipschitz,
)

SYSTEM = oscillator()
MECHANISM = W2MHE(SYSTEM, 5, 0.8, 1.4e-5)


def test_the_papers_numbers():
    c_f = SYSTEM.lipschitz
    assert round(c_f, 5) == 1.07767
    assert round(w2mhe_lipschitz(c_f, 5), 1) == 1293.2
    assert round(w2mhe_epsilon(0.8, w2mhe_lipschitz(c_f, 5), c_f, 0.1, 10, 3), 1) == 6474.3
    assert round(sufficient_epsilon(MECHANISM, 10, 3), 1) == 6474.3
    assert w2mhe_epsilon(1.0, 1.0, 1.0, 1.0, 1.0, 1) == np.inf


def line_system():
    return System(A=[[0.9]], C=[[2.0]], start=(0.3,))


def log_densities(mechanism, data, points=2001):
    """On a grid over K_0 x K_1, for the linear system on a line with window 0."""
    ball = mechanism.sets(2)
    first, second = ball.centre + ball.radius[:, None] * np.linspace(-1, 1, points)

    def step(z, prior, y):
        log = -(np.square(z - prior) / (2 * mechanism.tau) + np.square(y - 2 * z) / 2) / mechanism.kappa
        weights = np.full(points, z[1] - z[0])
        weights[[0, -1]] /= 2
        return log - np.log(np.exp(log) @ weights)[:, None]

    return step(first, np.array([[0.3]]), data[0, 0]).T + step(second, 0.9 * first[:, None], data[1, 0])


@pytest.mark.parametrize(("s", "tau"), [(0.5, 1.0), (0.8, 0.1), (0.3, 10.0)])
def test_our_bound_holds_and_is_near_where_the_law_is_known(s, tau):
    mechanism = W2MHE(line_system(), 0, s, tau, support="wide", radius=0.5)
    first, second = np.array([[0.4], [1.0]]), np.array([[0.7], [0.8]])
    exact = np.abs(log_densities(mechanism, first) - log_densities(mechanism, second)).max()
    bound = gibbs_epsilon(mechanism, first, second)
    assert exact <= bound <= 2.5 * exact
    assert bound <= gibbs_epsilon_within(mechanism, np.linalg.norm(first - second), 2)
    # the oscillation itself: (y1 - y2) 2 z / kappa over an interval of length 1, both steps
    np.testing.assert_allclose(bound, (0.6 + 0.4) / mechanism.kappa, rtol=1e-6)


@pytest.mark.parametrize("c", [0.7, 0.1, 1 / 3])
def test_nothing_is_rounded_to_32_bits(c):
    mechanism = W2MHE(System(A=[[1.0]], C=[[c]], start=(0.0,)), 0, 0.5, 1.0, support="wide", radius=0.5)
    assert c <= gibbs_epsilon_within(mechanism, 1.0, 1) <= c * (1 + 1e-8)


def test_our_bound_is_below_the_papers_and_above_none_of_its_pairs():
    within = gibbs_epsilon_within(MECHANISM, 10, 3)
    assert within < 6474.3 / 7
    first, second = adjacent_pair(SYSTEM, SYSTEM.h, 0, 10.0, np.random.default_rng(0), steps=7)
    assert 0 < gibbs_epsilon(MECHANISM, first, second) < within
    assert gibbs_epsilon(MECHANISM, first, first) == 0


def test_what_has_no_theory_is_refused():
    with pytest.raises(InputError, match="theorem's sets"):
        sufficient_epsilon(W2MHE(SYSTEM, 5, 0.8, 1.4e-5, support="wide", radius=1.0), 10, 3)
    with pytest.raises(InputError, match="support moves"):
        gibbs_epsilon_within(W2MHE(SYSTEM, 5, 0.8, 1.4e-5, law="blend"), 10, 3)
    with pytest.raises(InputError, match="s: found 2"):
        w2mhe_epsilon(2, 1.0, 1.0, 1.0, 1.0, 1)
    with pytest.raises(InputError, match="negative"):
        w2mhe_epsilon(0.5, 1.0, -1.0, 1.0, 1.0, 1)
    with pytest.raises(InputError, match="found distance -1"):
        gibbs_epsilon_within(MECHANISM, -1.0, 3)
    with pytest.raises(InputError, match="same number of steps"):
        gibbs_epsilon(W2MHE(line_system(), 0, 0.5, 1.0), np.ones((3, 1)), np.ones((2, 1)))


@pytest.mark.slow
def test_the_demo_says_nothing_that_contradicts_itself():
    """Proved below what the proposition allows, and that below the paper's condition, at every s."""
    for mechanism, report, ours, theorem in rows((0.8, 0.5)):
        assert 0 < report.epsilon_lower <= ours <= theorem
        assert report.name == mechanism.name
