"""What a verification found: numbers, the sentences that may be said of them, and JSON.

A report has two parts. The result is a function of mechanism, pair and settings; the run (seconds, versions, device,
workers) stands outside equality and outside the digest.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpverify import serial
from dpverify.buehler import claim_p_value, delta_lower_bound, epsilon_lower_bound
from dpverify.errors import InputError
from dpverify.exact import (
    check_delta,
    check_epsilon,
    critical_epsilon,
    delta_upper_bound,
    epsilon_upper_bound,
    lower_limit,
    p_values,
    paper_lambda,
    upper_limit,
)
from dpverify.partition import Partition
from dpverify.selection import Event
from dpverify.settings import Settings
from dpverify.words import cell_number, describe, figure, percent

SCHEMA = 1
THINNING, SWEEP = 100, 101  # spawn keys of the paper's random p-values, apart from those of the stages


class Verdict(enum.Enum):
    """The value is the sentence that is printed."""

    REFUTED = "the claim is false: an event was found that breaks it"
    BOUNDED = "no union of this partition's cells breaks the claim; other events are not bounded"
    NOT_REFUTED = "no event was found that breaks the claim, which does not prove that it holds"
    MEASURED = "no claim was made; this is what was measured"


@dataclass(frozen=True)
class Witness:
    """The frozen event and how often each data set fell into it in the test runs."""

    event: Event
    counts: tuple[int, int]
    runs: int
    alpha: float
    text: str
    shape: tuple[int, int]  # steps and dimensions of one output

    @property
    def direction(self) -> tuple[int, int]:
        """(i, j): tested was whether P_i <= e^eps P_j + delta, with the first data set 1 and the second 2."""
        return (1, 2) if self.event.direction == 0 else (2, 1)

    @property
    def ordered(self) -> tuple[int, int]:
        """The counts, that of the exceeding side first."""
        return self.counts if self.event.direction == 0 else self.counts[::-1]

    @property
    def probabilities(self) -> tuple[tuple[float, float, float], ...]:
        """For each side the share of its runs, and two-sided Clopper-Pearson limits at 1 - alpha."""
        a = self.alpha / 2
        return tuple(
            (c / self.runs, float(lower_limit(c, self.runs, a)), float(upper_limit(c, self.runs, a))) for c in self.counts
        )

    @property
    def cell(self) -> int | None:
        """The code of the cell, where the event is a single one of a given partition."""
        single = self.event.codes.size == 1 and isinstance(self.event.partition, Partition)
        return int(self.event.codes[0]) if single else None

    @property
    def step(self) -> int | None:
        """The only step that the event looks at; None where it looks at several."""
        return 0 if self.shape[0] == 1 else None

    def contains(self, samples: Any) -> np.ndarray:
        """Which runs of (runs,), (runs, d) or (runs, K, d) fall into the event."""
        samples, (steps, dimension) = np.asarray(samples, float), self.shape
        if samples.size % (steps * dimension) or (samples.ndim > 1 and samples.shape[-1] != dimension):
            raise InputError(f"samples: found shape {samples.shape}; expected runs of {steps} steps in {dimension} dimensions")
        return self.event.contains(samples.reshape(-1, steps, dimension))


@dataclass(frozen=True)
class OnPartition:
    """What is bounded over unions of the partition's cells, and over nothing else."""

    c1: np.ndarray  # distinct pairs of counts,
    c2: np.ndarray
    number: np.ndarray  # and how many cells have them
    runs: int
    alpha: float
    cells: int
    region_mass: float

    @functools.cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        return np.repeat(self.c1, self.number), np.repeat(self.c2, self.number)

    def delta_upper(self, epsilon: float) -> float:
        """No union of the cells breaks (epsilon, this), in either order; this one value at 1 - alpha."""
        c1, c2 = self._columns
        return max(delta_upper_bound(a, b, self.runs, epsilon, self.alpha) for a, b in ((c1, c2), (c2, c1)))

    def epsilon_upper(self, delta: float = 0.0) -> float:
        """No union of the cells breaks (this, delta), in either order; this one value at 1 - alpha."""
        c1, c2 = self._columns
        if delta == 0 and c1.size < self.cells:  # a cell that no run hit may hold mass of one side alone
            return float("inf")
        return epsilon_upper_bound(c1, c2, self.runs, delta, self.alpha)


