"""Many pairs of data sets: a claim tested on each of a sample, or the worst one found and then verified afresh."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpverify.errors import InputError
from dpverify.mechanisms.protocol import Mechanism
from dpverify.pipeline import verify
from dpverify.report.report import Report
from dpverify.report.statements import Verdict, check_claim
from dpverify.sampling.executors import open_pool
from dpverify.settings import Settings
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.lower_bound import epsilon_lower_bound
from dpverify.studies.search import Search, expected_bound, search_box
from dpverify.util.formatting import format_lower, format_number, format_percent

GROWTH = 2.5  # of a pair's selection runs from round to round


def share_at_least(seen: int, number: int, level: float, alpha: float) -> float:
    """The share v with a property that is seen by mistake with probability `level` at most: seen <= v + (1 - v) level.

    At confidence 1 - alpha, among so many independent pairs.
    """
    limit = float(clopper_pearson_lower(seen, number, alpha))
    return max(0.0, (limit - level) / (1 - level)) if level < 1 else 0.0


@dataclass(frozen=True)
class ManyPairs:
    """One claim on many pairs. Shares speak of the law that the pairs were drawn from, independently, at 1 - alpha.

    docs/method.md, section 5.7.
    """

    reports: tuple[Report, ...]

    @property
    def alpha(self) -> float:
        """The level of each test, and of each statement about shares."""
        return self.reports[0].alpha

    @property
    def sound(self) -> tuple[Report, ...]:
        """Reports without a doubt. A doubtful one answers nothing: neither passing nor breaking is said of its pair."""
        return tuple(report for report in self.reports if not report.doubts)

    @property
    def passed(self) -> int:
        """Pairs on which the claim was not refuted."""
        return sum(not report.refuted for report in self.sound)

    @property
    def share(self) -> float:
        """The paper's ratio of passing."""
        return self.passed / len(self.reports)

    @property
    def share_interval(self) -> tuple[float, float]:
        """Exact (Clopper-Pearson) limits of the share of pairs that pass a test like this one."""
        number, a = len(self.reports), self.alpha / 2
        low, high = clopper_pearson_lower(self.passed, number, a), clopper_pearson_upper(self.passed, number, a)
        return float(low), float(high)

    @property
    def violating(self) -> float:
        """At least this share of the pairs breaks the claim."""
        # The paper's test takes the smaller of two p-values (docs/method.md, section 4.9).
        level = self.alpha * (2 if self.reports[0].settings.test == "thinned" else 1)
        refuted = sum(report.refuted for report in self.sound)
        return share_at_least(refuted, len(self.reports), level, self.alpha)

    @property
    def bounded(self) -> float:
        """At least this share of the pairs keeps the claim on all unions of its own partition's cells."""
        met = sum(report.verdict is Verdict.BOUNDED for report in self.sound)
        return share_at_least(met, len(self.reports), self.alpha, self.alpha)

    @property
    def worst(self) -> int:
        """The place of the pair with the highest bound; doubtful ones come last."""
        return max(
            range(len(self.reports)), key=lambda at: (not self.reports[at].doubts, self.reports[at].epsilon_lower)
        )

    @property
    def epsilon_lower(self) -> float:
        """Proved at 1 - alpha for the worst pair, although it is the worst of many: each has its part of alpha."""
        report = self.reports[self.worst]
        witness, level = report.witness, self.alpha / len(self.reports)
        return epsilon_lower_bound(*witness.ordered, witness.runs, report.delta, level)

    def __str__(self) -> str:
        one, sure = self.reports[0], f"confidence {format_percent(1 - self.alpha)}"
        low, high = self.share_interval
        claim = f"epsilon {format_number(one.epsilon or 0.0)}, delta {format_number(one.delta)}"
        doubts = dict.fromkeys(doubt for report in self.reports for doubt in report.doubts)
        return "\n".join(
            [
                f"{one.name}: {self.passed} of {len(self.reports)} pairs passed ({claim})",
                f"  passing   {format_percent(self.share)} of pairs like these, {format_percent(low)} to {format_percent(high)}; {sure}",
                f"  violating at least {format_percent(self.violating)} of pairs like these; {sure}",
                f"  bounded   at least {format_percent(self.bounded)}, each over unions of its own cells only; {sure}",
                f"  worst     pair {self.worst}: epsilon >= {format_lower(self.epsilon_lower)} over all events; {sure}",
                *(f"  doubt     {doubt}" for doubt in doubts),
            ]
        )


