"""What a verification found: numbers, the sentences that may be said of them, and JSON.

A report has two parts. The result is a function of mechanism, pair and settings; the run (seconds, versions, device,
workers) stands outside equality and outside the digest.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import html
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from dpverify.errors import InputError
from dpverify.events.event import EVENT_KINDS
from dpverify.mechanisms.diagnostics import VOIDING_DIAGNOSTICS
from dpverify.report.statements import (
    OnAllEvents,
    OnPartition,
    Paper,
    Verdict,
    Witness,
    describe_shares,
    evaluate_claim,
    p_value_text,
    profile,
)
from dpverify.report.validation import check_consistent
from dpverify.settings import Settings
from dpverify.stats.lower_bound import delta_lower_bound
from dpverify.util import serialization as serial
from dpverify.util.formatting import (
    format_cell_count,
    format_lower,
    format_number,
    format_percent,
    format_upper,
    one_line,
    printable,
)

SCHEMA = 1


@dataclass(frozen=True)
class Report:
    """What the test runs say of one mechanism on one pair of data sets; docs/numbers.md tells every number at length.

    The claim is (`epsilon`, `delta`), tested at level `alpha`; without a claim `epsilon` and `p_value` are None.
    `epsilon_lower` is proved over all events: the mechanism is no more private than that. `on_partition` bounds
    from above what any union of its cells tells, and no more; `on_all_events` does so for every event, where the
    mechanism states a Lipschitz constant. `epsilon_critical` and `paper` are the paper's own numbers.
    `witness` is the frozen event with its counts, `epsilon_detectable` the true epsilon that these runs refute on it
    with probability .8, `error` the mean error of each side with its standard error. Equality is that of `digest`.
    """

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
    remarks: tuple[str, ...]
    next_step: str
    run: dict[str, Any] = field(compare=False)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.digest == other.digest

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the reader; the last says what to do next."""
        return *self.remarks, *self.run.get("notes", ()), self.next_step

    @property
    def doubts(self) -> tuple[str, ...]:
        """Those of the notes beside which no verdict is an answer: the mechanism or the pair is not fit for a test."""
        return tuple(remark for remark in self.remarks if remark in VOIDING_DIAGNOSTICS)

    @property
    def refuted(self) -> bool:
        """Whether the claim is disproved."""
        return self.verdict is Verdict.REFUTED

    @property
    def cells(self) -> dict[str, list[int]]:
        """Distinct pairs of counts in the test runs, and how many cells have them."""
        part = self.on_partition
        return {"c1": part.c1.tolist(), "c2": part.c2.tolist(), "number": part.number.tolist()}

    @functools.cached_property
    def profile(self) -> dict[str, np.ndarray]:
        """Columns eps, delta_lower and delta_upper (on the partition); each bound holds as a whole curve."""
        return profile(self.witness, self.on_partition)

    @functools.cached_property
    def digest(self) -> str:
        """A fingerprint of the result: the same for every executor, number of workers and order of blocks."""
        return hashlib.sha256(_dump(self._result()).encode()).hexdigest()

    def delta_lower(self, epsilon: float) -> float:
        """The same event read the other way: delta is at least this at the given epsilon; each value at 1 - alpha."""
        return delta_lower_bound(*self.witness.ordered, self.witness.runs, epsilon, self.alpha)

    def against(self, epsilon: float | None, delta: float = 0.0) -> Report:
        """Another claim on the same counts: the event was frozen before the test runs, so no new runs are owed.

        Delta is part of the claim and 0 unless given: `report.against(1.3, 0.01)`. At one delta that holds for all
        epsilons together; for a delta that is chosen after a look there is `profile`.
        """
        return dataclasses.replace(
            self, **evaluate_claim(self.witness, self.on_partition, self.paper.eta, self.settings, epsilon, delta)
        )

    def row(self) -> dict[str, Any]:
        """One line of a table."""
        first, second = self.error or ((None, None), (None, None))
        return {
            "name": self.name,
            "verdict": self.verdict.name,
            "doubt": next(iter(self.doubts), None),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "alpha": self.alpha,
            "p_value": self.p_value,
            "epsilon_lower": self.epsilon_lower,
            "epsilon_critical": self.epsilon_critical,
            "epsilon_detectable": self.epsilon_detectable,
            "epsilon_upper_on_partition": self.on_partition.epsilon_upper(self.delta),
            "cells": self.on_partition.cells,
            "region_mass": self.on_partition.region_mass,
            "witness": self.witness.text,
            "c1": self.witness.counts[0],
            "c2": self.witness.counts[1],
            "test_runs": self.witness.runs,
            "eta": self.paper.eta,
            "lambda": self.paper.lambda_,
            "error_first": first[0],
            "error_first_se": first[1],
            "error_second": second[0],
            "error_second_se": second[1],
            "seed": self.settings.seed,
            "digest": self.digest,
        }

    def __str__(self) -> str:
        part = self.on_partition
        sure = f"confidence {format_percent(1 - self.alpha)}"
        at = f" at delta {format_number(self.delta)}"
        upper = part.epsilon_upper(self.delta)
        lines = [f"{self.name}: {self.verdict.name.replace('_', ' ')}", f"  {self.verdict.value}"]
        if self.doubts:  # before anything that they make worthless
            lines = [f"{self.name}: NO ANSWER", *(f"  {doubt}" for doubt in self.doubts)]
            lines += ["  what follows is what the runs would say if that were not so"]
        if self.epsilon is not None:
            claim = f"epsilon {format_number(self.epsilon)}, delta {format_number(self.delta)}"
            found = p_value_text(self.p_value or 0.0, self.settings)
            level = f"refuted at {format_number(self.alpha)} or less"
            if self.settings.test == "thinned":
                level += (
                    f"; the smaller of two, so that a true claim is refuted in up to {format_percent(2 * self.alpha)}"
                )
            lines.append(f"  claimed   {claim}; p-value {found} ({level})")
        proved = f"epsilon >= {format_lower(self.epsilon_lower)}{at}; over all events, for this pair, {sure}"
        lines.append(f"  proved    {proved if self.epsilon_lower > 0 else f'nothing{at}'}")
        bounded = f"epsilon <= {format_upper(upper)}{at}" if upper < float("inf") else f"no finite epsilon{at}"
        lines.append(f"  bounded   {bounded}; over unions of {format_cell_count(part.cells)} cells only, {sure}")
        if self.on_all_events is not None:
            whole = self.on_all_events.epsilon_upper(self.delta)
            whole_text = f"epsilon <= {format_upper(whole)}{at}" if whole < float("inf") else f"no finite epsilon{at}"
            lines.append(f"  certified {whole_text}; over all events, if the stated Lipschitz constant holds, {sure}")
        lines.append(f"  witness   {self.witness.text}")
        lines.append(f"            {describe_shares(self.witness)}")
        if self.error is not None:
            (e1, s1), (e2, s2) = self.error
            lines.append(
                f"  error     {format_number(e1)} (standard error {format_number(s1)}) first, {format_number(e2)} ({format_number(s2)}) second"
            )
        paper = f"  paper's   critical epsilon {format_number(self.epsilon_critical)}, eta <= {format_upper(self.paper.eta)}"
        lines.append(f"{paper}, lambda {format_number(self.paper.lambda_)} (not a certificate)")
        lines += [f"  note      {remark}" for remark in self.remarks if remark not in self.doubts]
        lines.append(f"  next      {'mend that, and verify again' if self.doubts else self.next_step}")
        return "\n".join(printable(line) for line in lines)

    def __repr__(self) -> str:
        return f"<Report {self.name}: {self.verdict.name}, epsilon >= {format_lower(self.epsilon_lower)}>"

    def _result(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "run"}
        return {name: serial.to_plain(value) for name, value in values.items()}

    def to_json(self, path: str | Path | TextIO) -> None:
        """Into a file, or a stream that is open for text."""
        drawn = {"profile": serial.to_plain(self.profile), "notes": list(self.notes)}  # for readers other than us
        document = {"schema": SCHEMA, "result": {**self._result(), **drawn}, "run": serial.to_plain(self.run)}
        text = _dump(document) + "\n"
        if isinstance(path, (str, Path)):
            Path(path).write_text(text, encoding="utf-8")
        else:
            path.write(text)

    def to_html(self, path: str | Path) -> None:
        """One self-contained page: verdict, figures, a slider for epsilon (needs `dpverify[report]`)."""
        Path(path).write_text(load_page_renderer()(self), encoding="utf-8")

    def _repr_html_(self) -> str | None:
        """For notebooks: the page in a frame of its own; None, and so the text, where it can't be drawn."""
        try:
            page = load_page_renderer()(self)
        except InputError:
            return None
        return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 45rem; border: 0"></iframe>'

    @classmethod
    def from_json(cls, path: str | Path) -> Report:
        """A report as it was; data only, no code. Unknown keys are ignored, a newer schema is refused."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse)
            schema = document.get("schema") if isinstance(document, dict) else None
            if not isinstance(schema, int):
                raise TypeError("no schema, or none that is a whole number")
        except OSError as problem:
            raise InputError(f"{path}: {problem.strerror}; expected a report written by to_json") from None
        except Exception as problem:  # a damaged file can raise anything
            why = one_line(problem)
            raise InputError(f"{path}: not a report ({why}); expected JSON written by to_json") from None
        if schema > SCHEMA:
            raise InputError(f"{path}: found schema {schema}, expected at most {SCHEMA}; update dpverify to read it")
        try:
            result, run = document["result"], document["run"]
            names = [f.name for f in dataclasses.fields(cls) if f.name != "run"]
            fields = {"kind": cls.__name__, **{name: result[name] for name in names if name in result}, "run": run}
            report = serial.from_plain(fields, (cls, *KINDS))
            check_consistent(report)
            return report
        except Exception as problem:
            why = f"{type(problem).__name__}: {one_line(problem)}"
            raise InputError(f"{path}: a damaged report ({why}); write it anew") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def load_page_renderer() -> Callable[[Report], str]:
    """The page's own module, loaded when it is needed: the core does without matplotlib and Jinja2."""
    try:
        from dpverify.render.page import page
    except ImportError as problem:
        raise InputError(f"a page: {problem}; expected matplotlib and Jinja2; install dpverify[report]") from None
    return page


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


KINDS = (*EVENT_KINDS, Witness, OnPartition, OnAllEvents, Paper, Settings, Verdict)
