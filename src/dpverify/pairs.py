"""Many pairs of data sets: the worst of a list is found on selection runs, then verified with fresh ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from dpverify.contest import QUICK
from dpverify.errors import InputError
from dpverify.mechanism import Mechanism
from dpverify.report import Report
from dpverify.settings import Settings
from dpverify.start import prepare
from dpverify.statements import check_claim
from dpverify.verify import find_region, freeze_event, verify
from dpverify.workers import open_workers

GROWTH = 2.5  # of a pair's selection runs from round to round


@dataclass(frozen=True)
class Search:
    """The report of the winner, from runs that the search never saw; the pair; and (place, promise) of every try."""

    report: Report
    pair: int
    tried: tuple[tuple[int, float], ...]


def search_pairs(
    mechanism: Mechanism,
    pairs: Sequence[tuple[Any, Any]],
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    runs: int,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    error: Callable[[Any], Any] | None = None,
    log_lipschitz: float | tuple[float, float] | None = None,
    progress: bool = False,
    **changes: Any,
) -> Search:
    """The pair of a list that promises the highest bound, verified.

    Successive halving: `runs` selection runs a side are spent on the search in all; each round the better half of the
    pairs goes on, with more runs added to those it has (`search_plan`). The winner's are among the first of the
    `select_runs` that it is verified with. A promise needs no test runs, so nothing is owed for the search.
    """
    settings = settings.change(**changes)
    check_claim(settings, epsilon, delta)
    if settings.selection_epsilon is not None:
        raise InputError("selection_epsilon: the paper's selector makes no promise to search by; expected None")
    if not pairs or runs < 4 * len(pairs):
        raise InputError(f"pairs: found {len(pairs)} of them and {runs} runs; expected some, and four runs a pair")
    left = list(range(len(pairs)))
    tried: list[tuple[int, float]] = []
    with open_workers(executor) as workers:
        for spent in search_plan(len(pairs), runs):
            share = settings.change(select_runs=spent)
            promises = {}
            for place in left:
                with prepare(mechanism, *pairs[place], share, workers.executor, False) as run:
                    region, points, _ = find_region(run)
                    promises[place] = freeze_event(run, region, points, delta, QUICK).promise
            tried += promises.items()
            left = sorted(left, key=lambda place: -promises[place])[: (len(left) + 1) // 2]
        report = verify(
            mechanism,
            *pairs[left[0]],
            epsilon,
            delta,
            settings=settings,
            executor=workers.executor,
            error=error,
            log_lipschitz=log_lipschitz,
            progress=progress,
        )
    return Search(report, left[0], tuple(tried))


def search_plan(pairs: int, runs: int) -> tuple[int, ...]:
    """How many selection runs a side each pair that is left has had by the end of every round."""
    rounds = (pairs - 1).bit_length()
    left = [-(-pairs // 2**turn) for turn in range(rounds)]
    spent = [GROWTH**turn for turn in range(rounds)]
    cost = sum(number * (n - before) for number, n, before in zip(left, spent, [0, *spent], strict=False))
    return tuple(max(4, int(runs * n / cost)) for n in spent)
