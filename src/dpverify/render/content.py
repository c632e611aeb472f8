"""The data that a report page shows, as plain values.

`dpverify.report` computes these values; `dpverify.render` draws them. An epsilon stands in these types as a number, and
the page computes the position on the screen. This module does not need matplotlib.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.render.scene import Scene


class ClaimResult(NamedTuple):
    """The claim and its test, as far as the figures show them.

    Attributes
    ----------
    epsilon : float or None
        The claimed epsilon; None where no claim was made.
    delta, alpha : float
        Delta of the claim and the significance level of the test.
    epsilon_critical : float
        The smallest epsilon that is not rejected.
    """

    epsilon: float | None
    delta: float
    alpha: float
    epsilon_critical: float


class EpsilonCurves(NamedTuple):
    """p-values and bounds on delta along a grid of epsilons.

    Attributes
    ----------
    epsilon : ndarray
        The grid: it starts at 0 and increases in equal steps.
    p_first, p_second : ndarray
        p-values of P1 <= exp(epsilon) P2 + delta and of P2 <= exp(epsilon) P1 + delta, by all tested events together.
        They are 1 for a direction in which no event was tested.
    delta_lower, delta_upper : ndarray
        Bounds on delta. Each of the two holds at all epsilons simultaneously.
    p_floor : float
        A p-value that is not larger than this number is an upper bound of the p-value. 0 where all are exact.
    from_paper : bool
        Whether the p-values are those of the paper's test, which thins the counts and tests both directions.
    delta_claimed : ndarray or None
        The delta that the claim implies at each epsilon, if the claim is a curve.
    decisive : ndarray of int or None
        The tested event with the smallest p-value at each epsilon; None where the p-values are not those of events.
    """

    epsilon: np.ndarray
    p_first: np.ndarray
    p_second: np.ndarray
    delta_lower: np.ndarray
    delta_upper: np.ndarray
    p_floor: float
    from_paper: bool
    delta_claimed: np.ndarray | None = None
    decisive: np.ndarray | None = None


class ErrorTradeoff(NamedTuple):
    """Errors of an observer who guesses the data set: the one where an event is more frequent if it occurs.

    Attributes
    ----------
    type1 : ndarray
        Type I errors: probabilities of events with the data set that makes them less frequent.
    bounded : ndarray
        For each of them, the smallest type II error of a union of cells, as a lower confidence bound.
    claimed : ndarray or None
        The smallest type II error that the claim allows; None without a claim.
    claim : str
        The claim in words.
    witness : tuple of float
        Type I and type II error of the tested event.
    limits : tuple of float
        Confidence limits: the lowest and the highest type I error, then those of the type II error.
    alpha : float
        The curve `bounded` and the limits have confidence 1 - alpha each.
    """

    type1: np.ndarray
    bounded: np.ndarray
    claimed: np.ndarray | None
    claim: str
    witness: tuple[float, float]
    limits: tuple[float, float, float, float]
    alpha: float


class SliderData(NamedTuple):
    """The numbers that the slider of the page shows, rounded so that every shown bound still holds.

    Attributes
    ----------
    epsilon, p_first, p_second, delta_lower, delta_upper : list of float
        One value per position of the slider.
    p_floor, alpha : float
        As in `EpsilonCurves` and `ClaimResult`.
    start : int
        The first position of the slider.
    decisive : list of int
        The event that decides at each position; empty where the p-values are not those of events.
    events : list of str
        All tested events in words, with the shares of runs in them.
    """

    epsilon: list[float]
    p_first: list[float]
    p_second: list[float]
    delta_lower: list[float]
    delta_upper: list[float]
    p_floor: float
    alpha: float
    start: int
    decisive: list[int]
    events: list[str]


class BoundTrack(NamedTuple):
    """One statement about epsilon, and the bar that shows it on the axis.

    Attributes
    ----------
    kind : str
        "proved", "cells", "certified" or "unknown"; it selects the style of the bar.
    statement, detail : str
        The statement, and its scope and confidence.
    start : float or None
        The epsilon where the bar starts; None where there is no bar.
    end : float or None
        The epsilon where the bar ends; None for the end of the axis.
    number : str
        The bound as text, written beside the bar.
    """

    kind: str
    statement: str
    detail: str
    start: float | None = None
    end: float | None = None
    number: str = ""


class EpsilonBounds(NamedTuple):
    """All statements about epsilon on one axis.

    Attributes
    ----------
    delta : float
        The delta at which the bounds hold.
    claimed : float or None
        The claimed epsilon; None where no claim was made.
    tracks : tuple of BoundTrack
        The statements, from top to bottom.
    axis_end : float
        The largest epsilon on the axis; the axis starts at 0.
    description : str
        The statements as text, for screen readers.
    name : str
        What the axis shows: ε, or the parameter of a claim that is a curve.
    """

    delta: float
    claimed: float | None
    tracks: tuple[BoundTrack, ...]
    axis_end: float
    description: str
    name: str = "ε"


class WealthCourse(NamedTuple):
    """The wealth of a verification that may stop early.

    Attributes
    ----------
    runs : ndarray
        Runs per data set after every batch.
    log_wealth : ndarray
        The logarithm of the wealth against the claim after every batch.
    log_threshold : float
        The logarithm of the wealth that refutes the claim.
    claim, end : str
        The claim in words, and why the verification ended.
    """

    runs: np.ndarray
    log_wealth: np.ndarray
    log_threshold: float
    claim: str
    end: str


class EventShare(NamedTuple):
    """How often the tested event occurred with one data set.

    Attributes
    ----------
    name : str
        "first" or "second".
    count : int
        The number of test runs in the event.
    share, low, high : float
        The share of the test runs and its confidence limits.
    """

    name: str
    count: int
    share: float
    low: float
    high: float


class TableRow(NamedTuple):
    """One row of a table: a name, its value, and an explanation (may be empty)."""

    name: str
    value: str
    explanation: str = ""


class Table(NamedTuple):
    """A table with two columns."""

    caption: str
    rows: tuple[TableRow, ...]


class SummaryLine(NamedTuple):
    """A line of the first screen: its name, for example "Found", and its text."""

    name: str
    text: str


class PageFindings(NamedTuple):
    """What the page shows of a test that has an answer.

    Attributes
    ----------
    bounds : EpsilonBounds
        The statements about epsilon.
    event : str
        The tested event in words.
    shares : tuple of EventShare
        How often the event occurred with the first and with the second data set.
    event_note : str
        What the shares mean and when the event was fixed.
    result : ClaimResult
        The claim and its test.
    curves : EpsilonCurves
        p-values and bounds on delta along epsilon.
    slider : SliderData
        The same numbers, rounded for the slider.
    errors : ErrorTradeoff
        Errors of an observer who guesses the data set.
    scene : Scene
        Outputs of some runs, the region and the cells.
    tables : tuple of Table
        Numbers of runs, confidence levels and further results.
    wealth : WealthCourse or None
        The wealth over the runs, if the verification could stop early.
    """

    bounds: EpsilonBounds
    event: str
    shares: tuple[EventShare, ...]
    event_note: str
    result: ClaimResult
    curves: EpsilonCurves
    slider: SliderData
    errors: ErrorTradeoff
    scene: Scene
    tables: tuple[Table, ...]
    wealth: WealthCourse | None = None


class PageContent(NamedTuple):
    """Everything that the page of one report shows.

    Attributes
    ----------
    name : str
        The name of the mechanism.
    verdict : str
        The name of the verdict, for example "NOT_REFUTED".
    headline : str
        The finding as a sentence.
    summary : tuple of SummaryLine
        What was claimed, what was found, what it means, and what to do.
    findings : PageFindings or None
        All numbers and figures; None without an answer.
    notes : tuple of str
        Further findings about the mechanism and the run.
    command : str
        The command or the Python call that reproduces the result.
    run_tables : tuple of Table
        Settings, versions and times.
    version, digest : str
        The version of dpverify and the digest of the result.
    """

    name: str
    verdict: str
    headline: str
    summary: tuple[SummaryLine, ...]
    findings: PageFindings | None
    notes: tuple[str, ...]
    command: str
    run_tables: tuple[Table, ...]
    version: str
    digest: str
