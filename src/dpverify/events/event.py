"""The event that is tested, and everything else that is frozen before the first test run.

An event is a union of cells, with the dataset that is expected to fall into it more often.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple

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
        0 if the first dataset is expected to fall into the event more often, 1 if the second is.
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


SHARE_TOLERANCE = 1e-9  # rounding of a sum of shares
WITNESS = -1  # the entry of `DeltaAims.edges` that stands for the first tested event


class DeltaAims(NamedTuple):
    """For some epsilons, the event that is expected to prove the largest delta.

    The event that proves the largest epsilon is often rare, and says little about delta at a small epsilon. For delta
    at a given epsilon the best event of a score is a level set whose threshold depends on epsilon. Which event belongs
    to an epsilon is fixed before the test runs, so that a bound on delta at one epsilon needs no correction for their
    number.

    Attributes
    ----------
    levels : Levels
        Level sets of one score.
    epsilons : ndarray of shape (n,)
        The epsilons, sorted.
    edges : ndarray of shape (n,)
        The numbers of the thresholds among the edges of the levels; `WITNESS` for the first tested event.
    directions : ndarray of shape (n,)
        0 for {score > threshold}, which is tested for the first dataset, and 1 for {score <= threshold}, which is
        tested for the second one.
    """

    levels: Levels
    epsilons: np.ndarray
    edges: np.ndarray
    directions: np.ndarray

    def check(self) -> None:
        """Raise ValueError if the columns do not fit together."""
        size, columns = self.epsilons.size, (self.edges, self.directions)
        fits = (
            size > 0
            and all(column.shape == (size,) for column in self[1:])
            and self.epsilons.dtype == np.float64
            and all(column.dtype == np.int64 for column in columns)
            and bool((np.diff(self.epsilons) > 0).all())
            and bool(((self.edges >= WITNESS) & (self.edges < self.levels.edges.size)).all())
            and bool(np.isin(self.directions, (0, 1)).all())
        )
        if not fits:
            raise ValueError("events for delta: no verification gives these values")

    def ordered_counts(self, tables: np.ndarray, witness: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts of each event: of the dataset that is expected to exceed, and of the other one.

        Parameters
        ----------
        tables : ndarray of shape (2, level sets)
            Counts of all level sets, for each dataset.
        witness : pair of int
            The ordered counts of the first tested event.
        """
        below = np.cumsum(tables, axis=1)[:, self.edges]
        inside = np.where(self.directions == 0, tables.sum(1, keepdims=True) - below, below)
        ordered = np.where(self.directions == 0, inside, inside[::-1])
        first, second = np.where(self.edges == WITNESS, np.array(witness)[:, None], ordered)
        return first, second


class SelectedEvents(NamedTuple):
    """What is frozen before the first test run.

    Attributes
    ----------
    events : tuple of Event
        The events that are tested.
    shares : tuple of float
        The share of alpha of each event; they add up to 1.
    partition : Partition or Levels
        The partition whose unions are bounded from above.
    expected_bound : float
        The lower bound of epsilon that the test runs are expected to prove; NaN for the paper's selector.
    eta : float or None
        The paper's eta: the largest share of the first dataset's selection runs in an event. None without the paper's
        selector.
    aims : DeltaAims or None
        Events that are chosen for bounds on delta; None if the first event serves for them too.
    rival : Levels or None
        Level sets of the best score besides the log-ratio of a stated density, which they help to test.
    """

    events: tuple[Event, ...]
    shares: tuple[float, ...]
    partition: Partition | Levels
    expected_bound: float = math.nan
    eta: float | None = None
    aims: DeltaAims | None = None
    rival: Levels | None = None

    @property
    def partitions(self) -> list[Partition | Levels]:
        """All partitions that are counted: the bounded one, those of the events, and that of the events for delta."""
        aims = [] if self.aims is None else [self.aims.levels]
        return [self.partition, *(event.partition for event in self.events), *aims]

    @property
    def event(self) -> Event:
        """The first event."""
        return self.events[0]


# The classes that the plain data of a selection are made of.
SELECTION_KINDS = (*EVENT_KINDS, DeltaAims)


def store_selected(selected: SelectedEvents) -> dict[str, object]:
    """Return what a checkpoint stores. An event without a partition belongs to the bounded partition."""
    events = [
        {"partition": None if one.partition is selected.partition else one.partition, "codes": one.codes}
        for one in selected.events
    ]
    return {
        "events": events,
        "directions": [one.direction for one in selected.events],
        "shares": list(selected.shares),
        "partition": selected.partition,
        "eta": selected.eta,
        "aims": selected.aims,
        "rival": selected.rival,
    }


def read_selected(stored: Mapping[str, Any], examples: np.ndarray) -> SelectedEvents:
    """Return the selection that `store_selected` was called with.

    Parameters
    ----------
    stored : mapping
        What `store_selected` returned.
    examples : ndarray of shape (runs, steps, dimensions)
        Runs on which the events are evaluated, because events of damaged data fail.

    Raises
    ------
    ValueError
        If the shares of alpha, the directions or the events for delta are not those of a selection.
    """
    partition = stored["partition"]
    events = tuple(
        Event(partition if one["partition"] is None else one["partition"], one["codes"], direction)
        for one, direction in zip(stored["events"], stored["directions"], strict=True)
    )
    found = {name: stored[name] for name in ("eta", "aims", "rival")}
    selected = SelectedEvents(events, tuple(stored["shares"]), partition, **found)
    _check_selected(selected, examples)
    return selected


def _check_selected(selected: SelectedEvents, examples: np.ndarray) -> None:
    """Raise an exception if the stored data cannot be those of a selection."""
    shares = selected.shares
    if len(shares) != len(selected.events) or min(shares) <= 0 or sum(shares) > 1 + SHARE_TOLERANCE:
        raise ValueError("shares: expected one positive share of alpha per event, with a sum of at most 1")
    if any(event.direction not in (0, 1) for event in selected.events):
        raise ValueError("directions: expected 0 or 1")
    if not hasattr(selected.partition, "codes"):
        raise TypeError("partition: expected a partition or level sets")
    if not isinstance(selected.eta, (float, NoneType)):
        raise TypeError("eta: expected a number")
    for event in selected.events:
        event.contains(examples)
    if selected.aims is not None:
        selected.aims.check()
        cell_codes(selected.aims.levels, examples)
