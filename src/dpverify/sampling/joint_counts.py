"""Several partitions that are counted in one pass: level sets of one score need one evaluation of the score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpverify.events.partition import Partition
from dpverify.events.scores import Levels
from dpverify.sampling.counts import Counts, counts_from_table
from dpverify.util.arrays import is_pytree
from dpverify.util.hashing import fingerprint


class JointCounting(NamedTuple):
    """Partitions that are counted together: level sets of one score are found with a single evaluation of the score.

    Attributes
    ----------
    counted : tuple of partitions
        What is counted.
    source : tuple of int
        For each given partition, the number of the counted one.
    groups : tuple of ndarray or None
        For each given partition, its code for every code of the counted one; None if both are the same.
    """

    counted: tuple[Partition | Levels, ...]
    source: tuple[int, ...]
    groups: tuple[np.ndarray | None, ...]

    def split(self, results: Sequence[tuple[Counts, Counts]]) -> list[tuple[Counts, Counts]]:
        """Return the counts of both data sets for each given partition, from those of the counted ones."""
        pairs = []
        for number, group in zip(self.source, self.groups, strict=True):
            pair = results[number]
            pairs.append(pair if group is None else (regroup(pair[0], group), regroup(pair[1], group)))
        return pairs


def count_together(partitions: Sequence[Partition | Levels]) -> JointCounting:
    """Return how partitions are counted together; equal partitions, and level sets of equal scores, are joined.

    They are compared by value, because a resumed run reads each of them from its folder as an object of its own.
    """
    keys = [_key(one) for one in partitions]
    counted: dict[str | int, Partition | Levels] = {}
    for key, one in zip(keys, partitions, strict=True):
        joined = counted.setdefault(key, one).levels
        if joined is not None and one.levels is not None:
            counted[key] = joined.join(one.levels)
    numbers = {key: number for number, key in enumerate(counted)}
    groups = [_group(one, counted[key]) for key, one in zip(keys, partitions, strict=True)]
    return JointCounting(tuple(counted.values()), tuple(numbers[key] for key in keys), tuple(groups))


def _key(partition: Partition | Levels) -> str | int:
    """Return what partitions that are counted together have in common; a function of the user has only its identity."""
    counted = partition if partition.levels is None else partition.levels.score
    return fingerprint(counted) if is_pytree(partition) else id(counted)


def _group(one: Partition | Levels, joined: Partition | Levels) -> np.ndarray | None:
    """Return the code of a partition for every code of the counted one; None if both are the same."""
    if one.levels is None or joined.levels is None:
        return None
    return one.levels.codes_within(joined.levels)


def regroup(counts: Counts, group: np.ndarray) -> Counts:
    """Return the counts of coarser cells; `group` has the coarser code of every code."""
    table = np.bincount(group[counts.codes], counts.counts).astype(np.int64)
    return counts_from_table(table)
