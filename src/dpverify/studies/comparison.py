"""The comparison of two reports, before and after a change of a mechanism, its data or its claim."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from dpverify.report.report import Report
from dpverify.studies.tables import ResultTable, Row
from dpverify.util.formatting import format_confidence, format_lower, format_upper


class EpsilonBounds(NamedTuple):
    """The bounds of one verification.

    Attributes
    ----------
    lower : float
        The proved lower bound on epsilon, over all events; 0 without an answer.
    upper_on_cells : float
        The upper bound over the cells; infinity without an answer.
    """

    lower: float
    upper_on_cells: float


class BoundChange(NamedTuple):
    """A change of the bounds in words, and whether more is proved than before."""

    text: str
    is_larger: bool


def compare_bounds(before: EpsilonBounds, after: EpsilonBounds) -> BoundChange | None:
    """Return what changed, or None if the bounds do not contradict each other.

    An upper bound holds over unions of the cells of its own run. If the lower bound of the same run lies above it, then
    other events decide, and this upper bound shows nothing about a change.

    Examples
    --------
    >>> compare_bounds(EpsilonBounds(0.9, 1.1), EpsilonBounds(1.5, 1.6)).text
    'a larger privacy loss is proved: epsilon >= 1.5, and >= 0.9 before, when it was at most 1.1 over the cells'
    >>> compare_bounds(EpsilonBounds(2.7, 0.6), EpsilonBounds(2.7, 0.6)) is None
    True
    """
    if before.lower <= before.upper_on_cells < after.lower:
        return BoundChange(
            f"a larger privacy loss is proved: epsilon >= {format_lower(after.lower)}, and >= "
            f"{format_lower(before.lower)} before, when it was at most {format_upper(before.upper_on_cells)} over the "
            "cells",
            is_larger=True,
        )
    if after.lower <= after.upper_on_cells < before.lower:
        return BoundChange(
            f"the earlier privacy loss is no longer found: epsilon >= {format_lower(after.lower)}, and >= "
            f"{format_lower(before.lower)} before; now it is at most {format_upper(after.upper_on_cells)} over the "
            "cells",
            is_larger=False,
        )
    return None


@dataclass(frozen=True)
class Comparison(ResultTable):
    """Two reports side by side. `print` shows the finding and the bounds of both.

    Attributes
    ----------
    before, after : Report
        The reports.
    """

    before: Report
    after: Report
    identity = ("when",)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Two rows, "before" and "after", with the columns of `Report.row`."""
        return {"when": "before", **self.before.row()}, {"when": "after", **self.after.row()}

    @property
    def headline(self) -> str:
        """The finding."""
        return self.finding

    @property
    def over(self) -> str:
        """What was compared."""
        return f"Two privacy tests: {self.before.name} before, {self.after.name} after"

    @property
    def state(self) -> str:
        """The verdict after the change."""
        return self.after.verdict.name

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

    def sentences(self) -> list[str]:
        """Return what is said below the headline."""
        old, new = self.rows
        verdicts = [row["verdict"].replace("_", " ") for row in (old, new)]
        found = [f"The verdict was {verdicts[0]}, and is {verdicts[1]}."]
        if verdicts[0] == verdicts[1]:
            found = [f"The verdict is {verdicts[1]}, as before."]
        claims = [row["claim"] or "none" for row in (old, new)]
        return found + ([f"The claim was {claims[0]}, and is {claims[1]}."] if claims[0] != claims[1] else [])


def _bounds(report: Report) -> EpsilonBounds:
    return EpsilonBounds(report.epsilon_lower or 0.0, report.cell_counts.epsilon_upper(report.delta))


def _upper_over_all_events(report: Report) -> float:
    """Return the upper bound over all events; infinity without a Lipschitz constant."""
    return math.inf if report.certificate is None else report.certificate.epsilon_upper(report.delta)


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
