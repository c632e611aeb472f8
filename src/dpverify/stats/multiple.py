"""Many claims at once: which of them are refuted, with a controlled number of errors (docs/method.md, section 5.7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpverify.stats.binomial import FloatArray
from dpverify.util.checks import check_array, check_probability


def benjamini_hochberg(p_values: ArrayLike, level: float) -> tuple[int, ...]:
    """Return the claims that are refuted with a false discovery rate of at most `level`.

    The false discovery rate is the expected share of true claims among the refuted ones. It is controlled for
    independent p-values: each claim is tested with its own runs.

    Parameters
    ----------
    p_values : array_like
        One p-value per claim.
    level : float
        The false discovery rate.

    Returns
    -------
    tuple of int
        The indices of the refuted claims, in increasing order.

    Examples
    --------
    >>> benjamini_hochberg([0.5, 0.01, 0.03, 0.9], 0.05)
    (1,)
    >>> benjamini_hochberg([0.02, 0.01, 0.03, 0.9], 0.05)
    (0, 1, 2)
    """
    check_probability("level", level)
    p = check_array("p_values", p_values, 0.0, 1.0, "p-values from 0 to 1").ravel()
    order = np.argsort(p, kind="stable")
    passed = np.flatnonzero(p[order] <= level * np.arange(1, p.size + 1) / max(p.size, 1))
    return tuple(sorted(order[: passed[-1] + 1].tolist())) if passed.size else ()


def e_benjamini_hochberg(e_values: ArrayLike, level: float) -> tuple[int, ...]:
    """Return the claims that are refuted with a false discovery rate of at most `level`, from e-values.

    The rate is controlled however the e-values depend on each other. An e-value must be the wealth at a stopping time,
    not its maximum over time.

    Parameters
    ----------
    e_values : array_like
        One e-value per claim, at least 0; infinity is allowed.
    level : float
        The false discovery rate.

    Returns
    -------
    tuple of int
        The indices of the refuted claims, in increasing order.

    Examples
    --------
    >>> e_benjamini_hochberg([0.5, 100.0, 30.0, 45.0], 0.05)
    (1, 2, 3)
    >>> e_benjamini_hochberg([0.5, 79.0, 30.0, 0.0], 0.05)
    ()
    """
    check_probability("level", level)
    e = check_array("e_values", e_values, 0.0, np.inf, "e-values from 0 up").ravel()
    order = np.argsort(-e, kind="stable")
    passed = np.flatnonzero(e[order] * np.arange(1, e.size + 1) >= e.size / level)
    return tuple(sorted(order[: passed[-1] + 1].tolist())) if passed.size else ()


def holm(p_values: ArrayLike) -> FloatArray:
    """Return the p-values adjusted by Holm's method.

    The claims whose adjusted p-value is at most alpha are refuted: with probability at least `1 - alpha` none of them
    is true, however the p-values depend on each other.

    Parameters
    ----------
    p_values : array_like
        One p-value per claim.

    Returns
    -------
    numpy.ndarray
        The adjusted p-values, in the same order.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = check_array("p_values", p_values, 0.0, 1.0, "p-values from 0 to 1").ravel()
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    return adjusted
