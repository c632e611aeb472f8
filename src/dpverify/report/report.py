"""The report of a verification.

A report has two parts. The result is a function of mechanism, data sets and settings. The run describes how the result
was computed (seconds, versions, device, workers); it is not part of equality and not part of the digest.
"""

from __future__ import annotations

import dataclasses
import functools
import html
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dpverify.errors import InputError, how_to_install
from dpverify.report.document import read_report, report_digest, write_report
from dpverify.report.evaluate import Etas, evaluate_claim
from dpverify.report.fields import ReportFields
from dpverify.report.text import report_text
from dpverify.stats.claims import resolve_claim
from dpverify.util.checks import is_real_number
from dpverify.util.dataframes import make_dataframe
from dpverify.util.files import write_file
from dpverify.util.formatting import format_lower

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Report(ReportFields):
    """The result of one verification of a mechanism on one pair of data sets.

    `print(report)` shows it as text. A mechanism is (epsilon, delta)-private on the pair if P1(E) <= e^epsilon P2(E) +
    delta for all events E, and the same with P1 and P2 exchanged. docs/numbers.md explains every number.

    Attributes
    ----------
    verdict : Verdict
        The conclusion: `REFUTED`, `BOUNDED`, `NOT_REFUTED`, `MEASURED` (no claim) or `NO_ANSWER`. Its value is the
        sentence that is printed.
    epsilon : float or None
        The claimed epsilon; None if no claim was stated.
    delta : float
        The claimed delta. Without a claim, the delta at which epsilon is bounded.
    alpha : float
        Level of the test, and 1 minus the confidence of the bounds.
    epsilon_lower : float
        Lower confidence bound on epsilon at `delta`: the true epsilon of this pair is at least this. It holds because
        one event is enough to prove it. 0 if nothing is proved.
    p_value : float or None
        p-value of the claim, by all tested events together; None without a claim.
    epsilon_critical : float
        The smallest epsilon that is not rejected. It equals `epsilon_lower` unless `settings.test` is "thinned".
    epsilon_detectable : float
        If the true epsilon of the witness were this large, these runs would refute the claim with probability about
        0.8. Infinite if no epsilon of the witness would be refuted. It says nothing about better events that the
        selection may have missed.
    on_partition : OnPartition
        Upper bounds over unions of the partition's cells: `epsilon_upper(delta)`, `delta_upper(epsilon)`, `cells` (the
        number of cells) and `region_mass` (a lower bound on the probability of the region of likely outputs). Other
        events are not bounded.
    on_all_events : OnAllEvents or None
        Upper bounds over all events. None unless a Lipschitz constant of the log-density was stated.
    witness : Witness
        The tested event: `text`, `counts`, `probabilities` (share and confidence limits for each data set),
        `direction` (`(1, 2)`: the test is whether the first data set falls into the event too often compared with the
        second; `(2, 1)`: the other way) and `contains(samples)`.
    paper : Paper
        The numbers of the paper: `p_values` of its randomised test, `eta` (largest share of the first data set's
        selection runs in an event) and `lambda_` = beta + 2 eta exp(epsilon_critical). They are not a guarantee.
        `eta_upper` is a bound: the probability of the most likely cell is at most this, with confidence 1 - alpha.
    error : pair of (mean, standard error), or None
        The error of the estimate under the first and the second data set. None unless `error` was passed to `verify`.
    picture : dict
        What the page draws: runs of the data sets ("first", "second"), "region", "partition", and the counts of all
        test runs where they are drawn ("cells", "event_cells").
    settings : Settings
        The settings that were used, with the block size filled in.
    name : str
        Name of the mechanism.
    seeded : bool
        Whether the mechanism can be seeded, so that the report can be reproduced.
    diagnostics : tuple of Diagnostic
        Findings about the mechanism and the data sets. A voiding one makes the verdict `NO_ANSWER`.
    remarks : tuple of str
        Sentences of the mechanism's own method `remarks`.
    next_step : str
        What to do next.
    run : dict
        How the report was computed: "seconds", "versions", "device", "workers", "resumed".
    data_difference : DataDifference or None
        How the data sets differ, in words. Data sets that differ in another way are not tested. None in a report of an
        earlier version.
    claim : Claim or None
        The claim that was tested, of any kind (`dpverify.claims`); None without a claim.
    claim_lower : float or None
        Lower bound on the claim's own parameter (epsilon, mu, rho), by all tested events together, with confidence
        1 - alpha. None without a claim, or if the claim has no parameter.
    sequence : Sequence or None
        The bets of a verification with `stop_early`, from which `stopped`, `runs_used` and `e_value` follow; None
        without it. The witness of a verification that stopped before its exact test (`is_tested` is False) is counted
        in all runs, and the bounds come from the bets.
    others : tuple of Witness
        Events that were frozen and tested together with the witness. Each has a `share` of alpha, and the shares of all
        tested events add up to 1. The witness is the one that proves most.
    delta_events : DeltaEvents or None
        Events that were chosen for bounds on delta, which `delta_lower` and `profile` use. None if the witness is used.

    Examples
    --------
    >>> import dpverify as dpv
    >>> def noisy_count(data, runs, rng):
    ...     return data + rng.laplace(size=runs)
    >>> report = dpv.verify(noisy_count, 0.0, 1.0, epsilon=0.5, select_runs=1000, test_runs=5000, seed=1)
    >>> report.verdict.name, report.refuted
    ('REFUTED', True)
    >>> 0.5 < report.epsilon_lower < 1.0
    True
    >>> report.against(1.0).refuted
    False
    """

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Return whether both results have the same digest."""
        return isinstance(other, Report) and self.digest == other.digest

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the result. It does not depend on executor, number of workers or order of blocks."""
        return report_digest(self)

    def against(self, epsilon: object, delta: float = 0.0) -> Report:
        """Return the report of another claim on the same counts, without new runs.

        This is valid because the event was fixed before the test runs. At one delta, the results hold for all epsilons
        together. For a delta that is chosen after looking at the counts, use `profile`.

        Parameters
        ----------
        epsilon : float, claim or None
            The claimed epsilon; or a claim of `dpverify.claims`, an accountant's privacy profile, or a function of
            epsilon; None states no claim.
        delta : float, default 0.0
            The claimed delta. It is 0 unless it is given, whatever the delta of this report is.
        """
        if epsilon is None or is_real_number(epsilon):
            claim, delta = resolve_claim(epsilon, delta)
        else:
            claim, delta = resolve_claim(None, delta, epsilon)
        etas = Etas(self.paper.eta, self.paper.eta_upper)
        evaluation = evaluate_claim(
            self.tested,
            self.on_partition,
            etas,
            self.settings,
            claim,
            delta,
            self.diagnostics,
            self.sequence,
        )
        return dataclasses.replace(self, **evaluation)

    def row(self) -> dict[str, str | int | float | None]:
        """Return the report as one flat row of a table.

        "diagnostic" is the name of the first voiding diagnostic, or None.
        """
        first, second = self.error or ((None, None), (None, None))
        return {
            "name": self.name,
            "verdict": self.verdict.name,
            "diagnostic": self.voiding[0].name if self.voiding else None,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "claim": None if self.claim is None else self.claim.describe(),
            "claim_parameter": None if self.claim is None else self.claim.parameter_name,
            "claim_lower": self.claim_lower,
            "alpha": self.alpha,
            "p_value": self.p_value,
            "epsilon_lower": self.epsilon_lower,
            "epsilon_critical": self.epsilon_critical,
            "epsilon_detectable": self.epsilon_detectable,
            "epsilon_upper_on_partition": self.on_partition.epsilon_upper(self.delta),
            "cells": self.on_partition.cells,
            "region_mass": self.on_partition.region_mass,
            "witness": self.witness.text,
            "witness_cell": self.witness.cell,
            "c1": self.witness.counts[0],
            "c2": self.witness.counts[1],
            "test_runs": self.witness.runs,
            "eta": self.paper.eta,
            "lambda": self.paper.lambda_,
            "error_first": first[0],
            "error_first_se": first[1],
            "error_second": second[0],
            "error_second_se": second[1],
            "seed": self.settings.seed,
            "digest": self.digest,
        }

    def __str__(self) -> str:
        """Return the report as plain text."""
        return report_text(self)

    def __repr__(self) -> str:
        """Return name, verdict and lower bound; without an answer the bound is left out, because it is void."""
        bound = "" if self.voiding else f", epsilon >= {format_lower(self.epsilon_lower)}"
        return f"<Report {self.name}: {self.verdict.name}{bound}>"

    def to_json(self, path: str | Path | TextIO) -> None:
        """Write the report as JSON.

        Parameters
        ----------
        path : str, Path or text stream
            The file, or a stream that is open for text.

        Raises
        ------
        InputError
            If the file cannot be written. The exception is an OSError, too.
        """
        write_report(self, path)

    def to_html(self, path: str | Path) -> None:
        """Write the report as one self-contained HTML page with figures (needs `dpverify[report]`).

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        InputError
            If the file cannot be written. The exception is an OSError, too.
        """
        write_file(path, load_page_renderer()(self))

    def plot(self, kind: str = "outputs") -> Figure:
        """Return a figure of the report (needs `dpverify[report]`); its method `savefig` writes PNG, SVG or PDF.

        Parameters
        ----------
        kind : str
            "outputs" draws runs of both data sets and the witness. "delta" draws the bounds of delta against epsilon.
            "p-value" draws the p-value against the claimed epsilon. "errors" draws type I and type II errors of events
            beside the claim.

        Returns
        -------
        matplotlib.figure.Figure
            The figure. In a notebook it is shown if it is the value of a cell.
        """
        load_page_renderer()
        from dpverify.report.page import plot

        return plot(self, kind)

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the columns of `row` as a pandas DataFrame with one row (needs pandas)."""
        return make_dataframe([self.row()])

    def _repr_html_(self) -> str | None:
        """Return the page in a frame for notebooks, or None (then the text is shown) if it cannot be drawn."""
        try:
            page = load_page_renderer()(self)
        except InputError:
            return None
        return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 45rem; border: 0"></iframe>'

    @classmethod
    def from_json(cls, path: str | Path) -> Report:
        """Read a report that `to_json` wrote.

        The file contains data only, and reading it runs no code from it. Unknown keys are ignored.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        InputError
            If the file is missing or damaged, or if a newer version of dpverify wrote it.
        """
        return read_report(cls, path)


def load_page_renderer() -> Callable[[Report], str]:
    """Return the function that draws a page. It needs matplotlib and Jinja2, so it is imported only when it is used."""
    try:
        from dpverify.report.page import page
    except ImportError as problem:
        raise InputError(f"a page: {problem}; expected matplotlib and Jinja2; {how_to_install('report')}") from None
    return page
