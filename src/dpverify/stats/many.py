"""Many claims at once: which of them are refuted, with a controlled number of errors (docs/method.md, section 5.7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

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


def holm(p_values: ArrayLike, level: float) -> tuple[int, ...]:
    """Return the claims that are refuted together, by Holm's method.

    With probability at least `1 - level` none of them is true, however the p-values depend on each other.

    Parameters
    ----------
    p_values : array_like
        One p-value per claim.
    level : float
        The probability that any refuted claim is true.

    Returns
    -------
    tuple of int
        The indices of the refuted claims, in increasing order.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.02], 0.05)
    (0, 1, 2)
    >>> holm([0.01, 0.04, 0.03], 0.05)
    (0,)
    """
    check_probability("level", level)
    p = check_array("p_values", p_values, 0.0, 1.0, "p-values from 0 to 1").ravel()
    order = np.argsort(p, kind="stable")
    kept = np.flatnonzero(p[order] * np.arange(p.size, 0, -1) > level)
    return tuple(sorted(order[: kept[0] if kept.size else p.size].tolist()))
