"""Small systems whose Gibbs law can be integrated on a grid, and the grid."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chi2

from dpverify.estimation import System
from dpverify.util.arrays import enable_x64

BLOCK = 1 << 13


def stay(x):
    return x


def straight(x):
    return jnp.stack([x[0] + x[1], x[0] - 2 * x[1]])


def bent(x):
    return jnp.stack([x[0], 2 * (x[1] - x[0] ** 2)])


def squared(x):
    return x**2


def swing(x):
    return 0.9 * x + 0.2 * jnp.sin(2 * x)


def saturating(x):
    return 2 * jnp.tanh(x)


def rounded(x):
    return x + 0.05 * jnp.round(x)


def clipped(x):
    return jnp.clip(x, -2.0, 2.0)


QUADRATIC = System(f=stay, h=straight, start=(0.1, -0.1), lipschitz=1.0)
BANANA = System(f=stay, h=bent, start=(0.0, 0.0), lipschitz=1.0)
TWO_MODES = System(f=stay, h=squared, start=(0.0,), lipschitz=1.0)
CHAIN = System(f=swing, h=saturating, start=(0.2,), lipschitz=1.3)


def grid(mechanism, data, points):
    """Middles of a grid over K_0 and their probabilities, for window 0 and one released step."""
    ball = mechanism.sets(1)
    n, radius = mechanism.system.states, ball.radius[0]
    line = radius * (2 * np.arange(points) + 1 - points) / points
    z = ball.centre[0] + np.stack(np.meshgrid(*[line] * n, indexing="ij"), -1).reshape(-1, n)
    with enable_x64():
        h = np.asarray(jax.vmap(mechanism.system.h)(jnp.asarray(z)))
    cost = np.square(z - np.array(mechanism.system.start)).sum(1) / (2 * mechanism.tau)
    cost = cost + np.square(data[0] - h).sum(1) / 2
    inside = np.square(z - ball.centre[0]).sum(1) <= radius**2
    law = np.where(inside, np.exp((cost.min() - cost) / mechanism.kappa), 0.0)
    return z, law / law.sum()


def runs_of(mechanism, data, runs, seed):
    rng = np.random.default_rng(seed)
    return np.concatenate([np.asarray(mechanism(data, BLOCK, rng)) for _ in range(-(-runs // BLOCK))])[:runs]


def chi_square(points, law, samples, bins):
    """p-value of the samples (runs, n) against a law on points, over bins^n cells at the law's own quantiles."""
    codes, cells = 0, 0
    for j in range(samples.shape[1]):
        order = np.argsort(points[:, j], kind="stable")
        cuts = np.interp(np.arange(1, bins) / bins, np.cumsum(law[order]), points[order, j])
        lines = np.unique(points[:, j])
        edges = (lines[1:] + lines[:-1]) / 2  # cells are made of whole squares of the grid
        cuts = np.unique(edges[np.clip(np.searchsorted(edges, cuts), 0, len(edges) - 1)])
        codes, cells = codes * bins + np.digitize(points[:, j], cuts), cells * bins + np.digitize(samples[:, j], cuts)
    size = bins ** samples.shape[1]
    expected = len(samples) * np.bincount(codes, law, size)
    counts = np.bincount(cells, minlength=size)
    full = expected >= 20
    expected = np.append(expected[full], expected[~full].sum() + 1e-9)
    counts = np.append(counts[full], counts[~full].sum())
    if expected[-1] < 5:  # what is left over is too little for a cell of its own
        counts[-2], expected[-2] = counts[-2:].sum(), expected[-2:].sum()
        counts, expected = counts[:-1], expected[:-1]
    assert len(counts) >= 50
    return chi2.sf(np.sum(np.square(counts - expected) / expected), len(counts) - 1)
