"""Upper bounds at several looks: each look has its own share of alpha, so all of them hold together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dpverify.events.partition import Partition
from dpverify.events.region import Region, RegionIndicator
from dpverify.events.scores import Levels
from dpverify.events.selected import SelectedEvents
from dpverify.report.all_events import SmoothGrid, bound_all_events
from dpverify.report.evaluate import bound_partition
from dpverify.report.statements import OnAllEvents, OnPartition
from dpverify.sampling.counts import Cells, Counts
from dpverify.selection.histograms import score_values
from dpverify.sequential.portfolio import quantile_edges
from dpverify.settings import Settings

BOUNDED_CELLS = 12  # at delta 0
CountsPair = tuple[Counts, Counts]


class Look(NamedTuple):
    """What one look at the upper bounds gave."""

    on_partition: OnPartition
    on_all_events: OnAllEvents | None
    inside: CountsPair


class Bounding:
    """A partition that was fixed at some time, and the counts of all runs since then.

    Parameters
    ----------
    partition : Partition or Levels
        The partition whose unions of cells are bounded.
    region : Region
        The region whose mass is bounded.
    smooth : SmoothGrid or None
        The grid for a bound over all events.
    settings : Settings
        For the level.
    """

    def __init__(
        self, partition: Partition | Levels, region: Region, smooth: SmoothGrid | None, settings: Settings
    ) -> None:
        self.partition, self.region, self.smooth = partition, region, smooth
        self._settings = settings
        self.counted: list[Cells] = [partition, RegionIndicator(region), *([smooth.grid] if smooth else [])]
        self._counts: list[CountsPair] | None = None
        self.runs = 0

    def add(self, counts: Sequence[CountsPair], runs: int) -> None:
        """Add the counts of a batch in each of the `counted` partitions."""
        if self._counts is not None:
            pairs = zip(self._counts, counts, strict=True)
            counts = [(Counts.merge([old[0], new[0]]), Counts.merge([old[1], new[1]])) for old, new in pairs]
        self._counts, self.runs = list(counts), self.runs + runs

    def look(self, share: float) -> Look:
        """Return the upper bounds from all runs since the partition was fixed, at this share of alpha."""
        assert self._counts is not None
        cells, inside, *smooth = self._counts
        level = self._settings.change(alpha=share * self._settings.alpha, test_runs=self.runs)
        on_partition = bound_partition(self.partition, cells, inside, level)
        on_all_events = bound_all_events(self.smooth, smooth[0], level) if self.smooth is not None else None
        return Look(on_partition, on_all_events, inside)


def bounded_partition(selected: SelectedEvents, samples: Sequence[np.ndarray], delta: float) -> Partition | Levels:
    """Return the partition that is bounded: level sets of the selected score with equal shares of the runs so far.

    A partition that the settings name is used as it is. At delta 0 the cell with the fewest runs determines the bound,
    so there are few cells, and the threshold of the event is not among their edges.
    """
    levels = selected.partition.levels
    if levels is None:
        return selected.partition
    values = np.concatenate([score_values(levels.score, side) for side in samples])
    number = BOUNDED_CELLS if delta == 0 else levels.size
    return Levels(levels.score, quantile_edges(values, number, with_tails=False))


def nothing_bounded(alpha: float) -> OnPartition:
    """Return the statement of a verification that ended before its first look."""
    none = np.zeros(0, np.int64)
    return OnPartition(none, none, none, 0, alpha, 0, 0.0)


def tighter(first: Look | None, second: Look, size: Callable[[OnPartition], float]) -> Look:
    """Return the look with the smaller upper bound; the later one if both are the same."""
    if first is None or size(second.on_partition) <= size(first.on_partition):
        return second
    return first
