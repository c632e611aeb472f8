"""Second implementations of gallery mechanisms, written from the descriptions alone.

They use other data structures and other algorithms than the gallery. Those of one run at a time have a dictionary of
tree nodes, a list of groups, explicit budgets. Those of many runs have the inverse distribution function, rejection,
and the solved recursion of the consensus.
"""

import math
import statistics

import numpy as np
from scipy.special import lambertw


def laplace(rng, scale):
    """One Laplace variable, as the difference of two exponential ones."""
    return scale * (rng.standard_exponential() - rng.standard_exponential())


def binary_counting(data, rng, scale):
    """The binary mechanism: p-sums of dyadic intervals, added up along the binary digits of the time."""
    noisy, estimates = {}, []
    for time in range(1, len(data) + 1):
        length = 1
        while time % length == 0:  # every dyadic interval that is complete now
            noisy[time - length, time] = math.fsum(data[time - length : time]) + laplace(rng, scale)
            length *= 2
        start, total = 0, 0.0
        for bit in reversed(range(time.bit_length())):
            if time >> bit & 1:
                total += noisy[start, start + (1 << bit)]
                start += 1 << bit
        estimates.append(total)
    return estimates


def triggered(data, rng, clipped):
    """DSAT with C 2, epsilon 1 and 0.8 for the decisions; the first value, the second, and the step of the second."""
    decisions, publications, most, steps = 0.8, 0.2, 2, len(data)
    threshold = 0.025 + laplace(rng, 2 / decisions)
    values, second_step = [data[0] + laplace(rng, most / publications)], None
    for step in range(2, steps + 1):
        if len(values) == most:
            break
        rate, target = len(values) / step, most / steps
        error = abs(rate - target)
        update = 0.5 * abs(error - 0.05) / 0.05
        if rate < target:
            threshold -= update
            if clipped and threshold < 0:
                threshold = 0.0
        else:
            threshold += update
            if clipped and threshold > 2:
                threshold = 2.0
        noisy_distance = abs(data[step - 1] - values[-1]) + laplace(rng, 2 * most / decisions)
        left = most - len(values)
        if noisy_distance >= threshold or steps - step + 1 <= left:
            values.append(data[step - 1] + laplace(rng, most / publications))
            second_step = step
    return [*values, second_step]


def pegasus(data, rng, epsilon=1.0):
    """PeGaSus with a list of groups."""
    for_groups = 0.2 * epsilon
    groups, noisy, threshold, released = [], [], None, []
    for time, count in enumerate(data):
        noisy.append(count + laplace(rng, 1 / (0.8 * epsilon)))
        extended = False
        if groups:
            members = [*groups[-1], time]
            mean = sum(data[i] for i in members) / len(members)
            deviation = sum(abs(data[i] - mean) for i in members)
            extended = deviation + laplace(rng, 8 / for_groups) < threshold
        if extended:
            groups[-1].append(time)
        else:
            groups.append([time])
            threshold = 5 / for_groups + laplace(rng, 4 / for_groups)
        released.append(statistics.median(noisy[i] for i in groups[-1]))
    return released


def absorption(data, rng, window, epsilon):
    """Budget absorption with counters: the shares that are available, and the steps that must be skipped."""
    share, last, available, to_skip, released = epsilon / (2 * window), 0.0, 0, 0, []
    for count in data:
        if to_skip:
            to_skip -= 1
        else:
            available = min(available + 1, window)
            budget = available * share
            if abs(last - count) + laplace(rng, 2 * window / epsilon) > 1 / budget:
                last = count + laplace(rng, 1 / budget)
                to_skip, available = available - 1, 0
        released.append(last)
    return released


def planar(data, runs, rng, epsilon):
    """Planar Laplace noise: the radius by the inverse of its distribution function, with the Lambert function."""
    radius = -(lambertw((rng.random(runs) - 1) / np.e, -1).real + 1) / epsilon
    direction = rng.standard_normal((runs, 2))
    return data + radius[:, None] * direction / np.linalg.norm(direction, axis=1, keepdims=True)


def bounded(data, runs, rng, scale, top):
    """Laplace noise that is drawn again until the output lies in [0, top]."""
    output = np.full(runs, -1.0)
    while (outside := np.flatnonzero((output < 0) | (output > top))).size:
        noise = rng.exponential(scale, (2, outside.size))
        output[outside] = data + noise[0] - noise[1]
    return output


def agreed(data, runs, rng, own_weight):
    """Consensus of three agents on a path (c 1, q 0.5, h 0.2): theta(k) is written as a sum over all earlier noise."""
    laplacian = np.diag([1.0, 2.0, 1.0]) - np.diag([1.0, 1.0], 1) - np.diag([1.0, 1.0], -1)
    move, steps = np.eye(3) - 0.2 * laplacian, 5  # theta(k+1) = move theta(k) + (s I - h L) eta(k)
    enter = own_weight * np.eye(3) - 0.2 * laplacian
    noise = rng.exponential(1.0, (2, runs, steps, 3))
    eta = (noise[0] - noise[1]) * 0.5 ** np.arange(steps)[:, None]
    messages = np.empty((runs, steps, 3))
    for k in range(steps):
        theta = np.linalg.matrix_power(move, k) @ data
        for j in range(k):
            theta = theta + eta[:, j] @ (np.linalg.matrix_power(move, k - 1 - j) @ enter).T
        messages[:, k] = theta + eta[:, k]
    return messages
