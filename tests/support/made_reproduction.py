"""Made-up measurements, for the tests of the reproduction."""

import math

import numpy as np

from reproduction.fit import FinerFit, NumberFit, ReadingFit, ReadingResults, RowFit, Summary
from reproduction.measure import CurvePoint, SensorDraw
from reproduction.paper import BASE, CELLS, FINER, MECHANISMS, PLAN, finite_cells

SEEDS = 20


def make_draw(rng, loss=1.0, spread=0.3, laws=("gibbs",)):
    """Return a draw whose mechanisms have epsilon = c / error.

    `loss` is c of the other mechanisms divided by c of the W2-MHE. `spread` is the standard deviation of ln c between
    draws.
    """
    scale = math.exp(spread * rng.standard_normal())

    def curve(factor):
        c = 0.015 * scale * factor * math.exp(0.1 * rng.standard_normal())
        return [CurvePoint(0.6 - 10 * error, c / error, error) for error in (0.004, 0.008, 0.016)]

    names = [*laws, "perturbed", "ekf"]
    curves = {name: curve(1.0 if name in laws else loss) for name in names}
    paper = {name: (1.0 + rng.random(), 0.004) for name in names}
    return SensorDraw(curves, paper, {law: curve(1.0) for law in laws}, 1000.0, 50.0 + rng.random())


def summary(median, spread=0.3):
    return Summary(median, median * (1 - spread), median * (1 + spread), SEEDS)


def make_row(cell, reading=BASE, shift=1.0):
    """Return a row whose numbers are the printed ones times `shift`; they are in range for a shift near 1."""
    finite = math.isfinite(cell.epsilon_c)
    numbers = {
        "epsilon_c": summary(shift * cell.epsilon_c) if finite else Summary(math.inf, math.inf, math.inf, SEEDS),
        "eta": summary(shift * (cell.implied_eta or 0.02)),
        "lambda": summary(shift * (cell.lambda_ or 0.1)),
        "error": summary(shift * (cell.error or 0.001), 0.02),
        "error_adjacent": summary(shift * (cell.error_adjacent or 0.02), 0.02),
        "ceiling": summary(1.02 * shift * (cell.epsilon_c if finite else 6.0)),
    }
    printed = {"epsilon_c": cell.epsilon_c if finite else None, "eta": cell.implied_eta, "lambda": cell.lambda_}
    printed |= {"error": cell.error, "error_adjacent": cell.error_adjacent}
    fits = []
    for name, value in printed.items():
        if value is not None:
            inside = numbers[name].low <= value <= numbers[name].high
            log = None if name == "lambda" else (-1.0 if inside else -5.0)
            independent = name != "lambda" and not (name == "error" and cell.error_is_fitted)
            fits.append(NumberFit(name, value, numbers[name], log, inside, 0.4 if inside else 0.01, independent))
    counts = tuple((int(c), 0) for c in np.random.default_rng(3).poisson(13, SEEDS))
    at_ceiling = 0.95 if cell.setup == "Q1" else 0.2
    return RowFit(cell.key, reading, cell.value or 0.99, numbers, at_ceiling, tuple(fits), counts)


def make_readings():
    """Return results in which Q3 is not explained, and the base reading is the best one."""

    def fit(mechanism, reading, varies, shift):
        cells = CELLS if mechanism == "all" else finite_cells(mechanism)
        rows = [make_row(cell, reading, 3.0 if cell.setup == "Q3" else shift) for cell in cells]
        return ReadingFit(mechanism, reading, varies, tuple(rows))

    rankings = {name: [fit(name, BASE, "base", 1.0)] for name in MECHANISMS}
    rankings["W2-MHE"].append(fit("W2-MHE", BASE._replace(support="growing"), "growing cube", 1.2))
    by_runs = {
        m: tuple(make_row(cell, BASE._replace(test_runs=m), m / 3000) for cell in finite_cells("W2-MHE"))
        for m in (1000, 3000)
    }
    finer = [FinerFit(r, printed, summary(0.5 * r), summary(0.6 * r), 0.6) for r, printed in FINER.items()]
    complement = {cell.key: make_row(cell, BASE._replace(complement=True), 5.0) for cell in CELLS}
    best = fit("all", BASE, "base", 1.0)
    return ReadingResults(rankings, best, complement, by_runs, {1000: summary(0.2), 3000: summary(0.6)}, finer)


def make_draws(number):
    """Return draws on which the W2-MHE does better."""
    rng = np.random.default_rng(0)
    return [make_draw(rng, 2.0, 1.0, ("gibbs", "blend")) for _ in range(number)]


def make_own():
    """Return results of the library's own test."""
    rows = []
    for setup in ("Q1", "Q2", "Q3"):
        wanted = [(t["mechanism"], t["law"], value, None) for t in PLAN["own"] for value in t["values"] or [0.993]]
        wanted += [("W2-MHE", "gibbs", 0.8, sensor) for sensor in range(10)]
        names = ("mechanism", "law", "value", "sensor")
        bounds = {"setup": setup, "lower": 1.23456, "upper": math.inf, "error": 0.004}
        rows += [dict(zip(names, one, strict=True)) | bounds for one in wanted]
    return rows


PAIRS = [
    {"angle": "paper", "epsilon": 0.39947, "pairs": 40, "passed": 13, "interval": [0.19, 0.49], "refuted": 40}
    | {"violating": 0.93}
]
