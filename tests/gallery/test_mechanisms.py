"""The mechanisms of the gallery: vectorised code against loops, and laws against second implementations."""

from functools import partial

import numpy as np
import pytest
import second_mechanisms as second

import dpverify as dpv
from gallery import (
    binary,
    consensus,
    fast,
    kalman,
    matrix,
    output_noise,
    pegasus,
    planar_laplace,
    posterior,
    quantiser,
    triggered,
    w_event,
)
from gallery.bounded_laplace import BoundedLaplace, corrected_scale, edge_loss
from gallery.catalogue import ENTRIES
from gallery.truncated import StaircaseNoise


class Fixed:
    """A generator that returns given numbers, so that vectorised code and loops see the same noise."""

    def __init__(self, numbers):
        self.numbers = iter(numbers)

    def standard_normal(self, size):
        return np.array([next(self.numbers) for _ in range(np.prod(size))]).reshape(size)

    def laplace(self, loc=0.0, scale=1.0, size=None):
        return loc + scale * self.standard_normal(size)


def test_every_case_has_a_name_of_its_own_and_draws_its_runs():
    names = [case.name for entry in ENTRIES for case in entry.cases]
    assert len(names) == len(set(names))
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES) >= 14
    for entry in ENTRIES:
        if entry.requirement is not None:
            continue
        for case in entry.cases:
            for data in case.pair:
                samples = case.mechanism(data, 50, np.random.default_rng(0))
                assert len(samples) == 50
                assert np.isfinite(samples).all()
                assert np.array_equal(samples, case.mechanism(data, 50, np.random.default_rng(0)))


def test_the_filter_is_the_textbook_kalman_filter():
    mechanism = kalman.PrivateFilter(kalman.SUM, 1.0, 0.01)
    noise = np.random.default_rng(1).standard_normal(4)
    found = mechanism(kalman.FIRST, 1, Fixed(noise))[0]
    A, C, V = np.diag(kalman.DYNAMICS), np.ones((1, 2)), 2 * kalman.MEASUREMENT_VARIANCE + mechanism.noise**2
    x, P = np.zeros(2), np.eye(2)
    for step in range(4):
        x, P = A @ x, A @ P @ A.T + kalman.PROCESS_VARIANCE * np.eye(2)
        y = kalman.FIRST[step].sum() + mechanism.noise * noise[step]
        information = np.linalg.inv(P) + C.T @ C / V
        x = np.linalg.solve(information, np.linalg.inv(P) @ x + C[0] * y / V)
        P = np.linalg.inv(information)
        assert found[step] == pytest.approx(x)


@pytest.mark.parametrize("equalised", [False, True])
def test_the_event_filter_without_noise_is_the_recursive_filter(equalised):
    mechanism = output_noise.PrivateEventFilter(equalised, 1.0, 0.01)
    found = mechanism(output_noise.FIRST, 1, Fixed(np.zeros(8)))[0]
    state = 0.0
    for step, value in enumerate(output_noise.FIRST):
        state = output_noise.POLE * state + value
        assert found[step] == pytest.approx(state)
    long = output_noise.power_series(mechanism.exponent, 400)
    assert mechanism.noise == pytest.approx(np.linalg.norm(long) * dpv_kappa(), rel=1e-9)


def dpv_kappa():
    """The factor for the claim (1, 0.01): the root of kappa^2 - kappa K = 1/2."""
    from scipy.stats import norm

    return np.roots([1.0, -norm.isf(0.01), -0.5]).max()


def test_consensus_messages_follow_the_recursion_of_one_agent():
    noise = np.random.default_rng(2).standard_normal((5, 3))
    found = consensus.MECHANISM(consensus.FIRST, 1, Fixed(noise.ravel()))[0]
    state, neighbours = list(consensus.FIRST), {0: [1], 1: [0, 2], 2: [1]}
    for k in range(5):
        eta = [0.5**k * noise[k, i] for i in range(3)]
        sent = [state[i] + eta[i] for i in range(3)]
        assert found[k] == pytest.approx(sent)
        state = [state[i] + 0.2 * sum(sent[j] - sent[i] for j in neighbours[i]) + 0.9 * eta[i] for i in range(3)]


