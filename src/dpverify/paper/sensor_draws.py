"""Measurements on one random draw of the sensor positions.

Every mechanism is verified at several values of its parameter, at one delta. This gives a curve of privacy against
accuracy, from which `claims.py` reads the values at equal privacy and at equal accuracy.
"""

from __future__ import annotations

import numpy as np

from dpverify.estimation.theory import gibbs_epsilon, sufficient_epsilon
from dpverify.mechanisms.accuracy import rmse
from dpverify.paper import experiment
from dpverify.paper.measurements import CalibratedNumbers, CurvePoint, PaperMeasurement, SensorDraw, TheoremBounds
from dpverify.paper.plan import Effort, Plan
from dpverify.pipeline import verify
from dpverify.settings import Settings
from dpverify.studies.tradeoff import Tradeoff, tradeoff

REPEATED_DATA_SEED_OFFSET = 10**6


def measure_draw(number: int, plan: Plan, effort: Effort, calibrated: CalibratedNumbers) -> SensorDraw:
    """Draw sensors and data with seed `number`, and measure every mechanism on them."""
    tau, delta = calibrated.tau, plan.matched.delta
    first, second, truth = experiment.pair(number, seed=number)
    settings = effort.draw.settings(seed=number)
    families = {
        name: (lambda value, name=name: experiment.build_mechanism(name, number, value, tau), effort.families[name])
        for name in effort.draw_mechanisms
    }
    measured = tradeoff(families, first, second, delta, rmse(truth), settings=settings)
    paper = []
    for name in effort.draw_mechanisms:
        value = plan.paper_values.get(name, calibrated.s_hat)
        mechanism = experiment.build_mechanism(name, number, value, tau)
        preset = Settings.paper(block=1024, seed=number)
        report = verify(mechanism, first, second, settings=preset, error=rmse(truth))
        assert report.error is not None
        paper.append(PaperMeasurement(name, report.epsilon_critical, report.error[0][0]))
    repeated: tuple[CurvePoint, ...] = ()
    if number % 2 == 0:
        other_first, other_second, other_truth = experiment.pair(number, seed=number + REPEATED_DATA_SEED_OFFSET)
        family = {"gibbs": families["gibbs"]}
        repeated = _curve_points(
            tradeoff(family, other_first, other_second, delta, rmse(other_truth), settings=settings.spawn(1))
        )
    theorem = theorem_bounds(number, plan.paper_values["gibbs"], tau, first, second)
    distance = float(np.linalg.norm(first - second))
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
