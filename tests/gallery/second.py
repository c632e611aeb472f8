"""Second implementations of gallery mechanisms, one run at a time, written from the descriptions alone.

They use other data structures than the gallery: a dictionary of tree nodes, a list of groups, explicit budgets.
"""

import math
import statistics


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
