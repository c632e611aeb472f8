"""What every part of the selection needs: the source of runs, the settings, the objective and the search budget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpverify.events.partition import Partition, make_partition
from dpverify.events.region import Region
from dpverify.events.scores import LearnerCost, Score
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.counts import Statistic, Statistics
from dpverify.sampling.executors import WorkerPool
from dpverify.sampling.stages import collect_samples, collect_statistics
from dpverify.selection.objective import SelectionObjective
from dpverify.settings import Settings
from dpverify.util.arrays import Array
from dpverify.util.progress import Progress

ScoreLearner = Callable[[np.ndarray, np.ndarray], Score | Callable[[Array], Array]]  # the argument `learn=`
KnownBlocks = Collection[tuple[int, int]]  # (data set, block)

MAX_KEPT_NUMBERS = 1 << 22  # per data set: 32 MB


class SearchBudget(NamedTuple):
    """How much the selection tries.

    Attributes
    ----------
    max_kept_runs : int
        Training runs per data set that are kept in memory.
    max_cost : LearnerCost
        The most expensive learners that compete.
    partitions : bool
        Whether partitions by equal mass and by a tree compete.
    decision_penalty : float
        The penalty of the final comparison in standard errors.
    max_events : int
        The largest number of events that are tested together.
    """

    max_kept_runs: int
    max_cost: LearnerCost
    partitions: bool
    decision_penalty: float
    max_events: int = 1


THOROUGH_SEARCH = SearchBudget(1 << 19, LearnerCost.STRUCTURED, True, 1.85, 3)
# For comparing many pairs. Rare events become visible late, so the penalty is smaller.
QUICK_SEARCH = SearchBudget(1 << 16, LearnerCost.PATTERNS, False, 1.0)


class SelectionContext(NamedTuple):
    """What every part of the selection needs."""

    source: SampleSource
    settings: Settings
    region: Region
    objective: SelectionObjective
    workers: WorkerPool
    progress: Progress
    budget: SearchBudget = THOROUGH_SEARCH
    recorded: tuple[np.ndarray, np.ndarray] | None = None  # runs to select from; None: the selection draws its own
    learn: ScoreLearner | None = None  # fits a score of the user to training runs

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and dimensions of one output."""
        assert self.source.shape is not None
        return self.source.shape

    @property
    def max_events(self) -> int:
        """The largest number of events that are tested together. The paper's test has one event."""
        return self.budget.max_events if self.settings.test == "exact" else 1

    @property
    def nonfinite_event(self) -> bool:
        """Whether outputs with NaN or infinity are a cell."""
        return self.settings.nonfinite == "event"

    @property
    def runs(self) -> dict[str, int]:
        """The runs of every stage: half of the selection runs train, a quarter proposes events, a quarter decides."""
        n = self.settings.select_runs
        train, decide = n // 2, max(1, n // 4)
        return {"train": train, "cut": max(1, n - train - decide), "decide": decide}

    def count(
        self, stage: str, statistics: Sequence[Statistic], runs: int | None = None, known: KnownBlocks = ()
    ) -> list[tuple[Any, Any]]:
        """Return the sums of each statistic over a stage, as pairs (first data set, second data set).

        Parameters
        ----------
        stage : {"train", "cut", "decide"}
            The stage.
        statistics : sequence of Statistic
            What is measured of every block.
        runs : int, optional
            The runs per data set; by default those of the stage.
        known : collection of (data set, block)
            Blocks that are left out, because they were counted before.
        """
        runs = self.runs[stage] if runs is None else runs
        if self.recorded is not None:
            first, second = (x[len(known) // 2 * self.source.block : runs] for x in self._recorded_runs(stage))
            return [(statistic.measure(first), statistic.measure(second)) for statistic in statistics]
        result = collect_statistics(
            self.source, stage, runs, Statistics(tuple(statistics)), self.workers, self.progress, known
        )
        first, second = result.parts
        return list(zip(first, second, strict=True))

    def draw_training_runs(self) -> tuple[list[np.ndarray], set[tuple[int, int]]]:
        """Return as many whole blocks of training runs as fit into memory, and which blocks they are."""
        block = self.source.block
        if self.recorded is not None:
            blocks = -(-self.runs["train"] // block)
            return list(self._recorded_runs("train")), {(side, b) for side in (0, 1) for b in range(blocks)}
        most = min(self.budget.max_kept_runs, MAX_KEPT_NUMBERS // (self.shape[0] * self.shape[1]))
        runs = min(self.runs["train"], max(block, most // block * block))
        samples = collect_samples(self.source, "train", runs, self.workers, self.progress)
        return samples, {(side, b) for side in (0, 1) for b in range(-(-runs // block))}

    def _recorded_runs(self, stage: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the recorded runs of a stage: the training runs come first, then those that propose and decide."""
        assert self.recorded is not None
        start = 0
        for name, runs in self.runs.items():
            if name == stage:
                first, second = self.recorded
                return first[start : start + runs], second[start : start + runs]
            start += runs
        raise AssertionError(stage)


def merge_results(
    statistics: Sequence[Statistic], first: Sequence[tuple[Any, Any]], second: Sequence[tuple[Any, Any]]
) -> list[tuple[Any, Any]]:
    """Merge the results of two sets of blocks.

    Each set has one pair of results (first data set, second data set) for every statistic.
    """
    merged = []
    for statistic, results, more in zip(statistics, first, second, strict=True):
        merge = statistic.result_kind.merge
        merged.append((merge([results[0], more[0]]), merge([results[1], more[1]])))
    return merged


def named_partition(settings: Settings, region: Region, points: np.ndarray) -> Partition | None:
    """Return the partition that the settings name, or None if the selection makes the partition.

    The selection makes a tree, and it uses the level sets of the selected score if no partition is named.
    """
    cells_only = settings.selection_epsilon is not None or settings.events == "cell"
    if settings.partition == "tree" or (settings.partition == "auto" and not cells_only):
        return None
    return make_partition(settings.partition, region, points, settings.resolution, settings.nonfinite == "event")
