"""Which event is tested: candidates compete on the selection runs, the winner and its direction are frozen.

The paper's selector takes the cell with the smallest p-value at one fixed epsilon (Algorithm 4). Ours takes the event
that promises the highest bound from the planned test runs (docs/method.md, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from dpverify.arrays import Counts, add_counts, codes_of, occupied
from dpverify.exact import p_values
from dpverify.partition import Partition

LARGEST_UNION = 4096  # cells; an event of more is noise, and too long to write down
CHARGE = 2.5  # standard errors charged to every candidate, or the luckiest tiny event would win


@dataclass(frozen=True)
class Event:
    """A union of cells, and the side that is expected to fall into it more often: plain data."""

    partition: Partition
    codes: np.ndarray
    direction: int  # 0: the first data set, 1: the second

    def contains(self, samples: Any) -> np.ndarray:
        return np.isin(codes_of(self.partition, samples), self.codes)

    def count(self, counts: Counts) -> int:
        return int(counts.of(self.codes).sum())


class SelectionCounts(NamedTuple):
    """Both sides' counts of one half of the selection runs."""

    first: Counts
    second: Counts
    runs: int


def promised_bound(c1: Any, c2: Any, selected: int, planned: int, delta: float, alpha: float) -> np.ndarray:
    """The epsilon bound that `planned` test runs are expected to give for p1 <= e^eps p2 + delta, less a charge.

    Normal approximations suffice: a promise only chooses, it proves nothing.
    """
    f1, f2 = (np.asarray(c1) + 0.5) / (selected + 1), (np.asarray(c2) + 0.5) / (selected + 1)
    excess = f1 - delta
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = f1 * (1 - f1) / excess**2 + (1 - f2) / f2
        spread = -ndtri(alpha) * np.sqrt(variance / planned) + CHARGE * np.sqrt(variance / selected)
        return np.where(excess > 0, np.log(np.maximum(excess, 1e-300) / f2) - spread, -np.inf)


def paper_selector(
    partition: Partition, both: SelectionCounts, epsilon: float, rng: np.random.Generator
) -> Event:
    """Algorithm 4: the cell with the smallest of all p-values at one fixed epsilon."""
    codes = occupied(both.first, both.second)
    forward, backward = p_values(both.first.of(codes), both.second.of(codes), both.runs, epsilon, rng)
    worst = int(np.argmin(np.minimum(forward, backward)))
    return Event(partition, codes[[worst]], int(backward[worst] < forward[worst]))


def best_cell(partition: Partition, both: SelectionCounts, planned: int, delta: float, alpha: float) -> Event:
    codes = occupied(both.first, both.second)
    c = both.first.of(codes), both.second.of(codes)
    promises = np.stack(
        [promised_bound(c[side], c[1 - side], both.runs, planned, delta, alpha) for side in (0, 1)]
    )
    direction, cell = np.unravel_index(int(np.argmax(promises)), promises.shape)
    return Event(partition, codes[[cell]], int(direction))


def best_union(
    partition: Partition, train: SelectionCounts, cut: SelectionCounts, planned: int, delta: float, alpha: float
) -> Event:
    """One half of the selection runs orders the cells by their ratio, the other picks how many of them, and which way."""
    codes = occupied(train.first, train.second)
    trained = train.first.of(codes), train.second.of(codes)
    best, winner = -np.inf, None
    for side in (0, 1):
        order = np.argsort(-(trained[side] + 0.5) / (trained[1 - side] + 0.5), kind="stable")[:LARGEST_UNION]
        c = np.cumsum(cut.first.of(codes)[order]), np.cumsum(cut.second.of(codes)[order])
        promises = promised_bound(c[side], c[1 - side], cut.runs, planned, delta, alpha)
        at = int(np.argmax(promises))
        if winner is None or promises[at] > best:
            best, winner = promises[at], Event(partition, np.sort(codes[order[: at + 1]]), side)
    assert winner is not None
    return winner


def select(
    partition: Partition,
    train: SelectionCounts,
    cut: SelectionCounts,
    *,
    events: str,
    epsilon: float | None,
    delta: float,
    alpha: float,
    planned: int,
    rng: np.random.Generator,
) -> Event:
    """The event that is tested, from the two halves of the selection runs."""
    if epsilon is None and events != "cell":
        return best_union(partition, train, cut, planned, delta, alpha)
    both = SelectionCounts(
        add_counts([train.first, cut.first]), add_counts([train.second, cut.second]), train.runs + cut.runs
    )
    if epsilon is not None:
        return paper_selector(partition, both, epsilon, rng)
    return best_cell(partition, both, planned, delta, alpha)
