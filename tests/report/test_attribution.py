"""Where a mechanism leaks: bounds of single numbers of the output against their exact privacy."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

import dpverify as dpv
from dpverify.report.attribution import bound_alone

DELTA = 0.02
KEPT = np.array([0.6, 0.75, 0.9])  # the probabilities with which randomised response keeps a bit


def laplace_vector(data, runs, rng):
    return data + rng.laplace(size=(runs, 4))


def random_walk(data, runs, rng):
    return np.cumsum(data)[:, None] + np.cumsum(rng.standard_normal((runs, 6, 1)), axis=1)


def randomised_response(data, runs, rng):
    return np.where(rng.random((runs, 3)) < KEPT, data, 1 - data)


def gaussian_epsilon(mu):
    """Return the exact epsilon at `DELTA` of unit Gaussian noise and a shift of the mean by mu."""
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu) - DELTA, 0, 20)


CLOSED_FORMS = {
    "laplace": (laplace_vector, np.zeros(4), np.array([0.0, 0.25, 0.5, 1.0]), 0.0, [0.0, 0.25, 0.5, 1.0]),
    "walk": (
        random_walk,
        np.zeros(6),
        1.5 * np.eye(6)[1],
        DELTA,
        [0.0, *(gaussian_epsilon(1.5 / np.sqrt(k)) for k in range(2, 7))],
    ),
    "response": (randomised_response, np.zeros(3), np.ones(3), 0.0, np.log(KEPT / (1 - KEPT))),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_the_bound_of_each_number_is_close_to_its_exact_epsilon_and_below_it(name, tmp_path):
    mechanism, first, second, delta, exact = CLOSED_FORMS[name]
    report = dpv.verify(mechanism, first, second, delta=delta, events="union", select_runs=2000)
    found = report.attribution()
    bounds = np.array([one.epsilon_lower for one in found])
    assert (bounds <= exact).all()
    assert (bounds >= 0.9 * np.array(exact) - 0.03).all()
    report.to_json(tmp_path / "report.json")
    assert dpv.Report.from_json(tmp_path / "report.json").attribution() == found
    assert [(one.step, one.coordinate) for one in found] == list(np.ndindex(report.witness.shape))


def test_names_of_the_mechanism_and_outputs_without_an_attribution():
    class Tracker:
        output_names, times = ("position", "speed"), (0.0, 0.5)

        def __call__(self, data, runs, rng):
            return data + rng.laplace(size=(runs, 2, 2))

    few = {"select_runs": 1000, "test_runs": 4000}
    found = dpv.verify(Tracker(), 0.0, 1.0, **few).attribution()
    assert found[3].name == "speed at time 0.5"
    assert dpv.verify(lambda data, runs, rng: data + rng.laplace(size=runs), 0.0, 1.0, **few).attribution() == ()
    assert dpv.verify(laplace_vector, 0.0, 0.0, **few).attribution() == ()  # no answer


@pytest.mark.slow
def test_coverage_of_the_bound_of_one_number():
    """Counts whose levels all have a ratio of e^0.5 or e^-0.5, so that every event is close to the exact epsilon."""
    rng, alpha, trials = np.random.default_rng(3), 0.2, 300
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    shares = np.array([shares, shares * np.exp([0.5, -0.5, -0.5, 0.5])])
    shares /= shares.sum(axis=1, keepdims=True)
    ratios = shares[0] / shares[1]
    exact = float(np.log(max(ratios.max(), (1 / ratios).max())))
    false = sum(bound_alone(rng.multinomial(2000, shares), 0.0, alpha) > exact for _ in range(trials))
    assert false <= binom.isf(1e-6, trials, alpha)
