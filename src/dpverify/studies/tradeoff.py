"""The trade-off between privacy and accuracy: several families of mechanisms, each measured at several parameters."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from dpverify.errors import InputError
from dpverify.report.report import Report
from dpverify.report.statements import Witness, check_claim
from dpverify.settings import VerifyOptions
from dpverify.studies.epsilon_line import estimate_epsilon
from dpverify.studies.families import Family, check_family
from dpverify.studies.options import RunOptions
from dpverify.studies.plots import plot_comparison
from dpverify.studies.tables import Row, format_table, unanswered_sentences, write_comparison, write_csv
from dpverify.util.arrays import Array
from dpverify.util.dataframes import make_dataframe
from dpverify.util.formatting import format_confidence, format_lower, format_number, format_upper

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

ROW_COLUMNS = ("epsilon_upper_on_partition", "error_first", "error_first_se", "error_second", "error_second_se")


@dataclass(frozen=True)
class Tradeoff:
    """The result of `tradeoff`. `print` shows a short table.

    Attributes
    ----------
    rows : tuple of dict
        One row per mechanism and parameter, with the columns mechanism, parameter, diagnostic, delta, epsilon_lower,
        epsilon_estimate, epsilon_upper_on_partition, error_first, error_first_se, error_second, error_second_se.
        `diagnostic` is the name of the `Diagnostic` that voids the row, or None. The estimate is the largest epsilon of
        a tested event or of a union of cells, with shares of runs in place of probabilities, so it is at least the
        lower bound. `epsilon_upper_on_partition` holds over the cells only. The errors are means over the runs
        with the first and with the second data set; `_se` is the standard error.
    reports : tuple of Report
        The report of each row.
    """

    rows: tuple[Row, ...]
    reports: tuple[Report, ...]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write all rows to a CSV file."""
        write_csv(path, self.rows)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page that shows privacy against accuracy (needs `dpverify[report]`)."""
        write_comparison(path, "Privacy against accuracy", self.rows)

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame (needs pandas)."""
        return make_dataframe(self.rows)

    def plot(self) -> Figure:
        """Return a figure of privacy against accuracy (needs `dpverify[report]`)."""
        return plot_comparison(self.rows)

    def __str__(self) -> str:
        shown = {
            "epsilon >=": ("epsilon_lower", format_lower),
            "estimate": ("epsilon_estimate", format_number),
            "over the cells <=": ("epsilon_upper_on_partition", format_upper),
            "error": ("error_first", format_number),
            "std. error": ("error_first_se", format_number),
        }
        header = ("mechanism", "parameter", *shown)
        lines = []
        for row in self.rows:
            cells = ["" if (value := row[name]) is None else write(value) for name, write in shown.values()]
            cells[0] = cells[0] or "no answer"
            lines.append((row["mechanism"], format_number(row["parameter"]), *cells))
        confidence = format_confidence(self.reports[0].alpha)
        delta = format_number(self.rows[0]["delta"])
        title = f"privacy at delta {delta} (each bound: confidence {confidence}) and accuracy"
        unanswered = [f"  {sentence}" for sentence in unanswered_sentences(self.rows)]
        return "\n".join([title, *unanswered, *format_table(header, lines)])


def tradeoff(
    families: Mapping[str, tuple[Family, Iterable[float]]],
    first: object,
    second: object,
    delta: float,
    error: Callable[[Array], Array],
    **options: Unpack[VerifyOptions],  # pyright: ignore[reportGeneralTypeIssues] (error is required here)
) -> Tradeoff:
    """Measure the privacy and the accuracy of several families of mechanisms at several parameters.

    Every verification has its own seed, and its own sub-folder if there is a folder.

    Parameters
    ----------
    families : mapping from str to (family, values)
        For each name a function from a parameter to a mechanism, and the parameters.
    first, second : object
        The two neighbouring data sets.
    delta : float
        The delta at which epsilon is measured.
    error : callable
        Function from samples to one error per run. `rmse(truth)` makes one.
    **options
        Keyword arguments of `verify`: settings, executor, folder, log_lipschitz, learn, progress, trust_results, single
        settings.

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
    run_options = dataclasses.replace(RunOptions.from_keywords(**options), error=error)
    check_claim(run_options.settings, None, delta)
    points = [(name, value, family) for name, (family, values) in families.items() for value in values]
    if not points:
        raise InputError('families: found no parameter; expected {"name": (family, values)} with at least one value')
    for name, _, family in points:
        check_family(family, f"families: {name}")
    rows: list[Row] = []
    reports: list[Report] = []
    with run_options.share_executor() as shared:
        for number, (name, value, family) in enumerate(points):
            report = shared.child(number).verify(family(value), first, second, None, delta)
            rows.append(_make_row(name, value, report, delta))
            reports.append(report)
    return Tradeoff(tuple(rows), tuple(reports))


def _make_row(name: str, parameter: float, report: Report, delta: float) -> Row:
    """Return the row of one report."""
    row = report.row()
    return {
        "mechanism": name,
        "parameter": parameter,
        "diagnostic": row["diagnostic"],
        "delta": delta,
        "epsilon_lower": row["epsilon_lower"],
        "epsilon_estimate": None
        if report.voiding
        else max(estimate_epsilon(report, delta), *(_epsilon_of(event, delta) for event in report.tested)),
        **{column: row[column] for column in ROW_COLUMNS},
    }


def _epsilon_of(event: Witness, delta: float) -> float:
    """Return the epsilon of an event whose probabilities are its shares of the runs."""
    frequent, other = event.ordered
    excess = frequent - delta * event.runs
    return 0.0 if excess <= other else math.log(excess / other) if other else math.inf
