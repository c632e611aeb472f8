"""The small filter that the bugs about streams share."""

import numpy as np

GAIN, STEPS = 0.5, 5


def estimates(readings, gain=GAIN, correct=lambda innovation: innovation):
    """Return the estimates of a filter with a constant gain, and its innovations."""
    state, states, innovations = 0.0, [], []
    for reading in readings:
        innovations.append(reading - state)
        state += gain * correct(innovations[-1])
        states.append(state)
    return np.array(states), np.array(innovations)


def shift(first, second):
    """Return by how much two trajectories differ in the sum of their absolute values."""
    return float(np.abs(first - second).sum())


def one_reading(steps=STEPS, size=1.0, step=1):
    """Return two recordings that differ in one reading."""
    first = np.zeros(steps)
    second = first.copy()
    second[step] += size
    return first, second
