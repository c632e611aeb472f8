"""Mechanisms that several tests use. They are defined at the top level of a module, so that they can be pickled."""

import numpy as np


def laplace(data, runs, rng):
    return np.sum(data) + rng.laplace(scale=1.0, size=(runs, 1))


def laplace_half_noise(data, runs, rng):
    return np.sum(data) + rng.laplace(scale=0.5, size=(runs, 1))


def gaussian_trajectory(data, runs, rng):
    """Add standard normal noise to data of shape (K, d)."""
    return data + rng.standard_normal((runs, *np.shape(data)))


def fails_at_block_three(data, runs, rng):
    """Raise an exception in block 3 of the test runs of the second dataset."""
    if rng.bit_generator.seed_seq.spawn_key[:3] == (4, 1, 3):
        raise ZeroDivisionError("no such estimate")
    return laplace(data, runs, rng)


ZERO, ONE = np.array([0.0]), np.array([1.0])


def ignores_generator(data, runs, rng):
    """Laplace noise with a fixed seed, the same in every block: its counts are far apart, and prove nothing."""
    return laplace(data, runs, np.random.default_rng(5))
