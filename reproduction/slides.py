"""What the figures on the first author's slides say, computed from the digitised figures in `printed.toml`."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

import dpverify as dpv
from reproduction import paper
from reproduction.measure import critical_epsilon
from reproduction.paper import BASE, CELL, CELLS, FINER, SLIDES, SWEEP

LARGEST_COUNT = 60  # of the counts that are compared with the drawn curve
END_TOLERANCE = 0.02  # counts whose p-value at the end of the sweep differs by more than this are not compared


class CurveFit(NamedTuple):
    """How well a pair of counts fits the drawn p-values: root mean square difference, end, and critical epsilon."""

    counts: tuple[int, int]
    rms: float
    end: float
    epsilon_c: float


def p_value_curve(counts: tuple[int, int]) -> np.ndarray:
    """Return the smaller p-value, averaged over all thinnings, at every point of the paper's sweep."""
    return np.array([min(dpv.p_values(*counts, BASE.test_runs, float(epsilon), None)) for epsilon in SWEEP])


def fit_curve(counts: tuple[int, int]) -> CurveFit:
    """Compare the averaged p-values of a pair of counts with the drawn curve."""
    values = p_value_curve(counts)
    rms = float(np.sqrt(np.mean((values - SLIDES["curve"]) ** 2)))
    return CurveFit(counts, rms, float(values[-1]), critical_epsilon(counts, BASE.test_runs, CELLS[0].sweep))


@functools.cache
def curve_fits() -> list[CurveFit]:
    """Return the counts of the authors, the next best pair, and the best pair with a second count of 0."""
    own, drawn = tuple(SLIDES["counts"]), SLIDES["curve"]
    grid = np.array([(a, b) for a in range(1, LARGEST_COUNT) for b in range(a)])
    ends = dpv.p_values(*grid.T, BASE.test_runs, float(SWEEP[-1]), None)[0]
    near = [tuple(map(int, pair)) for pair in grid[np.abs(ends - drawn[-1]) < END_TOLERANCE]]
    second = min((fit_curve(pair) for pair in near if pair != own), key=lambda fit: fit.rms)
    disjoint = min((fit_curve((c, 0)) for c in range(1, LARGEST_COUNT)), key=lambda fit: fit.rms)
    return [fit_curve(own), second, disjoint]


class DrawnErrors(NamedTuple):
    """The errors that an error plot shows: norm of the whole error, and root mean square over the steps."""

    place: str
    which: str
    printed: float
    norm: float
    rms: float


def drawn_errors() -> list[DrawnErrors]:
    """Return the errors that the positions in the error plots of slide 12 have, beside the printed ones."""
    rows = []
    for plot in SLIDES["plots"]:
        cell, steps = CELL[f"Q1, {paper.W2MHE}, s {plot['s']:g}"], len(plot["correct"])
        truth = plot.get("truth", plot["correct"])
        for which, printed in (("correct", cell.error), ("adjacent", cell.error_adjacent)):
            if plot[which] is not truth:
                norm = float(np.linalg.norm(np.subtract(plot[which], truth)))
                rows.append(DrawnErrors(plot["place"], which, printed, norm, norm / np.sqrt(steps)))
    return rows


def drawn_ratio() -> float:
    """Return the shift between the two estimates at the last step over that at the first, in Fig. 4."""
    plot = SLIDES["plots"][0]
    shifts = np.linalg.norm(np.subtract(plot["adjacent"], plot["correct"]), axis=1)
    return float(shifts[-1] / shifts[0])


def sweeps() -> dict[tuple[float, int], list[float]]:
    """Return the printed critical epsilons by the sweep on which they lie."""
    found: dict[tuple[float, int], list[float]] = {}
    for cell in CELLS:
        if np.isfinite(cell.epsilon_c):
            found.setdefault(tuple(cell.sweep), []).append(cell.epsilon_c)
    for grid in FINER.values():
        found.setdefault(tuple(grid.get("sweep", CELLS[0].sweep)), []).append(grid["epsilon_c"])
    return found
