"""Small systems whose Gibbs distribution can be integrated on a grid, and tests of samples against the grid."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chi2

from dpverify.estimation import System
from dpverify.util.arrays import enable_x64

BLOCK = 1 << 13


def identity(x):
    return x


def linear(x):
    return jnp.stack([x[0] + x[1], x[0] - 2 * x[1]])


def curved(x):
    return jnp.stack([x[0], 2 * (x[1] - x[0] ** 2)])


def squared(x):
    return x**2


def nonlinear_step(x):
    return 0.9 * x + 0.2 * jnp.sin(2 * x)


def saturating(x):
    return 2 * jnp.tanh(x)


def rounded(x):
    return x + 0.05 * jnp.round(x)


def clipped(x):
    return jnp.clip(x, -2.0, 2.0)


QUADRATIC = System(f=identity, h=linear, start=(0.1, -0.1), lipschitz=1.0)
BANANA = System(f=identity, h=curved, start=(0.0, 0.0), lipschitz=1.0)
TWO_MODES = System(f=identity, h=squared, start=(0.0,), lipschitz=1.0)
CHAIN = System(f=nonlinear_step, h=saturating, start=(0.2,), lipschitz=1.3)


def grid(mechanism, data, points):
    """Return the midpoints of a grid over K_0 and their probabilities, for window 0 and one released step."""
    ball = mechanism.sets(1)
    n, radius = mechanism.system.states, ball.radius[0]
    line = radius * (2 * np.arange(points) + 1 - points) / points
    z = ball.centre[0] + np.stack(np.meshgrid(*[line] * n, indexing="ij"), -1).reshape(-1, n)
    with enable_x64():
        h = np.asarray(jax.vmap(mechanism.system.h)(jnp.asarray(z)))
    cost = np.square(z - np.array(mechanism.system.start)).sum(1) / (2 * mechanism.tau)
    cost = cost + np.square(data[0] - h).sum(1) / 2
    inside = np.square(z - ball.centre[0]).sum(1) <= radius**2
    probability = np.where(inside, np.exp((cost.min() - cost) / mechanism.kappa), 0.0)
    return z, probability / probability.sum()


def draw_runs(mechanism, data, runs, seed):
    """Draw this number of runs in blocks of a fixed size."""
    rng = np.random.default_rng(seed)
    return np.concatenate([np.asarray(mechanism(data, BLOCK, rng)) for _ in range(-(-runs // BLOCK))])[:runs]


def chi_square(points, probability, samples, bins):
    """Return the p-value of samples (runs, n) against probabilities of grid points.

    The test uses bins^n cells whose edges are quantiles of the distribution on the grid.
    """
    point_cells, sample_cells = 0, 0
    for j in range(samples.shape[1]):
        order = np.argsort(points[:, j], kind="stable")
        cuts = np.interp(np.arange(1, bins) / bins, np.cumsum(probability[order]), points[order, j])
        lines = np.unique(points[:, j])
        edges = (lines[1:] + lines[:-1]) / 2  # a cell is a union of grid squares
        cuts = np.unique(edges[np.clip(np.searchsorted(edges, cuts), 0, len(edges) - 1)])
        point_cells = point_cells * bins + np.digitize(points[:, j], cuts)
        sample_cells = sample_cells * bins + np.digitize(samples[:, j], cuts)
    size = bins ** samples.shape[1]
    expected = len(samples) * np.bincount(point_cells, probability, size)
    counts = np.bincount(sample_cells, minlength=size)
    large = expected >= 20
    expected = np.append(expected[large], expected[~large].sum() + 1e-9)
    counts = np.append(counts[large], counts[~large].sum())
    if expected[-1] < 5:  # too few for a separate cell
        counts[-2], expected[-2] = counts[-2:].sum(), expected[-2:].sum()
        counts, expected = counts[:-1], expected[:-1]
    assert len(counts) >= 50
    return chi2.sf(np.sum(np.square(counts - expected) / expected), len(counts) - 1)
