"""What the bounds of two verifications, before and after a change, show about the privacy loss."""

from __future__ import annotations

from typing import NamedTuple

from dpverify.util.formatting import format_lower, format_upper


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
