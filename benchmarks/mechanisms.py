"""Published mechanisms, correct and incorrect ones, with their known epsilon and the pairs of datasets to test.

Each mechanism is implemented from its description as (data, runs, rng) -> array. The data are vectors of integers, and
the noise is scaled for EPS0 = 0.1. bench_mechanisms.py measures them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

EPS0 = 0.1


def single(n):
    """Return pairs of datasets that differ by 1 in one component."""
    ones = np.ones(n)
    return [(ones, np.concatenate([[0.0], ones[1:]])), (ones, np.concatenate([[2.0], ones[1:]]))]


def component_wise(n):
    """Return pairs of datasets that differ by at most 1 in every component."""
    ones, h = np.ones(n), n // 2
    others = [
        np.concatenate([[2.0], np.zeros(n - 1)]),
        np.concatenate([[0.0], np.full(n - 1, 2.0)]),
        np.concatenate([np.full(h, 2.0), np.zeros(n - h)]),
        np.full(n, 2.0),
        np.zeros(n),
    ]
    halves = np.concatenate([np.ones(h), np.zeros(n - h)]), np.concatenate([np.zeros(h), np.ones(n - h)])
    return single(n) + [(ones, other) for other in others] + [halves]


def laplace(data, runs, rng):
    """Add Laplace noise to the data."""
    return data + rng.laplace(scale=1 / EPS0, size=(runs, 1))


def laplace_parallel(data, runs, rng):
    """Add Laplace noise to the data 20 times; together they have epsilon EPS0."""
    return data + rng.laplace(scale=20 / EPS0, size=(runs, 20))


def noisy_hist_1(data, runs, rng):
    """Add Laplace noise to each component."""
    return data + rng.laplace(scale=1 / EPS0, size=(runs, data.size))


def noisy_hist_2(data, runs, rng):
    """Add Laplace noise with the inverse scale by mistake."""
    return data + rng.laplace(scale=EPS0, size=(runs, data.size))


def rnm_1(data, runs, rng):
    """Report the index of the noisy maximum, with Laplace noise."""
    return np.argmax(data + rng.laplace(scale=2 / EPS0, size=(runs, data.size)), axis=1)


def rnm_2(data, runs, rng):
    """Report the index of the noisy maximum, with exponential noise."""
    return np.argmax(data + rng.exponential(scale=2 / EPS0, size=(runs, data.size)), axis=1)


def rnm_3(data, runs, rng):
    """Report the noisy maximum itself by mistake, with Laplace noise."""
    return np.max(data + rng.laplace(scale=2 / EPS0, size=(runs, data.size)), axis=1)


def rnm_4(data, runs, rng):
    """Report the noisy maximum itself by mistake, with exponential noise."""
    return np.max(data + rng.exponential(scale=2 / EPS0, size=(runs, data.size)), axis=1)


def svt_1(data, runs, rng, c=1, t=0.5):
    """Sparse vector technique: 1 above the noisy threshold, 0 below, -1 after c ones."""
    rho = rng.laplace(scale=2 / EPS0, size=(runs, 1))
    above = data + rng.laplace(scale=4 * c / EPS0, size=(runs, data.size)) >= t + rho
    stopped = np.cumsum(above, axis=1) - above >= c
    return np.where(stopped, -1, above).astype(np.int8)


def svt_3(data, runs, rng, c=1, t=1.0):
    """Sparse vector technique with half the query noise, which reports the noisy value itself if it is above."""
    rho = rng.laplace(scale=2 / EPS0, size=(runs, 1))
    noisy = data + rng.laplace(scale=2 * c / EPS0, size=(runs, data.size))
    above = noisy >= t + rho
    stopped = np.cumsum(above, axis=1) - above >= c
    # The codes for "below" (-2e6) and "stopped" (-1e6) are far from any noisy value.
    return np.where(stopped, -1e6, np.where(above, noisy, -2e6))


def svt_5(data, runs, rng, t=1.0):
    """Sparse vector technique without query noise, which never stops."""
    return (data >= t + rng.laplace(scale=2 / EPS0, size=(runs, 1))).astype(np.int8)


def prefix_sum(data, runs, rng):
    """Report the prefix sums of the noisy components."""
    return np.cumsum(data + rng.laplace(scale=1 / EPS0, size=(runs, data.size)), axis=1)


BITS = {0: (0, 6, 11, 16), 1: (0, 5, 10, 15), 2: (0, 7, 12, 17)}  # four distinct bits for each value; six bits differ


def one_time_rappor(data, runs, rng, f=0.95):
    """Report a 20-bit Bloom filter of the value; each bit is replaced by a random bit with probability f."""
    bits = np.zeros(20, bool)
    bits[list(BITS[int(data[0])])] = True
    u = rng.random((runs, 20))
    return np.where(u < f / 2, True, np.where(u < f, False, bits)).astype(np.int8)


@dataclass(frozen=True)
class Row:
    """A mechanism of the table.

    Attributes
    ----------
    name, mechanism : str, callable
        Name and implementation.
    pairs : list of tuple of ndarray
        The pairs of datasets among which the worst is searched.
    claimed, exact : float
        Claimed and exact epsilon.
    oracle : float
        The lower bound that the best possible event would give from 2e7 test runs.
    goal : float
        The lower bound that this library is required to reach.
    sniper, statdp : float or None
        Published results of DP-Sniper and StatDP.
    """

    name: str
    mechanism: Callable[[np.ndarray, int, np.random.Generator], np.ndarray]
    pairs: list[tuple[np.ndarray, np.ndarray]]
    claimed: float
    exact: float
    oracle: float
    goal: float
    sniper: float | None = None
    statdp: float | None = None


ROWS = [
    Row("Laplace", laplace, single(1), 0.1, 0.1, 0.0992, 0.97 * 0.0992, 0.0976, 0.0998),
    Row("LaplaceParallel", laplace_parallel, single(1), 0.1, 0.1, 0.0529, 0.047, 0.0350, 0.0135),
    Row("NoisyHist1", noisy_hist_1, single(5), 0.1, 0.1, 0.0992, 0.97 * 0.0992, 0.0978, 0.0994),
    Row("NoisyHist2", noisy_hist_2, single(5), 0.1, 10.0, 9.922, 9.7, 4.602, 9.717),
    Row("RNM1", rnm_1, component_wise(5), 0.1, 0.0946, 0.0931, 0.97 * 0.0931, 0.0925, 0.0921),
    Row("RNM2", rnm_2, component_wise(5), 0.1, 0.1, 0.0986, 0.97 * 0.0986, 0.0979, 0.0997),
    Row("RNM3", rnm_3, component_wise(5), 0.1, 0.25, 0.2456, 0.97 * 0.2456, 0.2488, 0.1991),
    Row("RNM4", rnm_4, component_wise(5), 0.1, math.inf, 2.67, 2.0, 0.3534, 0.1988),
    Row("SVT1", svt_1, component_wise(10), 0.1, 0.0885, 0.0836, 0.97 * 0.0836, 0.0858, 0.0298),
    Row("SVT3", svt_3, component_wise(10), 0.1, 0.5, 0.3103, 0.28, 0.1822, 0.1793),
    Row("SVT5", svt_5, component_wise(10), 0.1, math.inf, 12.7, 11.0, 1.7612, 14.31),
    Row("PrefixSum", prefix_sum, component_wise(10), 0.1, 1.0, 0.967, 0.955, 0.5774, 0.3516),
    Row("OneTimeRAPPOR", one_time_rappor, single(1), 0.8007, 0.6005, 0.5946, 0.97 * 0.5946, 0.5999, 0.4706),
]
