"""Mechanisms that several tests share; at the top of a module, so that they pickle."""

import numpy as np


def laplace(data, runs, rng):
    return np.sum(data) + rng.laplace(scale=1.0, size=(runs, 1))


def laplace_half_noise(data, runs, rng):
    return np.sum(data) + rng.laplace(scale=0.5, size=(runs, 1))


def gaussian_trajectory(data, runs, rng):
    """(K, d) data plus standard normal noise."""
    return data + rng.standard_normal((runs, *np.shape(data)))


def fails_at_block_three(data, runs, rng):
    """Raises in the fourth block that any process draws from a generator seeded for block 3 of the test runs."""
    if rng.bit_generator.seed_seq.spawn_key == (4, 1, 3):
        raise ZeroDivisionError("no such estimate")
    return laplace(data, runs, rng)


ZERO, ONE = np.array([0.0]), np.array([1.0])
