"""The paper's sufficient epsilon agrees with its printed digits; certified bounds agree with known distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpverify as dpv
from dpverify.errors import DPVerifyWarning, InputError
from dpverify.estimation import W2MHE, Normal, System, adjacent_pair, oscillator, sensor_circle, simulate
from dpverify.estimation.theory import (
    gibbs_epsilon,
    gibbs_epsilon_within,
    sufficient_epsilon,
    w2mhe_epsilon,
    w2mhe_lipschitz,
)

SYSTEM = oscillator()
MECHANISM = W2MHE(SYSTEM, 5, 0.8, 1.4e-5)


def test_the_formula_gives_the_papers_numbers():
    c_f = SYSTEM.lipschitz
    assert round(c_f, 5) == 1.07767
    assert round(w2mhe_lipschitz(c_f, 5), 1) == 1293.2
    assert round(w2mhe_epsilon(0.8, w2mhe_lipschitz(c_f, 5), c_f, 0.1, 10, 3), 1) == 6474.3
    assert round(sufficient_epsilon(MECHANISM, 10, 3), 1) == 6474.3
    assert w2mhe_epsilon(1.0, 1.0, 1.0, 1.0, 1.0, 1) == np.inf


def contracting_mechanism():
    """The counter-example to the reconstructed formula: a linear system with c_f = 0.3."""
    return W2MHE(System(A=[[0.3]], C=[[200.0]], start=(0.0,)), 5, 0.8, 1.0)


def test_the_formula_raises_a_warning_for_a_contracting_system():
    """The formula gives 2.33, but the first released estimate alone has events whose privacy loss exceeds 4.76."""
    mechanism, steps = contracting_mechanism(), 4
    with pytest.warns(DPVerifyWarning, match="c_f: found 0.3, a contracting system"):
        formula = sufficient_epsilon(mechanism, 1.0, steps, c_h=200.0)
    assert formula == pytest.approx(2.3328)
    with pytest.warns(DPVerifyWarning, match="not a valid bound"):
        assert w2mhe_epsilon(0.8, w2mhe_lipschitz(0.3, 5, 200.0), 0.3, 0.1, 1.0, steps) == formula

    # The exact distribution of the first estimate on a grid over K_0, for datasets that differ by 1 in y_0.
    z = np.linspace(-0.05, 0.05, 20_001)
    first, second = np.zeros(9), np.eye(9)[0]

    def probabilities(data):
        cost = sum(np.square(data[j] - 200 * 0.3**j * z) for j in range(6)) / 2 + z**2 / (2 * mechanism.tau)
        weights = np.exp(-(cost - cost.min()) / mechanism.kappa)
        return weights / weights.sum()

    tail_first, tail_second = (np.cumsum(probabilities(data)[::-1])[::-1] for data in (first, second))
    observable = tail_second > 1e-3
    assert np.log(tail_second / tail_first)[observable].max() > 4.76 > formula
    assert gibbs_epsilon(mechanism, first[:, None], second[:, None]) == pytest.approx(80.0, rel=1e-6)

    # Samples of this distribution prove it too: what is proved for the first estimate holds for all estimates.
    def first_estimate(data, runs, rng):
        return np.interp(rng.random(runs), np.cumsum(probabilities(data)), z)[:, None]

    report = dpv.verify(first_estimate, first, second, select_runs=4096, test_runs=16384)
    assert formula < report.epsilon_lower <= 80


def test_the_formula_is_false_for_an_expanding_system():
    """The exact epsilon of a scalar system with A = 2 and window 8 exceeds the formula; a warning says so."""
    mechanism = W2MHE(System(A=[[2.0]], C=[[1.0]], start=(0.0,)), 8, 0.8, 1.0)
    with pytest.warns(DPVerifyWarning, match="found 1 with window 8 and c_f 2; .* not proved here"):
        formula = sufficient_epsilon(mechanism, 1.0, 1, c_h=1.0)
    assert formula == pytest.approx(28.8)
    z, slope = np.linspace(-0.05, 0.05, 100_001), 2.0 ** np.arange(9)

    def log_density(data):
        residuals = data[:, None] - slope[:, None] * z
        log = -(np.square(residuals).sum(0) / 2 + z**2 / (2 * mechanism.tau)) / mechanism.kappa
        return log - log.max() - np.log(np.exp(log - log.max()).sum())

    exact = np.abs(log_density(np.zeros(9)) - log_density(np.eye(9)[8])).max()
    assert formula < 49 < exact <= gibbs_epsilon_within(mechanism, 1.0, 1)


def random_setups(count):
    """Yield mechanisms on the paper's system with random sensors, pairs at distance 10, and the paper's c_h."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        system = oscillator(sensor_circle(rng.uniform(0, 2 * np.pi, 10).tolist()))
        with jax.disable_jit():  # one trajectory: compiling would take longer than the simulation
            first, second = adjacent_pair(system, system.h, int(rng.integers(10)), 10.0, rng)
        yield W2MHE(system, 5, float(rng.uniform(0.3, 0.9)), 1.4e-5), first, second, 100.0


