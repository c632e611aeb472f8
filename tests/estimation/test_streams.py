"""Estimators that release a stream: against conditional means, other implementations, and their closed forms."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.estimation import (
    EqualisedKalman,
    IntermittentKalman,
    Normal,
    ParticleFilter,
    PosteriorKalman,
    PrivateConsensus,
    PrivateKalman,
    PrivateSmoother,
    System,
    TwoStageKalman,
)
from dpverify.estimation.kalman import filter_maps, smoother_maps
from gallery import consensus, kalman, output_noise
from gallery.laws import laplace_curve

A = np.array([[1.0, 0.2], [0.0, 0.9]])
C = np.array([[1.0, 0.0], [1.0, 0.5]])
TRACK = System(A=A, C=C, start=(0.3, -0.2), disturbance=Normal((0.1, 0.2)), noise=Normal(0.4), initial=Normal(1.0))
STEPS = 5
DATA = np.sin(np.arange(2.0 * STEPS)).reshape(STEPS, 2)
OTHER = DATA + np.array([0.0, 0.7]) * (np.arange(STEPS) == 1)[:, None]
GAPS = np.where(np.arange(2 * STEPS).reshape(STEPS, 2) % 3 == 1, np.nan, DATA)
GAPS[3] = np.nan  # a step without any reading
PATH = [[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]


def conditional_means(data, upto):
    """Return mean and covariance of the states given the readings up to a step, from the joint Gaussian law."""
    n, model = 2 * STEPS, IntermittentKalman(TRACK, 1.0).model
    shifts = np.eye(n) - np.kron(np.eye(STEPS, k=-1), A)
    noise = np.kron(np.eye(STEPS), model.process)
    noise[:2, :2] = model.initial
    joint = np.linalg.inv(shifts) @ noise @ np.linalg.inv(shifts).T
    prior = np.linalg.inv(shifts) @ np.concatenate([model.start, np.zeros(n - 2)])
    kept = ~np.isnan(data) & (np.arange(STEPS) <= upto)[:, None]
    H = np.kron(np.eye(STEPS), C)[kept.ravel()]
    gain = joint @ H.T @ np.linalg.inv(H @ joint @ H.T + 0.4**2 * np.eye(len(H)))
    mean = prior + gain @ (data[kept] - H @ prior)
    return mean.reshape(STEPS, 2), joint - gain @ H @ joint


@pytest.mark.parametrize("data", [DATA, GAPS], ids=["complete", "with gaps"])
def test_filter_and_smoother_are_conditional_means(data):
    model, observed = IntermittentKalman(TRACK, 1.0).model, ~np.isnan(data)
    filtered, smoothed = filter_maps(model, observed), smoother_maps(model, observed)
    whole, covariance = conditional_means(data, STEPS - 1)
    assert smoothed.estimate(np.nan_to_num(data)) == pytest.approx(whole)
    for k in range(STEPS):
        mean, P = conditional_means(data, k)
        block = slice(2 * k, 2 * k + 2)
        assert filtered.estimate(np.nan_to_num(data))[k] == pytest.approx(mean[k])
        assert filtered.covariances[k] == pytest.approx(P[block, block])
        assert smoothed.covariances[k] == pytest.approx(covariance[block, block])


@pytest.mark.parametrize("where", ["output", "input"])
def test_without_gaps_the_filter_is_the_private_kalman_filter(where):
    ours, known = IntermittentKalman(TRACK, 0.5, where), PrivateKalman(TRACK, 0.5, where)
    for steps in range(1, STEPS + 1):
        exact = known.truth(DATA, OTHER).prefix(steps)
        assert ours.truth(DATA, OTHER).prefix(steps).mu == pytest.approx(exact.mu)
    assert ours.distribution(DATA).mean == pytest.approx(known.truth(DATA, OTHER).first)


def test_special_cases_are_input_perturbation():
    """The filter of the two-stage mechanism knows the added noise; its privacy is that of the noisy readings."""
    expected = PrivateKalman(TRACK, 0.5, "input").truth(DATA, OTHER)
    equalised = EqualisedKalman(TRACK, (1.0,), 0.5).truth(DATA, OTHER)
    assert equalised.mu == pytest.approx(expected.mu)
    assert equalised.covariance == pytest.approx(expected.covariance)
    knows = 0.4**2 + 0.5**2
    informed = PrivateKalman(TRACK, 0.5, "input", measurement=knows).truth(DATA, OTHER)
    two_stage = TwoStageKalman(TRACK, np.eye(2), 0.5).truth(DATA, OTHER)
    assert two_stage.first == pytest.approx(informed.first)
    assert two_stage.covariance == pytest.approx(informed.covariance)


def test_the_gallery_has_the_same_two_stage_filter_and_consensus():
    agents = System(
        A=np.diag(kalman.DYNAMICS),
        C=np.eye(2),
        start=(0.0, 0.0),
        noise=Normal(kalman.MEASUREMENT_VARIANCE**0.5),
        disturbance=Normal(kalman.PROCESS_VARIANCE**0.5),
        initial=Normal(1.0),
    )
    published = kalman.PrivateFilter(kalman.SUM, 1.0, 0.01)
    prior = np.diag(np.square(kalman.DYNAMICS)) + kalman.PROCESS_VARIANCE * np.eye(2)  # the gallery predicts first
    ours = TwoStageKalman(agents, kalman.SUM, published.noise, initial=prior)
    drawn = published(kalman.FIRST, 200_000, np.random.default_rng(0)).reshape(200_000, -1)
    output = ours.distribution(kalman.FIRST)
    error = 5 * drawn.std(axis=0) / len(drawn) ** 0.5
    assert (np.abs(drawn.mean(axis=0) - output.mean.ravel()) < error).all()
    assert np.cov(drawn.T) == pytest.approx(output.factor @ output.factor.T, abs=0.02)
    claimed = kalman.truth(published, dpv.claims.approximate(1.0, 0.01)).parameter
    assert ours.truth(kalman.FIRST, kalman.SECOND).epsilon(0.01) == pytest.approx(claimed)
    agreed = PrivateConsensus(PATH, 5, 1.0, decay=0.5, own_weight=0.9)
    same = [m(consensus.FIRST, 100, np.random.default_rng(1)) for m in (agreed, consensus.MECHANISM)]
    assert same[0] == pytest.approx(same[1])
    assert agreed.truth(consensus.FIRST, consensus.SECOND).epsilon(0.0) == pytest.approx(1.2496)


def test_the_equaliser_has_the_loss_of_the_response_of_its_prefilter():
    system = System(A=[[0.8]], C=[[1.0]], start=(0.0,), noise=Normal(1.0), disturbance=Normal(1.0), initial=Normal(1.0))
    response = output_noise.power_series(0.5, 8)
    mechanism = EqualisedKalman(system, response, 2.0)
    for time in (0, 6):
        second = (np.arange(8) == time)[:, None].astype(float)
        truth = mechanism.truth(np.zeros((8, 1)), second)
        for steps in range(1, 9):
            visible = np.linalg.norm(response[: max(steps - time, 0)]) / 2.0
            assert truth.prefix(steps).mu == pytest.approx(visible, abs=1e-9)


MECHANISMS = {
    "missing readings, output": (IntermittentKalman(TRACK, 0.5), GAPS),
    "missing readings, input": (IntermittentKalman(TRACK, 0.5, "input"), GAPS),
    "smoother": (PrivateSmoother(TRACK, 0.5), DATA),
    "two-stage": (TwoStageKalman(TRACK, [[1.0, 1.0]], 0.5), DATA),
    "equalised": (EqualisedKalman(TRACK, (1.0, 0.6, 0.3), 0.5), DATA),
    "posterior": (PosteriorKalman(TRACK), DATA),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_runs_have_the_stated_distribution_and_bounds_stay_below_the_closed_form(name):
    """Squared whitened runs follow a chi-squared law; a wrong factor is noticed."""
    mechanism, data = MECHANISMS[name]
    output, runs = mechanism.distribution(data), 20_000
    drawn = np.asarray(mechanism(data, runs, np.random.default_rng(2))).reshape(runs, -1) - output.mean.ravel()
    values, vectors = np.linalg.eigh(output.factor @ output.factor.T)
    kept = values > 1e-9 * values[-1]
    white = drawn @ vectors[:, kept] / np.sqrt(values[kept])
    limit = 5 * (2 / runs) ** 0.5
    assert np.abs(np.square(white).mean(axis=0) - 1).max() < limit
    assert np.abs(np.square(1.1 * white).mean(axis=0) - 1).min() > limit  # negative control
    changed = (np.arange(STEPS) == 0)[:, None]
    second = data + changed / mechanism.truth(data, data + changed).mu  # mu is 1 for the whole output
    result = dpv.privacy_over_time(mechanism, data, second, 0.01, select_runs=4000, test_runs=16_000, seed=3)
    assert result.truth is not None
    assert (result.epsilon_lower <= result.truth).all()
    assert result.final > 0.8 * result.truth[-1]


def test_a_smoother_reveals_a_reading_before_its_step():
    second = np.where(np.arange(STEPS)[:, None] == 3, DATA + 2.0, DATA)
    before = PrivateSmoother(TRACK, 0.5).truth(DATA, second).prefix(3).mu
    assert before > 0.1
    assert IntermittentKalman(TRACK, 0.5).truth(DATA, second).prefix(3).mu == 0


def test_which_readings_are_missing_is_hidden_only_by_noise_on_the_output():
    assert IntermittentKalman(TRACK, 0.5).truth(DATA, GAPS).mu > 0
    with pytest.raises(dpv.InputError, match="the same missing readings"):
        IntermittentKalman(TRACK, 0.5, "input").truth(DATA, GAPS)


def test_consensus_has_its_closed_form_at_a_positive_delta():
    mechanism = PrivateConsensus(PATH, 4, 1.0, decay=0.6, own_weight=0.8)
    first, second = np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 3.7])
    truth = mechanism.truth(first, second)
    shifts = [(0.2 / 0.6) ** k * move for k in range(4) for move in (0.5, 0.3)]
    assert truth.epsilon(0.0) == pytest.approx(sum(shifts))
    assert truth.delta(0.4) == pytest.approx(laplace_curve(tuple(shifts))[0](0.4), rel=1e-3)
    assert truth.delta(truth.epsilon(0.05)) == pytest.approx(0.05, rel=1e-6)
    assert truth.epsilon(0.9) == 0.0
    result = dpv.privacy_over_time(mechanism, first, second, 0.05, select_runs=10_000, test_runs=40_000)
    assert (result.epsilon_lower <= result.truth).all()
    assert result.final > 0.6 * result.truth[-1]


@pytest.mark.slow
def test_the_error_of_the_particle_filter_falls_with_the_number_of_particles():
    """Its bias is of order 1/M: eight times as many particles leave less than a quarter, up to the sampling error.

    Negative control: the estimate for other data does not approach.
    """
    model, runs = IntermittentKalman(TRACK, 1.0).model, 4096
    maps = filter_maps(model, np.ones(DATA.shape, bool))
    few, many = (np.asarray(ParticleFilter(TRACK, m)(DATA, runs, np.random.default_rng(4))) for m in (50, 400))
    error = 5 * many.std(axis=0) / runs**0.5

    def approaches(exact):
        before, after = np.abs(few.mean(axis=0) - exact).max(), np.abs(many.mean(axis=0) - exact)
        return bool((after < before / 4 + error).all())

    assert approaches(maps.estimate(DATA))
    assert not approaches(maps.estimate(OTHER))


@pytest.mark.slow
def test_a_released_particle_has_the_posterior_covariance():
    """With a negative control: the covariance of the step before is noticed."""
    runs = 2048
    one = np.asarray(ParticleFilter(TRACK, 200, release="particle")(DATA, runs, np.random.default_rng(5)))
    exact = filter_maps(IntermittentKalman(TRACK, 1.0).model, np.ones(DATA.shape, bool)).covariances
    for k in range(STEPS):
        limit = 6 * exact[k].max() * (2 / runs) ** 0.5
        assert np.abs(np.cov(one[:, k].T) - exact[k]).max() < limit
        assert k != 1 or np.abs(np.cov(one[:, k].T) - exact[0]).max() > limit


@pytest.mark.slow
def test_more_particles_are_less_private():
    runs = {"select_runs": 1024, "test_runs": 2048, "block": 512}
    few, many = (dpv.verify(ParticleFilter(TRACK, m), DATA, OTHER, delta=0.01, **runs) for m in (5, 40))
    assert many.epsilon_lower > few.epsilon_lower + 0.2


INVALID_INPUT = {
    "scale": (lambda: PrivateSmoother(TRACK, -1.0), "scale: found -1.0"),
    "where": (lambda: IntermittentKalman(TRACK, 1.0, "inside"), "where must be"),
    "aggregation": (lambda: TwoStageKalman(TRACK, [[1.0]], 1.0), r"aggregation: found shape \(1, 1\)"),
    "prefilter": (lambda: EqualisedKalman(TRACK, (0.0, 1.0), 1.0), "prefilter: found"),
    "temperature": (lambda: PosteriorKalman(TRACK, -1.0), "temperature: found -1.0"),
    "particles": (lambda: ParticleFilter(TRACK, 0), "particles must be"),
    "release": (lambda: ParticleFilter(TRACK, 5, release="all"), "release must be"),
    "laplacian": (lambda: PrivateConsensus([[1.0, 0.0]], 5, 1.0), "laplacian: found shape"),
    "decay": (lambda: PrivateConsensus(PATH, 5, 1.0, decay=0.2, own_weight=0.5), "decay: found 0.2"),
    "states": (lambda: PrivateConsensus(PATH, 5, 1.0)(np.zeros(2), 4, np.random.default_rng(0)), "data: found"),
}


@pytest.mark.parametrize("name", INVALID_INPUT)
def test_invalid_input_raises_a_one_line_error(name):
    build, words = INVALID_INPUT[name]
    with pytest.raises(dpv.InputError, match=words) as error:
        build()
    assert "\n" not in str(error.value)
