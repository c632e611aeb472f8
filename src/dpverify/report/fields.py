"""The stored fields of a report, and what follows from them without text, JSON or figures.

The modules that write a report as text, as JSON or as a page take these fields. `Report` adds the methods that users
call, so it can import those modules.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpverify.mechanisms.data_difference import DataDifference
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.delta_bounds import DeltaEvents
from dpverify.report.sequence import Sequence, StoppedBy
from dpverify.report.statements import OnAllEvents, OnPartition, Paper, Verdict, Witness
from dpverify.settings import Settings
from dpverify.stats.claim_kinds import Claim
from dpverify.stats.lower_bound import delta_lower_bound
from dpverify.stats.profile import PROFILE_EPSILONS

MAX_EXPONENT = 700.0  # of an e-value in double precision


@dataclass(frozen=True)
class ReportFields:
    """The stored fields of a report. `Report` documents them."""

    verdict: Verdict
    epsilon: float | None
    delta: float
    alpha: float
    epsilon_lower: float
    p_value: float | None
    epsilon_critical: float
    epsilon_detectable: float
    on_partition: OnPartition
    on_all_events: OnAllEvents | None
    witness: Witness
    paper: Paper
    error: tuple[tuple[float, float], tuple[float, float]] | None
    picture: dict[str, Any]
    settings: Settings
    name: str
    seeded: bool
    diagnostics: tuple[Diagnostic, ...]
    remarks: tuple[str, ...]
    next_step: str
    run: dict[str, Any] = field(compare=False)
    data_difference: DataDifference | None = None
    claim: Claim | None = None
    claim_lower: float | None = None
    sequence: Sequence | None = None
    others: tuple[Witness, ...] = ()
    delta_events: DeltaEvents | None = None

    @property
    def tested(self) -> tuple[Witness, ...]:
        """All events that were frozen together: the witness and the others. Their shares of alpha add up to 1."""
        return self.witness, *self.others

    @property
    def is_curve(self) -> bool:
        """Whether the claim is a curve: it bounds a parameter of its own (mu, rho), and not epsilon at one delta."""
        return self.claim is not None and self.epsilon is None

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted. False if there is no claim or no answer."""
        return self.verdict is Verdict.REFUTED

    @property
    def is_tested(self) -> bool:
        """Whether the witness was fixed before the runs that count it. False if the verification stopped early."""
        return self.sequence is None or self.sequence.exact_runs > 0

    @property
    def stopped(self) -> StoppedBy | None:
        """Why a verification with `stop_early` ended: "refuted", "bounded" or "budget"; None without `stop_early`."""
        return None if self.sequence is None else self.sequence.stopped

    @property
    def runs_used(self) -> int | None:
        """All runs per data set of a verification with `stop_early`; None without `stop_early`."""
        return None if self.sequence is None else self.sequence.runs_used

    @property
    def e_value(self) -> float | None:
        """The wealth against the claim when the verification ended; None without `stop_early`."""
        if self.sequence is None or self.claim is None:
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
        return *findings, *self.remarks, *self.run.get("notes", ()), self.next_step

    @property
    def cells(self) -> dict[str, list[int]]:
        """Distinct pairs of cell counts "c1" and "c2" in the test runs, and the "number" of cells with each pair."""
        part = self.on_partition
        return {"c1": part.c1.tolist(), "c2": part.c2.tolist(), "number": part.number.tolist()}

    @functools.cached_property
    def profile(self) -> dict[str, np.ndarray]:
        """Columns "eps", "delta_lower" and "delta_upper" (on the partition); each bound holds as a whole curve."""
        lower = self.delta_lower_curve(PROFILE_EPSILONS)
        upper = self.on_partition.curve(PROFILE_EPSILONS)
        return {"eps": PROFILE_EPSILONS.copy(), "delta_lower": lower, "delta_upper": upper}

    def delta_lower_curve(self, epsilons: np.ndarray) -> np.ndarray:
        """Return lower bounds on delta that hold at all given epsilons together, with confidence 1 - alpha."""
        if self.delta_events is not None:
            return self.delta_events.curve(epsilons, self.alpha)
        if not self.is_tested:
            return np.zeros(epsilons.size)
        return np.max([one.delta_lower_curve(epsilons) for one in self.tested], axis=0)

    def delta_lower(self, epsilon: float) -> float:
        """Return a lower bound on delta at this epsilon, from events that were chosen for it, or from all bets.

        Each value holds with confidence 1 - alpha on its own. `profile` has a curve that holds as a whole.
        """
        sequence = self.sequence
        if self.delta_events is not None:
            return self.delta_events.lower(epsilon, self.alpha)
        level = self.alpha if sequence is None else sequence.exact_alpha(self.alpha)
        tested = self.tested if self.is_tested else ()
        bounds = [delta_lower_bound(*one.ordered, one.runs, epsilon, one.share * level) for one in tested]
        lower = max(bounds, default=0.0)
        return lower if sequence is None else max(lower, sequence.delta_lower(epsilon, self.alpha))
