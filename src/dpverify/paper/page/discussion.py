"""The printed statements that cannot hold as printed, and why (docs/method.md, section 4)."""

from __future__ import annotations

import math

from dpverify.paper.printed import is_on_sweep, read_printed


def impossible_statements() -> list[tuple[str, str]]:
    """Return pairs: a printed statement, and why it cannot hold as printed."""
    finite = [value for value in read_printed().critical_epsilons if math.isfinite(value)]
    on_sweep = sum(is_on_sweep(value) for value in finite)
    return [
        (
            "Critical epsilons with five digits",
            f"{on_sweep} of the {len(finite)} values are points of one sweep, 80 points from .001 to 1.5. Their true "
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
            "λ between .07 and .16, “not significant”",
            "The paper says this of its four cases on Q1; later it restricts the method to small ε_c. 2 η e^ε bounds "
            "the slack of one cell. An event that intersects all cells adds up the slack of each. So λ is not a "
            "guarantee, however small it is. And λ = .8408 would guarantee almost nothing even if it were one.",
        ),
        (
            "Data sets at distance 10",
            "The angle d/(20√2) leaves out the radius of the circle and N of the steps. With this angle the data "
            "sets are 42 to 146 apart, depending on the sensor. Both are readings: the printed angle, and the angle "
            "at which the distance is 10. The printed E_adjacent fits the printed angle.",
        ),
        (
            "Noise on the data with covariance (1 − s̄)(I + (R + R′)/2)",
            "In the 20 dimensions of the data this matrix was positive semidefinite in none of 2000 draws, so no such "
            "Gaussian exists. For each sensor separately, in 2 dimensions, the matrix is always positive semidefinite. "
            "The readings have this one and four other ways to repair the matrix.",
        ),
        (
            "A set that holds .95 of the estimates",
            "Each ellipsoid holds .95 of the estimates of one step; over four steps only .80 is guaranteed. And they "
            "are computed from the first data set alone: estimates from the second may lie outside. Section III lists "
            "the complement as an event, but the experiment counts 256 events, the cells alone. The last column of the "
            "main table has the complement as an event.",
        ),
        (
            "A level of .05",
            "The smaller of two p-values is compared with .05: at ε = 0 the test rejects a private mechanism in .094 "
            "of cases.",
        ),
        (
            "η, the largest share of runs in a cell",
            "The largest of many noisy shares is too large on average (.0105 for 256 cells of .0039), and it is still "
            "not a bound. The table has the paper's η; the library's own is an upper confidence limit.",
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
