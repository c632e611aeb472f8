"""`privacy_over_time`: the privacy of every prefix of an output, from the same runs in one pass.

The stages are those of `verify`, and every stage serves all prefixes: selection runs choose one event per prefix, the
events are frozen, and the test runs count all of them.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from types import NoneType
from typing import Any, Unpack, overload

import numpy as np

from dpverify.errors import DPVerifyWarning, InputError
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import Mechanism, is_seeded, mechanism_name
from dpverify.pipeline import check_stop_early
from dpverify.report.assemble import describe_problems, describe_run
from dpverify.report.statements import Verdict
from dpverify.sampling.block_counts import BlockChecker, BlockCounts, runs_are_dependent
from dpverify.sampling.checkpoints import Record
from dpverify.sampling.context import (
    RunContext,
    check_mechanism,
    open_run,
    read_record,
    shorten_run,
    try_optional_method,
)
from dpverify.sampling.counts import Statistics, TableCounter
from dpverify.sampling.stages import collect_statistics
from dpverify.sampling.threads import threads_agree
from dpverify.settings import Settings, SettingsChanges
from dpverify.stats.claims import Approximate, Claim, resolve_claim
from dpverify.timeline.documents import check_events
from dpverify.timeline.events import PREFIX_EVENT_KINDS, PrefixEvents
from dpverify.timeline.looks import PlannedLook, plan_looks
from dpverify.timeline.result import PrivacyOverTime
from dpverify.timeline.selection import select_prefix_events
from dpverify.timeline.table import PrivacyTable, measure_records
from dpverify.util.hashing import fingerprint
from dpverify.util.serialization import to_plain

# The settings that only `verify` supports, and the values that are allowed here.
SUPPORTED_SETTINGS = {
    "partition": ("auto",),
    "events": ("auto", "score"),
    "test": ("exact",),
    "selection_epsilon": (None,),
    "nonfinite": ("error",),
}

DECIDED = (Verdict.REFUTED, Verdict.BOUNDED, Verdict.NO_ANSWER)  # verdicts that end the run at an early look


@overload
def privacy_over_time(
    mechanism: Mechanism,
    first: object = None,
    second: object = None,
    delta: float = 0.0,
    *,
    epsilon: float | None = None,
    claim: object = None,
    pairs: None = None,
    jointly: bool = False,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    trust_results: bool = False,
    **changes: Unpack[SettingsChanges],
) -> PrivacyOverTime: ...
@overload
def privacy_over_time(
    mechanism: Mechanism,
    first: object = None,
    second: object = None,
    delta: float = 0.0,
    *,
    epsilon: float | None = None,
    claim: object = None,
    pairs: Mapping[str, tuple[object, object]],
    jointly: bool = False,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    trust_results: bool = False,
    **changes: Unpack[SettingsChanges],
) -> PrivacyTable: ...
def privacy_over_time(
    mechanism: Mechanism,
    first: object = None,
    second: object = None,
    delta: float = 0.0,
    *,
    epsilon: float | None = None,
    claim: object = None,
    pairs: Mapping[str, tuple[object, object]] | None = None,
    jointly: bool = False,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    executor: int | Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    trust_results: bool = False,
    **changes: Unpack[SettingsChanges],
) -> PrivacyOverTime | PrivacyTable:
    """Measure how much every prefix of an output reveals: when a record starts to leak, how fast, and how much.

    The output is a stream of K steps. For every k the result has bounds on the epsilon of the steps 0 to k together.
    All prefixes are counted on the same runs (docs/method.md, section 5.12).

    Parameters
    ----------
    mechanism : callable
        As in `verify`. Its outputs have the shape (runs, K, d) with at least two steps K.
    first, second : object
        The two neighbouring data sets. Leave them out if `pairs` is given.
    delta : float, default 0.0
        The delta at which epsilon is bounded.
    epsilon : float or None, default None
        The claimed epsilon at this delta; None states no claim.
    claim : claim or None, default None
        A claim of another kind, as in `verify`.
    pairs : mapping from str to (first, second), optional
        Several pairs of data sets by the name of the record in which they differ; `dpverify.neighbours` makes them.
        The result is then a table of records and steps.
    jointly : bool, default False
        Whether the bounds of all records hold together with confidence 1 - alpha, so that each record has a share of
        alpha. False: the bounds of each record hold for all its steps together.
    settings, executor, folder, progress, trust_results, **changes
        As in `verify`. The settings of the paper's procedure and of other partitions do not apply. With `stop_early`
        and a claim, the test runs end at the first look at which the claim is refuted for the whole output, or bounded
        for every step; `test_runs` is then the largest number. Each record of `pairs` ends on its own.

    Returns
    -------
    PrivacyOverTime or PrivacyTable
        The bounds of every step; with `pairs` those of every record and step. `print` shows them.

    Raises
    ------
    InputError
        If an argument is invalid, the output has one step only, or the two data sets are equal.
    MechanismError, FolderError, Stopped
        As in `verify`.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def running_sum(data, runs, rng):  # one noise for the whole stream, so later steps add little
    ...     return np.cumsum(data) + rng.laplace(size=(runs, 1))
    >>> def stream(data, runs, rng):
    ...     return running_sum(data, runs, rng)[:, :, None]
    >>> result = dpv.privacy_over_time(stream, np.zeros(3), np.array([0.0, 0.5, 0.0]), select_runs=4000, test_runs=9000)
    >>> result.start
    1
    """
    settings = settings.change(**changes)
    check_settings(settings)
    tested, delta = resolve_claim(epsilon, delta, claim)
    if pairs is None:
        if first is None and second is None:
            raise InputError("data sets: found none; expected first and second, or pairs")
        return measure_pair(
            mechanism, first, second, delta, tested, "", settings, executor, folder, progress, trust_results
        )
    if first is not None or second is not None:
        raise InputError("pairs: found pairs and data sets; expected one of them; remove first and second")

    def measure(
        record: str, pair: tuple[object, object], own: Settings, workers: int | Executor | None, place: str | None
    ) -> PrivacyOverTime:
        return measure_pair(mechanism, *pair, delta, tested, record, own, workers, place, progress, trust_results)

    return measure_records(measure, pairs, jointly, settings, executor, folder)


def check_settings(settings: Settings) -> None:
    """Raise InputError if a setting applies to `verify` only."""
    for name, allowed in SUPPORTED_SETTINGS.items():
        value = getattr(settings, name)
        if value not in allowed:
            raise InputError(
                f"{name}: found {value!r}; privacy_over_time supports {' or '.join(map(repr, allowed))}; "
                "use verify for other settings"
            )


def measure_pair(
    mechanism: Mechanism,
    first: object,
    second: object,
    delta: float,
    claim: Claim | None,
    record: str,
    settings: Settings,
    executor: int | Executor | None,
    folder: str | os.PathLike[str] | None,
    progress: bool | None,
    trust_results: bool,
) -> PrivacyOverTime:
    """Measure the privacy of every prefix for one pair of data sets."""
    call: dict[str, object] = {"delta": delta, "over time": True}
    settings, not_stopping = check_stop_early(settings, claim)
    if settings.stop_early:
        call["stop early"] = True
    planned = settings.change(stop_early=False)  # the blocks and the selection do not depend on early stopping
    if not isinstance(claim, (Approximate, NoneType)):  # the selection depends on a claim that is a curve
        call["claim"] = fingerprint(to_plain(claim))
    about = f" ({record})" if record else ""
    with open_run(mechanism, first, second, planned, executor, progress, folder, call, None, trust_results) as run:
        diagnostics, shape = check_mechanism(run) + not_stopping, run.source.shape
        assert shape is not None
        if shape[0] < 2:
            raise InputError(
                f"mechanism: found outputs of one step (shape {shape[0]} x {shape[1]}); expected at least two "
                "steps; return an array of shape (runs, steps, coordinates), with per_run one run of shape (steps, "
                "coordinates), for example numpy.array(path)[:, None]; or use verify"
            )
        if Diagnostic.SAME_DATA in diagnostics:
            raise InputError(f"data sets{about}: {Diagnostic.SAME_DATA.value}")
        if any(diagnostic.voids for diagnostic in diagnostics):  # no number of runs gives an answer
            run = shorten_run(run)
            diagnostics += (Diagnostic.SHORTENED,)
        run.progress.skip(len(run.plan.sides) * run.plan.pilot_runs)  # no region is needed
        events, checker = freeze_events(run, delta, claim)
        result = PrivacyOverTime(
            name=mechanism_name(mechanism),
            record=record,
            delta=delta,
            claim=claim,
            events=events,
            counts=np.zeros((2, shape[0], events.edges.shape[1] + 1), np.int64),
            shape=shape,
            settings=run.settings.change(stop_early=settings.stop_early),
            seeded=is_seeded(mechanism),
            diagnostics=diagnostics + (() if is_seeded(mechanism) else (Diagnostic.UNSEEDED,)),
            truth=exact_epsilons(run, delta),
            run={},
        )
        result = replace(count_until_decided(run, result, checker), run=describe_run(run))
    result.run.update(describe_problems(run))  # closing the run calls the mechanism's method finish, which can fail
    if not result.seeded:
        warnings.warn(Diagnostic.UNSEEDED.value, DPVerifyWarning, stacklevel=3)
    return result


def freeze_events(run: RunContext, delta: float, claim: Claim | None) -> tuple[PrefixEvents, BlockChecker]:
    """Select the events of all prefixes with the selection runs and store them; a resumed run reads them."""
    checkpoint, settings = run.checkpoint, run.settings
    stored = read_record(checkpoint, "prefix-events", PREFIX_EVENT_KINDS, read_prefix_events)
    if stored is not None:
        run.progress.skip(2 * settings.select_runs)
        return stored
    done_before = run.progress.done
    events, samples = select_prefix_events(run, delta, claim)
    checker = BlockChecker.make(events.event(events.steps - 1), samples)
    run.progress.skip(done_before + 2 * settings.select_runs - run.progress.done)
    frozen = {"events": events, "coordinates": checker.coordinates, "medians": checker.medians}
    checkpoint.write("prefix-events", Record(to_plain(frozen)))
    if checkpoint.problem is None:
        checkpoint.forget("train", "cut", "decide")
    run.clock.lap("selection")
    return events, checker


def read_prefix_events(record: Mapping[str, Any]) -> tuple[PrefixEvents, BlockChecker]:
    """Return the stored events, and what checks the blocks of runs."""
    events = record["events"]
    check_events(events, events.steps)
    return events, BlockChecker(events.event(events.steps - 1), record["coordinates"], record["medians"])


def count_until_decided(run: RunContext, result: PrivacyOverTime, checker: BlockChecker) -> PrivacyOverTime:
    """Count the test runs, and return the result of the first look at which the claim is decided, or of the last."""
    planned, done_before, before = result.settings.test_runs, run.progress.done, result.diagnostics
    for counts, found in count_test_runs(run, result.events, checker, plan_looks(result.settings)):
        result = replace(result, counts=counts, diagnostics=before if result.voiding else before + found)
        is_weak = result.verdict is Verdict.BOUNDED and result.on_partition(0).uses_delta_zero(result.delta)
        if result.runs < planned and result.verdict in DECIDED and not is_weak:
            break
    run.progress.skip(done_before + 2 * planned - run.progress.done)
    run.clock.lap("test")
    return result


def count_test_runs(
    run: RunContext, events: PrefixEvents, checker: BlockChecker, looks: Sequence[PlannedLook]
) -> Iterator[tuple[np.ndarray, tuple[Diagnostic, ...]]]:
    """Yield at every look the counts of both data sets in the level sets of every prefix, and diagnostics."""
    statistics = Statistics((TableCounter(events), checker))
    block, stages = run.source.block, []
    counted: frozenset[tuple[int, int]] = frozenset()
    for look in looks:
        stages.append(
            collect_statistics(run.source, "test", look.runs, statistics, run.pool, run.progress, counted).parts
        )
        counted = frozenset((side, number) for side in (0, 1) for number in range(look.runs // block))
        tables, checked = ([[part[index] for part in side] for side in zip(*stages, strict=True)] for index in (0, 1))
        blocks = BlockCounts.merge(checked[0]), BlockCounts.merge(checked[1])
        found: tuple[Diagnostic, ...] = ()
        if not threads_agree(run.source, look.runs, checker, blocks, run.pool):
            found = (Diagnostic.NOT_THREAD_SAFE,)
        elif runs_are_dependent(*blocks):
            found = (Diagnostic.DEPENDENT_RUNS,)
        yield np.stack([np.sum(side, axis=0) for side in tables]), found


def exact_epsilons(run: RunContext, delta: float) -> np.ndarray | None:
    """Return the exact epsilon of every prefix if the mechanism knows it: `truth(first, second).prefix(k)`."""
    method, shape = getattr(run.source.mechanism, "truth", None), run.source.shape
    if method is None or shape is None:
        return None

    def compute() -> np.ndarray | None:
        truth = method(*run.source.data)
        prefix = getattr(truth, "prefix", None)
        return None if prefix is None else np.array([prefix(k + 1).epsilon(delta) for k in range(shape[0])], float)

    return try_optional_method("truth", compute, run.notes)
