"""The measurements of the printed rows under each reading of what the paper does not print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Reading(NamedTuple):
    """One reading of the paper's experiment: a choice for everything that the paper does not print.

    Attributes
    ----------
    law : {"blend", "gibbs"}
        Distribution of the W2-MHE's estimate.
    support : {"constant", "growing"}
        Diameter of the set K_k: 0.1 at every step, or 0.1 c_f^k.
    prior : {"carried", "start"}
        The prior of window k: the model's step from the estimate of window k - 1, or k steps from the start.
    span : {"closed", "open"}
        Whether window k uses y_k, ..., y_{k+N} or y_{k+1}, ..., y_{k+N}.
    tau : float
        Weight of the measurements against the prior.
    angle : {"paper", "exact"}
        The angle by which the sensor moves: the paper's formula, or the angle at which the data are 10 apart.
    covariance : {"blocks", "clipped", "shifted", "mean", "identity"}
        Covariance of the input noise, up to its factor 1 - s_bar: I + (R + R')/2 with one 2 x 2 block per sensor; the
        20 x 20 matrix with its negative eigenvalues set to 0; the same matrix shifted by its smallest eigenvalue; its
        mean I + 11'/2; or I.
    noise : {"run", "window"}
        Whether the input noise of a run is drawn once, or anew for every window.
    filter : {"true", "model", "data"}
        Covariances of the EKF: those of the simulation, or such that it trusts the model, or the data.
    test_runs : int
        m, the test runs per data set.
    error_runs : {"one", "all"}
        Whether the printed errors are those of one run, or means over all test runs.
    complement : bool
        Whether the complement of the high-likely set competes as an event; in the paper it does not.
    """

    law: str = "blend"
    support: str = "constant"
    prior: str = "carried"
    span: str = "closed"
    tau: float = 4e-5
    angle: str = "paper"
    covariance: str = "blocks"
    noise: str = "run"
    filter: str = "true"
    test_runs: int = 3000
    error_runs: str = "all"
    complement: bool = False


class Summary(NamedTuple):
    """Median and 5% to 95% range over seeds."""

    median: float
    low: float
    high: float
    seeds: int


class NumberFit(NamedTuple):
    """How well a reading predicts one printed number.

    Attributes
    ----------
    name : {"epsilon_c", "eta", "lambda", "error", "error_adjacent"}
        The number.
    printed : float
        Its printed value; an eta that is not printed is solved from the printed lambda and epsilon_c.
    measured : Summary
        The simulated values.
    log_probability : float or None
        Logarithm of the predictive probability of the printed value. None for lambda: it follows from eta and
        epsilon_c, so that it must not count twice.
    inside : bool
        Whether the printed value lies in the 5% to 95% range.
    tail : float
        Share of simulated values that are at least as far out as the printed one, on the nearer side.
    """

    name: str
    printed: float
    measured: Summary
    log_probability: float | None
    inside: bool
    tail: float


class RowFit(NamedTuple):
    """One printed row under one reading.

    Attributes
    ----------
    row : str
        The printed row, `PrintedCell.key`, for instance "Q1, W2-MHE, s 0.8".
    reading : Reading
        The reading. Fields that this row does not depend on have their base value.
    parameter : float
        The value of the mechanism's parameter.
    fitted : bool
        Whether the paper does not print the parameter. It is then the value at which the error is the printed one, or
        the nearest value that the paper allows. The probability of the error is then that under a uniform parameter.
    epsilon_c, eta, lambda_, error, error_adjacent : Summary
        The paper's five numbers over seeds.
    ceiling : Summary
        The critical epsilon that the same procedure reports if the second data set never produces the event.
    saturated_share : float
        Share of seeds whose critical epsilon equals its ceiling, because the second count is 0.
    fits : tuple of NumberFit
        One for each number that is printed, or follows from printed ones.
    counts : tuple of (int, int)
        The counts of the tested event over seeds, from which the figures of p-values are drawn.
    """

    row: str
    reading: Reading
    parameter: float
    fitted: bool
    epsilon_c: Summary
    eta: Summary
    lambda_: Summary
    error: Summary
    error_adjacent: Summary
    ceiling: Summary
    saturated_share: float
    fits: tuple[NumberFit, ...]
    counts: tuple[tuple[int, int], ...] = ()

    @property
    def saturated(self) -> bool:
        """Whether at least half of the seeds reach the ceiling."""
        return self.saturated_share >= 0.5

    @property
    def log_probability(self) -> float:
        """The sum of the log predictive probabilities of the row's numbers."""
        return sum(fit.log_probability for fit in self.fits if fit.log_probability is not None)

    @property
    def inside(self) -> int:
        """How many printed numbers lie in their 5% to 95% range."""
        return sum(fit.inside for fit in self.fits)


class ReadingFit(NamedTuple):
    """A reading with all printed rows of one mechanism, or of all of them.

    Attributes
    ----------
    mechanism : str
        "W2-MHE", "input perturbation", "private EKF", or "all".
    reading : Reading
        The reading.
    varies : str
        What distinguishes the reading from the base reading, in words; "base" for the base reading itself.
    rows : tuple of RowFit
        The printed rows.
    """

    mechanism: str
    reading: Reading
    varies: str
    rows: tuple[RowFit, ...]

    @property
    def log_probability(self) -> float:
        """The fit: the sum of the log predictive probabilities of all printed numbers."""
        return sum(row.log_probability for row in self.rows)

    @property
    def inside(self) -> int:
        """How many printed numbers lie in their 5% to 95% range."""
        return sum(row.inside for row in self.rows)

    @property
    def printed(self) -> int:
        """How many printed numbers there are."""
        return sum(len(row.fits) for row in self.rows)


class CeilingByRuns(NamedTuple):
    """Critical epsilon of two disjoint distributions on 256 equally likely cells, with m test runs per data set.

    `log_probabilities` has the log predictive probability of each of the paper's four W2-MHE values (T = 8).
    """

    test_runs: int
    epsilon_c: Summary
    eta: Summary
    log_probabilities: tuple[float, ...]

    @property
    def log_probability(self) -> float:
        """The sum over the printed values."""
        return sum(self.log_probabilities)


class FinerFit(NamedTuple):
    """The critical epsilon on a grid with r bins per coordinate, under one reading; `printed` None: not printed."""

    r: int
    printed: float | None
    epsilon_c: Summary
    ceiling: Summary
    saturated_share: float
    log_probability: float | None


class ReadingResults(NamedTuple):
    """Everything about the readings.

    Attributes
    ----------
    rankings : dict
        For each mechanism the measured readings, best first.
    best : ReadingFit
        The best single reading of the whole experiment (mechanism "all"): what several mechanisms share has one value.
    with_complement : tuple of RowFit
        The rows of the best reading with the complement of the region as an event.
    by_runs : dict
        The W2-MHE rows of the best reading for each m.
    ceiling_by_runs : tuple of CeilingByRuns
        The model of disjoint distributions for each m.
    finer : tuple of FinerFit
        The finer grids (T = 7, Q2) under the best reading.
    seconds : float
        Processor time.
    """

    rankings: Mapping[str, tuple[ReadingFit, ...]]
    best: ReadingFit
    with_complement: tuple[RowFit, ...]
    by_runs: Mapping[int, tuple[RowFit, ...]]
    ceiling_by_runs: tuple[CeilingByRuns, ...]
    finer: tuple[FinerFit, ...]
    seconds: float = 0.0