@dataclass(frozen=True)
class Paper:
    """The paper's own numbers, shown as the paper's: lambda is not a certificate (docs/method.md, section 4.2)."""

    p_values: tuple[float, float] | None
    eta: float
    lambda_: float


@dataclass(frozen=True)
class Report:
    verdict: Verdict
    epsilon: float | None
    delta: float
    alpha: float
    epsilon_lower: float
    p_value: float | None
    epsilon_critical: float
    on_partition: OnPartition
    witness: Witness
    paper: Paper
    error: tuple[tuple[float, float], tuple[float, float]] | None
    picture: dict[str, Any]
    settings: Settings
    name: str
    seeded: bool
    notes: tuple[str, ...]
    run: dict[str, Any] = field(compare=False)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.digest == other.digest

    @property
    def refuted(self) -> bool:
        return self.verdict is Verdict.REFUTED

    @property
    def cells(self) -> dict[str, list[int]]:
        """Distinct pairs of counts in the test runs, and how many cells have them."""
        part = self.on_partition
        return {"c1": part.c1.tolist(), "c2": part.c2.tolist(), "number": part.number.tolist()}

    @functools.cached_property
    def digest(self) -> str:
        """A fingerprint of the result: the same for every executor, number of workers and order of blocks."""
        return hashlib.sha256(_dump(self._result()).encode()).hexdigest()

    def delta_lower(self, epsilon: float) -> float:
        """The same event read the other way: delta is at least this at the given epsilon; each value at 1 - alpha."""
        return delta_lower_bound(*self.witness.ordered, self.witness.runs, epsilon, self.alpha)

    def against(self, epsilon: float | None, delta: float = 0.0) -> Report:
        """Another claim on the same counts: the event was frozen before the test runs, so no new runs are owed."""
        return dataclasses.replace(
            self, **answers(self.witness, self.on_partition, self.paper.eta, self.settings, epsilon, delta)
        )

    def row(self) -> dict[str, Any]:
        """One line of a table."""
        return {
            "name": self.name,
            "verdict": self.verdict.name,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "alpha": self.alpha,
            "p_value": self.p_value,
            "epsilon_lower": self.epsilon_lower,
            "epsilon_critical": self.epsilon_critical,
            "epsilon_upper_on_partition": self.on_partition.epsilon_upper(self.delta),
            "cells": self.on_partition.cells,
            "region_mass": self.on_partition.region_mass,
            "witness": self.witness.text,
            "c1": self.witness.counts[0],
            "c2": self.witness.counts[1],
            "test_runs": self.witness.runs,
            "eta": self.paper.eta,
            "lambda": self.paper.lambda_,
            "error_first": self.error[0][0] if self.error else None,
            "error_second": self.error[1][0] if self.error else None,
            "seed": self.settings.seed,
            "digest": self.digest,
        }

    def __str__(self) -> str:
        part, (p1, p2) = self.on_partition, self.witness.probabilities
        sure = f"confidence {percent(1 - self.alpha)}"
        at = f" at delta {figure(self.delta)}"
        upper = part.epsilon_upper(self.delta)
        lines = [f"{self.name}: {self.verdict.name.replace('_', ' ')}", f"  {self.verdict.value}"]
        if self.epsilon is not None:
            claim = f"epsilon {figure(self.epsilon)}, delta {figure(self.delta)}"
            lines.append(f"  claimed   {claim}; p-value {self.p_value:.3g} (refuted at {figure(self.alpha)} or less)")
        proved = f"epsilon >= {figure(self.epsilon_lower)}{at}" if self.epsilon_lower > 0 else "nothing"
        lines.append(f"  proved    {proved}; over all events, for this pair, {sure}")
        bounded = f"epsilon <= {figure(upper)}{at}" if upper < float("inf") else f"no finite epsilon{at}"
        lines.append(f"  bounded   {bounded}; over unions of {cell_number(part.cells)} cells only, {sure}")
        lines.append(f"  witness   {self.witness.text}")
        lines.append(f"            {percent(p1[0])} of runs with the first data set, {percent(p2[0])} with the second")
        if self.error is not None:
            (e1, s1), (e2, s2) = self.error
            lines.append(
                f"  error     {figure(e1)} (standard error {figure(s1)}) first, {figure(e2)} ({figure(s2)}) second"
            )
        paper = f"  paper's   critical epsilon {figure(self.epsilon_critical)}, eta <= {figure(self.paper.eta)}"
        lines.append(f"{paper}, lambda {figure(self.paper.lambda_)} (not a certificate)")
        lines += [f"  note      {note}" for note in self.notes]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Report {self.name}: {self.verdict.name}, epsilon >= {figure(self.epsilon_lower)}>"

    def _result(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "run"}
        return {name: serial.to_plain(value) for name, value in values.items()}

    def to_json(self, path: str | Path) -> None:
        document = {"schema": SCHEMA, "result": self._result(), "run": serial.to_plain(self.run)}
        Path(path).write_text(_dump(document) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | Path) -> Report:
        """A report as it was; data only, no code. Unknown keys are ignored, a newer schema is refused."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            schema = document["schema"]
            if not isinstance(schema, int):
                raise TypeError("schema is no whole number")
        except OSError as problem:
            raise InputError(f"{path}: {problem.strerror}; expected a report written by to_json") from None
        except (ValueError, KeyError, TypeError) as problem:
            raise InputError(f"{path}: not a report ({problem}); expected JSON written by to_json") from None
        if schema > SCHEMA:
            raise InputError(f"{path}: found schema {schema}, expected at most {SCHEMA}; update dpverify to read it")
        try:
            result, run = document["result"], document["run"]
            names = [f.name for f in dataclasses.fields(cls) if f.name != "run"]
            values = {name: serial.from_plain(result[name], KINDS) for name in names}
            return cls(**values, run=serial.from_plain(run, KINDS))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
            raise InputError(f"{path}: a damaged report ({type(problem).__name__}: {problem}); write it anew") from None


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


KINDS = (*serial.kinds_of(Event), Witness, OnPartition, Paper, Settings, Verdict)


def answers(
    witness: Witness, part: OnPartition, eta: float, settings: Settings, epsilon: float | None, delta: float
) -> dict[str, Any]:
    """Everything that depends on the claim, from the frozen event's counts."""
    check_claim(settings, epsilon, delta)
    lower = epsilon_lower_bound(*witness.ordered, witness.runs, delta, settings.alpha)
    critical, p_value, thinned = lower, None, None
    if epsilon is not None:
        p_value = claim_p_value(*witness.ordered, witness.runs, epsilon, delta, settings.alpha)
        rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(THINNING,)))
        thinned = tuple(float(p) for p in p_values(*witness.counts, witness.runs, epsilon, rng))
    if settings.test == "thinned":
        rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(SWEEP,)))
        critical = critical_epsilon(*witness.counts, witness.runs, settings.alpha, rng)
        p_value = min(thinned) if thinned else None
    if epsilon is None or p_value is None:
        verdict = Verdict.MEASURED
    elif p_value <= settings.alpha:
        verdict = Verdict.REFUTED
    elif part.epsilon_upper(delta) <= epsilon:
        verdict = Verdict.BOUNDED
    else:
        verdict = Verdict.NOT_REFUTED
    return {
        "verdict": verdict,
        "epsilon": None if epsilon is None else float(epsilon),
        "delta": float(delta),
        "epsilon_lower": lower,
        "p_value": p_value,
        "epsilon_critical": critical,
        "paper": Paper(thinned, eta, paper_lambda(settings.beta, eta, critical)),  # type: ignore[arg-type]
    }


def check_claim(settings: Settings, epsilon: float | None, delta: float) -> None:
    if epsilon is not None:
        check_epsilon(epsilon)
    check_delta(delta)
    if settings.test == "thinned" and delta > 0:
        raise InputError(f'delta: found {delta} with test="thinned"; the paper\'s test knows delta 0 only; use test="exact"')


def make_witness(event: Event, counts: tuple[int, int], runs: int, alpha: float, examples: np.ndarray) -> Witness:
    return Witness(event, counts, runs, alpha, describe(event, examples), examples.shape[1:])