def test_tree_and_square_root_give_the_prefix_sums_without_noise():
    data = np.array([3.0, 1, 4, 1, 5, 9, 2, 6])
    assert matrix.MatrixMechanism(1.0)(data, 1, Fixed(np.zeros(8)))[0] == pytest.approx(np.cumsum(data))
    assert matrix.HonakerTree(1.0)(data, 1, Fixed(np.zeros(15)))[0] == pytest.approx(np.cumsum(data))
    assert binary.BinaryMechanism(1.0)(data, 1, Fixed(np.zeros(8)))[0] == pytest.approx(np.cumsum(data))


def test_fast_is_its_loop_of_one_run():
    noise = np.random.default_rng(3).laplace(size=4)
    found = fast.AdaptiveSampling()(fast.FIRST, 1, Fixed(noise))[0]
    x, P, interval, due, taken, errors, before = 0.0, 100.0, 1.0, 0, 0, [], 0.0
    for step, count in enumerate(fast.FIRST):
        P += 1.0
        if step >= due and taken < 4:
            K = P / (P + 2 * 4.0**2)
            new = x + K * (count + 4.0 * noise[taken] - x)
            error = abs(new - x) / max(abs(new), 1.0)
            errors.append(error)
            control = 0.8 * error + 0.1 * np.mean(errors) + 0.1 * (error - before) / interval
            interval = max(1.0, interval + 1 - np.exp((control - 0.2) / 0.2))
            x, P, before, due, taken = new, (1 - K) * P, error, step + int(interval), taken + 1
        assert found[step] == pytest.approx(x)
    assert taken == 4


def test_fast_uses_all_samples_in_every_run():
    samples = fast.AdaptiveSampling()(fast.FIRST, 20_000, np.random.default_rng(4))
    assert ((np.diff(samples, axis=1) != 0).sum(axis=1) + 1 == 4).all()


def test_the_posterior_is_that_of_regression():
    """The posterior of the last state, from the joint Gaussian law of states and measurements."""
    matrix, P = posterior.filter_matrices()
    states, A, Q = 2 * posterior.STEPS, posterior.A, posterior.Q
    shifts = np.eye(states) - np.kron(np.eye(posterior.STEPS, k=-1), A)
    noise = np.kron(np.eye(posterior.STEPS), Q)
    noise[:2, :2] = A @ A.T + Q
    joint = np.linalg.inv(shifts) @ noise @ np.linalg.inv(shifts).T
    C = np.kron(np.eye(posterior.STEPS), [[1.0, 0.0]])
    gain = joint @ C.T @ np.linalg.inv(C @ joint @ C.T + posterior.R * np.eye(posterior.STEPS))
    assert matrix == pytest.approx(gain[-2:])
    assert pytest.approx((joint - gain @ C @ joint)[-2:, -2:]) == P


def test_the_rounded_radius_is_the_rounded_lambert_function():
    from scipy.special import lambertw

    p = np.random.default_rng(5).random(1000)
    W = lambertw((p - 1) / np.e, -1).real
    radius = -(W + 1)
    assert 1 - (1 + radius) * np.exp(-radius) == pytest.approx(p)  # the distribution function of a gamma variable
    assert -(np.round(W, 6) + 1) == pytest.approx(np.round(radius, 6), abs=1.1e-6)
    outputs = planar_laplace.PlanarLaplace(planar_laplace.EPSILON, 6)(
        planar_laplace.FIRST, 1000, np.random.default_rng(6)
    )
    assert (planar_laplace.closeness_to_rings(outputs[:, None]) > 4).all()


