"""The pairs of a search: a list, a mapping or a box; and how the worst of them is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from dpverify.errors import InputError
from dpverify.mechanisms.neighbours import check_pairs
from dpverify.mechanisms.protocol import Mechanism
from dpverify.sampling.blocks import MAX_LOG2_BLOCK, stated_block_size
from dpverify.sampling.context import RunContext, open_run
from dpverify.studies.options import RunOptions
from dpverify.studies.pair_search.gradient_search import MAX_SIMPLEX_DIMENSION, climb_box
from dpverify.studies.pair_search.pair_gradient import estimate_gradient
from dpverify.studies.pair_search.pair_value import DataPair, KeptRuns, SearchAim, evaluate_pair
from dpverify.studies.pair_search.rounds import search_in_rounds
from dpverify.studies.pair_search.simplex_search import check_box, search_box

MIN_RUNS_PER_PAIR = 32  # in all rounds
BLOCKS_PER_EVALUATION = 8  # at least, so that few runs are drawn beyond those that are needed
MIN_LOG2_BLOCK = 4  # a gradient draws few runs at each of many points

Pairs = Iterable[DataPair] | Mapping[str, DataPair] | Callable[[np.ndarray], DataPair]
PairLabel = int | str | tuple[float, ...]  # the index of a pair in its list, its name, or its point in the box


class Candidate(NamedTuple):
    """A pair that was evaluated in the search.

    Attributes
    ----------
    pair : int, str or tuple of float
        The index of the pair in the list, its name in the mapping, or its point in the box.
    expected_lower_bound : float
        The lower bound of epsilon that the test runs are expected to give, less a standard error. It is below 0 if no
        bound is expected.
    """

    pair: PairLabel
    expected_lower_bound: float


class FoundPair(NamedTuple):
    """A pair, and the search that found it.

    Attributes
    ----------
    label : int, str, tuple of float or None
        The label of the pair; None for a pair that was given.
    data : tuple
        The two data sets.
    tried : list of Candidate
        The evaluations.
    runs_per_pair : tuple of int
        For each round, how many runs per data set a pair was evaluated with.
    unused_runs : int
        The runs per data set that the search did not need.
    """

    label: PairLabel | None
    data: DataPair
    tried: list[Candidate]
    runs_per_pair: tuple[int, ...] = ()
    unused_runs: int = 0


class SearchedPairs(NamedTuple):
    """The pairs of a search: a list with labels, or a function of the points of a box.

    Attributes
    ----------
    labels : tuple of int or str
        The labels of the listed pairs.
    listed : tuple of pairs
        The pairs; empty for a box.
    pair_at : callable or None
        The function from a point of the box to a pair.
    box : sequence of (low, high) or None
        The box.
    """

    labels: tuple[PairLabel, ...]
    listed: tuple[DataPair, ...]
    pair_at: Callable[[np.ndarray], DataPair] | None
    box: Sequence[tuple[float, float]] | None

    @classmethod
    def of(cls, pairs: Pairs, bounds: Sequence[tuple[float, float]] | None) -> SearchedPairs:
        """Return the pairs that the argument `pairs` of `search_pairs` describes."""
        if callable(pairs):
            return cls((), (), pairs, getattr(pairs, "bounds", None) if bounds is None else bounds)
        return cls(*list_pairs(pairs), None, None)

    def find_worst(self, mechanism: Mechanism, aim: SearchAim, runs: int, options: RunOptions) -> FoundPair:
        """Return the pair with the largest expected lower bound, found with `runs` runs per data set."""
        if self.pair_at is not None:
            return self._search_box(self.pair_at, mechanism, aim, runs, options)
        number = len(self.listed)
        if not number or runs < MIN_RUNS_PER_PAIR * number:
            raise InputError(
                f"pairs: found {number} pairs and runs={runs}; expected at least one pair, and at least "
                f"{MIN_RUNS_PER_PAIR} runs per pair"
            )
        if number == 1:
            return FoundPair(self.labels[0], self.listed[0], [], unused_runs=runs)
        with _open_search(mechanism, self.listed[0], runs // (4 * number), options) as run:
            kept = [KeptRuns.empty() for _ in self.listed]
            found = search_in_rounds(
                lambda i, each: evaluate_pair(run, self.listed[i], aim, each, kept[i]), number, runs
            )
        tried = [Candidate(self.labels[index], value.lower) for index, value in found.evaluations]
        worst = self.labels[found.best], self.listed[found.best]
        return FoundPair(*worst, tried, found.runs_per_item, found.unused_runs)

    def _search_box(
        self,
        pair_at: Callable[[np.ndarray], DataPair],
        mechanism: Mechanism,
        aim: SearchAim,
        runs: int,
        options: RunOptions,
    ) -> FoundPair:
        """Return the best pair of a box."""
        box, seed = check_box(self.box), options.settings.seed
        dimension = len(box.low)
        middle = pair_at(box.point((0.5,) * dimension))
        with _open_search(mechanism, middle, runs // (40 * dimension), options) as run:

            def value(point: np.ndarray, each: int) -> float:
                return evaluate_pair(run, pair_at(point), aim, each).lower

            def gradient(point: np.ndarray, widths: np.ndarray, each: int) -> np.ndarray:
                return estimate_gradient(run, pair_at, point, widths, aim, each)

            if dimension > MAX_SIMPLEX_DIMENSION:
                best, values = climb_box(value, gradient, box, runs, seed)
            else:
                best, values = search_box(value, box, runs, seed)
        return FoundPair(best, pair_at(np.array(best)), [Candidate(point, value) for point, value in values])


@contextmanager
def _open_search(mechanism: Mechanism, pair: DataPair, runs: int, options: RunOptions) -> Iterator[RunContext]:
    """Open the context in which all pairs are evaluated, the first of them with so many runs."""
    block = stated_block_size(mechanism, options.settings.block)
    fitting = 1 << max(MIN_LOG2_BLOCK, (max(runs, 1) // BLOCKS_PER_EVALUATION).bit_length() - 1)
    block = min(fitting, 1 << MAX_LOG2_BLOCK) if block is None else min(block, fitting)
    settings = options.settings.change(stop_early=False, block=block)  # nothing is claimed about a single pair
    with open_run(mechanism, *pair, settings, options.executor, False) as run:
        yield run


def list_pairs(
    pairs: Iterable[DataPair] | Mapping[str, DataPair],
) -> tuple[tuple[int | str, ...], tuple[DataPair, ...]]:
    """Return the labels and the pairs of a list or a mapping; raise InputError if one is no pair (`check_pairs`).

    Examples
    --------
    >>> list_pairs({"near": (0.0, 0.5), "far": (0.0, 2.0)})
    (('near', 'far'), ((0.0, 0.5), (0.0, 2.0)))
    """
    if isinstance(pairs, Mapping):
        labels, listed = tuple(str(name) for name in pairs), tuple(pairs.values())
    else:
        listed = tuple(pairs)
        labels = tuple(range(len(listed)))
    check_pairs(pairs, listed)
    return labels, listed
