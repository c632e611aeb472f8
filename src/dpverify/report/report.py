"""The report of a verification: what was counted, and everything that follows from it.

A report stores counts and what they belong to. Every bound, p-value and verdict is a property that is computed from
them when it is asked for, so another claim on the same counts is the same report with another claim. `provenance`
(seconds, versions, device, workers) describes how the report was computed; it is not part of equality and not part of
the digest.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from dpverify.claims import CLAIM_KINDS, Approximate, Claim, resolve_claim
from dpverify.errors import InputError, how_to_install
from dpverify.events.event import EVENT_KINDS
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.neighbours import DataDifference, Relation
from dpverify.report import json
from dpverify.report.attribution import Attribution, attribute
from dpverify.report.certificate import Certificate
from dpverify.report.power import detectable_factor, obeys, witness_epsilon
from dpverify.report.sequence import Sequence, StoppedBy
from dpverify.report.statements import CellBounds, DeltaEvents, Paper, Verdict, Witness, check_claim
from dpverify.report.text import next_step, report_text
from dpverify.settings import Settings
from dpverify.stats.exact import delta_lower_bound, epsilon_lower_bound
from dpverify.stats.paper import critical_epsilon, eta_upper_bound, p_values, paper_lambda
from dpverify.stats.upper import PROFILE_EPSILONS
from dpverify.util.checks import is_real_number
from dpverify.util.formatting import format_lower
from dpverify.util.results import Tabular
from dpverify.util.serialization import nested_kinds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THINNING_KEY, SWEEP_KEY = 100, 101  # spawn keys of the paper's randomised p-values; the stages use smaller ones
MAX_EXPONENT = 700.0  # of an e-value in double precision


@dataclass(frozen=True, eq=False, repr=False)
class Report(Tabular):
    """The result of one verification of a mechanism on one pair of datasets.

    `print(report)` shows it as text. A mechanism is (epsilon, delta)-private on the pair if P1(E) <= e^epsilon P2(E) +
    delta for all events E, and the same with P1 and P2 exchanged. docs/numbers.md explains every number.

    The attributes are stored. The properties are computed from them. Without an answer (`verdict` is `NO_ANSWER`) there
    are counts, and no bounds and p-values: these are None.

    Attributes
    ----------
    name : str
        Name of the mechanism.
    seeded : bool
        Whether the mechanism can be seeded, so that the report can be reproduced.
    settings : Settings
        The settings that were used, with the block size filled in.
    claim : Claim or None
        The claim that was tested, of any kind (`dpverify.claims`); None without a claim.
    delta : float
        The claimed delta. Without a claim, the delta at which epsilon is bounded.
    tested : tuple of Witness
        All events that were frozen together, with their counts. Each has a `share` of alpha, and the shares add up to
        1.
    cell_counts : CellBounds
        What the property `on_partition` is computed from: upper bounds over the cells, `epsilon_upper(delta)`,
        `delta_upper(epsilon)`, `cells` (the number of cells) and `region_mass` (a lower bound on the probability of the
        region of likely outputs). Events that split a cell are not bounded.
    certificate_counts : Certificate or None
        What the property `certificate` is computed from: upper bounds over all events, `epsilon_upper(delta)` and
        `delta_upper(epsilon)`, and `assumption`. None unless the density of the output, or a Lipschitz constant of
        the log-density, was stated.
    delta_events : DeltaEvents or None
        Events that were chosen for bounds on delta, which `delta_lower` and `profile` use. None if the witness is used.
    sequence : Sequence or None
        The bets of a verification with `stop_early`, from which `stopped`, `runs_used` and `e_value` follow; None
        without it. The witness of a verification that stopped before its exact test (`is_tested` is False) is counted
        in all runs, and the bounds come from the bets.
    selection_eta : float or None
        The largest share of the first dataset's selection runs in an event; None without the paper's selection.
    diagnostics : tuple of Diagnostic
        Findings about the mechanism and the datasets. A voiding one makes the verdict `NO_ANSWER`.
    remarks : tuple of str
        Sentences of the mechanism's own method `remarks`.
    data_difference : DataDifference or None
        How the datasets differ, in words. Datasets that differ in another way are not tested.
    error : pair of (mean, standard error), or None
        The error of the estimate under the first and the second dataset. None unless `error` was passed to `verify`.
    picture : dict
        What the page draws: runs of both datasets ("first", "second"), "region", "labels", the "histogram" of all test
        runs, and the counts of each number of the output ("coordinates").
    provenance : dict
        How the report was computed: "seconds", "versions", "device", "workers", "resumed".

    Examples
    --------
    >>> import dpverify as dpv
    >>> def noisy_count(data, runs, rng):
    ...     return data + rng.laplace(size=runs)
    >>> report = dpv.verify(noisy_count, 0.0, 1.0, epsilon=0.5, select_runs=1000, test_runs=5000, seed=1)
    >>> report.verdict.name, report.refuted
    ('REFUTED', True)
    >>> 0.5 < report.epsilon_lower < 1.0
    True
    >>> report.against(1.0).refuted
    False
    """

    name: str
    seeded: bool
    settings: Settings
    claim: Claim | None
    delta: float
    tested: tuple[Witness, ...]
    cell_counts: CellBounds
    certificate_counts: Certificate | None = None
    delta_events: DeltaEvents | None = None
    sequence: Sequence | None = None
    selection_eta: float | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    remarks: tuple[str, ...] = ()
    data_difference: DataDifference | None = None
    error: tuple[tuple[float, float], tuple[float, float]] | None = None
    picture: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        """Raise InputError unless the claim is one that the test of the settings supports."""
        check_claim(self.settings, self.epsilon, self.delta, self.claim)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Return whether both results have the same digest."""
        return isinstance(other, Report) and self.digest == other.digest

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the stored result. It does not depend on executor, number of workers or order of blocks."""
        return json.digest(self)

    @property
    def alpha(self) -> float:
        """Level of the test, and 1 minus the confidence of the bounds."""
        return self.settings.alpha

    @property
    def level(self) -> float:
        """The level of the exact test of all events together: with `stop_early` the bets have a part of alpha."""
        return self.alpha if self.sequence is None else self.sequence.exact_alpha(self.alpha)

    @property
    def epsilon(self) -> float | None:
        """The claimed epsilon; None without a claim, or if the claim is of another kind."""
        return self.claim.epsilon if isinstance(self.claim, Approximate) else None

    @functools.cached_property
    def verdict(self) -> Verdict:
        """The conclusion: `REFUTED`, `CERTIFIED`, `NOT_REFUTED`, `MEASURED` (no claim) or `NO_ANSWER`."""
        if self.voiding:
            return Verdict.NO_ANSWER
        if self.p_value is None:
            return Verdict.MEASURED
        if self.p_value <= self.alpha:
            return Verdict.REFUTED
        is_certified = self.certificate is not None and self.certificate.meets_claim(self.claim)
        return Verdict.CERTIFIED if is_certified else Verdict.NOT_REFUTED

    @functools.cached_property
    def _bounds(self) -> list[float]:
        """The lower bound on epsilon at this delta by each event; the largest one has confidence 1 - alpha.

        After an early stop the runs of an event are those that selected it, so that its own bound is 0.
        """
        if not self.is_tested:
            return [0.0] * len(self.tested)
        return [epsilon_lower_bound(*one.ordered, one.runs, self.delta, one.share * self.level) for one in self.tested]

    @functools.cached_property
    def _p_values(self) -> list[float]:
        """The p-value of the claim by each event, divided by its share of the level."""
        if self.claim is None or not self.is_tested:
            return [1.0] * len(self.tested)
        levels = [(one, one.share * self.level) for one in self.tested]
        p_values = [self.claim.p_value(*one.ordered, one.runs, level) for one, level in levels]
        return [divide_p_value(p, one.share, self.level) for p, one in zip(p_values, self.tested, strict=True)]

    @property
    def _strongest(self) -> Witness:
        """The event with the largest bound on epsilon."""
        return self.tested[int(np.argmax(self._bounds))]

    @functools.cached_property
    def witness(self) -> Witness:
        """The tested event that proves most; if none proves anything, the one that could have shown most.

        It has `text`, `counts`, `probabilities` (share and confidence limits for each dataset), `direction` and
        `contains(samples)`.
        """
        if self.voiding or len(self.tested) == 1:
            return self.tested[0]
        proof = self.tested[int(np.argmin(self._p_values))] if self.is_curve else self._strongest
        if max(self._bounds) > 0 and not obeys(proof, self.claim):
            return proof
        return min(self.tested, key=lambda one: detectable_factor(one, self.claim, self.delta, one.share * self.alpha))

    @property
    def others(self) -> tuple[Witness, ...]:
        """The events that were frozen and tested together with the witness."""
        return tuple(one for one in self.tested if one is not self.witness)

    @functools.cached_property
    def epsilon_lower(self) -> float | None:
        """Lower confidence bound on epsilon at `delta`: the true epsilon of this pair is at least this.

        It holds because one event is enough to prove it. 0 if nothing is proved; None without an answer.
        """
        if self.voiding:
            return None
        by_bets = (
            0.0 if self.sequence is None else self.sequence.parameter_lower(Approximate(0.0, self.delta), self.alpha)
        )
        return max(*self._bounds, by_bets or 0.0)

    @functools.cached_property
    def claim_lower(self) -> float | None:
        """Lower bound on the claim's own parameter (epsilon, mu, rho), by all tested events together.

        It has confidence 1 - alpha. None without a claim, or if the claim has no parameter.
        """
        claim = self.claim
        if self.voiding or claim is None or self.epsilon is not None:
            return None if claim is None else self.epsilon_lower
        lowers = [
            claim.lower_bound(*one.ordered, one.runs, one.share * self.level)
            for one in (self.tested if self.is_tested else ())
        ]
        lowers += [] if self.sequence is None else [self.sequence.parameter_lower(claim, self.alpha)]
        return max((bound for bound in lowers if bound is not None), default=None)

    @functools.cached_property
    def p_value(self) -> float | None:
        """p-value of the claim, by all tested events together; None without a claim or without an answer."""
        if self.voiding or self.claim is None:
            return None
        if self.settings.test != "exact" and self.paper is not None:
            return min(self.paper.p_values or (1.0,))
        p_value, sequence = min(self._p_values), self.sequence
        if sequence is not None:  # the wealth and the exact test have a share of alpha each
            by_wealth = min(sequence.p_value(self.claim) / sequence.early_share, 1.0)
            by_test = divide_p_value(p_value, 1 - sequence.early_share, self.alpha) if self.is_tested else 1.0
            p_value = min(by_wealth, by_test)
        return p_value

    @functools.cached_property
    def epsilon_critical(self) -> float | None:
        """The smallest epsilon that is not rejected: `epsilon_lower`, unless `settings.test` is one of the paper's."""
        if self.voiding or self.settings.test == "exact":
            return self.epsilon_lower
        rng, averaged = _generator(self.settings, SWEEP_KEY), self.settings.test == "averaged"
        return float(critical_epsilon(*self.witness.counts, self.witness.runs, self.alpha, rng, averaged=averaged))

    @functools.cached_property
    def epsilon_detectable(self) -> float | None:
        """If the true epsilon of the witness were this, the claim would be refuted with probability about 0.8.

        Infinite if no epsilon of the witness would be refuted. It says nothing about better events that the selection
        may have missed. None without an answer.
        """
        one = self.witness
        return None if self.voiding else witness_epsilon(one, self.claim, self.delta, one.share * self.alpha)

    @functools.cached_property
    def observer_certainty(self) -> tuple[float, float | None] | None:
        """How sure an observer who was undecided is at least after seeing the witness, and how sure the claim allows.

        None where no privacy loss is proved, and where the runs that count the witness also selected it.
        """
        if not self.epsilon_lower or not self.is_tested:
            return None
        witness = self.witness
        larger, smaller = (witness.probabilities[number - 1] for number in witness.direction)
        p, q = larger[1], smaller[2]  # limits that hold together with confidence 1 - alpha
        allowed = None if self.claim is None else float(self.claim.boundary(q))
        if self.delta == 0 and not self.is_curve and witness is self._strongest:  # the exact test is a little tighter
            p, q = math.exp(min(self.epsilon_lower, MAX_EXPONENT)), 1.0
        if self.epsilon is not None and self.delta == 0:
            return p / (p + q), 1 / (1 + math.exp(-self.epsilon))
        return (p / (p + q), None if allowed is None else allowed / (allowed + q)) if p > q else None

    @functools.cached_property
    def paper(self) -> Paper | None:
        """The numbers of the paper, which are not a guarantee (`Paper`); None without an answer."""
        if self.epsilon_critical is None:
            return None
        upper, part = None, self.cell_counts
        if self.sequence is None:
            upper = eta_upper_bound(np.append(part.c1, part.c2), part.runs, self.alpha)
        estimated = 1.0 if upper is None else upper
        eta = estimated if self.selection_eta is None else self.selection_eta
        both = None if self.epsilon is None else paper_p_values(self.witness, self.settings, self.epsilon)
        lambda_ = paper_lambda(self.settings.beta, eta, self.epsilon_critical)
        return Paper(both, eta, lambda_, upper, averaged=self.settings.test == "averaged")

    @functools.cached_property
    def next_step(self) -> str:
        """What to do next."""
        return next_step(self)

    @property
    def is_curve(self) -> bool:
        """Whether the claim is a curve: it bounds a parameter of its own (mu, rho), and not epsilon at one delta."""
        return self.claim is not None and self.epsilon is None

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted. False if there is no claim or no answer."""
        return self.verdict is Verdict.REFUTED

    @property
    def on_partition(self) -> CellBounds | None:
        """Upper bounds over unions of the cells, from `cell_counts`; None without an answer."""
        return None if self.voiding else self.cell_counts

    @property
    def certificate(self) -> Certificate | None:
        """Upper bounds over all events, under its `assumption`; None without an answer or a stated density."""
        return None if self.voiding else self.certificate_counts

    @functools.cached_property
    def holds_on_cells(self) -> bool:
        """Whether the upper bounds show that no union of the cells violates the claim. Other events are not bounded."""
        return self.claim is not None and self.on_partition is not None and self.on_partition.meets_claim(self.claim)

    @property
    def is_tested(self) -> bool:
        """Whether the witness was fixed before the runs that count it. False if the verification stopped early."""
        return self.sequence is None or self.sequence.exact_runs > 0

    @property
    def stopped(self) -> StoppedBy | None:
        """Why a verification with `stop_early` ended: "refuted", "certified" or "budget"; None without `stop_early`."""
        return None if self.sequence is None else self.sequence.stopped

    @property
    def runs_used(self) -> int | None:
        """All runs per dataset of a verification with `stop_early`; None without `stop_early`."""
        return None if self.sequence is None else self.sequence.runs_used

    @property
    def e_value(self) -> float | None:
        """The wealth against the claim when the verification ended; None without an answer or without `stop_early`."""
        if self.sequence is None or self.claim is None or self.voiding:
            return None
        return math.exp(min(float(self.sequence.log_wealth(self.claim)[-1]), MAX_EXPONENT))

    @property
    def voiding(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that void the test. If there are any, the verdict is `NO_ANSWER`."""
        return tuple(diagnostic for diagnostic in self.diagnostics if diagnostic.voids)

    @property
    def notes(self) -> tuple[str, ...]:
        """All sentences for the reader: diagnostics, remarks, notes of the run, and the next step as the last one."""
        findings = (diagnostic.value for diagnostic in self.diagnostics)
        return *findings, *self.remarks, *self.provenance.get("notes", ()), self.next_step

    @property
    def cells(self) -> dict[str, list[int]]:
        """Distinct pairs of cell counts "c1" and "c2" in the test runs, and the "number" of cells with each pair."""
        part = self.cell_counts
        return {"c1": part.c1.tolist(), "c2": part.c2.tolist(), "number": part.number.tolist()}

    @functools.cached_property
    def profile(self) -> dict[str, np.ndarray] | None:
        """Columns "eps", "delta_lower" and "delta_upper" (over the cells); each bound holds as a whole curve.

        None without an answer.
        """
        if self.voiding:
            return None
        lower = self.delta_lower_curve(PROFILE_EPSILONS)
        upper = self.cell_counts.curve(PROFILE_EPSILONS)
        return {"eps": PROFILE_EPSILONS.copy(), "delta_lower": lower, "delta_upper": upper}

    def delta_lower_curve(self, epsilons: np.ndarray) -> np.ndarray:
        """Return lower bounds on delta that hold at all given epsilons together, with confidence 1 - alpha."""
        if self.voiding or (self.delta_events is None and not self.is_tested):
            return np.zeros(epsilons.size)
        if self.delta_events is not None:
            return self.delta_events.curve(epsilons, self.alpha)
        return np.max([one.delta_lower_curve(epsilons) for one in self.tested], axis=0)

    def delta_lower(self, epsilon: float) -> float | None:
        """Return a lower bound on delta at this epsilon, from events that were chosen for it, or from all bets.

        Each value holds with confidence 1 - alpha on its own. `profile` has a curve that holds as a whole. None without
        an answer.
        """
        sequence = self.sequence
        if self.voiding:
            return None
        if self.delta_events is not None:
            return self.delta_events.lower(epsilon, self.alpha)
        tested = self.tested if self.is_tested else ()
        bounds = [delta_lower_bound(*one.ordered, one.runs, epsilon, one.share * self.level) for one in tested]
        lower = max(bounds, default=0.0)
        return lower if sequence is None else max(lower, sequence.delta_lower(epsilon, self.alpha))

    def against(self, epsilon: object, delta: float = 0.0) -> Report:
        """Return the report of another claim on the same counts, without new runs.

        This is valid because the event was fixed before the test runs. At one delta, the results hold for all epsilons
        together. For a delta that is chosen after looking at the counts, use `profile`.

        Parameters
        ----------
        epsilon : float, claim or None
            The claimed epsilon; or a claim of `dpverify.claims`, an accountant's privacy profile, or a function of
            epsilon; None states no claim.
        delta : float, default 0.0
            The claimed delta. It is 0 unless it is given, whatever the delta of this report is.
        """
        if epsilon is None or is_real_number(epsilon):
            claim, delta = resolve_claim(epsilon, delta)
        else:
            claim, delta = resolve_claim(None, delta, epsilon)
        return dataclasses.replace(self, claim=claim, delta=float(delta))

    def attribution(self) -> tuple[Attribution, ...]:
        """Return where the mechanism leaks: a lower bound on epsilon for each number of the output alone, at `delta`.

        All bounds hold together with confidence 1 - alpha. They come from the first test runs, so they are less tight
        than `epsilon_lower`. Empty without an answer, if an output is a single number or has more than 512, and if
        the verification could stop early.

        Examples
        --------
        >>> import dpverify as dpv
        >>> def two_counts(data, runs, rng):
        ...     return data + rng.laplace(size=(runs, 2))
        >>> first, second = [0.0, 0.0], [0.0, 1.0]
        >>> report = dpv.verify(two_counts, first, second, select_runs=1000, test_runs=20_000)
        >>> [(one.name, one.epsilon_lower > 0.5) for one in report.attribution()]
        [('x[0]', False), ('x[1]', True)]
        """
        stored = self.picture.get("coordinates")
        return () if self.voiding or stored is None else attribute(stored, self.delta, self.alpha)

    def row(self) -> dict[str, str | int | float | None]:
        """Return the report as one flat row of a table.

        "diagnostic" is the name of the first voiding diagnostic, or None. With one, the row has no result.
        """
        part, paper, error = self.on_partition, self.paper, None if self.voiding else self.error
        first, second = error or ((None, None), (None, None))
        counts = (None, None) if self.voiding else self.witness.counts
        return {
            "name": self.name,
            "verdict": self.verdict.name,
            "diagnostic": self.voiding[0].name if self.voiding else None,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "claim": None if self.claim is None else self.claim.describe(),
            "claim_parameter": None if self.claim is None else self.claim.parameter_name,
            "claim_lower": self.claim_lower,
            "alpha": self.alpha,
            "p_value": self.p_value,
            "epsilon_lower": self.epsilon_lower,
            "epsilon_critical": self.epsilon_critical,
            "epsilon_detectable": self.epsilon_detectable,
            "epsilon_upper_on_partition": None if part is None else part.epsilon_upper(self.delta),
            "holds_on_cells": self.holds_on_cells,
            "cells": None if part is None else part.cells,
            "region_mass": None if part is None else part.region_mass,
            "witness": None if self.voiding else self.witness.text,
            "witness_cell": None if self.voiding else self.witness.cell,
            "c1": counts[0],
            "c2": counts[1],
            "test_runs": self.witness.runs,
            "eta": None if paper is None else paper.eta,
            "lambda": None if paper is None else paper.lambda_,
            "error_first": first[0],
            "error_first_se": first[1],
            "error_second": second[0],
            "error_second_se": second[1],
            "seed": self.settings.seed,
            "digest": self.digest,
        }

    def __str__(self) -> str:
        """Return the report as plain text."""
        return report_text(self)

    def __repr__(self) -> str:
        """Return name, verdict and lower bound; there is no bound without an answer."""
        bound = "" if self.epsilon_lower is None else f", epsilon >= {format_lower(self.epsilon_lower)}"
        return f"<Report {self.name}: {self.verdict.name}{bound}>"

    def to_json(self, path: str | Path | TextIO) -> None:
        """Write the report as JSON.

        Parameters
        ----------
        path : str, Path or text stream
            The file, or a stream that is open for text.

        Raises
        ------
        InputError
            If the file cannot be written. The exception is an OSError, too.
        """
        json.write(self, {**self.row(), "profile": self.profile, "notes": self.notes}, path)

    def to_html(self, path: str | Path) -> None:
        """Write the report as one self-contained HTML page with figures (needs `dpverify[report]`).

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        InputError
            If the file cannot be written. The exception is an OSError, too.
        """
        load_pages().report_page(self).to_html(path)

    def plot(self, kind: str = "outputs") -> Figure:
        """Return a figure of the report (needs `dpverify[report]`); its method `savefig` writes PNG, SVG or PDF.

        Parameters
        ----------
        kind : str
            "outputs" draws runs of both datasets and the witness. "delta" draws the bounds of delta against epsilon.
            "p-value" draws the p-value against the claimed epsilon. "errors" draws type I and type II errors of events
            beside the claim.

        Returns
        -------
        matplotlib.figure.Figure
            The figure. In a notebook it is shown if it is the value of a cell.
        """
        figure: Figure = load_pages().pages.plot(self, kind)
        return figure

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the columns of `row` as one row."""
        return [self.row()]

    def page_html(self) -> str:
        """Return the page as HTML (needs `dpverify[report]`)."""
        text: str = load_pages().report_page(self).html()
        return text

    @classmethod
    def from_json(cls, path: str | Path) -> Report:
        """Read a report that `to_json` wrote.

        The file contains data only, and reading it runs no code from it. Unknown keys are ignored.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        InputError
            If the file is missing or damaged, or if a newer version of dpverify wrote it.
        """
        return json.read(cls, path, KINDS, json.check_report)


def load_pages() -> Any:
    """Return the package that draws figures and pages. It needs matplotlib and MarkupSafe: it is imported when used."""
    try:
        importlib.import_module("dpverify.render.pages")
        return importlib.import_module("dpverify.render")
    except ImportError as problem:
        raise InputError(f"a page: {problem}; expected matplotlib and MarkupSafe; {how_to_install('report')}") from None


def divide_p_value(p_value: float, share: float, level: float) -> float:
    """Return a p-value divided by a share of the level; the result is at most the level only if the event rejects."""
    if p_value <= share * level:
        return min(p_value / share, level)
    return min(1.0, max(p_value / share, math.nextafter(level, 1.0)))


def paper_p_values(witness: Witness, settings: Settings, epsilon: float) -> tuple[float, float]:
    """Return the paper's two p-values; their random stream depends on the seed only, so that they are reproducible."""
    rng = None if settings.test == "averaged" else _generator(settings, THINNING_KEY)
    first, second = p_values(*witness.counts, witness.runs, epsilon, rng)
    return float(first), float(second)


def _generator(settings: Settings, key: int) -> np.random.Generator:
    """Return the generator of one random quantity of the paper's test."""
    return np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(key,)))


# What a file may contain.
KINDS = (*nested_kinds(Report), *EVENT_KINDS, *CLAIM_KINDS, Diagnostic, Relation, StoppedBy)
