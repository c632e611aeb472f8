"""What a bound on Renyi divergences allows for the probabilities of one event (docs/method.md, section 5.10).

A divergence of two output distributions is at least the divergence of the two probabilities `p` and `q` of an event. So
a claimed divergence bounds p, given q. Every result is rounded up: a claim that holds is never violated by rounding.
"""

from __future__ import annotations

import numpy as np

from dpverify.stats.binomial import FloatArray

BISECTIONS = 46  # of an interval of length 1 at most
MIN_LOG = -700.0  # of a probability; smaller ones are treated like this one
LARGEST_BELOW_ONE = 1.0 - 1e-16
LOG_ORDERS = np.arange(-15.0, 14.5, 2.0)  # ln(order - 1) of the orders from which the search for the best one starts
# Rounds of that search: the offsets of ln(order - 1) from the best one so far, and the number of bisections.
SEARCH_ROUNDS = ((LOG_ORDERS, 28), (np.linspace(-2.0, 2.0, 17), 34), (np.linspace(-0.25, 0.25, 9), BISECTIONS))
ROUNDING = 1e-13  # relative; the results are raised by it
ROUNDING_ERROR = 4e-16  # relative; of the terms of a divergence


def renyi_divergence(p: FloatArray, q: FloatArray, order: FloatArray | float) -> FloatArray:
    """Return the Renyi divergence of two events with probabilities p and q, for probabilities strictly inside (0, 1).

    Examples
    --------
    >>> round(float(renyi_divergence(np.array(0.5), np.array(0.25), 2.0)), 4)
    0.2877
    """
    inside = order * np.log(p) + (1.0 - order) * np.log(q)
    outside = order * np.log1p(-p) + (1.0 - order) * np.log1p(-q)
    return np.logaddexp(inside, outside) / (order - 1.0)


def renyi_boundary(
    q: FloatArray, order: FloatArray | float, epsilon: FloatArray | float, bisections: int = BISECTIONS
) -> FloatArray:
    """Return the largest p whose Renyi divergence of the given order from q is at most epsilon; arguments broadcast.

    Examples
    --------
    >>> renyi_boundary(np.array([0.0, 0.25, 0.9]), 2.0, 0.2877).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    q, order, epsilon = np.broadcast_arrays(q, order, epsilon)
    log_q = np.log(np.maximum(q, np.exp(MIN_LOG)))
    # One of the two terms of the divergence alone gives an upper limit of p.
    high = np.exp(np.minimum((order - 1.0) / order * (epsilon + log_q), 0.0))
    certain = (high >= 1.0) | (q >= 1.0)
    low, high = np.where(certain, 0.5, np.minimum(q, high)), np.where(certain, 0.5, high)
    inner_q = np.where(certain, 0.5, np.clip(q, np.exp(MIN_LOG), LARGEST_BELOW_ONE))
    inside_q, outside_q = (1.0 - order) * np.log(inner_q), (1.0 - order) * np.log1p(-inner_q)
    for _ in range(bisections):
        middle = np.clip((low + high) / 2.0, np.exp(MIN_LOG), LARGEST_BELOW_ONE)
        # The logarithms of the two terms of e^((order-1) divergence): of the event and of its complement.
        inside, outside = order * np.log(middle) + inside_q, order * np.log1p(-middle) + outside_q
        tolerance = ROUNDING_ERROR * (np.abs(inside) + np.abs(outside))
        allowed = np.logaddexp(inside, outside) <= (order - 1.0) * epsilon + tolerance
        low, high = np.where(allowed, middle, low), np.where(allowed, high, middle)
    p = np.where(certain, 1.0, np.minimum(1.0, high * (1.0 + ROUNDING)))
    return np.where(q <= 0.0, 0.0, p)


def zcdp_boundary(q: FloatArray, rho: float) -> FloatArray:
    """Return the largest p that rho-zero-concentrated privacy allows: for all orders a the divergence is at most rho a.

    Every order gives an upper limit of p, so the search for the best order needs no guarantee.

    Examples
    --------
    >>> zcdp_boundary(np.array([0.0, 0.3, 1.0]), 0.5).round(3).tolist()
    [0.0, 0.784, 1.0]
    """
    column = np.ravel(np.asarray(q, float))[:, None]
    best = step = np.zeros_like(column)
    p = below = middle = above = np.ones_like(column)
    for offsets, bisections in SEARCH_ROUNDS:
        log_orders = best + offsets
        orders = 1.0 + np.exp(log_orders)
        p = renyi_boundary(column, orders, rho * orders, bisections)
        index = np.clip(p.argmin(axis=1), 1, len(offsets) - 2)[:, None]
        below, middle, above = (np.take_along_axis(p, index + shift, axis=1) for shift in (-1, 0, 1))
        best, step = np.take_along_axis(log_orders, index, axis=1), offsets[1] - offsets[0]
    # The last order is the vertex of the parabola through the three best points.
    curvature = below - 2.0 * middle + above
    vertex = np.where(curvature > 0.0, (below - above) / np.where(curvature > 0.0, 2.0 * curvature, 1.0), 0.0)
    order = 1.0 + np.exp(best + step * np.clip(vertex, -1.0, 1.0))
    p = np.minimum(p.min(axis=1), renyi_boundary(column, order, rho * order)[:, 0])
    return p.reshape(np.shape(q))
