"""A stated density: the best event, a certificate over all events, and what happens if the density is wrong."""

import math

import numpy as np
import pytest
from limits import most
from scipy.optimize import brentq
from scipy.special import ndtr

import dpverify as dpv
from dpverify.errors import InputError
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.certificate import LogRatio

RUNS = {"select_runs": 4000, "test_runs": 40_000, "block": 1000}


def gaussian_delta(mu, epsilon):
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


class GaussianSteps:
    """Two numbers with Gaussian noise, and the density that is stated."""

    def __init__(self, noise=1.0, stated=1.0, correlation=0.0):
        self.noise, self.stated = noise, stated
        self.factor = np.linalg.cholesky(np.array([[1.0, correlation], [correlation, 1.0]]))

    def __call__(self, data, runs, rng):
        return np.array([data, 0.0]) + self.noise * rng.standard_normal((runs, 2)) @ self.factor.T

    def log_density(self, data, samples):
        x = samples[:, 0] - np.array([data, 0.0])
        return -0.5 * (x**2).sum(axis=1) / self.stated**2


def verify(mechanism, epsilon=2.5, delta=0.02, **changes):
    return dpv.verify(mechanism, 0.0, 1.0, epsilon, delta, **{**RUNS, **changes})


def test_a_claim_with_some_slack_is_certified():
    report = verify(GaussianSteps())
    assert report.verdict is dpv.Verdict.CERTIFIED
    for epsilon, ratio in ((0.0, 1.05), (1.0, 1.1), (2.5, 1.4)):
        truth = gaussian_delta(1.0, epsilon)
        assert report.delta_lower(epsilon) <= truth <= report.certificate.delta_upper(epsilon) <= ratio * truth
    assert report.epsilon_lower <= 1.9146 <= report.certificate.epsilon_upper(0.02)
    assert "provided that the stated density is correct" in str(report)
    without = verify(lambda data, runs, rng: GaussianSteps()(data, runs, rng))
    assert without.verdict is dpv.Verdict.NOT_REFUTED
    assert without.certificate is None


def test_the_log_ratio_is_the_best_event():
    report = verify(GaussianSteps(), epsilon=1.0)
    assert report.refuted
    assert "log-ratio of the stated density" in report.witness.text


def test_an_argument_replaces_the_method_of_the_mechanism():
    wrong = GaussianSteps(stated=2.0)
    assert verify(wrong).verdict is dpv.Verdict.NO_ANSWER
    assert verify(wrong, log_density=GaussianSteps().log_density).verdict is dpv.Verdict.CERTIFIED


@pytest.mark.parametrize(
    "mechanism",
    [GaussianSteps(stated=1.2), GaussianSteps(stated=0.8), GaussianSteps(correlation=0.9)],
    ids=["noise too large", "noise too small", "forgotten correlation"],
)
def test_a_wrong_density_has_no_answer(mechanism):
    """The forgotten correlation leaves the first number, and so the distribution of the stated log-ratio, as it is."""
    report = verify(mechanism)
    assert report.verdict is dpv.Verdict.NO_ANSWER
    assert report.voiding == (Diagnostic.WRONG_DENSITY,)
    assert report.certificate is None
    assert "of the runs with a stated log-ratio" in " ".join(str(report).split())


def test_pure_epsilon_is_not_certified_and_the_report_says_why():
    def laplace(data, runs, rng):
        return data + rng.laplace(size=(runs, 1))

    report = dpv.verify(laplace, 0.0, 1.0, 1.1, log_density=lambda data, x: -np.abs(x[:, 0, 0] - data), **RUNS)
    assert report.verdict is dpv.Verdict.NOT_REFUTED
    assert report.certificate.epsilon_upper(0.0) == math.inf
    assert 0.99 <= report.certificate.epsilon_upper(report.certificate.certifiable_delta) <= 1.01
    assert report.epsilon_lower <= 1.0
    assert "runs cannot exclude an event that they never show" in str(report)


@pytest.mark.parametrize("delta", [0.06, 0.04])
def test_bounded_noise_shows_the_delta_that_no_epsilon_removes(delta):
    def uniform(data, runs, rng):
        return data + rng.uniform(-1, 1, size=(runs, 1))

    def log_density(data, samples):
        return np.where(np.abs(samples[:, 0, 0] - data) <= 1 + 1e-9, 0.0, -np.inf)

    report = dpv.verify(uniform, 0.0, 0.1, 0.01, delta, log_density=log_density, **RUNS)
    assert report.verdict is (dpv.Verdict.CERTIFIED if delta > 0.05 else dpv.Verdict.REFUTED)
    assert report.certificate.delta_upper(20.0) >= 0.05


