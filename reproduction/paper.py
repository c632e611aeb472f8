"""What the paper prints, what it leaves open, and the printed numbers that follow from formulas."""

from __future__ import annotations

import functools
import itertools
import math
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dpverify as dpv
from dpverify.estimation import oscillator, theory

FOLDER = Path(__file__).parent
PRINTED: dict[str, Any] = tomllib.loads((FOLDER / "printed.toml").read_text(encoding="utf-8"))
TEXTS: dict[str, Any] = tomllib.loads((FOLDER / "texts.toml").read_text(encoding="utf-8"))
PLAN: dict[str, Any] = tomllib.loads((FOLDER / "plan.toml").read_text(encoding="utf-8"))
BETA: float = PRINTED["constants"]["beta"]
SWEEP = np.linspace(0.001, 1.5, 80)  # eight of the fourteen critical epsilons lie on it in every printed digit
SLIDES: dict[str, Any] = PRINTED["slides"]
SELECT_RUNS = 1000  # n: every eta that is solved from a printed lambda is a multiple of 1 / 1000
W2MHE, INPUT, EKF = "W2-MHE", "input perturbation", "private EKF"
MECHANISMS = (W2MHE, INPUT, EKF)


class PrintedCell(NamedTuple):
    """A set-up, a mechanism and its parameter, with the numbers that the paper prints for them.

    Attributes
    ----------
    place : str
        Where in the paper the numbers are printed, for instance "Fig. 5 left" or "Table I, row 2, input".
    setup, mechanism : str
        The sensors ("Q1", "Q2", "Q3"), and the mechanism by its name in the paper.
    parameter, value : str, float or None
        Symbol and value of the mechanism's parameter. The EKF's value is not printed.
    epsilon_c : float
        The critical epsilon; infinite where the paper rejects every epsilon.
    assumed : str or None
        What the paper leaves open and the reproduction had to choose.
    error, error_adjacent : float or None
        Errors of the estimates under the first and under the second dataset.
    eta, lambda_ : float or None
        The largest share of runs in a cell, and the paper's lambda.
    sweep : tuple of float and int
        End and number of points of the sweep on which the printed epsilon_c lies.
    slide : dict or None
        Another version of epsilon_c and lambda, on the authors' slides.
    count : int or None
        The smaller count of the tested event, where the slides show it.
    """

    place: str
    setup: str
    mechanism: str
    parameter: str
    epsilon_c: float
    value: float | None = None
    assumed: str | None = None
    error: float | None = None
    error_adjacent: float | None = None
    eta: float | None = None
    lambda_: float | None = None
    sweep: tuple[float, int] = (1.5, 80)
    slide: dict[str, float] | None = None
    count: int | None = None

    @property
    def key(self) -> str:
        """The name of the row, for instance "Q1, W2-MHE, s 0.8"."""
        return f"{self.setup}, {self.mechanism}, {self.parameter_text}"

    @property
    def parameter_text(self) -> str:
        """The parameter with its value, for instance "s 0.8"."""
        return self.parameter if self.value is None else f"{self.parameter} {self.value:g}"

    @property
    def implied_eta(self) -> float | None:
        """The printed eta, or the one from which the printed lambda follows."""
        if self.eta is not None or self.lambda_ is None:
            return self.eta
        return solve_eta(self.lambda_, self.epsilon_c)

    @property
    def error_is_fitted(self) -> bool:
        """Whether the printed error fixes the parameter, so that ours is no prediction: that of the EKF on Q1."""
        return self.mechanism == EKF and self.setup == "Q1"


def solve_eta(lambda_: float, epsilon_c: float) -> float:
    """Return the multiple of 0.001 from which a printed lambda follows."""
    return round((lambda_ - BETA) / (2 * math.exp(epsilon_c)) * SELECT_RUNS) / SELECT_RUNS


CELLS = tuple(PrintedCell(**{name.replace("lambda", "lambda_"): x for name, x in c.items()}) for c in PRINTED["cells"])
CELL = {cell.key: cell for cell in CELLS}
ALL_REJECTED = next(cell for cell in CELLS if math.isinf(cell.epsilon_c))  # the row s = 1
FINER: dict[int, dict[str, Any]] = {grid["r"]: grid for grid in PRINTED["finer"]}  # by the bins per axis


def sweep_step(sweep: Sequence[float]) -> float:
    """Return the step of a sweep from .001 to its end, given its end and its number of points."""
    return (sweep[0] - SWEEP[0]) / (sweep[1] - 1)


