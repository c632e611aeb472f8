"""The event that is tested: a union of cells, and the data set that is expected to fall into it more often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpverify.events.partition import Partition
from dpverify.events.scores import SCORE_KINDS, Levels
from dpverify.util.arrays import Array, cell_codes
from dpverify.util.serialization import nested_kinds


@dataclass(frozen=True)
class Event:
    """A union of cells of a partition, with a direction. It is plain data and frozen before the test runs.

    Attributes
    ----------
    partition : Partition or Levels
        The partition.
    codes : ndarray
        The sorted codes of the cells.
    direction : int
        0 if the first data set is expected to fall into the event more often, 1 if the second is.
    """

    partition: Partition | Levels
    codes: np.ndarray
    direction: int

    def contains(self, samples: Array) -> np.ndarray:
        """Return which runs of shape (runs, steps, dimensions) fall into the event."""
        return np.isin(cell_codes(self.partition, samples), self.codes) if len(samples) else np.zeros(0, bool)

    @property
    def complexity(self) -> int:
        """How many numbers describe the event: fitted parameters of a score, or cells of a union."""
        return self.partition.event_complexity(self.codes)

    @property
    def cell(self) -> int | None:
        """The code of the cell if the event is a single cell of a partition that was not fitted, else None."""
        return self.partition.single_cell(self.codes)

    def describe(self, examples: np.ndarray) -> str:
        """Describe the event in words. `examples` are pilot runs of shape (runs, steps, dimensions)."""
        return self.partition.describe_event(self.codes, examples)


# The classes that the plain data of an event are made of.
EVENT_KINDS = tuple(dict.fromkeys(kind for top in (Event, *SCORE_KINDS) for kind in nested_kinds(top)))
