"""Which reports are valid. Together with the annotations of the report's classes this is the only description.

The limits of single fields are a table, which the JSON Schema of the report file uses too. `check_consistent` checks
this table and how the fields of a report fit together. These checks find damaged files. `report.recomputation` compares
the numbers with the counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dpverify.events.selected import SHARE_TOLERANCE, WITNESS
from dpverify.report.delta_bounds import DeltaEvents
from dpverify.report.fields import ReportFields
from dpverify.report.sequence import Sequence
from dpverify.report.statements import Verdict, Witness, check_claim
from dpverify.stats.anytime import Bets
from dpverify.stats.claim_kinds import ZCDP, Approximate, Profile, Renyi
from dpverify.util.arrays import is_pytree

MAX_RUNS = 1 << 53  # per data set; larger whole numbers are not exact in JSON
MAX_OCCUPIED_CELLS = 10**8
MAX_BETS = 10**5
MAX_CLAIM_EPSILON = 700.0  # of a point of a privacy profile; exp of more overflows
MAX_GROUP_SIZE = 1000  # of a claim in a file; a larger one takes long to evaluate

Limits = Mapping[str, float]  # keywords of JSON Schema
AT_LEAST_0: Limits = {"minimum": 0}
AT_LEAST_1: Limits = {"minimum": 1}
PROBABILITY: Limits = {"minimum": 0, "maximum": 1}
LEVEL: Limits = {"exclusiveMinimum": 0, "exclusiveMaximum": 1}
SHARE: Limits = {"exclusiveMinimum": 0, "maximum": 1}
RUNS_OR_NONE: Limits = {"minimum": 0, "maximum": MAX_RUNS}
RUNS: Limits = {"minimum": 1, "maximum": MAX_RUNS}

FIELD_LIMITS: dict[str, dict[str, Limits]] = {
    "Report": {
        "epsilon": AT_LEAST_0,
        "delta": {"minimum": 0, "exclusiveMaximum": 1},
        "alpha": LEVEL,
        "epsilon_lower": AT_LEAST_0,
        "p_value": PROBABILITY,
        "epsilon_critical": AT_LEAST_0,
        "epsilon_detectable": AT_LEAST_0,
        "claim_lower": AT_LEAST_0,
    },
    "Witness": {"counts": AT_LEAST_0, "runs": RUNS, "alpha": LEVEL, "shape": AT_LEAST_1, "share": SHARE},
    "DeltaEvents": {"runs": RUNS},
    "Event": {"direction": PROBABILITY},
    "OnPartition": {"runs": RUNS_OR_NONE, "alpha": LEVEL, "cells": AT_LEAST_0, "region_mass": PROBABILITY},
    "OnAllEvents": {"rest": AT_LEAST_0, "variation": AT_LEAST_0, "runs": RUNS, "alpha": LEVEL},
    "Sequence": {"runs_used": RUNS, "first_runs": RUNS, "exact_runs": RUNS_OR_NONE, "early_share": LEVEL},
    "Paper": {"p_values": PROBABILITY, "eta": PROBABILITY, "eta_upper": PROBABILITY, "lambda_": AT_LEAST_0},
}


def check_consistent(report: ReportFields) -> None:
    """Raise ValueError if the fields of a report, each of the annotated type, do not fit together."""
    partition, witness, all_events = report.on_partition, report.witness, report.on_all_events
    parts = [report, *report.tested, *(one.event for one in report.tested), partition, report.paper]
    for part in (*parts, all_events, report.sequence, report.delta_events):
        if part is not None:
            _check_limits(part)
    check_claim(report.settings, report.epsilon, report.delta, report.claim)
    _check_claim_fields(report)
    runs = partition.runs
    for one in report.tested:
        _require("counts", all(count <= one.runs for count in one.counts))
        _require("event", one.event.codes.ndim == 1)
        _require("others", (one.runs, one.shape) == (witness.runs, witness.shape))
    _require("share", sum(one.share for one in report.tested) <= 1 + SHARE_TOLERANCE)
    if report.delta_events is not None:
        _check_delta_events(report.delta_events, report.tested)
    if report.sequence is None:
        _require("runs", runs == witness.runs)
    else:
        _check_sequence(report.sequence, report)
    number = sum(partition.number.ravel().tolist())
    _require("cells", min(runs, 1) <= number <= min(partition.cells, MAX_OCCUPIED_CELLS))
    _check_cell_counts(runs, partition.c1, partition.c2, partition.number)
    if all_events is not None:
        _require("on_all_events", all_events.runs == runs)
        _check_cell_counts(runs, all_events.c1, all_events.c2, np.ones_like(all_events.c1), all_events.rest)
    _check_verdict(report)
    _check_picture(report)


def _check_delta_events(events: DeltaEvents, tested: tuple[Witness, ...]) -> None:
    """Raise ValueError if the events for bounds on delta are damaged, or if equal events have different counts."""
    aims, counts, runs = events.aims, (events.c1, events.c2), tested[0].runs
    _require("delta_events", events.runs == runs)
    aims.check()
    _require("delta_events", all(column.shape == aims.edges.shape and column.dtype == np.int64 for column in counts))
    _require("delta_events", all(bool(((column >= 0) & (column <= runs)).all()) for column in counts))
    is_witness = aims.edges == WITNESS
    event = np.stack([aims.edges, np.where(is_witness, 0, aims.directions)])
    distinct = np.unique(np.vstack([event, *counts]), axis=1).shape[1]
    _require("delta_events", np.unique(event, axis=1).shape[1] == distinct)
    own = {(int(c1), int(c2)) for c1, c2 in zip(events.c1[is_witness], events.c2[is_witness], strict=True)}
    _require("delta_events", own <= {one.ordered for one in tested})


def _check_sequence(sequence: Sequence, report: ReportFields) -> None:
    """Raise ValueError if the bets are damaged, or contradict the numbers of runs."""
    bets, witness = sequence.bets, report.witness
    _require("claim", report.claim is not None)
    _require("runs", sequence.exact_runs in (0, witness.runs) and report.on_partition.runs <= sequence.runs_used)
    _require("bets", all(column.ndim == 1 and column.shape == bets.batch.shape for column in bets))
    _require("bets", 0 < bets.batch.size <= MAX_BETS)
    for column in (bets.batch, bets.season, bets.slot, bets.runs, bets.c1, bets.c2):
        _require("bets", column.dtype == np.int64 and bool((column >= 0).all()))
    for column in (bets.share, bets.weight, bets.a, bets.b):
        _require("bets", column.dtype == np.float64 and bool(((column > 0) & (column <= 1)).all()))
    _require("bets", bool((bets.a < 1).all() and (bets.b < 1).all()))
    _require("bets", bool((bets.c1 <= bets.runs).all() and (bets.c2 <= bets.runs).all()))
    _require("bets", np.array_equal(np.unique(bets.batch), np.arange(bets.batch[-1] + 1)))
    _require("bets", all(np.all(np.diff(column) >= 0) for column in (bets.batch, bets.season)))
    _require("bets", _divides_wealth(bets))
    _require("runs_used", int(sequence.runs[-1]) <= sequence.runs_used)


def _divides_wealth(bets: Bets) -> bool:
    """Return whether the families of a season share at most the whole wealth, and the bets of a family all of its."""
    slots, first = np.unique(np.stack([bets.season, bets.slot]), axis=1, return_inverse=True)
    shares = np.zeros(slots.shape[1])
    shares[first.ravel()] = bets.share
    places, place = np.unique(np.stack([bets.batch, bets.slot]), axis=1, return_inverse=True)
    weights = np.bincount(place.ravel(), bets.weight)
    seasons = np.zeros(int(bets.batch[-1]) + 1, np.int64)
    seasons[bets.batch] = bets.season
    expected = np.bincount(slots[0])[seasons]  # families of the season of every batch
    return (
        np.array_equal(shares[first.ravel()], bets.share)
        and bool((np.bincount(slots[0], shares) <= 1 + SHARE_TOLERANCE).all())
        and bool((weights <= 1 + SHARE_TOLERANCE).all())
        and np.array_equal(np.bincount(places[0], minlength=expected.size), expected)
    )


def _check_limits(part: object) -> None:
    """Raise ValueError if a field is outside its limits; None has no limits, and a tuple is checked item by item."""
    kind = type(part).__name__
    for name, limits in FIELD_LIMITS[kind].items():
        value = getattr(part, name)
        numbers = value if isinstance(value, tuple) else () if value is None else (value,)
        _require(f"{kind}.{name}", all(_within(number, limits) for number in numbers))


def _within(number: float, limits: Limits) -> bool:
    """Return whether a number is within limits that are given as keywords of JSON Schema."""
    return (
        limits.get("minimum", -math.inf) <= number <= limits.get("maximum", math.inf)
        and number > limits.get("exclusiveMinimum", -math.inf)
        and ("exclusiveMaximum" not in limits or number < limits["exclusiveMaximum"])
    )


def _check_verdict(report: ReportFields) -> None:
    """Raise ValueError if the verdict contradicts the diagnostics, the claim or the p-value."""
    _require("p_value", (report.p_value is None) == (report.claim is None))
    void = any(diagnostic.voids for diagnostic in report.diagnostics)
    _require("verdict", (report.verdict is Verdict.NO_ANSWER) == void)
    if void:
        return
    _require("verdict", (report.verdict is Verdict.MEASURED) == (report.p_value is None))
    if report.p_value is not None:
        _require("verdict", (report.verdict is Verdict.REFUTED) == (report.p_value <= report.alpha))


def _check_claim_fields(report: ReportFields) -> None:
    """Raise ValueError if the claim is damaged, or contradicts epsilon and delta."""
    claim = report.claim
    if isinstance(claim, Approximate):
        _require("claim", claim.epsilon == report.epsilon and claim.delta == report.delta)
        return
    _require("claim", report.epsilon is None)
    if isinstance(claim, Profile):
        numbers = np.array([claim.epsilons, claim.deltas], float) if len(claim.epsilons) == len(claim.deltas) else None
        _require("claim", numbers is not None and numbers.size > 0 and bool(np.isfinite(numbers).all()))
        _require("claim", min(claim.deltas) >= 0 and max(map(abs, claim.epsilons)) <= MAX_CLAIM_EPSILON)
    elif claim is not None:
        _require("claim", 0 <= claim.parameter < math.inf)
    if isinstance(claim, Renyi):
        _require("claim", 1 < claim.order < math.inf)
    if isinstance(claim, (Renyi, ZCDP)):
        _require("claim", 1 <= claim.group_size <= MAX_GROUP_SIZE)


def _check_picture(report: ReportFields) -> None:
    """Raise ValueError if the pictured runs do not have the shape of an output, or the event cannot be evaluated."""
    sides = [report.picture.get(side) for side in ("first", "second")]
    shape, event = report.witness.shape, report.witness.event
    _require("picture", all(isinstance(samples, np.ndarray) and samples.shape[1:] == shape for samples in sides))
    if is_pytree(event.partition):
        event.contains(sides[0][:1])  # type: ignore[index]


def _check_cell_counts(
    runs: int, c1: np.ndarray, c2: np.ndarray, number: np.ndarray, rest: tuple[int, int] = (0, 0)
) -> None:
    """Raise ValueError unless the columns are whole numbers, and each run is in one cell or in the rest."""
    for column in (c1, c2, number):
        _require("cells", column.ndim == 1 and column.shape == c1.shape and column.dtype == np.int64)
    _require("cells", bool((number >= 1).all() and (c1 >= 0).all() and (c2 >= 0).all()))
    for column, outside in zip((c1, c2), rest, strict=True):
        # Python integers do not overflow, whatever a damaged file contains.
        total = sum(count * cells for count, cells in zip(column.tolist(), number.tolist(), strict=True))
        _require("cells", total + outside == runs)


def _require(field: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{field}: no verification gives this value")