def test_a_run_with_density_zero_has_no_answer():
    report = verify(GaussianSteps(), log_density=lambda data, x: np.where(x[:, 0, 0] > 2 + data, -np.inf, 0.0))
    assert Diagnostic.WRONG_DENSITY in report.voiding


def test_curves_with_a_delta_are_certified_and_gaussian_privacy_is_not():
    points = dpv.claims.points([(1.0, 0.2), (2.5, 0.02)])
    assert verify(GaussianSteps(), None, 0.0, claim=points).verdict is dpv.Verdict.CERTIFIED
    assert verify(GaussianSteps(), None, 0.0, claim=dpv.claims.gaussian(1.3)).verdict is dpv.Verdict.NOT_REFUTED
    assert verify(GaussianSteps(), None, 0.0, claim=dpv.claims.zcdp(0.8)).verdict is dpv.Verdict.NOT_REFUTED


def test_a_verification_stops_as_soon_as_the_claim_is_certified():
    report = verify(GaussianSteps(), epsilon=3.5, stop_early=True, test_runs=400_000, block=None)
    assert (report.verdict, report.stopped) == (dpv.Verdict.CERTIFIED, "certified")
    assert report.runs_used < 20_000


@pytest.mark.parametrize("stop_early", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_false_claim_is_not_certified_by_a_density_whose_error_is_too_small_to_be_noticed(stop_early, seed):
    """True delta .127. The noise is 5% less than stated; the runs do not contradict this, and the bound is .11."""
    options = {"stop_early": stop_early, "block": None if stop_early else 1000, "seed": seed}
    report = verify(GaussianSteps(stated=1.05), 1.0, 0.115, **options)
    assert report.certificate.delta_upper(1.0) <= 0.115
    assert report.verdict is not dpv.Verdict.CERTIFIED
    clearly_wrong = verify(GaussianSteps(stated=1.2), 1.0, 0.115, **options)
    assert Diagnostic.WRONG_DENSITY in clearly_wrong.voiding


def test_the_rounding_of_noise_is_no_event():
    """The last digits of this ratio tell the datasets apart, where exactly it is 1."""
    ratio = LogRatio(lambda data, x: -np.abs(x[:, 0, 0] - data), (0.0, 1.0))
    x = -np.random.default_rng(0).exponential(size=(1000, 1, 1))
    assert np.unique(ratio.density(0.0, x) - ratio.density(1.0, x)).size > 1
    assert np.array_equal(ratio(x), np.ones(1000))


def test_files_folders_and_processes_give_the_same_certificate(tmp_path):
    report = verify(GaussianSteps(), folder=tmp_path / "run")
    assert report == verify(GaussianSteps(), folder=tmp_path / "run") == verify(GaussianSteps(), executor=2)
    report.to_json(tmp_path / "report.json")
    again = dpv.Report.from_json(tmp_path / "report.json")
    assert again == report
    assert again.certificate.delta_upper(2.0) == report.certificate.delta_upper(2.0)


def test_a_density_in_jax_is_evaluated_there():
    jax = pytest.importorskip("jax")

    def log_density(data, samples):
        return -jax.numpy.abs(samples[:, 0, 0] - data)

    mechanism = dpv.jax_run(lambda data, key: data + jax.random.laplace(key, (1,)))
    report = dpv.verify(mechanism, 0.0, 1.0, 1.1, 0.01, log_density=log_density, **RUNS)
    assert report.verdict is dpv.Verdict.CERTIFIED


@pytest.mark.parametrize(
    ("log_density", "message"),
    [
        (lambda data, samples: samples, "log_density: found shape"),
        (lambda data, samples: np.full(len(samples), np.nan), "log_density: found NaN"),
        (lambda data, samples: samples[:, 0, 0] - data * samples.mean(), "log_density: found a score"),
        (3.0, "log_density: found float; expected a callable"),
    ],
)
def test_what_cannot_be_a_density_is_refused(log_density, message):
    with pytest.raises(InputError, match=message):
        verify(GaussianSteps(), log_density=log_density)


def bounded_estimators():
    from dpverify.estimation import W2MHE, Normal, PrivateEKF, System

    matrices = {"A": [[1.0, 0.1], [0.0, 0.95]], "C": [[1.0, 0.0]]}
    system = System(**matrices, start=(0.0, 0.0), noise=Normal(0.5), initial=Normal(1.0))
    hidden = System(**matrices, start=(0.0, 0.0), noise=Normal(0.5), initial=Normal(1.0), released=(0,))
    blend = {"window": 2, "s": 0.5, "tau": 1.0, "support": "wide", "radius": 1.0}
    return {
        "EKF": (PrivateEKF(system, s_hat=0.5), PrivateEKF(hidden, s_hat=0.5)),
        "blend": (W2MHE(hidden, law="blend", **blend), W2MHE(system, law="gibbs", **blend)),
    }


@pytest.mark.parametrize("name", ["EKF", "blend"])
def test_estimators_with_bounded_noise_have_the_density_where_the_output_determines_the_noise(name):
    """The certificate shows the share of runs that the other dataset cannot produce; no epsilon removes it."""
    pytest.importorskip("jax")
    mechanism, without = bounded_estimators()[name]
    assert getattr(without, "log_density", None) is None
    first, second = np.zeros((6, 1)), np.eye(6)[:, [2]] / 5
    samples = np.asarray(mechanism(first, 20_000, np.random.default_rng(0)))
    assert (np.asarray(mechanism.log_density(first, samples)) == 0).all()
    impossible = np.isneginf(np.asarray(mechanism.log_density(second, samples))[:, -1]).mean()
    report = dpv.verify(mechanism, first, second, 1.0, 0.5, select_runs=2000, test_runs=20_000, block=1000)
    assert not report.voiding
    assert 0.02 < impossible < report.certificate.delta_upper(1.0) < impossible + 0.03


class Chain:
    """Each output is a part of the one before, plus the data, plus noise that may be smaller at step 1 than stated."""

    def __init__(self, noise=1.0):
        self.noise = np.array([1.0, noise, 1.0, 1.0, 1.0])

    def __call__(self, data, runs, rng):
        x, output = np.zeros(runs), np.empty((runs, 5, 1))
        for step, value in enumerate(data):
            x = 0.8 * x + value + self.noise[step] * rng.standard_normal(runs)
            output[:, step, 0] = x
        return output

    def log_density(self, data, samples):
        x = samples[:, :, 0]
        before = np.concatenate([np.zeros((len(x), 1)), 0.8 * x[:, :-1]], axis=1)
        return -0.5 * ((x - before - data) ** 2).cumsum(1)


CHAIN = np.zeros(5), np.array([0.0, 0.5, 0.0, 0.5, 0.0])
CHAIN_RUNS = {"select_runs": 2000, "test_runs": 20_000, "block": 1000}


def test_every_prefix_of_a_stream_has_a_certificate(tmp_path):
    result = dpv.privacy_over_time(Chain(), *CHAIN, 0.01, epsilon=2.0, folder=tmp_path / "run", **CHAIN_RUNS)
    shifts = np.sqrt(np.cumsum((CHAIN[1] - CHAIN[0]) ** 2))
    exact = [brentq(lambda e, mu=mu: gaussian_delta(mu, e) - 0.01, 0, 9) if mu else 0.0 for mu in shifts]
    assert (result.epsilon_lower <= exact).all()
    assert (exact <= result.epsilon_certified).all()
    assert (result.epsilon_certified <= np.array(exact) + 0.15).all()
    assert result.verdict is dpv.Verdict.CERTIFIED
    assert "provided that the stated density is correct" in str(result)
    assert result == dpv.privacy_over_time(Chain(), *CHAIN, 0.01, epsilon=2.0, folder=tmp_path / "run", **CHAIN_RUNS)
    result.to_json(tmp_path / "result.json")
    assert (dpv.PrivacyOverTime.from_json(tmp_path / "result.json").epsilon_certified == result.epsilon_certified).all()


def test_the_density_of_whole_outputs_bounds_all_prefixes_alike():
    whole = dpv.privacy_over_time(
        Chain(), *CHAIN, 0.01, log_density=lambda data, x: Chain().log_density(data, x)[:, -1], **CHAIN_RUNS
    )
    assert np.unique(whole.epsilon_certified).size == 1
    assert whole.epsilon_lower[-1] <= whole.epsilon_certified[0] < 2.0


def test_a_wrong_density_of_one_step_leaves_a_stream_without_an_answer():
    result = dpv.privacy_over_time(Chain(0.6), *CHAIN, 0.01, epsilon=2.0, **CHAIN_RUNS)
    assert result.voiding == (Diagnostic.WRONG_DENSITY,)
    assert result.epsilon_certified is None
    assert "step" not in str(result).splitlines()[-1]


def test_limits_of_all_prefixes_hold_together():
    seeds, wrong = 40, 0
    for seed in range(seeds):
        result = dpv.privacy_over_time(
            Chain(), *CHAIN, 0.05, alpha=0.3, seed=seed, select_runs=200, test_runs=400, block=100
        )
        exact = [gaussian_delta(mu, 0.5) if mu else 0.0 for mu in np.sqrt(np.cumsum(CHAIN[1] ** 2))]
        bounds = [one.delta_upper(0.5) for one in result.certificates]
        wrong += any(bound < delta for bound, delta in zip(bounds, exact, strict=True))
    assert wrong <= most(seeds, 0.3)
