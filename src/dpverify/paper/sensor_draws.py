"""Measurements on one random draw of the sensor positions.

Every family is verified at several values of its parameter, at one delta. This gives a curve of privacy against
accuracy, from which `claims.py` reads the values at equal privacy and at equal accuracy. A family is a mechanism under
one reading of what the paper does not print.
"""

from __future__ import annotations

import numpy as np

from dpverify.estimation.theory import gibbs_epsilon, sufficient_epsilon
from dpverify.mechanisms.accuracy import rmse
from dpverify.paper import experiment
from dpverify.paper.measurements import CalibratedNumbers, CurvePoint, PaperMeasurement, SensorDraw, TheoremBounds
from dpverify.paper.plan import Effort, Plan
from dpverify.paper.readings.definitions import BASE, CANDIDATE, GIBBS
from dpverify.paper.readings.results import Reading
from dpverify.paper.readings.runs import PaperMechanism, SetUp, build, paper_settings, run_seed
from dpverify.studies.tradeoff import Tradeoff, tradeoff

REPEATED_DATA_SEED_OFFSET = 10**6
REPEATED_FAMILIES = ("gibbs", "gibbs-start", "blend")  # measured again on other data from the same sensors
MECHANISMS = {"gibbs": "W2-MHE", "blend": "W2-MHE", "perturbed": "input perturbation", "ekf": "private EKF"}
FAMILY_READINGS = {
    "gibbs": GIBBS,
    "gibbs-start": GIBBS._replace(prior="start"),
    "blend": BASE,
    "blend-growing": BASE._replace(support="growing"),
    "perturbed": BASE,
    "perturbed-clipped": BASE._replace(covariance="clipped"),
    "perturbed-shifted": BASE._replace(covariance="shifted"),
    "perturbed-mean": BASE._replace(covariance="mean"),
    "perturbed-identity": BASE._replace(covariance="identity"),
    "perturbed-start": BASE._replace(prior="start"),
    "perturbed-window": CANDIDATE,
    "ekf": BASE,
    "ekf-model": BASE._replace(filter="model"),
    "ekf-data": BASE._replace(filter="data"),
}


def family_reading(family: str, tau: float) -> Reading:
    """Return the reading of a family with the calibrated tau; the claims use the exact distance."""
    return FAMILY_READINGS[family]._replace(tau=tau, angle="exact")


def build_family(family: str, number: int, value: float, tau: float) -> PaperMechanism:
    """Return the mechanism of a family on draw `number`, with its parameter at `value`."""
    mechanism = MECHANISMS[family.split("-")[0]]
    return build(mechanism, family_reading(family, tau), experiment.system(number), value)


def measure_draw(number: int, plan: Plan, effort: Effort, calibrated: CalibratedNumbers) -> SensorDraw:
    """Draw sensors and data with seed `number`, and measure every family on them."""
    tau, delta = calibrated.tau, plan.matched.delta
    data = SetUp(experiment.system(number), *experiment.pair(number, seed=number))
    settings = effort.draw.settings(seed=number)
    families = {
        name: (lambda value, name=name: build_family(name, number, value, tau), effort.values(name))
        for name in effort.draw_families
    }
    measured = tradeoff(families, data.first, data.second, delta, rmse(data.truth), settings=settings)
    paper = []
    for name in effort.draw_families:
        mechanism = build_family(name, number, plan.yardstick[name], tau)
        result = run_seed(mechanism, data, paper_settings(family_reading(name, tau), number))
        paper.append(PaperMeasurement(name, result.epsilon_c, result.error))
    repeated: tuple[CurvePoint, ...] = ()
    if number % 2 == 0:
        first, second, truth = experiment.pair(number, seed=number + REPEATED_DATA_SEED_OFFSET)
        again = {name: families[name] for name in REPEATED_FAMILIES if name in families}
        repeated = _curve_points(tradeoff(again, first, second, delta, rmse(truth), settings=settings.spawn(1)))
    theorem = theorem_bounds(number, plan.theorem_s, tau, data.first, data.second)
    distance = float(np.linalg.norm(data.first - data.second))
    return SensorDraw(number, distance, _curve_points(measured), tuple(paper), repeated, theorem)


def _curve_points(measured: Tradeoff) -> tuple[CurvePoint, ...]:
    """Return the rows of a trade-off as typed points."""
    return tuple(
        CurvePoint(
            mechanism=row["mechanism"],
            parameter=row["parameter"],
            epsilon_estimate=row["epsilon_estimate"],
            error_first=row["error_first"],
            epsilon_lower=row["epsilon_lower"],
            epsilon_upper_on_partition=row["epsilon_upper_on_partition"],
            error_second=row["error_second"],
            diagnostic=row.get("diagnostic"),
        )
        for row in measured.rows
    )


def theorem_bounds(number: int, s: float, tau: float, first: np.ndarray, second: np.ndarray) -> TheoremBounds:
    """Return the paper's sufficient epsilon and ours for this pair, over all events, for the Gibbs distribution."""
    mechanism = experiment.gibbs(number, s, tau)
    sufficient = sufficient_epsilon(mechanism, experiment.DISTANCE, len(first) - experiment.WINDOW)
    return TheoremBounds(s, sufficient, gibbs_epsilon(mechanism, first, second))