def finite_cells(mechanism: str) -> list[PrintedCell]:
    """Return the rows of one mechanism that have a finite critical epsilon."""
    return [cell for cell in CELLS if cell.mechanism == mechanism and math.isfinite(cell.epsilon_c)]


class Reading(NamedTuple):
    """One reading of the paper's experiment: a choice for everything that it does not print (see `plan.toml`)."""

    law: str
    states: str
    prior: str
    span: str
    cost: str
    tau: float
    angle: str
    recording: str
    covariance: str
    noise: str
    filter: str
    feedback: bool
    test_runs: int
    error_runs: int


BASE = Reading(**PLAN["base"])
ERROR_RUNS: tuple[int, ...] = tuple(PLAN["readings"]["error_runs"])


def describe(field: str, value: object) -> str:
    """Return a choice in words."""
    words = PLAN["choices"][field]
    text = f"{value:g}" if isinstance(value, float) else str(value).lower()
    return words.get(text) or f"{words['number']} {text}"


def difference(reading: Reading, base: Reading, mechanism: str | None = None, none: str = "base") -> str:
    """Return what distinguishes a reading from the base, in words; `none` if nothing does.

    With a mechanism, only the choices that the mechanism depends on.
    """
    fields = Reading._fields if mechanism is None else PLAN["readings"][mechanism]["fields"]
    changed = [name for name in fields if getattr(reading, name) != getattr(base, name)]
    return ", ".join(describe(name, getattr(reading, name)) for name in changed) or none


def all_readings(mechanism: str, quick: bool = False) -> list[Reading]:
    """Return the readings of one mechanism; `quick` leaves out most of them."""
    plan = PLAN["readings"][mechanism]
    tables = plan["quick"] if quick else plan["quick"] + plan["full"]
    return list(dict.fromkeys(reading for table in tables for reading in _expand(table)))


def _expand(table: dict[str, Any]) -> Iterator[Reading]:
    """Yield one reading for each value of the choices that have a list of values."""
    choices = [value if isinstance(value, list) else [value] for value in table.values()]
    for values in itertools.product(*choices):
        yield BASE._replace(**dict(zip(table, values, strict=True)))


class ComputedConstant(NamedTuple):
    """A number that the paper prints (with its decimals), the same computed by this library, and from what."""

    place: str
    formula: str
    printed: float
    ours: float
    digits: int

    @property
    def agrees(self) -> bool:
        """Whether the computed number rounds to the printed one."""
        return round(self.ours, self.digits) == round(self.printed, self.digits)


@functools.cache
def computed_constants() -> dict[str, ComputedConstant]:
    """Return the printed constants that can be computed: sizes, constants, the theorem, and each lambda."""
    printed, example = PRINTED["constants"], PRINTED["theory"]
    c_f = oscillator().lipschitz or math.nan
    lipschitz = theory.w2mhe_lipschitz(c_f, example["window"])
    steps = example["steps"] - example["window"] + 1
    sufficient = theory.w2mhe_epsilon(example["s"], lipschitz, c_f, example["diameter"], example["distance"], steps)
    gamma, last = dpv.scenario_size(2, BETA, printed["gamma"]), "section V, sufficient condition"
    rows = [
        ("Gamma", "Algorithm 3; section V", "Γ for β 0.05, γ 1e-9, two released positions", printed["Gamma"], gamma, 0),
        ("events", "section V", "cells: (2²)⁴ for T 8, N 5, r 2", printed["events"], 4**4, 0),
        ("c_f", last, "c_f = ‖A‖ of the oscillator with step 0.05", printed["c_f"], c_f, 4),
        ("l", last, "l = 2 (N + 1) 100 ‖A‖", printed["l"], lipschitz, 1),
        (
            "theory",
            last,
            "sufficient ε, by the formula that was reconstructed from this number",
            example["epsilon"],
            sufficient,
            1,
        ),
    ]
    for cell in CELLS:
        if cell.lambda_ is not None:
            eta, source = cell.implied_eta or math.nan, "solved back" if cell.eta is None else "printed"
            formula = f"λ = β + 2 η e^ε_c with η {eta:.3f} ({source}), ε_c {cell.epsilon_c:g}"
            ours = dpv.paper_lambda(BETA, eta, cell.epsilon_c)
            rows.append((f"lambda, {cell.key}", cell.place, formula, cell.lambda_, ours, 4))
    return {name: ComputedConstant(*rest) for name, *rest in rows}
