"""Printed numbers that follow from formulas, computed again: sizes, constants, the theorem, and each lambda."""

from __future__ import annotations

import math
from typing import NamedTuple

from dpverify.estimation import theory
from dpverify.events.region import scenario_size
from dpverify.paper import experiment
from dpverify.paper.printed import read_printed
from dpverify.stats.paper_test import paper_lambda

ASSUMED_RUNS = 1000  # n: every eta that is solved from a printed lambda is a multiple of 1 / 1000


class ComputedConstant(NamedTuple):
    """A number that the paper prints, and the same number computed by this library.

    Attributes
    ----------
    place, formula : str
        Where the paper prints it, and from what it is computed.
    printed, ours : float
        The printed and the computed number.
    digits : int
        Printed decimals.
    """

    place: str
    formula: str
    printed: float
    ours: float
    digits: int

    @property
    def agrees(self) -> bool:
        """Whether the computed number rounds to the printed one."""
        return round(self.ours, self.digits) == round(self.printed, self.digits)


def computed_constants() -> dict[str, ComputedConstant]:
    """Return the printed constants that can be computed, with the computed values."""
    printed, example = read_printed().constants, read_printed().theory
    c_f = experiment.system("Q2").lipschitz or math.nan
    lipschitz = theory.w2mhe_lipschitz(c_f, example.window)
    steps = example.steps - example.window + 1
    sufficient = theory.w2mhe_epsilon(example.s, lipschitz, c_f, example.diameter, example.distance, steps)
    last = "section V, sufficient condition"
    constants = {
        "Gamma": ComputedConstant(
            "Algorithm 3; section V",
            "Γ for β 0.05, γ 1e-9, two released positions",
            printed.Gamma,
            scenario_size(2, printed.beta, printed.gamma),
            0,
        ),
        "events": ComputedConstant("section V", "cells: (2²)⁴ for T 8, N 5, r 2", printed.events, 4**4, 0),
        "c_f": ComputedConstant(last, "c_f = ‖A‖ of the oscillator with step 0.05", printed.c_f, c_f, 4),
        "l": ComputedConstant(last, "l = 2 (N + 1) 100 ‖A‖", printed.l, lipschitz, 1),
        "theory": ComputedConstant(
            last,
            "sufficient ε, by the formula that was reconstructed from this number",
            example.epsilon,
            sufficient,
            1,
        ),
    }
    for cell in read_printed().cells:
        if cell.lambda_ is not None:
            eta = solved_eta(cell.lambda_, cell.epsilon_c) if cell.eta is None else cell.eta
            rounded = round(eta * ASSUMED_RUNS) / ASSUMED_RUNS
            source = "printed" if cell.eta is not None else "solved back"
            constants[f"lambda, {cell.key}"] = ComputedConstant(
                cell.place,
                f"λ = β + 2 η e^ε_c with η {rounded:.3f} ({source}), ε_c {cell.epsilon_c:g}",
                cell.lambda_,
                paper_lambda(printed.beta, rounded, cell.epsilon_c),
                4,
            )
    return constants


def solved_eta(lambda_: float, epsilon_c: float) -> float:
    """Return the eta that a printed lambda and a printed critical epsilon imply."""
    return (lambda_ - read_printed().constants.beta) / (2 * math.exp(epsilon_c))


def eta_sentence() -> str:
    """Say what the solved values of eta imply for n."""
    constants = [value for name, value in computed_constants().items() if name.startswith("lambda, ")]
    agreeing = sum(constant.agrees for constant in constants)
    return (
        f"With η rounded to a multiple of 0.001, {agreeing} of the {len(constants)} printed λ come out in every digit. "
        "This is what n = 1000 selection runs give, although the paper does not print n."
    )
