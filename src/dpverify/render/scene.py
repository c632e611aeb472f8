"""The data behind the figures of the outputs: some runs of both data sets, the region, the cells, the tested event."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, cast

import numpy as np

from dpverify.errors import InputError
from dpverify.events.event import Event
from dpverify.events.partition import Partition
from dpverify.events.region import Region
from dpverify.events.scores import Levels
from dpverify.events.wording import NO_LABELS, OutputLabels
from dpverify.util.arrays import is_plain_data
from dpverify.util.formatting import format_number

OWN_UNIT = "(in its own unit)"
AXIS_LIMIT_IN_IQR = 6  # interquartile ranges from the quartiles: values farther away are not drawn


class Scene(NamedTuple):
    """What the figures of the outputs show.

    Attributes
    ----------
    sides : tuple of ndarray
        Outputs of runs with the first and with the second data set, each (runs, steps, dimension).
    inside : tuple of ndarray
        Which of these runs are in the tested event.
    region : Region or None
        The region of likely outputs; None where it is too large to be stored.
    partition : Partition or Levels
        The cells.
    event : Event
        The tested event.
    event_text : str
        The tested event in words.
    cells : int
        The number of cells of the partition.
    event_known : bool
        Whether the event can be evaluated. False for a score function of the user, which no report stores.
    labels : OutputLabels
        The names, units and times of the mechanism.
    cell_counts : ndarray or None
        The test runs of both data sets in every cell, for outputs with one coordinate; None if they are not stored.
    event_counts : ndarray or None
        The test runs of both data sets in every level set, for events that are level sets of a score; None otherwise.
    """

    sides: tuple[np.ndarray, np.ndarray]
    inside: tuple[np.ndarray, np.ndarray]
    region: Region | None
    partition: Partition | Levels
    event: Event
    event_text: str
    cells: int
    event_known: bool
    labels: OutputLabels = NO_LABELS
    cell_counts: np.ndarray | None = None
    event_counts: np.ndarray | None = None

    def name(self, coordinate: int) -> str:
        """Return the name of a coordinate of a step."""
        if self.labels.names:
            return self.labels.names[coordinate]
        return "output" if self.shape[1] == 1 else f"x[{coordinate}]"

    def unit(self, coordinate: int) -> str:
        """Return the unit of a coordinate in parentheses."""
        return f"({self.labels.units[coordinate]})" if self.labels.units else OWN_UNIT

    def step_name(self, step: int) -> str:
        """Return the name of a step."""
        return f"step {step}" if self.labels.times is None else f"time {format_number(self.labels.times[step])}"

    @property
    def shape(self) -> tuple[int, int]:
        """The number of steps and the dimension of one output."""
        return self.sides[0].shape[1], self.sides[0].shape[2]

    @property
    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """The runs of both sides with one column per coordinate of each step."""
        first, second = (side.reshape(len(side), math.prod(self.shape)) for side in self.sides)
        return first, second

    @property
    def runs(self) -> str:
        """How many runs are drawn, in words."""
        first, second = map(len, self.sides)
        if first == second:
            return f"{first} of the pilot runs per data set"
        return f"{first} finite pilot runs of the first data set and {second} of the second"

    @property
    def event_levels(self) -> Levels | None:
        """The level sets of which the tested event is a union; None where it is a union of boxes."""
        partition = self.event.partition
        return None if partition.has_boxes else cast(Levels, partition)


def make_scene(
    picture: Mapping[str, object], event: Event, event_text: str, shape: tuple[int, int], cells: int
) -> Scene:
    """Return the scene of a report's picture.

    Parameters
    ----------
    picture : mapping
        `first` and `second` (runs of each data set), `region` and `partition`; each may be None or missing.
    event : Event
        The tested event.
    event_text : str
        The tested event in words.
    shape : tuple of int
        The number of steps and the dimension of one output.
    cells : int
        The number of cells of the partition.
    """
    event_known = is_plain_data(event.partition)
    try:
        first, second = (_as_runs(picture.get(side), shape) for side in ("first", "second"))
        inside_first, inside_second = (
            event.contains(runs) if event_known else np.ones(len(runs), bool) for runs in (first, second)
        )
    except (TypeError, ValueError, IndexError, AttributeError) as problem:
        raise InputError(f"picture: found no runs of shape {shape} ({problem}); expected outputs of runs") from None
    partition = cast("Partition | Levels", picture.get("partition") or event.partition)
    region = cast("Region | None", picture.get("region"))
    return Scene(
        (first, second),
        (inside_first, inside_second),
        region,
        partition,
        event,
        event_text,
        cells,
        event_known,
        _read_labels(picture.get("labels")),
        _read_counts(picture.get("cells"), partition),
        _read_counts(picture.get("event_cells"), event.partition),
    )


def _read_counts(stored: object, partition: Partition | Levels) -> np.ndarray | None:
    """Return the test runs in every cell of a partition; None if the report has none."""
    fits = isinstance(stored, np.ndarray) and stored.shape == (2, partition.size) and stored.sum(axis=1).all()
    return np.asarray(stored, float) if fits else None


def _read_labels(stored: object) -> OutputLabels:
    """Return the labels of a report; a report that was read from a file has lists."""
    if not isinstance(stored, Mapping):
        return NO_LABELS
    parts = {name: stored[name] for name in OutputLabels._fields if stored.get(name) is not None}
    return OutputLabels(**{name: dict(one) if isinstance(one, Mapping) else tuple(one) for name, one in parts.items()})


def _as_runs(values: object, shape: tuple[int, int]) -> np.ndarray:
    """Return stored outputs as (runs, steps, dimension)."""
    return np.asarray([] if values is None else values, float).reshape(-1, *shape)


def coordinate_differences(scene: Scene) -> np.ndarray:
    """Measure how much the two data sets differ in each coordinate, (steps, dimension).

    The measure is the difference of the means in pooled standard deviations, plus the difference of the logarithms of
    the standard deviations.
    """
    first, second = (side if len(side) else np.zeros((1, *scene.shape)) for side in scene.sides)
    pooled = np.concatenate([first - first.mean(0), second - second.mean(0)]).std(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_means = np.abs(first.mean(0) - second.mean(0)) / pooled
        of_spreads = np.abs(np.log(first.std(0) / second.std(0)))
    return np.nan_to_num(of_means, posinf=1e9) + np.nan_to_num(of_spreads, posinf=0.0, neginf=0.0)


def largest_indices(values: np.ndarray, number: int) -> list[int]:
    """Return the indices of the `number` largest values, in increasing order."""
    return sorted(np.argsort(-values, kind="stable")[:number].tolist())


def axis_limits(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return limits for an axis that shows values (n, ...) between low and high.

    Heavy tails would make the bulk of the values invisible, so the limits stay near the quartiles.
    """
    first, third = np.quantile(values, [0.25, 0.75], axis=0)
    reach = np.where(third > first, AXIS_LIMIT_IN_IQR * (third - first), np.inf)
    low, high = np.maximum(low, first - reach), np.minimum(high, third + reach)
    margin = np.where(high > low, 0.05 * (high - low), 0.5)
    return low - margin, high + margin
