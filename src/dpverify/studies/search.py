"""The worst pair of a box: starts spread over it, then a local search; the winner is verified with fresh runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dpverify.errors import InputError
from dpverify.mechanisms.protocol import Mechanism
from dpverify.pipeline import find_region, freeze_event, verify
from dpverify.report.report import Report
from dpverify.sampling.context import open_run
from dpverify.sampling.executors import open_pool
from dpverify.selection.context import QUICK_SEARCH
from dpverify.settings import Settings

STARTS_PER_DIMENSION, STEPS_PER_DIMENSION = 8, 3  # and steps of one local search, for each dimension and one more
LOCAL_SEARCHES = 4  # starts that a local search sets out from
FINALISTS = 4  # points that are looked at again,
FINALIST_RUN_FACTOR = 8  # with so many times the runs
STARTS_KEY = 103  # spawn key of the starts, apart from those of the stages
NO_BOUND = -50.0  # stands for the promise of an event that promises nothing at all
BOX_TOLERANCE = 1e-3  # of the box: where the local search ends


@dataclass(frozen=True)
class Search:
    """The report of the winner, tested on runs that the search never saw; the pair; and (pair, promise) of every try.

    A pair is its place in the list, or the point of the box: `pairs[pair]`, or `pair_at(pair)`.
    """

    report: Report
    pair: Any
    tried: tuple[tuple[Any, float], ...]


def expected_bound(
    mechanism: Mechanism, pair: tuple[Any, Any], settings: Settings, delta: float, executor: Executor | None
) -> float:
    """The bound that the best event for this pair promises, from its selection runs."""
    with open_run(mechanism, *pair, settings, executor, False) as run:
        region, points, _ = find_region(run)
        return freeze_event(run, region, points, delta, QUICK_SEARCH).expected_bound


def search_box(
    mechanism: Mechanism,
    pair_at: Callable[[np.ndarray], tuple[Any, Any]],
    bounds: Sequence[tuple[float, float]],
    epsilon: float | None,
    delta: float,
    *,
    runs: int,
    settings: Settings,
    executor: int | Executor | None,
    folder: str | os.PathLike[str] | None,
    **rest: Any,
) -> Search:
    """The point of the box whose pair promises most, verified.

    Starts in a Latin hypercube, Nelder and Mead's search from the best few, then a longer look at the best few points
    of all. Until then tries are given equally many of the `runs`, and always the same random numbers, so that what
    differs between two of them is the pair.
    """
    low, width = check_box(bounds)
    number, steps = STARTS_PER_DIMENSION * (1 + len(low)), STEPS_PER_DIMENSION * (1 + len(low))
    shares = number + LOCAL_SEARCHES * steps + FINALISTS * FINALIST_RUN_FACTOR
    each = runs // shares
    if each < 4:
        raise InputError(f"runs: found {runs}; expected at least {4 * shares} for a box of {len(low)} dimensions")
    tried: dict[tuple[float, ...], float] = {}  # by place in the unit cube
    with open_pool(executor) as workers:

        def at(place: Any) -> np.ndarray:
            return low + np.array(place) * width

        def promise(place: Any, share: int) -> float:
            return expected_bound(
                mechanism, pair_at(at(place)), settings.change(select_runs=share), delta, workers.executor
            )

        def cost(place: np.ndarray) -> float:
            key = tuple(np.clip(place, 0, 1).tolist())
            if key not in tried:
                tried[key] = promise(key, each)
            return -max(tried[key], NO_BOUND)

        rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(STARTS_KEY,)))
        rows = np.tile(np.arange(number)[:, None], len(low))
        for start in (rng.permuted(rows, axis=0) + rng.random(rows.shape)) / number:
            cost(start)
        for start in separated_maxima(tried, LOCAL_SEARCHES, 1 / number):
            reach = np.where(np.array(start) < 0.5, 1.0, -1.0) / number  # to the next start, inwards
            simplex = np.vstack([start, start + np.diag(reach)])
            options = {"maxfev": steps, "initial_simplex": simplex, "xatol": BOX_TOLERANCE, "fatol": BOX_TOLERANCE}
            minimize(cost, start, method="Nelder-Mead", bounds=[(0, 1)] * len(low), options=options)
        final = {
            place: promise(place, FINALIST_RUN_FACTOR * each)
            for place in separated_maxima(tried, FINALISTS, 1 / (2 * number))
        }
        place = max(final, key=lambda one: final[one])
        report = verify(
            mechanism,
            *pair_at(at(place)),
            epsilon,
            delta,
            settings=settings,
            executor=workers.executor,
            folder=folder,
            **rest,
        )
    everything = [*tried.items(), *final.items()]
    return Search(
        report, tuple(at(place).tolist()), tuple((tuple(at(one).tolist()), value) for one, value in everything)
    )


def separated_maxima(tried: dict[tuple[float, ...], float], number: int, gap: float) -> list[tuple[float, ...]]:
    """The places that promise most, each further than the gap from any better one."""
    found: list[tuple[float, ...]] = []
    for place in sorted(tried, key=lambda one: -tried[one]):
        if len(found) < number and all(np.abs(np.subtract(place, one)).max() > gap for one in found):
            found.append(place)
    return found


def check_box(bounds: Any) -> tuple[np.ndarray, np.ndarray]:
    """The low corner, and the widths."""
    try:
        low, high = np.array(bounds, float).reshape(-1, 2).T
        right = len(low) == len(bounds) > 0 and np.isfinite(high - low).all() and (low < high).all()
    except (TypeError, ValueError):
        low = high = np.zeros(0)
        right = False
    if not right:
        raise InputError(f"bounds: found {bounds!r}; expected (low, high) for each dimension, low below high")
    return low, high - low
