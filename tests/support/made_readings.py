"""Made-up measurements of the printed rows under a few readings, for the tests of the page."""

import math

import numpy as np

from dpverify.paper.printed import read_printed
from dpverify.paper.readings.results import (
    CeilingByRuns,
    FinerFit,
    NumberFit,
    Reading,
    ReadingFit,
    ReadingResults,
    RowFit,
    Summary,
)

SEEDS = 20


def summary(median, spread=0.3):
    return Summary(median, median * (1 - spread), median * (1 + spread), SEEDS)


def make_row(cell, reading, shift=1.0):
    """Return a row whose numbers are the printed ones times `shift`; they are in range for a shift near 1."""
    epsilon_c = 1.0 if math.isinf(cell.epsilon_c) else cell.epsilon_c
    printed = {"epsilon_c": epsilon_c, "error": cell.error, "error_adjacent": cell.error_adjacent}
    eta = cell.eta
    if eta is None and cell.lambda_ is not None:
        eta = (cell.lambda_ - 0.05) / (2 * math.exp(epsilon_c))
    printed |= {"eta": eta, "lambda": cell.lambda_}
    fits = []
    for name, value in printed.items():
        if value is not None and not (name == "epsilon_c" and math.isinf(cell.epsilon_c)):
            measured = summary(shift * value)
            inside = measured.low <= value <= measured.high
            log = None if name == "lambda" else (-1.0 if inside else -5.0)
            fits.append(NumberFit(name, value, measured, log, inside, 0.4 if inside else 0.01))
    rng = np.random.default_rng(3)
    infinite = Summary(math.inf, math.inf, math.inf, SEEDS)
    return RowFit(
        row=cell.key,
        reading=reading,
        parameter=0.99 if cell.value is None else cell.value,
        fitted=cell.assumed is not None,
        epsilon_c=infinite if math.isinf(cell.epsilon_c) else summary(shift * epsilon_c),
        eta=summary(shift * (eta or 0.02)),
        lambda_=summary(shift * (cell.lambda_ or 0.1)),
        error=summary(shift * (cell.error or 0.001), 0.02),
        error_adjacent=summary(shift * (cell.error_adjacent or 0.02), 0.02),
        ceiling=summary(1.02 * shift * epsilon_c),
        saturated_share=0.95 if cell.setup == "Q1" else 0.2,
        fits=tuple(fits),
        counts=tuple((int(c), 0) for c in rng.poisson(13, SEEDS)),
    )


def make_reading_results():
    """Return results in which Q3 is not explained, and the base reading is the best one."""
    cells = read_printed().cells

    def fit(mechanism, reading, varies, shift):
        rows = [
            make_row(cell, reading, 3.0 if cell.setup == "Q3" else shift)
            for cell in cells
            if mechanism in ("all", cell.mechanism)
        ]
        return ReadingFit(mechanism, reading, varies, tuple(rows))

    base = Reading()
    rankings = {
        "W2-MHE": (
            fit("W2-MHE", base, "base", 1.0),
            fit("W2-MHE", base._replace(support="growing"), "growing cube", 1.2),
            fit("W2-MHE", base._replace(law="gibbs"), "Gibbs distribution", 4.0),
        ),
        "input perturbation": (
            fit("input perturbation", base, "base", 1.0),
            fit("input perturbation", base._replace(noise="window", prior="start"), "noise anew, prior not carried", 2),
        ),
        "private EKF": (fit("private EKF", base._replace(filter="model"), "EKF trusts its model", 1.0),),
    }
    best = fit("all", base, "base", 1.0)
    w2mhe = [cell for cell in cells if cell.mechanism == "W2-MHE"]
    by_runs = {
        m: tuple(make_row(cell, base._replace(test_runs=m), m / 3000) for cell in w2mhe)
        for m in (1000, 2000, 3000, 5000, 10000)
    }
    ceilings = tuple(
        CeilingByRuns(m, summary(m / 5000), summary(0.0105), tuple(-2.0 - abs(m / 3000 - 1) for _ in range(4)))
        for m in by_runs
    )
    finer = tuple(
        FinerFit(grid.r, grid.epsilon_c, summary(0.5 * grid.r), summary(0.6 * grid.r), 0.6, None)
        for grid in read_printed().finer
    )
    complement = tuple(make_row(cell, base._replace(complement=True), 5.0) for cell in cells)
    return ReadingResults(rankings, best, complement, by_runs, ceilings, finer)
