"""The report of a verification that may stop early."""

from __future__ import annotations

from dpverify.events.region import RegionIndicator
from dpverify.events.selected import SelectedEvents
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.assemble import Findings, Statements, complete_report, make_witness
from dpverify.report.evaluate import Etas
from dpverify.report.report import Report
from dpverify.report.sequence import EARLY_SHARE, Sequence
from dpverify.sampling.context import RunContext
from dpverify.sampling.counts import count_cells
from dpverify.sequential.bounding import nothing_bounded
from dpverify.sequential.stopping import Decision, Question

WATCHED_KEY = "watched"  # the entry of `report.run` with the counts of the watched cells


def conclude(run: RunContext, decision: Decision, question: Question, diagnostics: tuple[Diagnostic, ...]) -> Report:
    """Return the report.

    The tested events are those of the exact test, with their counts. If there was no exact test, there is one: the
    event with the most wealth, with its counts in all runs, which are shown and used for no bound.
    """
    claim = question.claim
    batches, portfolio, exact, look = decision.batches, decision.portfolio, decision.exact, decision.look
    event, count, runs = portfolio.leader()
    events, shares, counts = (event,), (1.0,), [count]
    if exact is not None:
        events, shares, runs = exact.events, exact.shares, exact.runs
        counts = [(int(first), int(second)) for first, second in exact.counts]
    sequence = Sequence(
        stopped=decision.stopped,
        runs_used=portfolio.runs,
        first_runs=batches.first_runs,
        exact_runs=0 if exact is None else exact.runs,
        early_share=EARLY_SHARE,
        claimed=getattr(claim, "parameter", None),
        bets=portfolio.all_bets(),
    )
    if batches.pairs_are_dependent() and not any(diagnostic.voids for diagnostic in diagnostics):
        diagnostics += (Diagnostic.DEPENDENT_RUNS,)
    points, bounding = decision.points, decision.bounding
    region = decision.region if bounding is None else bounding.region  # whose mass is bounded
    partition = events[0].partition if bounding is None else bounding.partition
    smooth = None if bounding is None else bounding.smooth
    selected = SelectedEvents(events, shares, partition)
    findings = Findings(region, points, batches.samples, selected, smooth, diagnostics + decision.diagnostics)
    level = sequence.exact_alpha(run.settings.alpha)
    indicator = RegionIndicator(region)
    inside = count_cells(indicator, batches.samples[0]), count_cells(indicator, batches.samples[1])
    statements = Statements(
        tested=tuple(
            make_witness(findings, event, pair, runs, level, share)
            for event, pair, share in zip(events, counts, shares, strict=True)
        ),
        on_partition=nothing_bounded(run.settings.alpha) if look is None else look.on_partition,
        on_all_events=None if look is None else look.on_all_events,
        etas=Etas(1.0, None),
        inside=inside,
        blocks=batches.blocks(),
        error=batches.error(),
        threads_agree=batches.threads_agree(),
        sequence=sequence,
    )
    report = complete_report(run, findings, statements, claim, question.delta)
    if decision.watched is not None:
        report.run[WATCHED_KEY] = {"runs": decision.watched.runs, "cells": decision.watched.counts.tolist()}
    return report
