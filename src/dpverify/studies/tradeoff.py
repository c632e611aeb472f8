"""The trade-off between privacy and accuracy: several families of mechanisms, each measured at several parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from dpverify.errors import InputError
from dpverify.report.report import Report
from dpverify.report.statements import Witness, check_claim
from dpverify.settings import VerifyOptions
from dpverify.studies.calibrate import Family, check_family, estimate_epsilon
from dpverify.studies.engine import CallOptions, report_row
from dpverify.studies.tables import (
    ResultColumn,
    ResultTable,
    Row,
    accuracy_drawings,
    bounds_drawings,
    count_unanswered,
    format_parameter,
    format_value,
    is_answered,
)
from dpverify.util.arrays import Array
from dpverify.util.formatting import format_confidence, format_lower, format_number

if TYPE_CHECKING:
    from dpverify.render import Drawing

MORE_COLUMNS = (
    ResultColumn("epsilon_estimate", "estimate", lambda row: format_value(row["epsilon_estimate"]), True),
    ResultColumn("error_first_se", "std. error", lambda row: format_value(row["error_first_se"]), True),
)


@dataclass(frozen=True)
class Tradeoff(ResultTable):
    """The result of `tradeoff`. `print` shows a short table.

    Attributes
    ----------
    rows : tuple of dict
        One row per mechanism and parameter, with the columns mechanism, parameter, epsilon_estimate and those of
        `Report.row`. The estimate is the largest epsilon of a tested event or of a union of cells, with shares of runs
        in place of probabilities, so it is at least the lower bound. `epsilon_upper_on_partition` holds over the cells
        only. `error_first` and `error_second` are means over the runs with the first and with the second dataset;
        `error_first_se` and `error_second_se` are their standard errors.
    reports : tuple of Report
        The report of each row.
    """

    rows: tuple[Row, ...]
    reports: tuple[Report, ...]
    identity = ("mechanism", "parameter")

    @property
    def columns(self) -> list[ResultColumn]:
        """The columns of the text and of the page."""
        return [*super().columns, *MORE_COLUMNS]

    @property
    def over(self) -> str:
        """What was measured."""
        confidence = format_confidence(self.reports[0].alpha)
        delta = format_number(self.rows[0]["delta"])
        return f"privacy at delta {delta} (each bound: confidence {confidence}) and accuracy"

    @property
    def headline(self) -> str:
        """The finding in one sentence: from where to where privacy and accuracy go."""
        answered = [row for row in self.rows if is_answered(row) and row["error_first"] is not None]
        void = count_unanswered(self.rows)
        if not answered:
            return f"{void}."
        ends = [
            max(answered, key=lambda row: row["epsilon_lower"]),
            min(answered, key=lambda row: row["epsilon_lower"]),
        ]
        texts = [
            f"ε at least {format_lower(row['epsilon_lower'])} with error {format_number(row['error_first'])} "
            f"({row['mechanism']} {format_parameter(row['parameter'])})"
            for row in ends
        ]
        return f"{void}; from {texts[0]} to {texts[1]}." if void else f"From {texts[0]} to {texts[1]}."

    def sentences(self) -> list[str]:
        """Return what is said below the headline."""
        return [*super().sentences(), f"{self.over[0].upper()}{self.over[1:]}."]

    def drawings(self) -> list[Drawing]:
        """Return the figures: privacy against accuracy, and the bounds."""
        return [*accuracy_drawings(self.rows), *bounds_drawings(self.rows, self.identity)]


def tradeoff(
    families: Mapping[str, tuple[Family, Iterable[float]]],
    first: object,
    second: object,
    delta: float,
    error: Callable[[Array], Array],
    **options: Unpack[VerifyOptions],  # pyright: ignore[reportGeneralTypeIssues] (error is required here)
) -> Tradeoff:
    """Measure the privacy and the accuracy of several families of mechanisms at several parameters.

    Every verification has its own seed.

    Parameters
    ----------
    families : mapping from str to (family, values)
        For each name a function from a parameter to a mechanism, and the parameters.
    first, second : object
        The two neighbouring datasets.
    delta : float
        The delta at which epsilon is measured.
    error : callable
        Function from samples to one error per run. `rmse(truth)` makes one.
    **options
        Keyword arguments of `verify`: settings, executor, folder, log_lipschitz, log_density, learn, progress,
        trust_results, single settings.

    Returns
    -------
    Tradeoff
        One row and one report per mechanism and parameter.

    Raises
    ------
    InputError
        If there is no parameter, or an unknown keyword.

    Examples
    --------
    >>> import dpverify as dpv
    >>> def laplace(scale):
    ...     return lambda data, runs, rng: data + rng.laplace(scale=scale, size=(runs, 1))
    >>> table = dpv.tradeoff(
    ...     {"Laplace": (laplace, [0.5, 2.0])}, 0.0, 1.0, 0.01, dpv.rmse([[0.0]]), select_runs=500, test_runs=2000
    ... )
    >>> quiet, noisy = table.rows
    >>> quiet["epsilon_lower"] > noisy["epsilon_lower"], quiet["error_first"] < noisy["error_first"]
    (True, True)
    """
    call = CallOptions.of(**options)
    call = call._replace(call={**call.call, "error": error})
    check_claim(call.settings, None, delta)
    points = [(name, value, family) for name, (family, values) in families.items() for value in values]
    if not points:
        raise InputError('families: found no parameter; expected {"name": (family, values)} with at least one value')
    for name, _, family in points:
        check_family(family, f"families: {name}")
    columns: list[Row] = [{"mechanism": name, "parameter": value} for name, value, _ in points]
    jobs = [
        call.job(
            number, f"{name} {format_parameter(value)}", family(value), (first, second), None, delta, columns[number]
        )
        for number, (name, value, family) in enumerate(points)
    ]
    with call.open_engine() as engine:
        reports = engine.reports(jobs)
    rows = [
        report_row({**own, "epsilon_estimate": _estimate(report, delta)}, report)
        for own, report in zip(columns, reports, strict=True)
    ]
    return Tradeoff(tuple(rows), tuple(reports))


def _estimate(report: Report, delta: float) -> float | None:
    """Return the largest epsilon of a tested event or of a union of cells; None without an answer."""
    if report.voiding:
        return None
    return max(estimate_epsilon(report, delta), *(_epsilon_of(event, delta) for event in report.tested))


def _epsilon_of(event: Witness, delta: float) -> float:
    """Return the epsilon of an event whose probabilities are its shares of the runs."""
    frequent, other = event.ordered
    excess = frequent - delta * event.runs
    return 0.0 if excess <= other else math.log(excess / other) if other else math.inf