def test_bounded_noise_stays_in_its_range_and_is_no_larger_than_needed():
    assert np.abs(StaircaseNoise()(np.zeros(1), 10_000, np.random.default_rng(7))).max() < 7
    outputs = BoundedLaplace(1.0)(0.5, 10_000, np.random.default_rng(8))
    assert outputs.min() >= 0
    assert outputs.max() <= 20
    assert edge_loss(BoundedLaplace(corrected_scale(1.0))) == pytest.approx(1.0)
    assert edge_loss(BoundedLaplace(1.0)) == pytest.approx(1 + np.log(2 - np.exp(-1.0)), abs=1e-6)


def test_the_quantiser_has_the_right_mean():
    samples = quantiser.RandomQuantiser(0.5)(np.array([0.3, -0.2]), 100_000, np.random.default_rng(9))
    assert set(np.unique(samples)) == {-0.5, 0.0, 0.5}
    assert samples.mean(axis=0) == pytest.approx([0.3, -0.2], abs=0.005)


PAIRS = {
    "binary": (binary.BinaryMechanism(2.0), partial(second.binary_counting, scale=2.0), np.eye(4)[0]),
    "dsat": (triggered.TriggeredRelease(adaptive=True), partial(second.triggered, clipped=True), triggered.FIRST),
    "pegasus": (pegasus.Pegasus(), second.pegasus, pegasus.FIRST),
    "absorption": (w_event.ABSORPTION, partial(second.absorption, window=3, epsilon=1.0), w_event.FIRST),
}
WRONG = {
    "binary": partial(second.binary_counting, scale=2.2),
    "dsat": partial(second.triggered, clipped=False),
    "pegasus": partial(second.pegasus, epsilon=1.1),
    "absorption": partial(second.absorption, window=3, epsilon=1.1),
}


MANY_RUNS = {
    "planar": (
        planar_laplace.PlanarLaplace(planar_laplace.EPSILON),
        partial(second.planar, epsilon=planar_laplace.EPSILON),
        planar_laplace.SECOND,
    ),
    "bounded": (BoundedLaplace(1.0), partial(second.bounded, scale=1.0, top=20.0), 0.7),
    "consensus": (consensus.MECHANISM, partial(second.agreed, own_weight=0.9), consensus.FIRST),
}
MANY_WRONG = {
    "planar": partial(second.planar, epsilon=1.1 * planar_laplace.EPSILON),
    "bounded": partial(second.bounded, scale=1.1, top=20.0),
    "consensus": partial(second.agreed, own_weight=0.8),
}


def two_implementations(data, runs, rng, name, other):
    """Draw from the gallery for data 0 and from the other implementation for data 1."""
    mechanism, _, stream = (PAIRS | MANY_RUNS)[name]
    if data == 0:
        return mechanism(stream, runs, rng)
    return other(stream, runs, rng) if name in MANY_RUNS else np.array([other(stream, rng) for _ in range(runs)])


def equal_laws(name, other, select_runs, test_runs):
    """Test the claim epsilon 0: no event is more likely with one implementation than with the other."""
    mechanism = partial(two_implementations, name=name, other=other)
    return dpv.verify(mechanism, 0, 1, epsilon=0.0, select_runs=select_runs, test_runs=test_runs, alpha=1e-3)


@pytest.mark.parametrize("name", PAIRS)
def test_a_second_implementation_has_the_same_law(name):
    assert not equal_laws(name, PAIRS[name][1], 1000, 3000).refuted


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_a_second_implementation_has_the_same_law_in_a_million_runs(name):
    """With a negative control: a second implementation with other noise is refuted."""
    assert not equal_laws(name, PAIRS[name][1], 100_000, 1_000_000).refuted
    assert equal_laws(name, WRONG[name], 50_000, 200_000).refuted


@pytest.mark.parametrize("name", MANY_RUNS)
def test_another_algorithm_has_the_same_law(name):
    """With a negative control: other noise is refuted with the same runs."""
    assert not equal_laws(name, MANY_RUNS[name][1], 10_000, 50_000).refuted
    assert equal_laws(name, MANY_WRONG[name], 10_000, 50_000).refuted


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY_RUNS)
def test_another_algorithm_has_the_same_law_in_a_million_runs(name):
    assert not equal_laws(name, MANY_RUNS[name][1], 250_000, 1_000_000).refuted
