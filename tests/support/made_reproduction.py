"""Made-up measurements, for the tests of the reproduction."""

import math

import numpy as np

from reproduction.fit import NumberFit, ReadingFit, ReadingResults, RowFit, Summary, Trend
from reproduction.measure import CurvePoint, SensorDraw
from reproduction.paper import BASE, CELL, CELLS, FINER, MECHANISMS, PLAN, finite_cells

SEEDS = 20


def make_draw(rng, loss=1.0, spread=0.3, laws=("gibbs", "gibbs-positions"), others=("perturbed", "ekf")):
    """Return a draw whose mechanisms have epsilon = c / error.

    `loss` is c of the other mechanisms divided by c of the W2-MHE. `spread` is the standard deviation of ln c between
    draws.
    """
    scale = math.exp(spread * rng.standard_normal())

    def curve(factor):
        c = 0.015 * scale * factor * math.exp(0.1 * rng.standard_normal())
        return [CurvePoint(0.6 - 10 * error, c / error, error) for error in (0.004, 0.008, 0.016)]

    names = [*laws, *others]
    curves = {name: curve(1.0 if name in laws else loss) for name in names}
    paper = {name: (1.0 + rng.random(), 0.004) for name in names}
    return SensorDraw(curves, paper, {law: curve(1.0) for law in laws}, 1000.0, 50.0 + rng.random())


def summary(median, spread=0.3):
    return Summary(median, median * (1 - spread), median * (1 + spread), SEEDS)


def make_row(cell, reading=BASE, shift=1.0):
    """Return a row whose numbers are the printed ones times `shift`; they are in range for a shift near 1."""
    printed = {"epsilon_c": cell.epsilon_c, "eta": cell.implied_eta, "error": cell.error}
    printed |= {"error_adjacent": cell.error_adjacent, "count": cell.count}
    if cell.error_is_fitted:
        printed["error"] = None
    numbers = {name: summary(shift * (value or 0.02)) for name, value in printed.items()}
    numbers["lambda"] = summary(shift * (cell.lambda_ or 0.1))
    fits = []
    for name, value in printed.items():
        if value is not None:
            inside = numbers[name].low <= value <= numbers[name].high
            fits.append(NumberFit(name, value, numbers[name], -1.0 if inside else -5.0, inside))
    return RowFit(cell.key, reading, cell.value or 0.99, numbers, tuple(fits), 0.75)


def make_readings(shift=1.0):
    """Return results in which Q3 is not explained, and the base reading is the best one."""

    def fit(mechanism, reading, varies, shift):
        cells = [cell for name in MECHANISMS for cell in finite_cells(name) if mechanism in (name, "all")]
        rows = [make_row(cell, reading, 3.0 if cell.setup == "Q3" else shift) for cell in cells]
        return ReadingFit(mechanism, reading, varies, tuple(rows))

    rankings = {name: [fit(name, BASE, "base", shift)] for name in MECHANISMS}
    rankings["W2-MHE"].append(fit("W2-MHE", BASE._replace(span="open"), "open window", 1.2))
    row = make_row(CELL["Q2, W2-MHE, s 0.8"])
    finer = {r: row._replace(fits=row.fits[:1]) for r in FINER}
    trends = [Trend("s 0.8, 0.7", (0.4, 0.1), -0.2, (-0.3, -0.1), 0.8), Trend("r 2, 4", (0.9, 2.0), 0.0, (-1, 1), 0.5)]
    return ReadingResults(rankings, fit("all", BASE, "base", shift), finer, trends)


def make_draws(number):
    """Return draws on which the W2-MHE does better."""
    rng = np.random.default_rng(0)
    return [make_draw(rng, 2.0, 1.0) for _ in range(number)]


OWN = [{"row": cell.key, "lower": 1.23456, "upper": math.inf, "error": 0.004, "sensor": None} for cell in CELLS]
OWN += [OWN[5] | {"sensor": sensor, "lower": 0.1 * sensor} for sensor in range(10)]
PAIRS = [{"epsilon": 0.39947, "pairs": 40, "passed": 13, "interval": [0.19, 0.49], "refuted": 40, "violating": 0.93}]
SHIFTS = [
    {"changes": changes, "error": [0.0] * 20, "error_adjacent": [0.01, 0.03] * 10, "ratio": [ratio] * 20}
    | {"distance": [1.5] * 20}
    for changes, ratio in zip(PLAN["shift"]["candidates"], (1.1, 3.0, *[1.1] * 10), strict=False)
]
