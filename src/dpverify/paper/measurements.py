"""The values that the reproduction measures: rows of studies, and measurements on draws of the sensor positions.

The measurements of the printed rows under each reading are in `readings/results.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dpverify.paper.readings.results import ReadingResults


class CalibratedNumbers(NamedTuple):
    """The two numbers that the paper does not print, with a sentence about their origin."""

    tau: float
    s_hat: float
    says: str
    runs: int = 0
    seconds: float = 0.0


class StudyRow(NamedTuple):
    """One verification of a study.

    Attributes
    ----------
    mechanism, parameter : str, float
        The mechanism of `experiment.py`, and the value of its parameter.
    moved_sensor : int or None
        The sensor that moves, where the study varies it.
    epsilon_critical, eta, lambda_ : float
        The paper's numbers.
    epsilon_lower, epsilon_upper_on_partition : float
        The lower bound over all events, and the upper bound over unions of cells.
    error_first, error_second : float
        Mean errors under the first and the second data set.
    cells : int
        Cells of the partition.
    counts, test_runs : tuple of int, int
        Counts of the selected event, and test runs per data set.
    worst_outside : bool
        Whether the selected event is the complement of the region.
    """

    mechanism: str
    parameter: float
    moved_sensor: int | None
    epsilon_critical: float
    eta: float
    lambda_: float
    epsilon_lower: float
    epsilon_upper_on_partition: float
    error_first: float
    error_second: float
    cells: int
    counts: tuple[int, int]
    test_runs: int
    worst_outside: bool


StudyTables = Mapping[str, Sequence[StudyRow]]  # by the name of the study


def select_rows(tables: StudyTables, study: str, mechanism: str, parameter: float | None = None) -> list[StudyRow]:
    """Return the rows of one mechanism in one study; `parameter` None takes every parameter value."""
    return [
        row
        for row in tables.get(study, ())
        if row.mechanism == mechanism and (parameter is None or row.parameter == parameter)
    ]


class CurvePoint(NamedTuple):
    """Privacy and accuracy of one mechanism at one value of its parameter.

    Attributes
    ----------
    mechanism, parameter : str, float
        The mechanism of `experiment.py`, and the value of its parameter.
    epsilon_estimate : float
        Estimate of epsilon on the partition.
    error_first, error_second : float
        Mean errors under the first and the second data set.
    epsilon_lower, epsilon_upper_on_partition : float
        The lower bound over all events, and the upper bound over unions of cells.
    diagnostic : str or None
        Name of a diagnostic that voids the verification.
    """

    mechanism: str
    parameter: float
    epsilon_estimate: float
    error_first: float
    epsilon_lower: float = 0.0
    epsilon_upper_on_partition: float = float("inf")
    error_second: float = 0.0
    diagnostic: str | None = None


class PaperMeasurement(NamedTuple):
    """Critical epsilon and error of one mechanism at the paper's parameter value, by the paper's procedure."""

    mechanism: str
    epsilon_c: float
    error: float


class TheoremBounds(NamedTuple):
    """Two proved bounds of the Gibbs distribution's epsilon at `s`: the paper's theorem, and ours for this pair."""

    s: float
    sufficient: float
    certified: float


class SensorDraw(NamedTuple):
    """Everything that is measured on one draw.

    Attributes
    ----------
    number : int
        The number of the draw, also its seed.
    distance : float
        Euclidean distance between the two data sets.
    curves : tuple of CurvePoint
        Every mechanism along its parameter.
    paper : tuple of PaperMeasurement
        Every mechanism at the paper's parameter value.
    repeated : tuple of CurvePoint
        The Gibbs distribution again, on other data from the same sensors. Only draws with an even number have it: it
        shows how much of a difference between set-ups is a difference between seeds.
    theorem : TheoremBounds
        The theorem's bound and ours. Both are proportional to s/(1 - s), so one value of s is enough.
    seconds : float
        Processor time.
    """

    number: int
    distance: float
    curves: tuple[CurvePoint, ...]
    paper: tuple[PaperMeasurement, ...]
    repeated: tuple[CurvePoint, ...]
    theorem: TheoremBounds
    seconds: float = 0.0

    def curve(self, mechanism: str) -> list[CurvePoint]:
        """Return the points of one mechanism."""
        return [point for point in self.curves if point.mechanism == mechanism]

    def at_paper_value(self, mechanism: str) -> PaperMeasurement:
        """Return the measurement of one mechanism at the paper's parameter value."""
        return next(measurement for measurement in self.paper if measurement.mechanism == mechanism)


class PassingPairs(NamedTuple):
    """How many sampled pairs pass the test of one claim.

    Attributes
    ----------
    angle : {"paper", "exact"}
        How far the sensor moves: by the paper's formula, or until the data are 10 apart.
    epsilon : float
        The claim, a printed critical epsilon.
    pairs, passed : int
        Sampled pairs, and those that pass the paper's test.
    interval : tuple of float
        95% Clopper-Pearson limits of the share of all such pairs that pass.
    refuted : int
        Pairs on which the library's own test refutes the same claim.
    violating : float
        Lower confidence bound, by that test, of the share of all such pairs that violate the claim.
    """

    angle: str
    epsilon: float
    pairs: int
    passed: int
    interval: tuple[float, float]
    refuted: int
    violating: float


class Results(NamedTuple):
    """Everything that was measured: calibrated numbers, studies, draws of sensors, readings, and pairs that pass."""

    calibrated: CalibratedNumbers
    tables: StudyTables
    draws: Sequence[SensorDraw]
    readings: ReadingResults | None = None
    pairs: Sequence[PassingPairs] = ()
