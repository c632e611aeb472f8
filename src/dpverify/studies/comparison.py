"""The comparison of two reports: before and after a change of a mechanism, its data or its claim."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from dpverify.report.report import Report, load_pages
from dpverify.studies.bound_changes import EpsilonBounds, compare_bounds
from dpverify.studies.result_page import bounds_drawings, table_sections
from dpverify.studies.tables import Row, format_table, format_value
from dpverify.util.files import write_text
from dpverify.util.formatting import format_confidence, format_lower, format_upper

COMPARED = {
    "name": "mechanism",
    "verdict": "verdict",
    "claim": "claim",
    "epsilon_lower": "epsilon at least",
    "epsilon_upper_on_partition": "epsilon at most (over the cells)",
    "epsilon_detectable": "detectable epsilon",
    "p_value": "p-value",
    "delta": "delta",
    "alpha": "alpha",
    "witness": "witness",
    "test_runs": "test runs",
    "error_first": "error, first data set",
    "seed": "seed",
    "digest": "digest",
}  # columns of a row, and their names for people
ALWAYS_SHOWN = ("verdict", "epsilon_lower", "epsilon_upper_on_partition")
ROUNDED = {"epsilon_lower": format_lower, "epsilon_upper_on_partition": format_upper}


@dataclass(frozen=True)
class Comparison:
    """Two reports side by side. `print` shows the finding and what differs.

    Attributes
    ----------
    before, after : Report
        The reports.
    """

    before: Report
    after: Report

    @property
    def finding(self) -> str:
        """What can be said about the difference of the privacy losses, in one sentence.

        The privacy loss itself is compared only with an upper bound over all events, which needs a Lipschitz constant.
        Without one the sentence compares the bounds. If both reports have an upper bound over all events, either
        direction can be stated, and the confidence is that of all four bounds together.
        """
        before, after = self.before, self.after
        sides = (("before", before), ("after", after))
        if before.digest == after.digest:
            return "Both reports have the same result."
        if before.epsilon_lower is None or after.epsilon_lower is None:
            void = [f"no answer {when}: {report.voiding[0].cause}" for when, report in sides if report.voiding]
            return f"N{'; '.join(void)[1:]}. So the two cannot be compared."
        if before.delta != after.delta:
            return "The reports have different deltas, so their bounds on epsilon cannot be compared."
        # Each direction that can be stated rests on two bounds, and the results decide which one is stated.
        directions = sum(report.certificate is not None for report in (before, after))
        confidence = format_confidence(min(1.0, directions * (before.alpha + after.alpha)))
        old_limit, limit = _upper_over_all_events(before), _upper_over_all_events(after)
        if after.epsilon_lower > old_limit:
            return (
                f"The privacy loss is larger: epsilon was at most {format_upper(old_limit)} over all events, and is at "
                f"least {format_lower(after.epsilon_lower)} (confidence {confidence})."
            )
        if limit < before.epsilon_lower:
            return (
                f"The privacy loss is smaller: epsilon was at least {format_lower(before.epsilon_lower)}, and is at "
                f"most {format_upper(limit)} over all events (confidence {confidence})."
            )
        change = compare_bounds(_bounds(before), _bounds(after))
        if change is not None:
            return f"{change.text[0].upper()}{change.text[1:]}."
        return "No change of the privacy loss is shown."

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the verdicts, the bounds and all other entries that differ: name, before, after."""
        old, new = self.before.row(), self.after.row()
        shown = [name for name in COMPARED if name in ALWAYS_SHOWN or old[name] != new[name]]
        return [(COMPARED[name], _text(name, old), _text(name, new)) for name in shown]

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the comparison as a page (needs `dpverify[report]`)."""
        write_text(path, render_comparison(self))

    def __str__(self) -> str:
        return "\n".join([self.finding, *format_table(("", "before", "after"), self.rows())])


def _bounds(report: Report) -> EpsilonBounds:
    return EpsilonBounds(report.epsilon_lower or 0.0, report.cell_counts.epsilon_upper(report.delta))


def _upper_over_all_events(report: Report) -> float:
    """Return the upper bound over all events; infinity without a Lipschitz constant."""
    return math.inf if report.certificate is None else report.certificate.epsilon_upper(report.delta)


def _text(name: str, row: dict) -> str:
    """Return an entry of a report as text; bounds are rounded so that they stay bounds."""
    value = row[name]
    if name in ROUNDED and isinstance(value, float):
        return ROUNDED[name](value)
    if name == "verdict":
        return str(value).replace("_", " ")
    return str(value)[:12] if name == "digest" else format_value(value)


def render_comparison(comparison: Comparison) -> str:
    """Return the page of two reports as HTML (needs `dpverify[report]`)."""
    pages = load_pages()
    rows: tuple[Row, Row] = (comparison.before.row(), comparison.after.row())
    before, after = (str(row["verdict"]).replace("_", " ") for row in rows)
    changed = f"The verdict was {before}, and is {after}." if before != after else f"The verdict is {after}, as before."
    if rows[0]["claim"] != rows[1]["claim"]:
        changed += " The claims differ."
    claims = {row["epsilon"] for row in rows}
    claim = claims.pop() if len(claims) == 1 else None
    cells = [[pages.Cell(text) for text in line] for line in comparison.rows()]
    title = "Verdict, bounds, and what else differs"
    sections = table_sections(
        ["entry", "before", "after"], cells, title, bounds_drawings(rows, ["before", "after"], claim)
    )
    over = f"Two privacy tests: {rows[0]['name']} before, {rows[1]['name']} after"
    blocks = [pages.Sentence(changed, style="lead"), *sections]
    return pages.Page(comparison.finding, blocks, over, after, str(rows[1]["verdict"])).html()


def compare_reports(before: Report, after: Report) -> Comparison:
    """Compare two reports.

    Parameters
    ----------
    before, after : Report
        The reports.

    Examples
    --------
    >>> import dpverify as dpv
    >>> def noisy(scale):
    ...     return lambda data, runs, rng: data + rng.laplace(scale=scale, size=runs)
    >>> one, two = (dpv.verify(noisy(s), 0.0, 1.0, 1.0, select_runs=500, test_runs=5000) for s in (1.0, 0.2))
    >>> compare_reports(one, two).finding.startswith("A larger privacy loss is proved")
    True
    """
    return Comparison(before, after)
