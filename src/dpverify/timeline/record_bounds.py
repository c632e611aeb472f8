"""The bounds of many records over time: a table epsilon(record, step)."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpverify.timeline.bounds import PrefixBounds
from dpverify.util.dataframes import make_dataframe

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class RecordBounds:
    """The bounds of several records; `PrivacyTable` describes the fields, and adds text and pages."""

    curves: tuple[PrefixBounds, ...]
    jointly: bool

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Return whether both results have the same digest."""
        return isinstance(other, RecordBounds) and self.digest == other.digest

    @property
    def records(self) -> tuple[str, ...]:
        """The names of the records."""
        return tuple(curve.record for curve in self.curves)

    @property
    def steps(self) -> int:
        """The number of steps of an output."""
        return self.curves[0].steps

    @property
    def alpha(self) -> float:
        """One minus the confidence of the whole table if it holds jointly, otherwise that of each record."""
        return self.curves[0].alpha * (len(self.curves) if self.jointly else 1)

    @functools.cached_property
    def epsilon_lower(self) -> np.ndarray:
        """Lower bounds on epsilon of each record (rows) and step (columns)."""
        return np.stack([curve.epsilon_lower for curve in self.curves])

    @functools.cached_property
    def epsilon_upper(self) -> np.ndarray:
        """Upper bounds on epsilon over unions of cells, of each record (rows) and step (columns)."""
        return np.stack([curve.epsilon_upper for curve in self.curves])

    @property
    def truth(self) -> np.ndarray | None:
        """The exact epsilons if the mechanism knows them for every record, otherwise None."""
        exact = [curve.truth for curve in self.curves]
        return None if any(one is None for one in exact) else np.array(exact)

    @property
    def start(self) -> tuple[int | None, ...]:
        """The first step at which a loss of each record is proved, or None."""
        return tuple(curve.start for curve in self.curves)

    @property
    def final(self) -> np.ndarray:
        """The lower bound on epsilon of the whole output, for each record."""
        return self.epsilon_lower[:, -1]

    @property
    def spent(self) -> np.ndarray:
        """The share of its final loss that each record (rows) has reached at each step (columns)."""
        return np.stack([curve.spent for curve in self.curves])

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted for any record."""
        return any(curve.refuted for curve in self.curves)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the results. It does not depend on executor, number of workers or order of blocks."""
        return hashlib.sha256("".join(curve.digest for curve in self.curves).encode()).hexdigest()

    def rows(self) -> list[dict[str, object]]:
        """Return one row per record and step."""
        return [row for curve in self.curves for row in curve.rows()]

    def to_dataframe(self) -> pandas.DataFrame:
        """Return one row per record and step as a pandas DataFrame (needs pandas)."""
        return make_dataframe(self.rows())
