"""Everything that is said about two columns of counts, from the exact laws of the counts alone.

Clopper-Pearson limits and the paper's test (section IV, Algorithms 4 and 5). The lower bound for one frozen event and
the upper bounds over unions of cells have rooms of their own, `buehler` and `unions`.
`runs` is a number, or one a side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import hypergeom

from dpverify.errors import InputError
from dpverify.stats.binomial import upper_limit
from dpverify.stats.lower_bound import epsilon_lower_bound
from dpverify.util.checks import check_epsilon, check_level, runs_per_side

PAPER_EPSILON_SWEEP = np.linspace(
    0.001, 1.5, 80
)  # eight of the paper's fourteen critical values lie on it to every printed digit


# The paper's test.


def p_values(c1: Any, c2: Any, runs: Any, epsilon: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Algorithm 5's PVALUE, over any number of events: thin one side's count by e^-epsilon, then Fisher's exact test.

    The first is against p1 <= e^epsilon p2, the second against p2 <= e^epsilon p1.
    """
    check_epsilon(epsilon)
    m1, m2 = runs_per_side(runs)
    for c, m in ((c1, m1), (c2, m2)):
        if np.any(np.less(c, 0)) or np.any(np.greater(c, m)):
            raise InputError(f"counts: found {np.min(c)} to {np.max(c)}; expected 0 to {m}, at most one a run")
    keep = math.exp(-epsilon)
    thin1, thin2 = rng.binomial(c1, keep), rng.binomial(c2, keep)
    forward = hypergeom.sf(thin1 - 1, m1 + m2, m1, thin1 + c2)
    backward = hypergeom.sf(thin2 - 1, m1 + m2, m2, thin2 + c1)
    # A tail that starts at 0 is everything, to the last digit.
    return np.where(thin1 == 0, 1.0, forward)[()], np.where(thin2 == 0, 1.0, backward)[()]


def critical_epsilon(c1: Any, c2: Any, runs: Any, alpha: float = 0.05, rng: np.random.Generator | None = None) -> Any:
    """The smallest epsilon at which neither order is rejected, the counts held fixed.

    With `rng` it is the paper's sweep: epsilon climbs `SWEEP` (beyond its end by the same step), thinned anew at
    every point, so the answer is random. Without, it is deterministic: the larger of the two orders' exact bounds.
    """
    check_level("alpha", alpha)
    if rng is None:
        m1, m2 = runs_per_side(runs)
        forward = epsilon_lower_bound(c1, c2, (m1, m2), 0.0, alpha)
        return np.maximum(forward, epsilon_lower_bound(c2, c1, (m2, m1), 0.0, alpha))
    if np.ndim(c1) or np.ndim(c2):
        return np.vectorize(lambda a, b: critical_epsilon(a, b, runs, alpha, rng), otypes=[float])(c1, c2)
    step = PAPER_EPSILON_SWEEP[1] - PAPER_EPSILON_SWEEP[0]
    for i in range(100_000):
        epsilon = PAPER_EPSILON_SWEEP[i] if i < PAPER_EPSILON_SWEEP.size else PAPER_EPSILON_SWEEP[0] + i * step
        if min(p_values(c1, c2, runs, epsilon, rng)) > alpha:
            return float(epsilon)
    raise AssertionError("at epsilon 1900 nothing is left of a thinned count")


def paper_lambda(beta: float, eta: float, epsilon: float) -> float:
    """The paper's lambda, beta + 2 eta e^epsilon. Not a guarantee: docs/method.md, section 4.2."""
    return beta + 2 * eta * math.exp(epsilon)


def eta_upper_bound(counts: Any, runs: int, alpha: float = 0.05) -> float:
    """No cell is more likely than this. The likeliest cell is fixed, so its own limit needs no correction."""
    return float(upper_limit(np.max(counts, initial=0), runs, alpha))
