"""Thresholds for counts of rare outcomes: exact binomial limits, never tuned."""

from scipy.stats import binom


def most(trials: int, level: float, sure: float = 0.999) -> int:
    """A number of outcomes of probability `level` that is exceeded with probability at most 1 - `sure`."""
    return int(binom.ppf(sure, trials, level))


def least(trials: int, level: float, sure: float = 0.999) -> int:
    return int(binom.ppf(1 - sure, trials, level))
