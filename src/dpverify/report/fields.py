"""The stored fields of a report, and what follows from them without text, JSON or figures.

The modules that write a report as text, as JSON or as a page take these fields. `Report` adds the methods that users
call, so it can import those modules.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.statements import OnAllEvents, OnPartition, Paper, Verdict, Witness
from dpverify.settings import Settings
from dpverify.stats.claim_kinds import Claim
from dpverify.stats.lower_bound import delta_lower_bound
from dpverify.stats.profile import PROFILE_EPSILONS


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
    claim: Claim | None = None
    claim_lower: float | None = None

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted. False if there is no claim or no answer."""
        return self.verdict is Verdict.REFUTED

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
        lower = self.witness.delta_lower_curve(PROFILE_EPSILONS)
        upper = self.on_partition.curve(PROFILE_EPSILONS)
        return {"eps": PROFILE_EPSILONS.copy(), "delta_lower": lower, "delta_upper": upper}

    def delta_lower(self, epsilon: float) -> float:
        """Return a lower bound on delta at this epsilon, from the counts of the witness.

        Each value holds with confidence 1 - alpha on its own. `profile` has a curve that holds as a whole.
        """
        return delta_lower_bound(*self.witness.ordered, self.witness.runs, epsilon, self.alpha)
