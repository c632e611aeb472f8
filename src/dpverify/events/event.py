"""TODO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpverify.events.partition import Partition
from dpverify.events.scores import Levels
from dpverify.sampling.counts import Counts
from dpverify.util.arrays import cell_codes


@dataclass(frozen=True)
class Event:
    """A union of cells, and the side that is expected to fall into it more often: plain data."""

    partition: Partition | Levels
    codes: np.ndarray
    direction: int  # 0: the first data set, 1: the second

    def contains(self, samples: Any) -> np.ndarray:
        return np.isin(cell_codes(self.partition, samples), self.codes) if len(samples) else np.zeros(0, bool)

    def count(self, counts: Counts) -> int:
        return int(counts.of(self.codes).sum())