def verify_pairs(
    mechanism: Mechanism,
    pairs: Iterable[tuple[Any, Any]],
    epsilon: float,
    delta: float = 0.0,
    *,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    error: Callable[[Any], Any] | None = None,
    log_lipschitz: float | tuple[float, float] | None = None,
    progress: bool = False,
    **changes: Any,
) -> ManyPairs:
    """The claim tested on every pair, each with runs (and in the folder a place) of its own.

    What is said of shares holds for pairs that were drawn independently from one law.
    """
    settings, pairs = settings.change(**changes), list(pairs)
    if not pairs:
        raise InputError("pairs: found none; expected some (first, second)")
    if epsilon is None:
        raise InputError("epsilon: found None; expected the claim that pairs pass or break")
    with open_pool(executor) as workers:
        reports = [
            verify(
                mechanism,
                first,
                second,
                epsilon,
                delta,
                settings=settings.spawn(place),
                executor=workers.executor,
                folder=None if folder is None else Path(folder) / str(place),
                error=error,
                log_lipschitz=log_lipschitz,
                progress=progress,
            )
            for place, (first, second) in enumerate(pairs)
        ]
    return ManyPairs(tuple(reports))


def search_pairs(
    mechanism: Mechanism,
    pairs: Sequence[tuple[Any, Any]] | Callable[[np.ndarray], tuple[Any, Any]],
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    runs: int,
    bounds: Sequence[tuple[float, float]] | None = None,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    error: Callable[[Any], Any] | None = None,
    log_lipschitz: float | tuple[float, float] | None = None,
    progress: bool = False,
    **changes: Any,
) -> Search:
    """The pair of a list, or of a box, that promises the highest bound, verified.

    A box: `pairs` is a function from a point within `bounds` to (first, second), and the search a local one
    (`search_box`). A list: successive halving. `runs` selection runs a side are spent on the search in all; each round
    the better half of the pairs goes on, with more runs added to those it has (`search_plan`). The winner's are among
    the first of the `select_runs` that it is verified with. A promise needs no test runs, so nothing is owed for the
    search.
    """
    settings = settings.change(**changes)
    check_claim(settings, epsilon, delta)
    if settings.selection_epsilon is not None:
        raise InputError("selection_epsilon: the paper's selector makes no promise to search by; expected None")
    if callable(pairs):
        work: dict[str, Any] = {"settings": settings, "executor": executor, "folder": folder, "progress": progress}
        work |= {"error": error, "log_lipschitz": log_lipschitz}
        return search_box(mechanism, pairs, bounds or (), epsilon, delta, runs=runs, **work)
    if not pairs or runs < 4 * len(pairs):
        raise InputError(f"pairs: found {len(pairs)} of them and {runs} runs; expected some, and four runs a pair")
    left = list(range(len(pairs)))
    tried: list[tuple[int, float]] = []
    with open_pool(executor) as workers:
        for spent in search_plan(len(pairs), runs):
            share = settings.change(select_runs=spent)
            promises = {at: expected_bound(mechanism, pairs[at], share, delta, workers.executor) for at in left}
            tried += promises.items()
            left = sorted(left, key=lambda place: -promises[place])[: (len(left) + 1) // 2]
        report = verify(
            mechanism,
            *pairs[left[0]],
            epsilon,
            delta,
            settings=settings,
            executor=workers.executor,
            folder=folder,
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
