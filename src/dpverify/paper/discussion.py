"""The texts of the page: why some printed numbers cannot hold (docs/method.md, section 4), and where ours differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpverify.paper.claims import interpolate
from dpverify.paper.comparison import CellComparison, Summary, summarise
from dpverify.paper.measurements import CalibratedNumbers, SensorDraw
from dpverify.paper.printed import is_calibration_cell, is_on_sweep, read_printed


def impossible_statements() -> list[tuple[str, str]]:
    """Return pairs: a printed statement, and why it cannot hold as printed."""
    finite = [value for value in read_printed().critical_epsilons if math.isfinite(value)]
    on_sweep = sum(is_on_sweep(value) for value in finite)
    return [
        (
            "Critical epsilons with five digits",
            f"{on_sweep} of the {len(finite)} values are points of one sweep, 80 steps from .001 to 1.5. Their true "
            "resolution is .019. Each step is also randomised, because the test thins a count at random. The same "
            "counts therefore give a different answer each time: 27 and 12 of 1000 give .08 to .21 (5 to 95%). Two "
            "single values cannot be compared; we print the median and the range over seeds.",
        ),
        (
            "“Differential privacy holds for ε ≥ ε_c”",
            "A test that does not reject proves nothing: with few enough runs, no claim is rejected. ε_c is closer to "
            "a lower bound of epsilon than to an upper one. The table also gives what is proved, and what is bounded "
            "on the cells only.",
        ),
        (
            "λ between .07 and .21, “not significant”",
            "2 η e^ε bounds the slack of one cell. An event that intersects all cells adds up the slack of each. So λ "
            "is not a guarantee, however small it is. And λ = .8408 would guarantee almost nothing even if it were "
            "one.",
        ),
        (
            "Data sets at distance 10",
            "The angle d/(20√2) leaves out the radius of the circle and N of the steps. With this angle the data sets "
            "are 42 to 146 apart, depending on the sensor. We turn the sensor until the distance is 10. So each of our "
            "pairs is closer together than the printed ones can have been, if that angle was used.",
        ),
        (
            "Noise on the data with covariance (1 − s̄)(I + (R + R′)/2)",
            "In the 20 dimensions of the data this matrix was positive semidefinite in none of 2000 draws, so no such "
            "Gaussian exists. For each sensor separately, in 2 dimensions, the matrix is always positive semidefinite; "
            "we draw that noise.",
        ),
        (
            "A set that holds .95 of the estimates",
            "Each ellipsoid holds .95 of the estimates of one step; over four steps only .80 is guaranteed. And they "
            "are computed from the first data set alone: estimates from the second may lie outside, so the complement "
            "has to be an event of the test.",
        ),
        (
            "A level of .05",
            "The smaller of two p-values is compared with .05: at ε = 0 the test rejects a private mechanism in .094 "
            "of cases.",
        ),
        (
            "η, the largest share of runs in a cell",
            "The largest of many noisy shares is too large on average (.0105 for 256 cells of .0039), and it is still "
            "not a bound. Ours is an upper confidence limit.",
        ),
        (
            "The worst event at every ε; similar p-values at a constant ratio",
            "The ranking of events can reverse as ε changes: (1300, 1000) and (30, 6) of 10 000 are an example. And "
            "(10, 20), (15, 30), (20, 40) of 1000 have p-values .048, .017 and .006 at ε = 0.",
        ),
        (
            "A critical epsilon for the private EKF",
            "Its noise is bounded and moves with the data: some estimates are possible under one data set and "
            "impossible under the other. No epsilon holds at δ = 0, whatever a test of some cells gives. The same is "
            "true of the blend distribution. For this reason the claims are judged at one δ > 0.",
        ),
        (
            "“r ≥ 5, much more computation”",
            "Only cells that contain runs need computation. Our table includes r = 5 and 6.",
        ),
    ]


def differences(
    cells: Sequence[CellComparison], draws: Sequence[SensorDraw], calibrated: CalibratedNumbers
) -> list[str]:
    """Return sentences about where the measured numbers differ from the printed ones, made from these numbers."""
    finite = [cell for cell in cells if math.isfinite(cell.printed.epsilon_c)]
    inside = sum(
        cell.measured.epsilon_c.low <= cell.printed.epsilon_c <= cell.measured.epsilon_c.high for cell in finite
    )
    ratio = np.median([cell.measured.epsilon_c.median / cell.printed.epsilon_c for cell in finite])
    error_ratios = [
        cell.measured.error.median / cell.printed.error
        for cell in cells
        if cell.printed.error is not None and not is_calibration_cell(cell.printed, cell.mechanism)
    ]
    target, needed = _variance_for_printed_error(draws)
    outside = np.mean([cell.measured.worst_outside for cell in finite])
    return [
        f"Critical epsilons: {inside} of {len(finite)} printed values lie in our 5 to 95% range. The median ratio of "
        f"ours to the printed ones is {ratio:.1f}. The sensors' angles, the mixtures of noise, n and m are not "
        "printed; more runs, or a sensor at a more exposed position, raise ε_c.",
        f"The worst event: in {outside:.0%} of our verifications it is R̄, an estimate outside the high-likely set. Few "
        "runs of the first data set and many runs of the second lie there. The paper lists R̄ in its partition. A test "
        "of the 256 cells inside alone would miss it and print a smaller ε_c; only then would a finer grid add much. "
        "Ours hardly changes from r 2 to r 6.",
        "λ: our η is an upper limit over all cells and both data sets, R̄ included, so λ is far above 1 where R̄ is "
        "likely under the second data set. This λ follows the paper's definition, and it is not a guarantee.",
        f"Errors: one of them fixes tau (Q1, s 0.8) and another one fixes ŝ (EKF, Q1). For the other "
        f"{len(error_ratios)}, the ratio of ours to the printed ones ranges from {min(error_ratios):.2g} to "
        f"{max(error_ratios):.2g}. The ratio between s 0.7 and s 0.8 is about 1.3 under the Gibbs distribution and "
        "1.47 under the blend distribution; 1.485 is printed. The blend distribution is closer there.",
        f"Table I prints an error of {target:g} for input perturbation on Q2. With our sensors that takes a noise "
        f"variance of {needed.median:.1f} (5 to 95% of draws: {needed.low:.1f} to {needed.high:.1f}), but 1 − s̄ is at "
        "most 1: the printed error does not occur within the stated range of s̄.",
        "Output against input perturbation: at the paper's values the two differ in privacy and in accuracy at once, "
        "so neither is better. The claims are judged where one of the two is equal.",
        f"The EKF's ŝ, {calibrated.s_hat:.4f} here, and its covariances are not printed; ours are the true ones of the "
        "system.",
    ]


def _variance_for_printed_error(draws: Sequence[SensorDraw]) -> tuple[float, Summary]:
    """Return the printed error of input perturbation on Q2, and the noise variance that gives it on the draws."""
    target = next(
        cell.error
        for cell in read_printed().cells
        if (cell.setup, cell.mechanism) == ("Q2", "input perturbation") and cell.error is not None
    )
    variances = []
    for draw in draws:
        curve = draw.curve("perturbed")
        variances.append(interpolate([p.error_first for p in curve], [1 - p.parameter for p in curve], target))
    return target, summarise(variances)
