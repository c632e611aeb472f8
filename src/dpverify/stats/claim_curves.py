"""A claim as curves for figures: delta against epsilon, and type II error against type I error.

No statement depends on these curves.
"""

from __future__ import annotations

import numpy as np
import scipy

from dpverify.stats.binomial import FloatArray
from dpverify.stats.claim_kinds import Claim

QUANTILES = np.linspace(-8.0, 8.0, 1601)


def allowed_pairs(claim: Claim) -> tuple[FloatArray, FloatArray]:
    """Return probabilities q, and the largest probability that the claim allows with q in both orders.

    The claim also bounds the complement of an event with the data sets exchanged, which matters for likely events.
    """
    q = np.r_[0.0, scipy.special.ndtr(QUANTILES), 1.0]
    p = claim.boundary(q)
    return q, np.minimum(p, np.interp(q, 1.0 - p[::-1], 1.0 - q[::-1]))


def claimed_delta(claim: Claim, epsilons: FloatArray) -> FloatArray:
    """Return the smallest delta that the claim implies at each epsilon.

    Examples
    --------
    >>> from dpverify.stats.claims import gaussian
    >>> claimed_delta(gaussian(1.0), np.array([0.0, 1.0])).round(3).tolist()
    [0.383, 0.127]
    """
    q, p = allowed_pairs(claim)
    return np.maximum((p - np.exp(epsilons)[:, None] * q).max(axis=1), 0.0)