def pendulum_setup():
    """Return a W2-MHE on a pendulum with an angle sensor, whose h has the Lipschitz constant 1."""
    step = 0.05

    def swing(x):
        return jnp.array([x[0] + step * x[1], x[1] - step * 9.81 * jnp.sin(x[0])])

    slopes = [np.linalg.norm([[1, step], [-step * 9.81 * cosine, 1]], 2) for cosine in np.linspace(-1, 1, 2001)]
    pendulum = System(f=swing, h=lambda x: x[:1], start=(0.5, 0.0), noise=Normal(0.05), lipschitz=max(slopes) * 1.001)
    with jax.disable_jit():
        first = simulate(pendulum, np.random.default_rng(0), steps=5).data
    second = first + 0.5 * (np.arange(6) == 3)[:, None]
    return W2MHE(pendulum, 2, 0.95, 0.01, diameter=1.0), first, second, 1.0


def certified_and_theorem(mechanism, first, second, c_h):
    """Return the three bounds that need no samples, from the smallest to the largest."""
    distance, steps = float(np.linalg.norm(first - second)), len(first) - mechanism.window
    return (
        gibbs_epsilon(mechanism, first, second),
        gibbs_epsilon_within(mechanism, distance, steps),
        sufficient_epsilon(mechanism, distance, steps, c_h),
    )


def test_certified_bounds_of_a_pendulum_are_below_the_theorem():
    pair, within, theorem = certified_and_theorem(*pendulum_setup())
    assert 0 < pair <= within <= theorem


@pytest.mark.slow
def test_measured_certified_and_theorem_are_in_order():
    """The counter-examples above are the negative control: there, what is measured exceeds the theorem."""
    for setup in (*random_setups(20), pendulum_setup()):
        mechanism, first, second, _ = setup
        measured = dpv.verify(mechanism, first, second, select_runs=4096, test_runs=16384, block=4096).epsilon_lower
        pair, within, theorem = certified_and_theorem(*setup)
        assert 0 < measured <= pair <= within <= theorem
        jax.clear_caches()


def line_system():
    return System(A=[[0.9]], C=[[2.0]], start=(0.3,))


def log_densities(mechanism, data, points=2001):
    """Return log densities on a grid over K_0 x K_1, for the scalar linear system with window 0."""
    ball = mechanism.sets(2)
    first, second = ball.centre + ball.radius[:, None] * np.linspace(-1, 1, points)

    def step(z, prior, y):
        log = -(np.square(z - prior) / (2 * mechanism.tau) + np.square(y - 2 * z) / 2) / mechanism.kappa
        weights = np.full(points, z[1] - z[0])
        weights[[0, -1]] /= 2
        return log - np.log(np.exp(log) @ weights)[:, None]

    return step(first, np.array([[0.3]]), data[0, 0]).T + step(second, 0.9 * first[:, None], data[1, 0])


@pytest.mark.parametrize(("s", "tau"), [(0.5, 1.0), (0.8, 0.1), (0.3, 10.0)])
def test_the_certified_bound_holds_and_is_close_to_the_exact_epsilon(s, tau):
    mechanism = W2MHE(line_system(), 0, s, tau, support="wide", radius=0.5)
    first, second = np.array([[0.4], [1.0]]), np.array([[0.7], [0.8]])
    exact = np.abs(log_densities(mechanism, first) - log_densities(mechanism, second)).max()
    bound = gibbs_epsilon(mechanism, first, second)
    assert exact <= bound <= 2.5 * exact
    assert bound <= gibbs_epsilon_within(mechanism, np.linalg.norm(first - second), 2)
    # The bound is the oscillation of (y1 - y2) 2 z / kappa over an interval of length 1, for both steps.
    np.testing.assert_allclose(bound, (0.6 + 0.4) / mechanism.kappa, rtol=1e-6)


@pytest.mark.parametrize("c", [0.7, 0.1, 1 / 3])
def test_nothing_is_rounded_to_32_bits(c):
    mechanism = W2MHE(System(A=[[1.0]], C=[[c]], start=(0.0,)), 0, 0.5, 1.0, support="wide", radius=0.5)
    assert c <= gibbs_epsilon_within(mechanism, 1.0, 1) <= c * (1 + 1e-8)


def test_the_certified_bound_of_all_pairs_is_between_that_of_a_pair_and_the_papers():
    within = gibbs_epsilon_within(MECHANISM, 10, 3)
    assert within < 6474.3 / 7  # the paper's theorem
    first, second = adjacent_pair(SYSTEM, SYSTEM.h, 0, 10.0, np.random.default_rng(0), steps=7)
    assert 0 < gibbs_epsilon(MECHANISM, first, second) < within
    assert gibbs_epsilon(MECHANISM, first, first) == 0


def test_mechanisms_without_a_bound_raise_an_error():
    with pytest.raises(InputError, match="theorem's sets"):
        sufficient_epsilon(W2MHE(SYSTEM, 5, 0.8, 1.4e-5, support="wide", radius=1.0), 10, 3)
    with pytest.raises(InputError, match="support moves"):
        gibbs_epsilon_within(W2MHE(SYSTEM, 5, 0.8, 1.4e-5, law="blend"), 10, 3)
    with pytest.raises(InputError, match="s: found 2"):
        w2mhe_epsilon(2, 1.0, 1.0, 1.0, 1.0, 1)
    with pytest.raises(InputError, match="negative"):
        w2mhe_epsilon(0.5, 1.0, -1.0, 1.0, 1.0, 1)
    with pytest.raises(InputError, match="distance: found -1"):
        gibbs_epsilon_within(MECHANISM, -1.0, 3)
    with pytest.raises(InputError, match="same number of steps"):
        gibbs_epsilon(W2MHE(line_system(), 0, 0.5, 1.0), np.ones((3, 1)), np.ones((2, 1)))
