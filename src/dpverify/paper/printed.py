"""The numbers that the paper prints, read from `printed.toml` without any change of digits."""

from __future__ import annotations

import functools
import math
import tomllib
from typing import NamedTuple

from dpverify.paper.plan import FOLDER
from dpverify.stats.paper_test import PAPER_EPSILON_SWEEP

BETA = 0.05  # of every printed lambda
CELL_MECHANISMS = {  # the names that the paper prints, and the mechanisms of `experiment.py` that they stand for
    "W2-MHE": ("gibbs", "blend"),
    "input perturbation": ("perturbed",),
    "private EKF": ("ekf",),
}


class PrintedCell(NamedTuple):
    """A set-up, a mechanism and its parameter, with the numbers that the paper prints for them.

    Attributes
    ----------
    place : str
        Where in the paper the numbers are printed, for instance "Fig. 5 left" or "Table I, row 2, input".
    setup, mechanism : str
        The sensors ("Q1", "Q2", "Q3"), and the mechanism by its name in the paper.
    parameter, value : str, float or None
        Symbol and value of the mechanism's parameter. The EKF's value is not printed.
    epsilon_c : float
        The critical epsilon; infinite where the paper rejects every epsilon.
    assumed : str or None
        What the paper leaves open and the reproduction had to choose.
    error, error_adjacent : float or None
        Errors of the estimates under the first and under the second data set.
    eta, lambda_ : float or None
        The largest share of runs in a cell, and the paper's lambda.
    """

    place: str
    setup: str
    mechanism: str
    parameter: str
    epsilon_c: float
    value: float | None = None
    assumed: str | None = None
    error: float | None = None
    error_adjacent: float | None = None
    eta: float | None = None
    lambda_: float | None = None

    @property
    def key(self) -> str:
        """The name of the row, for instance "Q1, W2-MHE, s 0.8"."""
        return f"{self.setup}, {self.mechanism}, {self.parameter_text}"

    @property
    def implied_eta(self) -> float | None:
        """The printed eta, or the multiple of 0.001 from which the printed lambda follows."""
        if self.eta is not None or self.lambda_ is None:
            return self.eta
        return round((self.lambda_ - BETA) / (2 * math.exp(self.epsilon_c)), 3)

    @property
    def parameter_text(self) -> str:
        """The parameter with its value, for instance "s 0.8"."""
        return self.parameter if self.value is None else f"{self.parameter} {self.value:g}"


class PrintedGrid(NamedTuple):
    """The critical epsilon on the grid with r bins per coordinate; None where the paper prints none."""

    r: int
    epsilon_c: float | None = None


class TheoremExample(NamedTuple):
    """The epsilon that suffices by the paper's theorem, with the constants it is computed from."""

    epsilon: float
    s: float
    distance: float
    diameter: float
    window: int
    steps: int


class PrintedConstants(NamedTuple):
    """Constants of the paper: the scenario size, the number of events, two Lipschitz constants, three levels."""

    Gamma: int
    events: int
    c_f: float
    l: float
    alpha: float
    beta: float
    gamma: float


class CalibrationTarget(NamedTuple):
    """A printed error that fixes a number which the paper does not print."""

    setup: str
    error: float
    s: float = 1.0


class EventCounts(NamedTuple):
    """Pairs of counts in the paper's figures of p-values, and the assumed number of runs per data set."""

    runs: int
    different: tuple[tuple[int, int], ...]
    proportional: tuple[tuple[int, int], ...]


class PrintedNumbers(NamedTuple):
    """Everything that `printed.toml` holds."""

    cells: tuple[PrintedCell, ...]
    finer: tuple[PrintedGrid, ...]
    theory: TheoremExample
    constants: PrintedConstants
    tau_target: CalibrationTarget
    s_hat_target: CalibrationTarget
    counts: EventCounts

    @property
    def critical_epsilons(self) -> list[float]:
        """Every printed critical epsilon, the infinite one included."""
        return [row.epsilon_c for row in (*self.cells, *self.finer) if row.epsilon_c is not None]


@functools.cache
def read_printed() -> PrintedNumbers:
    """Return the numbers of `printed.toml`."""
    document = tomllib.loads((FOLDER / "printed.toml").read_text(encoding="utf-8"))
    cells = []
    for table in document["cells"]:
        lambda_ = table.pop("lambda", None)
        cells.append(PrintedCell(**table, lambda_=lambda_))
    counts = document["counts"]
    pairs = {name: tuple((c1, c2) for c1, c2 in counts[name]) for name in ("different", "proportional")}
    return PrintedNumbers(
        tuple(cells),
        tuple(PrintedGrid(**table) for table in document["finer"]),
        TheoremExample(**document["theory"]),
        PrintedConstants(**document["constants"]),
        CalibrationTarget(**document["calibration"]["tau"]),
        CalibrationTarget(**document["calibration"]["s_hat"]),
        EventCounts(counts["runs"], **pairs),
    )


def is_calibration_cell(cell: PrintedCell, mechanism: str) -> bool:
    """Return whether the printed error of this cell fixed tau or s_hat; then our error is not a prediction."""
    tau, s_hat = read_printed().tau_target, read_printed().s_hat_target
    if mechanism == "gibbs":
        return (cell.setup, cell.value) == (tau.setup, tau.s)
    return mechanism == "ekf" and cell.setup == s_hat.setup


def is_on_sweep(epsilon: float, digits: int = 5) -> bool:
    """Return whether a printed critical epsilon equals a point of linspace(.001, 1.5, 80) in every printed digit."""
    return any(f"{point:.{digits}f}" == f"{epsilon:.{digits}f}" for point in PAPER_EPSILON_SWEEP)
